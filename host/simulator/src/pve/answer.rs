//! The HTTP dress of the API: what a request carries, and how results and refusals look on the wire.
//!
//! Proxmox answers in its own way: every failure that is not a parameter or permission error is a 500 whose text is the
//! only information, some answers have empty bodies, and the reason phrase repeats the text. Source: recorded answers.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::ext::ReasonPhrase;
use serde_json::{Map, Value, json};

/// What a handler returns: the value for `data`, or why there is none.
pub(crate) type Answer = Result<Reply, Refusal>;

/// A successful answer.
pub(crate) struct Reply {
    data: Value,
    /// The length of the whole list, which task lists and task logs carry beside `data`.
    total: Option<usize>,
}

impl From<Value> for Reply {
    fn from(data: Value) -> Reply {
        Reply { data, total: None }
    }
}

impl Reply {
    pub(crate) fn null() -> Reply {
        Value::Null.into()
    }

    pub(crate) fn page(data: Vec<Value>, total: usize) -> Reply {
        Reply {
            data: data.into(),
            total: Some(total),
        }
    }

    pub(crate) fn data(&self) -> &Value {
        &self.data
    }

    fn into_response(self) -> Response<Bytes> {
        let mut body = Map::from_iter([("data".to_owned(), self.data)]);
        if let Some(total) = self.total {
            body.insert("total".to_owned(), total.into());
        }
        json_response(StatusCode::OK, "OK", &body.into())
    }
}

/// An answer other than 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 400: parameter name → what is wrong with it.
    Parameters(BTreeMap<String, String>),
    /// 401, empty body, after a delay.
    Unauthorized(&'static str),
    /// 403: the part in brackets, empty for none.
    Forbidden(String),
    /// 500, which Proxmox uses for everything else: not found, exists, locked, timeout, no quorum.
    Failed(String),
    /// 501 for a path that does not exist.
    NoSuchMethod(String),
    /// 501 of the HTTP server itself, with a plain text body.
    NotAccepted(String),
    /// 501 of the HTTP server itself for a verb it does not know, without a body.
    UnknownVerb(String),
    /// 595 and 596: another server could not be asked on the client's behalf. Empty body.
    Forwarding(u16, &'static str),
}

impl Refusal {
    /// A 500 with this text.
    pub(crate) fn failed(text: impl Into<String>) -> Refusal {
        Refusal::Failed(text.into())
    }

    /// A 400 about one parameter.
    pub(crate) fn parameter(name: &str, text: impl Into<String>) -> Refusal {
        Refusal::Parameters(BTreeMap::from([(name.to_owned(), text.into())]))
    }

    /// The text a person would read: the reason phrase.
    pub(crate) fn text(&self) -> String {
        match self {
            Refusal::Parameters(_) => "Parameter verification failed.".into(),
            Refusal::Unauthorized(text) | Refusal::Forwarding(_, text) => (*text).into(),
            Refusal::Forbidden(detail) if detail.is_empty() => "Permission check failed".into(),
            Refusal::Forbidden(detail) => format!("Permission check failed ({detail})"),
            Refusal::Failed(text)
            | Refusal::NoSuchMethod(text)
            | Refusal::NotAccepted(text)
            | Refusal::UnknownVerb(text) => text.clone(),
        }
    }

    /// How a task ends with it.
    pub(crate) fn of_task(&self) -> String {
        match self {
            Refusal::Forbidden(_) => format!("403 {}", self.text()),
            Refusal::Parameters(_)
            | Refusal::Unauthorized(_)
            | Refusal::Failed(_)
            | Refusal::NoSuchMethod(_)
            | Refusal::NotAccepted(_)
            | Refusal::UnknownVerb(_)
            | Refusal::Forwarding(..) => self.text(),
        }
    }

    /// The status code.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Refusal::Parameters(_) => 400,
            Refusal::Unauthorized(_) => 401,
            Refusal::Forbidden(_) => 403,
            Refusal::Failed(_) => 500,
            Refusal::NoSuchMethod(_) | Refusal::NotAccepted(_) | Refusal::UnknownVerb(_) => 501,
            Refusal::Forwarding(status, _) => *status,
        }
    }

    fn into_response(self) -> Response<Bytes> {
        let status =
            StatusCode::from_u16(self.status()).expect("every refusal has a three-digit status");
        let text = self.text();
        let reason = text.lines().next().unwrap_or_default().to_owned();
        match self {
            Refusal::Unauthorized(_) | Refusal::Forwarding(..) | Refusal::UnknownVerb(_) => {
                response(status, &reason, None, Bytes::new())
            }
            Refusal::NotAccepted(text) => response(status, &reason, None, text.into()),
            Refusal::NoSuchMethod(text) => {
                json_response(status, &reason, &json!({"data": null, "message": text}))
            }
            Refusal::Parameters(errors) => {
                let errors: Map<String, Value> =
                    errors.into_iter().map(|(k, v)| (k, v.into())).collect();
                let body = json!({"data": null, "message": format!("{text}\n"), "errors": errors});
                json_response(status, &reason, &body)
            }
            Refusal::Forbidden(_) | Refusal::Failed(_) => json_response(
                status,
                &reason,
                &json!({"data": null, "message": format!("{text}\n")}),
            ),
        }
    }
}

/// The response for an answer.
pub(crate) fn respond(answer: Answer) -> Response<Bytes> {
    match answer {
        Ok(reply) => reply.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// A JSON response with Proxmox's headers and the given reason phrase.
pub(crate) fn json_response(status: StatusCode, reason: &str, body: &Value) -> Response<Bytes> {
    let kind = HeaderValue::from_static("application/json;charset=UTF-8");
    let body = serde_json::to_vec(body).expect("a JSON value serializes");
    response(status, reason, Some(kind), body.into())
}

fn response(
    status: StatusCode,
    reason: &str,
    kind: Option<HeaderValue>,
    body: Bytes,
) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::SERVER,
        HeaderValue::from_static("pve-api-daemon/3.0"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    if let Some(kind) = kind {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    if status.as_u16() >= 400 {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes().to_vec()) {
        response.extensions_mut().insert(reason);
    }
    response
}

/// Parameters by name. A name that was sent several times keeps all its values, which is how arrays are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params(BTreeMap<String, Vec<String>>);

impl Params {
    /// All parameters of a request: query and body. The query wins where both name one.
    pub(crate) fn of(request: &Request<Bytes>) -> Result<Params, Refusal> {
        let mut params = if request.body().is_empty() {
            Params::default()
        } else if is_json(request.headers()) {
            Params::from_json(request.body())?
        } else {
            Params::from_form(&String::from_utf8_lossy(request.body()))
        };
        let query = Params::from_form(request.uri().query().unwrap_or_default());
        params.0.extend(query.0);
        Ok(params)
    }

    fn from_form(text: &str) -> Params {
        let mut params = Params::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = percent_decode(name, true);
            params
                .0
                .entry(name)
                .or_default()
                .push(percent_decode(value, true));
        }
        params
    }

    fn from_json(body: &[u8]) -> Result<Params, Refusal> {
        let broken =
            |error: serde_json::Error| Refusal::failed(format!("malformed JSON string: {error}"));
        let object: Map<String, Value> = serde_json::from_slice(body).map_err(broken)?;
        let plain = |value: Value| match value {
            Value::Null => String::new(),
            Value::Bool(on) => u8::from(on).to_string(),
            Value::String(text) => text,
            Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
        };
        let values = |value| match value {
            Value::Array(items) => items.into_iter().map(plain).collect(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => vec![plain(value)],
        };
        Ok(Params(
            object.into_iter().map(|(k, v)| (k, values(v))).collect(),
        ))
    }

    /// The value of a parameter; of one that was sent several times, the last.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .and_then(|values| values.last())
            .map(String::as_str)
    }

    /// All values of an array parameter.
    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// A parameter that the check found to be an integer.
    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(|value| value.trim().parse().ok())
    }

    /// A parameter that the check found to be a boolean.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name)
            .map(|value| matches!(value, "1" | "on" | "yes" | "true"))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0
            .iter()
            .map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// Replaces a parameter.
    #[cfg(test)]
    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.0.insert(name.to_owned(), vec![value]);
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

/// Whether the server takes a body with this method.
pub(crate) fn takes_body(method: &Method) -> bool {
    *method == Method::POST || *method == Method::PUT
}

/// Decodes `%41`, and `+` as a space where forms do. What is no valid escape stays as it is.
pub(crate) fn percent_decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |offset: usize| {
            bytes
                .get(at + offset)
                .and_then(|b| char::from(*b).to_digit(16))
        };
        match (bytes[at], hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            (b'+', _, _) if plus_is_space => {
                decoded.push(b' ');
                at += 1;
            }
            (byte, _, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(kind: &str, uri: &str, body: &str) -> Params {
        let request = Request::post(uri)
            .header(header::CONTENT_TYPE, kind)
            .body(Bytes::from(body.to_owned()))
            .unwrap();
        Params::of(&request).unwrap()
    }

    #[test]
    fn form_and_query_are_merged_and_decoded() {
        let params = post(
            "application/x-www-form-urlencoded",
            "/x?poolid=k8s",
            "name=a%2Bb+c&command=a&command=b",
        );
        assert_eq!(params.get("poolid"), Some("k8s"));
        assert_eq!(params.get("name"), Some("a+b c"));
        assert_eq!(params.all("command"), ["a", "b"]);
    }

    #[test]
    fn json_booleans_and_numbers_become_text() {
        let params = post(
            "application/json",
            "/x",
            r#"{"onboot":true,"cores":2,"command":["echo","hi"]}"#,
        );
        assert_eq!(params.flag("onboot"), Some(true));
        assert_eq!(params.integer("cores"), Some(2));
        assert_eq!(params.all("command"), ["echo", "hi"]);
    }

    #[test]
    fn failure_text_is_in_body_and_reason_phrase() {
        let response = respond(Err(Refusal::failed("VM is locked (clone)")));
        assert_eq!(response.status(), 500);
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(
            body,
            json!({"data": null, "message": "VM is locked (clone)\n"})
        );
        let reason = response.extensions().get::<ReasonPhrase>().unwrap();
        assert_eq!(reason.as_bytes(), b"VM is locked (clone)");
    }

    #[test]
    fn forwarding_failures_have_no_body() {
        let response = respond(Err(Refusal::Forwarding(595, "No route to host")));
        assert_eq!(
            (response.status().as_u16(), response.body().len()),
            (595, 0)
        );
    }
}
