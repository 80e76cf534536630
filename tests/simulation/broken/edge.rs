//! Mistakes that need no line of the program: what its clients ask and are told is altered on the way, and what it is told to keep to.
//!
//! ```text
//! program ─► Edge (asks or sees something else) ─► Wire (log, faults) ─► server
//! ```
//!
//! What the checkers look at is behind all of this: the servers themselves.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each place is about a few of the mistakes"
)]

mod kubernetes;
mod proxmox;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use jiff::SignedDuration;
use kproxide_controller::config::Config;
use kproxide_lab::Lab;
use kproxide_planner::mutants::{Mutant, switched_on};
use kproxide_simulator::faults::Broken;
use kproxide_simulator::kube::Kube;
use kproxide_simulator::pve::Pve;
use serde_json::Value;
use tower::Service;

/// What stands between the program and the wires of one replica. Clones are the same.
#[derive(Clone)]
pub(crate) struct Edge {
    /// In the replica's name: what a mistake asks for itself was asked by the replica.
    kube: Kube,
    pve: Pve,
    memory: Arc<Mutex<Memory>>,
}

/// What the present process was told, and not the servers.
#[derive(Default)]
struct Memory {
    /// Writes that the server never got, by path: the object is shown with them.
    pretended: BTreeMap<String, Value>,
    /// Objects that are shown as gone, by path.
    hidden: BTreeSet<String>,
    /// Paths of the evictions that count as done.
    evicted: BTreeSet<String>,
    /// Descriptions of VMs that Proxmox never got.
    descriptions: BTreeMap<String, String>,
    /// VMs that are shown as gone, or as stopped.
    vms: BTreeSet<String>,
    /// An intent that is yet to be written: the path of the claim, and the patch.
    intent: Option<(String, Value)>,
    /// The Lease as this process wrote it last.
    lease: Option<Value>,
    /// Claims whose removals this process has counted.
    counted: BTreeSet<String>,
}

impl Edge {
    /// Of the replica of this name.
    pub(crate) fn new(lab: &Lab, name: &str, memory: &SharedMemory) -> Self {
        Self {
            kube: lab.kube.as_user(name),
            pve: lab.pve.clone(),
            memory: memory.0.clone(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the edges of one replica have in common.
#[derive(Clone, Default)]
pub(crate) struct SharedMemory(Arc<Mutex<Memory>>);

impl SharedMemory {
    /// A new process begins.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Memory::default();
    }
}

/// Settings with the mistake in them.
pub(crate) fn mistake_settings(config: &mut Config) {
    match switched_on() {
        Some(Mutant::NoQuarantine) => config.limits.quarantine = SignedDuration::ZERO,
        Some(Mutant::NoColdStart) => config.timing.cold_start = std::time::Duration::ZERO,
        Some(Mutant::GcWithoutGrace) => config.limits.orphan_grace = SignedDuration::ZERO,
        Some(_) | None => {}
    }
}

/// The API server, with the mistake that is switched on.
#[derive(Clone)]
pub(crate) struct Kubernetes<S> {
    pub(crate) service: S,
    pub(crate) edge: Edge,
}

type Shown = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl<S, B> Service<Request<Bytes>> for Kubernetes<S>
where
    S: Service<Request<Bytes>, Response = Response<B>, Error = Broken> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    type Response = Shown;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Shown, Broken>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let Some(mistake) = switched_on() else {
            let answered = self.service.call(request);
            return Box::pin(async { Ok(answered.await?.map(BodyExt::boxed_unsync)) });
        };
        // The clone takes the place of the service that was found ready.
        let ready = self.service.clone();
        let service = std::mem::replace(&mut self.service, ready);
        let edge = self.edge.clone();
        Box::pin(kubernetes::exchange(service, edge, mistake, request))
    }
}

/// Proxmox, with the mistake that is switched on.
#[derive(Clone)]
pub(crate) struct Proxmox<S> {
    pub(crate) service: S,
    pub(crate) edge: Edge,
}

impl<S> Service<Request<Bytes>> for Proxmox<S>
where
    S: Service<Request<Bytes>, Response = Response<Bytes>, Error = Broken> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Bytes>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Broken>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let Some(mistake) = switched_on() else {
            return Box::pin(self.service.call(request));
        };
        // As above.
        let ready = self.service.clone();
        let service = std::mem::replace(&mut self.service, ready);
        let edge = self.edge.clone();
        Box::pin(proxmox::exchange(service, edge, mistake, request))
    }
}

/// As a JSON merge patch is applied.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (key, value) in fields {
        if value.is_null() {
            if let Some(object) = object.as_object_mut() {
                object.remove(key);
            }
        } else {
            merge(&mut object[key], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_replaces_adds_and_removes_and_leaves_the_rest() {
        let mut object = json!({"spec": {"taints": [1, 2], "podCIDR": "a", "unschedulable": true}});
        let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"taints": [3], "unschedulable": null}});
        merge(&mut object, &patch);
        let expected =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"taints": [3], "podCIDR": "a"}});
        assert_eq!(object, expected);
    }
}
