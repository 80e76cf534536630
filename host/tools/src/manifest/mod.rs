//! Objects that no watch delivers: documents in files, and what a running cluster lists.
//!
//! [`read`] makes documents into objects and keeps their lines, and [`strict`] refuses mistakes in them. [`admission`]
//! fills in what the API server would fill in, [`workloads`] makes the pods that controllers would make, [`status`] says
//! how they stand, [`binding`] gives new claims their volumes, and [`namespaces`] adds the Namespaces that selectors ask
//! about. [`changes`] gives the planner's facts, by the same views and conversions as the watches.

mod admission;
mod binding;
#[cfg(test)]
mod compared;
mod listing;
mod namespaces;
mod read;
mod status;
mod strict;
mod workloads;

use std::collections::BTreeMap;

use serde_json::Value;

pub use admission::Admission;
pub use binding::bind;
pub use listing::{ListError, NotListed, each, everything};
pub use namespaces::{plain_namespace, unknown_namespaces};
pub use read::{BadInput, Object, documents, plain};
pub use status::{settle, settle_budget};
pub use strict::refuse;
pub use workloads::{Made, Replicas, Standing, daemon, made, standing};

use kproxide_kube::convert::Unreadable;
use kproxide_kube::watch::{Change, Kind};

/// What an object is told apart by: its group (not its version), kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    pub group: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

/// What a cluster decides about an object, and a manifest as a rule leaves out. To apply the manifest does not change it.
const DECIDED: [(&str, &[&str]); 2] = [
    (
        "metadata",
        &["creationTimestamp", "finalizers", "ownerReferences"],
    ),
    (
        "spec",
        &[
            "replicas",
            "volumeName",
            "storageClassName",
            "nodeName",
            "providerID",
            "claimRef",
        ],
    ),
];

/// Objects by identity. Of two with one identity the later one counts.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    all: BTreeMap<Identity, Object>,
    /// What was there in the first layer that had an object of a later one.
    before: BTreeMap<Identity, Value>,
}

impl Objects {
    /// Puts a layer of objects on top: they take the place of those that are there, as if they were applied.
    pub fn add(&mut self, layer: impl IntoIterator<Item = Object>) {
        let mut added = BTreeMap::new();
        for object in layer {
            added.insert(object.identity(), object);
        }
        for (identity, mut object) in added {
            if let Some(before) = self.all.remove(&identity) {
                keep_decided(&mut object.value, &before.value);
                self.before.entry(identity.clone()).or_insert(before.value);
            }
            self.all.insert(identity, object);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Identity, &Object)> {
        self.all.iter()
    }

    /// The objects of a kind, by namespace and name.
    pub fn of<'a>(
        &'a self,
        group: &'a str,
        kind: &'a str,
    ) -> impl Iterator<Item = (&'a Identity, &'a Object)> {
        let is_one = move |identity: &Identity| identity.group == group && identity.kind == kind;
        self.all
            .iter()
            .filter(move |(identity, _)| is_one(identity))
    }

    pub fn has(&self, group: &str, kind: &str) -> bool {
        self.of(group, kind).next().is_some()
    }

    pub fn get(&self, identity: &Identity) -> Option<&Object> {
        self.all.get(identity)
    }

    /// What an object of a later layer took the place of.
    pub fn before(&self, identity: &Identity) -> Option<&Value> {
        self.before.get(identity)
    }
}

fn keep_decided(object: &mut Value, before: &Value) {
    let fill = |part: &mut Value, before: &Value, name: &str| {
        if part[name].is_null() && !before[name].is_null() {
            part[name] = before[name].clone();
        }
    };
    fill(object, before, "status");
    for (part, fields) in DECIDED {
        for field in fields {
            if object[part].is_object() {
                fill(&mut object[part], &before[part], field);
            }
        }
    }
    for list in ["labels", "annotations"] {
        let before = &before["metadata"][list];
        for name in before.as_object().into_iter().flat_map(|list| list.keys()) {
            let given = &mut object["metadata"][list];
            if given.is_null() || given.is_object() {
                fill(given, before, name);
            }
        }
    }
}

/// Whether a watch knows such objects.
pub fn is_watched(object: &Object) -> bool {
    Kind::of(object.api_version(), object.kind()).is_some()
}

/// What follows from an object for the planner. Nothing follows from a kind that no watch is interested in.
///
/// # Errors
/// A field that cannot be read.
pub fn changes(object: &Object) -> Result<Vec<Change>, BadInput> {
    let Some(kind) = Kind::of(object.api_version(), object.kind()) else {
        return Ok(Vec::new());
    };
    let refused = |Unreadable { field, problem, .. }: Unreadable| object.bad(&field, problem);
    kind.read(&object.value).map_err(refused)
}
