//! Toy versions of kube-controller-manager's controllers, in one task.
//!
//! ```text
//! changes ──> note (indexes, what is to be looked at) ──> reconcile one piece of work after the other ──> writes
//!    ^                                                        └── timers                                     │
//!    └─────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! All of them are level-triggered: a piece of work looks at the store and writes what is missing, and a piece of work that
//! finds nothing to do writes nothing.

mod daemonset;
mod disruption;
mod garbage;
mod node;
mod volume;
mod workload;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use super::{
    Kube,
    object::condition,
    placement::Taint,
    request::DeleteOptions,
    resource::ResourceId,
    store::{Change, ChangeKind, Key, Stored},
};

/// How long a volume takes to be made.
const PROVISIONED: Duration = Duration::from_secs(2);

/// How patient the controllers are.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// After the last sign of life of a kubelet its node is NotReady (`--node-monitor-grace-period`).
    pub node_monitor_grace: Duration,
    /// Pods of a Node that no longer exists are removed after this time; measured 50 s on a real control plane.
    pub pod_gc: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            node_monitor_grace: Duration::from_secs(40),
            pod_gc: Duration::from_secs(50),
        }
    }
}

/// Runs the controllers until it is dropped.
pub async fn run(kube: Kube, patience: Patience) {
    let kube = kube.as_user("system:kube-controller-manager");
    let (present, changes) = kube.subscribe(&[]);
    let mut controllers = Controllers::new(kube, patience);
    for change in &present {
        controllers.note(change);
    }
    controllers.run(changes).await;
}

/// What is to be looked at; the order is the order of work within one instant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Node(String),
    Namespace(String),
    Garbage(ResourceId, Key),
    Deployment(Key),
    ReplicaSet(Key),
    StatefulSet(Key),
    DaemonSet(Key),
    Job(Key),
    Budget(Key),
    EphemeralVolumes(Key),
    Claim(Key),
}

struct Controllers {
    kube: Kube,
    patience: Patience,
    work: BTreeSet<Work>,
    timers: BTreeSet<(Instant, Work)>,
    /// Pods by the UID of their controller, and by node.
    by_controller: BTreeMap<String, BTreeSet<Key>>,
    by_node: BTreeMap<String, BTreeSet<Key>>,
    /// Every object's UID, and what names it as an owner.
    uids: BTreeSet<String>,
    dependents: BTreeMap<String, BTreeSet<(ResourceId, Key)>>,
    /// When each kubelet last gave a sign of life.
    alive: BTreeMap<String, Instant>,
    /// When it is next looked whether it still does; one timer for each, however often a node is looked at meanwhile.
    looks: BTreeMap<String, Instant>,
    /// Since when a node's pods have no Node.
    nodeless: BTreeMap<String, Instant>,
    /// When the garbage collector next looks at a node that is out of service.
    out_of_service: BTreeMap<String, Instant>,
    /// Since when each NoExecute taint is there.
    tainted: BTreeMap<(String, Taint), Instant>,
}

impl Controllers {
    fn new(kube: Kube, patience: Patience) -> Self {
        Self {
            kube,
            patience,
            work: BTreeSet::new(),
            timers: BTreeSet::new(),
            by_controller: BTreeMap::new(),
            by_node: BTreeMap::new(),
            uids: BTreeSet::new(),
            dependents: BTreeMap::new(),
            alive: BTreeMap::new(),
            looks: BTreeMap::new(),
            nodeless: BTreeMap::new(),
            out_of_service: BTreeMap::new(),
            tainted: BTreeMap::new(),
        }
    }

    async fn run(mut self, mut changes: UnboundedReceiver<Arc<Change>>) {
        loop {
            while let Ok(change) = changes.try_recv() {
                self.note(&change);
            }
            if let Some(work) = self.work.pop_first() {
                self.reconcile(work);
                continue;
            }
            let next = self.timers.first().map(|(at, _)| *at);
            tokio::select! {
                biased;
                change = changes.recv() => match change {
                    Some(change) => self.note(&change),
                    None => return,
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => self.fire(),
            }
        }
    }

    /// Moves what is due from the timers to the work.
    fn fire(&mut self) {
        let now = Instant::now();
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, work)) = self.timers.pop_first() {
                self.work.insert(work);
            }
        }
    }

    fn reconcile(&mut self, work: Work) {
        match work {
            Work::Node(name) => self.reconcile_node(&name),
            Work::Namespace(name) => self.reconcile_namespace(&name),
            Work::Garbage(resource, key) => self.collect_garbage(&resource, &key),
            Work::Deployment(key) => self.reconcile_deployment(&key),
            Work::ReplicaSet(key) => self.reconcile_replicaset(&key),
            Work::StatefulSet(key) => self.reconcile_statefulset(&key),
            Work::DaemonSet(key) => self.reconcile_daemonset(&key),
            Work::Job(key) => self.reconcile_job(&key),
            Work::Budget(key) => self.reconcile_budget(&key),
            Work::EphemeralVolumes(key) => self.make_claims(&key),
            Work::Claim(key) => self.reconcile_claim(&key),
        }
    }

    /// Updates the indexes and marks what the change concerns.
    fn note(&mut self, change: &Change) {
        self.note_owners(change);
        let object = &change.object;
        let key = object.key.clone();
        match (&*change.resource.group, &*change.resource.plural) {
            ("", "pods") => self.note_pod(change),
            ("", "nodes") => self.note_node(change),
            ("", "persistentvolumeclaims") if change.kind == ChangeKind::Deleted => {
                self.forget_claim(change);
            }
            ("", "persistentvolumeclaims") => {
                let made = Instant::now() + PROVISIONED;
                self.set_timer(made, Work::Claim(key));
            }
            ("coordination.k8s.io", "leases") if key.namespace == "kube-node-lease" => {
                self.note_life(&key.name)
            }
            ("", "namespaces") if object.terminating => {
                self.work.insert(Work::Namespace(key.name));
            }
            ("apps", "deployments") => {
                self.work.insert(Work::Deployment(key));
            }
            ("apps", "replicasets") => {
                if let Some(owner) = &object.controller {
                    self.work.insert(Work::Deployment(Key::new(
                        key.namespace.as_str(),
                        owner.name.as_str(),
                    )));
                }
                self.note_expectation(&key.namespace);
                self.work.insert(Work::ReplicaSet(key));
            }
            ("apps", "statefulsets") => {
                self.note_expectation(&key.namespace);
                self.work.insert(Work::StatefulSet(key));
            }
            ("apps", "daemonsets") => {
                self.work.insert(Work::DaemonSet(key));
            }
            ("batch", "jobs") => {
                self.work.insert(Work::Job(key));
            }
            ("policy", "poddisruptionbudgets") => {
                self.work.insert(Work::Budget(key));
            }
            _ => {}
        }
    }

    fn note_node(&mut self, change: &Change) {
        let name = change.object.key.name.clone();
        self.work.insert(Work::Node(name.clone()));
        let node = change.object.value();
        let before = change.previous.as_ref().map(|previous| previous.value());
        let before = before.as_deref();
        if before.map(heartbeat) != Some(heartbeat(&node)) {
            self.note_life(&name);
        }
        // Heartbeats must not wake every DaemonSet.
        if change.kind != ChangeKind::Modified
            || before.map(of_daemonsets) != Some(of_daemonsets(&node))
        {
            let daemonsets = self.kube.objects("daemonsets.apps");
            self.work.extend(
                daemonsets
                    .iter()
                    .map(|stored| Work::DaemonSet(stored.key.clone())),
            );
        }
    }

    fn note_pod(&mut self, change: &Change) {
        let pod = &change.object;
        let key = &pod.key;
        let gone = change.kind == ChangeKind::Deleted;
        if let Some(owner) = &pod.controller {
            place(&mut self.by_controller, &owner.uid, key, gone);
            let owner_key = Key::new(key.namespace.as_str(), owner.name.as_str());
            let work = match owner.kind.as_str() {
                "ReplicaSet" => Some(Work::ReplicaSet(owner_key)),
                "StatefulSet" => Some(Work::StatefulSet(owner_key)),
                "DaemonSet" => Some(Work::DaemonSet(owner_key)),
                "Job" => Some(Work::Job(owner_key)),
                _ => None,
            };
            self.work.extend(work);
        }
        if let Some(node) = &pod.node_name {
            place(&mut self.by_node, node, key, gone);
            let before = change
                .previous
                .as_ref()
                .and_then(|previous| previous.node_name.as_ref());
            if before != Some(node) || gone {
                self.work.insert(Work::Node(node.clone()));
            }
        }
        self.note_budgets(change);
        self.note_volumes_of(change);
        if gone {
            self.work_on_namespace_of(key);
        }
    }

    /// A lease or a status came from the node's kubelet.
    fn note_life(&mut self, node: &str) {
        self.alive.insert(node.to_owned(), Instant::now());
    }

    fn set_timer(&mut self, at: Instant, work: Work) {
        self.timers.insert((at, work));
    }

    fn pods_of(&self, controller_uid: &str) -> Vec<Arc<Stored>> {
        self.stored_pods(self.by_controller.get(controller_uid))
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Stored>> {
        self.stored_pods(self.by_node.get(node))
    }

    fn stored_pods(&self, keys: Option<&BTreeSet<Key>>) -> Vec<Arc<Stored>> {
        let id = ResourceId::new("", "pods");
        let state = self.kube.lock();
        let keys = keys.into_iter().flatten();
        keys.filter_map(|key| state.store.get(&id, key).cloned())
            .collect()
    }

    fn delete_pod(&self, pod: &Stored, grace: Option<i64>) {
        let options = DeleteOptions {
            grace,
            ..DeleteOptions::of_uid(&pod.uid)
        };
        // A pod that went away meanwhile is what was wanted.
        let _ = self
            .kube
            .delete_with("pods", &pod.key.namespace, &pod.key.name, &options);
    }

    /// Writes a status when it differs; a conflict comes back as a change.
    fn write_status(&self, resource: &str, object: Arc<Value>, status: Value) {
        if object["status"] != status {
            let mut object = Arc::unwrap_or_clone(object);
            object["status"] = status;
            let _ = self.kube.write(resource, "status", object);
        }
    }
}

/// When its kubelet last reported a Node's readiness.
fn heartbeat(node: &Value) -> Option<&Value> {
    condition(node, "Ready").map(|ready| &ready["lastHeartbeatTime"])
}

/// What of a Node decides which DaemonSets have a pod there.
fn of_daemonsets(node: &Value) -> (&Value, &Value) {
    (&node["metadata"]["labels"], &node["spec"])
}

fn place(index: &mut BTreeMap<String, BTreeSet<Key>>, name: &str, key: &Key, gone: bool) {
    match gone {
        false => {
            index
                .entry(name.to_owned())
                .or_default()
                .insert(key.clone());
        }
        true => {
            if let Some(keys) = index.get_mut(name) {
                keys.remove(key);
                if keys.is_empty() {
                    index.remove(name);
                }
            }
        }
    }
}
