//! An API server that enforces RBAC: a service before the simulated one, which trusts everybody.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use kproxide_simulator::kube::{Body, KubeService};
use serde_json::json;
use tower::Service;

use crate::rules::{Asked, Permission};

/// Clones share what they have seen.
#[derive(Clone)]
pub(crate) struct Guard {
    behind: KubeService,
    permissions: Arc<BTreeSet<Permission>>,
    seen: Arc<Mutex<Seen>>,
}

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The permissions that let a request through.
    pub(crate) used: BTreeSet<Permission>,
    pub(crate) denied: BTreeSet<Asked>,
}

impl Guard {
    pub(crate) fn before(behind: KubeService, permissions: &BTreeSet<Permission>) -> Self {
        Self {
            behind,
            permissions: Arc::new(permissions.clone()),
            seen: Arc::default(),
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The refusal, if it is one.
    fn judge(&self, asked: Asked) -> Result<(), Asked> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.permissions.iter();
        match all.find(|permission| asked.is_granted_by(permission)) {
            Some(permission) => {
                seen.used.insert(permission.clone());
                Ok(())
            }
            None => {
                seen.denied.insert(asked.clone());
                Err(asked)
            }
        }
    }
}

impl Service<Request<Bytes>> for Guard {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.behind.poll_ready(context)
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let asked = Asked::of(request.method(), request.uri());
        match asked.map_or(Ok(()), |asked| self.judge(asked)) {
            Ok(()) => self.behind.call(request),
            Err(asked) => Box::pin(std::future::ready(Ok(refusal(&asked)))),
        }
    }
}

fn refusal(asked: &Asked) -> Response<Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("forbidden: User \"system:serviceaccount:kube-system:kproxide\" {asked}"),
    });
    let mut response = Response::new(Body::from(Bytes::from(status.to_string())));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("application/json"),
    );
    response
}
