//! An API server that knows one Lease, for tests: each request takes effect and is answered as its client's line has it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::BoxError;

use super::Client;

#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    pub(super) lease: Option<Value>,
    pub(super) version: u64,
    /// Requests on their way, by when they take effect: they do so even if nobody waits for the answer any more.
    coming: BTreeMap<(Instant, u64), (Method, Value)>,
    answers: BTreeMap<u64, (StatusCode, Value)>,
    requests: u64,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    /// It takes effect after so long; `None`: never.
    pub(super) there: Option<Duration>,
    /// Its answer arrives after so long; `None`: never.
    pub(super) back: Option<Duration>,
}

impl Way {
    pub(super) const PROMPT: Self = Self {
        there: Some(Duration::ZERO),
        back: Some(Duration::ZERO),
    };
}

impl Server {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client whose requests go the ways that `way` names, one after the other.
    pub(super) fn client(&self, way: impl Fn(&Method) -> Way + Send + Sync + 'static) -> Client {
        let (server, way) = (self.clone(), Arc::new(way));
        Client::from_service(tower::service_fn(move |request: Request<Body>| {
            let (server, way) = (server.clone(), way(request.method()));
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect().await?.to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let Some(there) = way.there else {
                    return std::future::pending().await;
                };
                let due = Instant::now() + there;
                let number = server.state().take(due, method, body);
                tokio::time::sleep_until(due).await;
                let Some((status, answer)) = server.state().settle(number) else {
                    return std::future::pending().await;
                };
                match way.back {
                    Some(Duration::ZERO) => {}
                    Some(back) => tokio::time::sleep(back).await,
                    None => std::future::pending::<()>().await,
                }
                let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
                *response.status_mut() = status;
                Ok::<_, BoxError>(response)
            }
        }))
    }
}

impl State {
    fn take(&mut self, due: Instant, method: Method, body: Value) -> u64 {
        self.requests += 1;
        self.coming.insert((due, self.requests), (method, body));
        self.requests
    }

    /// Everything that is due takes effect, in order; the answer to this one.
    fn settle(&mut self, number: u64) -> Option<(StatusCode, Value)> {
        let later = self.coming.split_off(&(Instant::now(), u64::MAX));
        for ((_, of), (method, body)) in std::mem::replace(&mut self.coming, later) {
            let answer = self.answer(&method, body);
            self.answers.insert(of, answer);
        }
        self.answers.remove(&number)
    }

    fn answer(&mut self, method: &Method, mut body: Value) -> (StatusCode, Value) {
        let failure = |code: StatusCode, reason: &str| {
            let status = json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": reason});
            (code, status)
        };
        match (method.as_str(), &self.lease) {
            ("GET", Some(lease)) => return (StatusCode::OK, lease.clone()),
            ("GET" | "PUT", None) => return failure(StatusCode::NOT_FOUND, "NotFound"),
            ("POST", Some(_)) => return failure(StatusCode::CONFLICT, "AlreadyExists"),
            ("PUT", Some(lease))
                if lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] =>
            {
                return failure(StatusCode::CONFLICT, "Conflict");
            }
            _ => {}
        }
        self.version += 1;
        body["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(body.clone());
        (StatusCode::OK, body)
    }
}
