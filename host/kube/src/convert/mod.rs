//! The one place where objects of the API become the planner's facts, and the planner's decisions become objects.
//!
//! Reading is lenient: the API server has checked objects against the schema of *some* version of kproxide, so a value that this one
//! cannot read is a `problem` of the object, in words that name the field, the value and the fix. It is never a panic, and never makes an object
//! look absent. Our own records (claims, the Ledger) are not guessed at: a record that cannot be read whole is an error.

mod claim;
mod class;
mod cluster;
pub mod defaults;
mod ledger;
mod node;
mod pod;
mod pool;
mod spec;
mod storage;

pub(crate) use claim::{claim_facts, claim_object, status_object};
pub use class::class_facts;
pub(super) use cluster::hypervisors_off;
pub use cluster::{ClusterConnection, TrustSettings, cluster_facts};
pub(crate) use ledger::{ledger_facts, ledger_object};
pub use pool::pool_facts;

#[cfg(test)]
pub(super) use claim::tests as tests_support;
pub use claim::truncated;
pub use node::{disruption_budget_facts, node_facts, volume_attachment_facts};
pub use pod::{annotation, daemon_set_facts, object_key, pod_facts};
pub use storage::{
    csi_driver_facts, csi_node_facts, storage_capacity_facts, storage_class_facts,
    volume_claim_facts, volume_facts,
};

use jiff::Timestamp;
use kproxide_planner::facts::{Existence, Labels};
use kproxide_planner::ids::Uid;
use kproxide_planner::keys;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::view::CustomView;
use kproxide_common::labels::{check_key, check_value};

/// Our records are unreadable: written by another version, or by hand. Nothing is done with them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {problem}")]
pub struct Unreadable {
    /// Such as `NodeClaim/workers-x7`.
    pub object: String,
    pub field: String,
    pub problem: String,
}

/// An object of the API that is held as plain data.
pub fn decoded<T: DeserializeOwned>(kind: &str, object: &Value) -> Result<T, Unreadable> {
    serde_path_to_error::deserialize(object).map_err(|error| Unreadable {
        object: format!(
            "{kind}/{}",
            object["metadata"]["name"].as_str().unwrap_or_default()
        ),
        field: error.path().to_string(),
        problem: error.into_inner().to_string(),
    })
}

/// A part of one of our own records.
fn record<K: Resource<DynamicType = ()>, T: DeserializeOwned>(
    object: &CustomView<K>,
    part: &str,
    value: &Map<String, Value>,
) -> Result<T, Unreadable> {
    serde_path_to_error::deserialize(value).map_err(|error| Unreadable {
        object: format!("{}/{}", K::kind(&()), name(object.meta())),
        field: match error.path().iter().len() {
            0 => part.to_owned(),
            _ => format!("{part}.{}", error.path()),
        },
        problem: error.into_inner().to_string(),
    })
}

/// Collects what is wrong with one object while the rest of it is read.
#[derive(Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    pub(super) fn add(&mut self, field: &str, problem: impl std::fmt::Display) {
        self.0.push(format!("spec.{field}: {problem}"));
    }

    /// A label or a taint that Nodes will carry.
    fn label(&mut self, field: &str, what: &'static str, key: &str, value: &str) {
        let checked = check_key(what, key).and_then(|()| check_value(what, key, value));
        if let Err(problem) = checked {
            self.add(field, problem);
        }
    }

    /// A name at `path` that Nodes will carry as a label's value.
    fn label_value(&mut self, path: &str, key: &str, name: &str) {
        if let Err(problem) = check_value("label", key, name) {
            self.0.push(format!("{path}: {problem}"));
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them as one text.
    fn text(self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("; "))
    }
}

/// Never negative, for amounts that are held as `u64`.
fn unsigned(amount: i64) -> u64 {
    amount.unsigned_abs()
}

/// An annotation that is set to `true`.
pub(super) fn flagged(annotations: &Labels, key: &str) -> bool {
    annotations.get(key).is_some_and(|value| value == "true")
}

fn flagged_in(meta: &ObjectMeta, key: &str) -> bool {
    meta.annotations
        .as_ref()
        .is_some_and(|annotations| flagged(annotations, key))
}

/// How a user's object stands in the API server.
pub(super) fn existence(meta: &ObjectMeta) -> Existence {
    Existence {
        uid: Uid::from(meta.uid.as_deref().unwrap_or_default()),
        generation: meta.generation.unwrap_or_default(),
        in_use: carries(meta, keys::IN_USE),
        deleting_since: meta.deletion_timestamp.as_ref().map(|time| time.0),
    }
}

/// Whether it carries this finalizer.
pub(super) fn carries(meta: &ObjectMeta, finalizer: &str) -> bool {
    let mut finalizers = meta.finalizers.iter().flatten();
    finalizers.any(|name| name == finalizer)
}

/// Go's way to leave a text out is to leave it empty.
pub(super) fn filled(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// A moment of a condition.
pub(super) fn since(condition: &Option<Timestamp>, meta: &ObjectMeta) -> Timestamp {
    condition.unwrap_or_else(|| created(meta))
}

/// Moments of an object that the API server has always filled in; the epoch if it did not.
pub(super) fn created(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

pub(super) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}
