//! Objects, their revisions and the history that watches read.
//!
//! An object is stored as serialized bytes with the few fields that selectors need beside it, so that 30,000 pods cost
//! little more than their text. In a small world the present versions are kept parsed as well: its controllers and checkers
//! read them far more often than they change. Every write takes the next number of one counter as the object's resourceVersion, as etcd
//! does.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    object::{condition_is_true, controller, entries, is_terminating, items, meta_mut, meta_str},
    resource::ResourceId,
};
use crate::signal::Signal;

/// How many changes of one resource stay readable for watches that lag behind; older ones answer 410.
const HISTORY_MAX: usize = 50_000;

/// The objects of a resource with more than this are kept as text alone.
const PARSED_MAX: usize = 2_000;

/// So many versions that are not the present ones any more stay parsed for those who are about to read of their change.
const SUPERSEDED_MAX: usize = 64;

/// The place of an object inside its resource; a cluster-scoped object has the empty namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl Key {
    /// The key of an object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub(crate) fn of(object: &Value) -> Self {
        Self::new(meta_str(object, "namespace"), meta_str(object, "name"))
    }
}

/// One version of an object.
#[derive(Debug)]
pub struct Stored {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` as a number.
    pub revision: u64,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec.nodeName`, for pods.
    pub node_name: Option<String>,
    /// `status.phase`, for pods.
    pub phase: Option<String>,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// Whether the deletion was asked for.
    pub terminating: bool,
    /// The owner with `controller: true`.
    pub controller: Option<Controller>,
    /// The UIDs of all owners.
    pub owners: Vec<String>,
    /// The whole object as JSON.
    pub bytes: Bytes,
    /// The same, parsed, while it is likely to be read.
    parsed: Mutex<Option<Arc<Value>>>,
}

/// The object that manages another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its kind, e.g. `ReplicaSet`.
    pub kind: String,
    /// Its name, in the namespace of what it manages.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Stored {
    fn new(object: Value, revision: u64) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            key: Key::of(&object),
            uid: meta_str(&object, "uid").to_owned(),
            revision,
            labels: entries(&object["metadata"], "labels")
                .map(|(key, value)| {
                    (
                        key.to_owned(),
                        value.as_str().unwrap_or_default().to_owned(),
                    )
                })
                .collect(),
            node_name: text(&object["spec"]["nodeName"]),
            phase: text(&object["status"]["phase"]),
            ready: condition_is_true(&object, "Ready"),
            terminating: is_terminating(&object),
            owners: items(&object["metadata"], "ownerReferences")
                .iter()
                .filter_map(|owner| text(&owner["uid"]))
                .collect(),
            controller: controller(&object).map(|owner| Controller {
                kind: text(&owner["kind"]).unwrap_or_default(),
                name: text(&owner["name"]).unwrap_or_default(),
                uid: text(&owner["uid"]).unwrap_or_default(),
            }),
            bytes: serde_json::to_vec(&object)
                .expect("a JSON value serializes")
                .into(),
            parsed: Mutex::new(Some(Arc::new(object))),
        }
    }

    /// Whether the phase is Succeeded or Failed: the pod holds no resources any more.
    pub fn finished(&self) -> bool {
        matches!(self.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// The object, parsed; all who read it share it as long as the store keeps it.
    pub fn value(&self) -> Arc<Value> {
        let kept = self.parsed().clone();
        kept.unwrap_or_else(|| {
            let read = serde_json::from_slice(&self.bytes);
            Arc::new(read.expect("the store holds what it serialized itself"))
        })
    }

    /// The object as a value of the caller's own, to be changed.
    pub(crate) fn to_value(&self) -> Value {
        Arc::unwrap_or_clone(self.value())
    }

    /// Keeps the text alone.
    fn forget_parsed(&self) {
        *self.parsed() = None;
    }

    fn parsed(&self) -> MutexGuard<'_, Option<Arc<Value>>> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It has a new version.
    Modified,
    /// It is gone; the change carries its last version under the revision of the deletion.
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which resource.
    pub resource: ResourceId,
    /// What happened.
    pub kind: ChangeKind,
    /// The version after the change.
    pub object: Arc<Stored>,
    /// The version before it; none for a new object.
    pub previous: Option<Arc<Stored>>,
}

/// All objects of one resource.
#[derive(Debug)]
struct Collection {
    objects: BTreeMap<Key, Arc<Stored>>,
    history: VecDeque<Arc<Change>>,
    /// Revision of the newest change that left the history.
    forgotten: u64,
    wake: Signal<u64>,
}

impl Default for Collection {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            forgotten: 0,
            wake: Signal::new(0),
        }
    }
}

/// All objects of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Store {
    revision: u64,
    compacted: u64,
    collections: BTreeMap<ResourceId, Collection>,
    /// What was replaced or removed last, still parsed.
    superseded: VecDeque<Arc<Stored>>,
    subscribers: Vec<(Vec<ResourceId>, mpsc::UnboundedSender<Arc<Change>>)>,
}

/// The changes between two revisions are no longer known; the number is the oldest revision to continue from.
#[derive(Debug, PartialEq)]
pub(crate) struct Forgotten(pub(crate) u64);

impl Store {
    /// All objects as they are, without history and subscribers.
    pub(crate) fn backup(&self) -> Self {
        let collections = self.collections.iter().map(|(resource, collection)| {
            let backup = Collection {
                objects: collection.objects.clone(),
                ..Collection::default()
            };
            (resource.clone(), backup)
        });
        Self {
            revision: self.revision,
            compacted: self.revision,
            collections: collections.collect(),
            superseded: VecDeque::new(),
            subscribers: Vec::new(),
        }
    }

    /// The revision of the newest write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, resource: &ResourceId, key: &Key) -> Option<&Arc<Stored>> {
        self.collections.get(resource)?.objects.get(key)
    }

    /// Objects in the order of (namespace, name), from the whole resource or from one namespace, after `after` if given.
    pub(crate) fn list<'s>(
        &'s self,
        resource: &ResourceId,
        namespace: Option<&'s str>,
        after: Option<Key>,
    ) -> impl Iterator<Item = &'s Arc<Stored>> {
        let start = match (after, namespace) {
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        self.collections
            .get(resource)
            .into_iter()
            .flat_map(move |collection| collection.objects.range((start.clone(), Bound::Unbounded)))
            .map(|(_, stored)| stored)
            .take_while(move |stored| {
                namespace.is_none_or(|namespace| stored.key.namespace == namespace)
            })
    }

    /// Writes a version of an object, new or not.
    pub(crate) fn put(&mut self, resource: &ResourceId, mut object: Value) -> Arc<Stored> {
        let revision = self.next_revision(&mut object);
        let stored = Arc::new(Stored::new(object, revision));
        let collection = self.collections.entry(resource.clone()).or_default();
        if collection.objects.len() > PARSED_MAX {
            stored.forget_parsed();
        }
        let previous = collection
            .objects
            .insert(stored.key.clone(), stored.clone());
        let kind = match previous {
            Some(_) => ChangeKind::Modified,
            None => ChangeKind::Added,
        };
        self.record(Change {
            resource: resource.clone(),
            kind,
            object: stored.clone(),
            previous,
        });
        stored
    }

    /// Removes an object and returns its last version, which carries the revision of the removal.
    pub(crate) fn remove(&mut self, resource: &ResourceId, key: &Key) -> Option<Arc<Stored>> {
        let previous = self.collections.get_mut(resource)?.objects.remove(key)?;
        let mut object = previous.to_value();
        let revision = self.next_revision(&mut object);
        let stored = Arc::new(Stored::new(object, revision));
        self.record(Change {
            resource: resource.clone(),
            kind: ChangeKind::Deleted,
            object: stored.clone(),
            previous: Some(previous),
        });
        Some(stored)
    }

    /// Forgets all history, as etcd's compaction does: watches from older revisions answer 410.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
        for collection in self.collections.values_mut() {
            if let Some(last) = collection.history.back() {
                collection.forgotten = last.object.revision;
                collection.history.clear();
            }
        }
    }

    /// Forgets the history up to `revision`: watches from older ones answer 410.
    pub(crate) fn forget_through(&mut self, revision: u64) {
        for collection in self.collections.values_mut() {
            let history = &mut collection.history;
            let old = history.partition_point(|change| change.object.revision <= revision);
            if let Some(last) = history.drain(..old).next_back() {
                collection.forgotten = last.object.revision;
            }
        }
    }

    /// Whether a watch may start after `revision`.
    pub(crate) fn can_watch_from(
        &self,
        resource: &ResourceId,
        revision: u64,
    ) -> Result<(), Forgotten> {
        let forgotten = self
            .collections
            .get(resource)
            .map_or(0, |collection| collection.forgotten);
        let oldest = self.compacted.max(forgotten);
        match revision < oldest {
            true => Err(Forgotten(oldest)),
            false => Ok(()),
        }
    }

    /// The changes of a resource after `revision`, oldest first.
    pub(crate) fn changes_after(
        &self,
        resource: &ResourceId,
        revision: u64,
    ) -> Result<impl Iterator<Item = &Arc<Change>>, Forgotten> {
        let collection = self.collections.get(resource);
        let forgotten = collection.map_or(0, |collection| collection.forgotten);
        if revision < forgotten {
            return Err(Forgotten(forgotten));
        }
        Ok(collection.into_iter().flat_map(move |collection| {
            let start = collection
                .history
                .partition_point(|change| change.object.revision <= revision);
            collection.history.range(start..)
        }))
    }

    /// The revision of the resource's newest change, to wait on.
    pub(crate) fn wake(&mut self, resource: &ResourceId) -> Signal<u64> {
        self.collections
            .entry(resource.clone())
            .or_default()
            .wake
            .clone()
    }

    /// Every later change of the given resources, or of all when none is given, without loss.
    pub(crate) fn subscribe(
        &mut self,
        resources: &[ResourceId],
    ) -> mpsc::UnboundedReceiver<Arc<Change>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.subscribers.push((resources.to_vec(), sender));
        receiver
    }

    fn next_revision(&mut self, object: &mut Value) -> u64 {
        self.revision += 1;
        meta_mut(object).insert(
            "resourceVersion".to_owned(),
            json!(self.revision.to_string()),
        );
        self.revision
    }

    fn record(&mut self, change: Change) {
        let change = Arc::new(change);
        self.superseded.extend(change.previous.clone());
        if change.kind == ChangeKind::Deleted {
            self.superseded.push_back(change.object.clone());
        }
        while self.superseded.len() > SUPERSEDED_MAX
            && let Some(old) = self.superseded.pop_front()
        {
            old.forget_parsed();
        }
        self.subscribers.retain(|(resources, sender)| {
            let wanted = resources.is_empty() || resources.contains(&change.resource);
            match wanted {
                true => sender.send(change.clone()).is_ok(),
                false => !sender.is_closed(),
            }
        });
        let collection = self.collections.entry(change.resource.clone()).or_default();
        if collection.history.len() == HISTORY_MAX
            && let Some(oldest) = collection.history.pop_front()
        {
            collection.forgotten = oldest.object.revision;
        }
        collection.history.push_back(change);
        collection.wake.set(self.revision);
    }
}
