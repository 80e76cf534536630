//! A small in-process server for this module's tests: answers by a function, and remembers what it was asked.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it should be"
)]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use hyper::ext::ReasonPhrase;
use serde_json::Value;

use super::auth::{CredentialSource, Credentials};
use super::client::Client;
use super::limits::Concurrency;
use super::transport::{Endpoint, TransportError};

pub(super) type Answer = Result<Response<Bytes>, TransportError>;

/// What a server was asked, as `METHOD uri`, with the whole request.
#[derive(Clone, Default)]
pub(super) struct Asked(Arc<Mutex<Vec<Request<Bytes>>>>);

impl Asked {
    pub(super) fn lines(&self) -> Vec<String> {
        self.requests()
            .iter()
            .map(|request| format!("{} {}", request.method(), request.uri()))
            .collect()
    }

    pub(super) fn requests(&self) -> Vec<Request<Bytes>> {
        self.0.lock().unwrap().clone()
    }
}

/// An endpoint that answers with `answer`.
pub(super) fn endpoint(
    name: &str,
    answer: impl Fn(&Request<Bytes>) -> Answer + Send + Sync + 'static,
) -> (Endpoint, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Bytes>| {
        let given = answer(&request);
        log.0.lock().unwrap().push(request);
        async move { given }
    });
    (Endpoint::new(name, service), asked)
}

/// A successful answer with `data`.
pub(super) fn data(data: Value) -> Answer {
    answer(200, "OK", serde_json::json!({ "data": data }))
}

/// An error as current versions send it.
pub(super) fn refusal(status: u16, message: &str) -> Answer {
    answer(
        status,
        message,
        serde_json::json!({ "data": null, "message": format!("{message}\n") }),
    )
}

/// An answer without body: 401 and from 595 on.
pub(super) fn bare(status: u16, reason: &str) -> Answer {
    answer(status, reason, Value::Null)
}

/// Any answer; a null body is an empty one, a string body is plain text.
pub(super) fn answer(status: u16, reason: &str, body: Value) -> Answer {
    let body = match body {
        Value::Null => Bytes::new(),
        Value::String(text) => Bytes::from(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Bytes::from(body.to_string())
        }
    };
    let mut response = Response::builder().status(status).body(body).unwrap();
    if let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes()) {
        response.extensions_mut().insert(reason);
    }
    Ok(response)
}

pub(super) fn token() -> CredentialSource {
    Arc::new(|| Credentials::token("aut@pve!full", "secret"))
}

/// A client with a token.
pub(super) fn client(endpoints: Vec<Endpoint>) -> Client {
    Client::new(endpoints, token(), Concurrency::default())
}

/// A client of one server.
pub(super) fn one(
    answer: impl Fn(&Request<Bytes>) -> Answer + Send + Sync + 'static,
) -> (Client, Asked) {
    let (endpoint, asked) = endpoint("pve1", answer);
    (client(vec![endpoint]), asked)
}

/// Undoes percent-encoding.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((plain, coded)) = rest.split_once('%') {
        bytes.extend(plain.bytes());
        bytes.push(u8::from_str_radix(&coded[..2], 16).unwrap());
        rest = &coded[2..];
    }
    bytes.extend(rest.bytes());
    String::from_utf8(bytes).unwrap()
}
