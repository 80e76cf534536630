//! A simulated Kubernetes API server and the controllers of a small cluster.
//!
//! ```text
//! http::Request ── request ──> State { store, registry } ── audit
//!                                │          └── history ──> watch bodies
//!                                └── changes ──> scheduler, controllers, kubelets, checkers
//! ```
//!
//! It speaks JSON and knows nothing of kproxide's types: custom resources are served from the definitions that a client
//! posts. A request takes effect in one step without suspension, so that a client that drops its future has either not sent
//! the request or sent all of it. Everything is a function of the seed, the clock and the order of requests.

pub mod age;
pub mod audit;
pub mod controllers;
pub mod error;
pub mod fixtures;
pub mod resource;
pub mod scheduler;
pub mod store;
pub mod world;

mod admission;
mod apply;
mod delete;
mod discovery;
mod eviction;
mod fields;
mod ids;
mod keep;
mod neighbours;
pub(crate) mod object;
mod patch;
mod placement;
mod quantity;
mod request;
mod scale;
mod schema;
mod selector;
mod serve;
mod service;
mod volumes;
mod watch;
mod write;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::mpsc;

pub use self::{
    audit::{AuditEntry, Verb},
    error::ApiError,
    resource::ResourceId,
    service::{Body, Collecting, KubeService},
    store::{Change, ChangeKind, Key, Stored},
};
use self::{
    delete::Deleted,
    ids::Ids,
    request::{DeleteOptions, Target, WriteOptions},
    resource::Resource,
    store::Store,
    write::{PatchFormat, Written},
};
use crate::{clock::Clock, rng::Seed};

/// A handle on the simulated API; clones share one cluster.
#[derive(Clone)]
pub struct Kube {
    state: Arc<Mutex<State>>,
    user: Arc<str>,
    clock: Clock,
}

/// The cluster itself.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) registry: BTreeMap<ResourceId, Arc<Resource>>,
    pub(crate) ids: Ids,
    pub(crate) audit: Vec<AuditEntry>,
    /// Entries that were there before the first of these.
    pub(crate) audit_forgotten: usize,
    pub(crate) clock: Clock,
}

impl Kube {
    /// A cluster with nothing but its four namespaces. UIDs and generated names follow from the seed.
    pub fn new(clock: Clock, seed: u64) -> Self {
        let kube = Self {
            state: Arc::new(Mutex::new(State {
                store: Store::default(),
                registry: resource::built_in(),
                ids: Ids::new(Seed(seed)),
                audit: Vec::new(),
                audit_forgotten: 0,
                clock,
            })),
            user: "system:apiserver".into(),
            clock,
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            kube.create("namespaces", json!({"metadata": {"name": name}}))
                .expect("a namespace can be made in an empty cluster");
        }
        kube.lock().audit.clear();
        kube
    }

    /// Another cluster with the same objects, as a backup that is restored elsewhere: UIDs and resource versions are the same. What it makes from then on
    /// follows from the seed.
    pub fn restored_elsewhere(&self, seed: u64) -> Self {
        let state = self.lock();
        Self {
            state: Arc::new(Mutex::new(State {
                store: state.store.backup(),
                registry: state.registry.clone(),
                ids: Ids::new(Seed(seed)),
                audit: Vec::new(),
                audit_forgotten: 0,
                clock: self.clock,
            })),
            user: self.user.clone(),
            clock: self.clock,
        }
    }

    /// The same cluster; requests of this handle are audited under another name.
    pub fn as_user(&self, user: &str) -> Self {
        Self {
            user: user.into(),
            ..self.clone()
        }
    }

    /// The clock that stamps objects.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A tower service for requests with any body; it can be given to `kube::Client::new`.
    pub fn service(&self) -> Collecting<KubeService> {
        Collecting(self.whole_requests())
    }

    /// A tower service for requests with whole bodies: for [`crate::wire::Wire::serve`], and for faults in between.
    pub fn whole_requests(&self) -> KubeService {
        KubeService::new(self.clone())
    }

    /// Creates an object of `resource` (`pods`, `deployments.apps`) in its own namespace, or `default`.
    pub fn create(&self, resource: &str, object: Value) -> Result<Value, ApiError> {
        let namespace = self.namespace_of(&object);
        let target = self.target(resource, &namespace, None, "")?;
        let options = direct_options();
        let created = self.audited(Verb::Create, &target, |state| {
            state.create(&target, object, &options)
        })?;
        Ok(created.into_value())
    }

    /// Reads an object; `namespace` is ignored for cluster-scoped resources.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        Some(self.object(resource, namespace, name)?.to_value())
    }

    /// An object as it is stored; `namespace` is empty for cluster-scoped resources.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        let target = self.target(resource, namespace, Some(name), "").ok()?;
        self.lock().read(&target).ok()
    }

    /// As [`Self::object`], parsed, to be read.
    pub(crate) fn look(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        Some(self.object(resource, namespace, name)?.value())
    }

    /// All objects of a resource, parsed, in the order of (namespace, name).
    pub fn list(&self, resource: &str) -> Vec<Value> {
        self.objects(resource)
            .iter()
            .map(|stored| stored.to_value())
            .collect()
    }

    /// All objects of a resource as they are stored, in the order of (namespace, name).
    pub fn objects(&self, resource: &str) -> Vec<Arc<Stored>> {
        let id = ResourceId::parse(resource);
        self.lock().store.list(&id, None, None).cloned().collect()
    }

    /// Replaces an object, or its status when `subresource` is `status`.
    pub fn update(
        &self,
        resource: &str,
        subresource: &str,
        object: Value,
    ) -> Result<Value, ApiError> {
        Ok(self.write(resource, subresource, object)?.into_value())
    }

    /// As [`Self::update`], for those who do not need the answer as a copy of their own.
    pub(crate) fn write(
        &self,
        resource: &str,
        subresource: &str,
        object: Value,
    ) -> Result<Written, ApiError> {
        let namespace = self.namespace_of(&object);
        let name = object::meta_str(&object, "name").to_owned();
        let target = self.target(resource, &namespace, Some(&name), subresource)?;
        let options = direct_options();
        self.audited(Verb::Update, &target, |state| {
            state.update(&target, object, &options)
        })
    }

    /// Merges a JSON merge patch into an object, or into its status when `subresource` is `status`.
    pub fn patch(
        &self,
        resource: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<Value, ApiError> {
        let target = self.target(resource, namespace, Some(name), subresource)?;
        let options = direct_options();
        let patched = self.audited(Verb::Patch, &target, |state| {
            state.patch(&target, PatchFormat::Merge, patch, &options)
        })?;
        Ok(patched.into_value())
    }

    /// Deletes an object as a client without options does: with a pod's own grace, and waiting for finalizers.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<(), ApiError> {
        self.delete_with(resource, namespace, name, &DeleteOptions::default())
    }

    pub(crate) fn delete_with(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let target = self.target(resource, namespace, Some(name), "")?;
        self.audited(Verb::Delete, &target, |state| {
            match state.delete(&target, options)? {
                Deleted::Gone(object) | Deleted::Terminating(object) => Ok(Written::Other(object)),
            }
        })?;
        Ok(())
    }

    /// Binds a pod to a node, as a scheduler does.
    pub(crate) fn bind(&self, pod: &Key, uid: &str, node: &str) -> Result<(), ApiError> {
        let target = self.target("pods", &pod.namespace, Some(&pod.name), "binding")?;
        let binding = json!({"metadata": {"name": pod.name, "uid": uid}, "target": {"kind": "Node", "name": node}});
        self.audited(Verb::Create, &target, |state| {
            state.bind(&target, &binding)?;
            Ok(Written::Other(binding))
        })?;
        Ok(())
    }

    /// What exists now and every later change of the given resources, without a gap; all resources when none is named.
    ///
    /// The receiver holds what is not yet read: a subscriber must read or be dropped.
    pub fn subscribe(
        &self,
        resources: &[&str],
    ) -> (Vec<Change>, mpsc::UnboundedReceiver<Arc<Change>>) {
        let ids: Vec<ResourceId> = resources
            .iter()
            .map(|resource| ResourceId::parse(resource))
            .collect();
        let mut state = self.lock();
        let known: Vec<ResourceId> = match ids.is_empty() {
            true => state.registry.keys().cloned().collect(),
            false => ids.clone(),
        };
        let mut present = Vec::new();
        for id in known {
            present.extend(state.store.list(&id, None, None).map(|stored| Change {
                resource: id.clone(),
                kind: ChangeKind::Added,
                object: stored.clone(),
                previous: None,
            }));
        }
        (present, state.store.subscribe(&ids))
    }

    /// The mutating requests so far, oldest first.
    ///
    /// Successful writes to node leases are left out: every kubelet makes one in ten seconds.
    pub fn audit(&self) -> Vec<AuditEntry> {
        self.audit_since(0)
    }

    /// The entries from number `start` on, the first is 0, for checkers that look after every event. What was forgotten is left out.
    pub fn audit_since(&self, start: usize) -> Vec<AuditEntry> {
        let state = self.lock();
        let start = start.saturating_sub(state.audit_forgotten);
        state.audit.get(start..).unwrap_or_default().to_vec()
    }

    /// The resourceVersion of the newest write.
    pub fn revision(&self) -> u64 {
        self.lock().store.revision()
    }

    /// Forgets the history of changes: watches that start from an older version, or lag behind, answer 410 Gone.
    pub fn compact(&self) {
        self.lock().store.compact();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of one request leaves consistent data: every write is one insertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn namespace_of(&self, object: &Value) -> String {
        match object::meta_str(object, "namespace") {
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        }
    }

    fn target(
        &self,
        resource: &str,
        namespace: &str,
        name: Option<&str>,
        subresource: &str,
    ) -> Result<Target, ApiError> {
        let id = ResourceId::parse(resource);
        let resource = self
            .lock()
            .registry
            .get(&id)
            .cloned()
            .ok_or_else(ApiError::no_such_path)?;
        Ok(Target {
            version: resource.storage_version.clone(),
            namespace: resource.namespaced.then(|| namespace.to_owned()),
            name: name.map(str::to_owned),
            subresource: subresource.to_owned(),
            resource,
        })
    }

    fn audited(
        &self,
        verb: Verb,
        target: &Target,
        write: impl FnOnce(&mut State) -> Result<Written, ApiError>,
    ) -> Result<Written, ApiError> {
        let mut state = self.lock();
        let result = write(&mut state);
        let code = match (&result, verb) {
            (Ok(_), Verb::Create) => 201,
            (Ok(_), _) => 200,
            (Err(error), _) => error.code,
        };
        let name = result.as_ref().map_or("", Written::name);
        state.record(&self.user, "", verb, target, name, false, false, code);
        result
    }
}

impl State {
    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of one entry, each from another place"
    )]
    pub(crate) fn record(
        &mut self,
        user: &Arc<str>,
        agent: &str,
        verb: Verb,
        target: &Target,
        generated_name: &str,
        names_uid: bool,
        dry_run: bool,
        code: u16,
    ) {
        let namespace = target.namespace.clone().unwrap_or_default();
        if namespace == "kube-node-lease" && code < 300 {
            return;
        }
        let entry = AuditEntry {
            at: self.clock.now(),
            user: user.clone(),
            agent: agent.to_owned(),
            verb,
            resource: target.id().to_string(),
            namespace,
            name: target
                .name
                .clone()
                .unwrap_or_else(|| generated_name.to_owned()),
            subresource: target.subresource.clone(),
            names_uid,
            dry_run,
            code,
            revision: self.store.revision(),
        };
        self.audit.push(entry);
    }
}

fn direct_options() -> WriteOptions {
    WriteOptions {
        manager: "simulator".to_owned(),
        ..WriteOptions::default()
    }
}

#[cfg(test)]
mod tests;
