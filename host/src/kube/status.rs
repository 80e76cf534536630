//! Status of pools, classes and clusters: written when something changes, never as a heartbeat.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::facts::{ClassFacts, LearnedNode};
use kproxide_planner::ids::{ClassName, ClusterName, PoolName};
use kproxide_planner::learned;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::Client;
use super::convert::truncated;
use super::crd::{
    ConditionStatus, NodeClass, NodeClassStatus, NodePool, NodePoolStatus, ProxmoxCluster,
    ProxmoxClusterStatus, StatusCondition,
};
use super::error::Error;

/// Whether an object can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    pub ready: bool,
    /// One CamelCase word for programs.
    pub reason: &'static str,
    /// For people; empty when ready.
    pub message: String,
}

impl Readiness {
    pub fn ready() -> Self {
        Self {
            ready: true,
            reason: "Ready",
            message: String::new(),
        }
    }

    pub fn not_ready(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            ready: false,
            reason,
            message: message.into(),
        }
    }
}

/// What was seen of a Proxmox cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSighting {
    pub reachable: bool,
    /// `None` where it could not be asked.
    pub quorate: Option<bool>,
    pub version: Option<String>,
    pub hypervisors: Vec<SeenHypervisor>,
    /// That of the key that new machines are marked with. `None` if we have none that may be used: what stands there is then a person's to change.
    pub key_fingerprint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenHypervisor {
    pub name: String,
    pub online: bool,
    pub maintenance: bool,
}

/// Writes status, and remembers what it wrote so that nothing is written twice. Forgetting it costs a read, nothing more.
#[derive(Default)]
pub struct StatusWriter {
    /// By kind and name: the status as it stands on the server, to our knowledge.
    known: BTreeMap<(&'static str, String), Value>,
    /// What this process wrote last, and when.
    ours: BTreeMap<(&'static str, String), (Value, Timestamp)>,
}

/// If another writer overwrites our status, wait this long before writing again. It may be an earlier leader that does
/// not know yet, and sees something else. Otherwise both would overwrite each other without pause.
const CONTESTED: SignedDuration = SignedDuration::from_secs(10);

impl StatusWriter {
    /// `nodes` is what `kubectl get nodepool` and the scale subresource show: machines of the pool, those on their way included.
    ///
    /// # Errors
    /// Nothing is lost: the next call tries again. An object that is gone is no error.
    pub async fn pool(
        &mut self,
        client: &Client,
        pool: &PoolName,
        nodes: u32,
        ready: &Readiness,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.write::<NodePool, NodePoolStatus>(
            client,
            ("nodepools", "nodepools/status"),
            pool.as_str(),
            now,
            |before| NodePoolStatus {
                nodes,
                conditions: with(before.conditions, READY, ready, now),
            },
        )
        .await
    }

    /// # Errors
    /// As [`Self::pool`].
    pub async fn class(
        &mut self,
        client: &Client,
        class: &ClassName,
        facts: &ClassFacts,
        shown: Vec<LearnedNode>,
        ready: &Readiness,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.write::<NodeClass, NodeClassStatus>(
            client,
            ("nodeclasses", "nodeclasses/status"),
            class.as_str(),
            now,
            |before| NodeClassStatus {
                conditions: with(before.conditions, READY, ready, now),
                learned: learned::kept(before.learned, facts, shown),
            },
        )
        .await
    }

    /// # Errors
    /// As [`Self::pool`].
    pub async fn cluster(
        &mut self,
        client: &Client,
        cluster: &ClusterName,
        seen: ProxmoxClusterStatus,
        ready: &Readiness,
        token_fits: Option<&Readiness>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let resource = ("proxmoxclusters", "proxmoxclusters/status");
        self.write::<ProxmoxCluster, ProxmoxClusterStatus>(
            client,
            resource,
            cluster.as_str(),
            now,
            |before| ProxmoxClusterStatus {
                reachable: Some(seen.reachable == Some(true)),
                quorate: seen.quorate,
                // Values that are unknown now stay as they were last seen.
                version: seen.version.or(before.version),
                hypervisors: match seen.hypervisors.is_empty() {
                    true => before.hypervisors,
                    false => seen.hypervisors,
                },
                key_fingerprint: seen.key_fingerprint.or(before.key_fingerprint),
                // What is not told now was true when last asked.
                conditions: token_fits.into_iter().fold(
                    with(before.conditions, READY, ready, now),
                    |conditions, fits| with(conditions, TOKEN_FITS, fits, now),
                ),
            },
        )
        .await
    }

    /// The object has changed or is gone, and its status perhaps with it.
    pub fn forget(&mut self, resource: &'static str, name: &str) {
        self.known.remove(&(resource, name.to_owned()));
    }

    async fn write<K, S>(
        &mut self,
        client: &Client,
        (resource, subresource): (&'static str, &'static str),
        name: &str,
        now: Timestamp,
        after: impl FnOnce(S) -> S,
    ) -> Result<(), Error>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + kube::core::object::HasStatus<Status = S>,
        S: Default + Serialize + DeserializeOwned,
    {
        let api = client.all::<K>();
        let key = (resource, name.to_owned());
        let before = match self.known.get(&key) {
            Some(known) => known.clone(),
            None => match api
                .get_opt(name)
                .await
                .map_err(Error::of("get", resource, name))?
            {
                Some(object) => json!(object.status()),
                None => return Ok(()),
            },
        };
        let wanted = after(serde_json::from_value(before.clone()).unwrap_or_default());
        let wanted = serde_json::to_value(wanted).expect("a status is plain data");
        if wanted == before {
            self.known.insert(key, wanted);
            return Ok(());
        }
        let is_contested = |(ours, at): &(Value, Timestamp)| {
            !before.is_null() && *ours != before && now.duration_since(*at).abs() < CONTESTED
        };
        if self.ours.get(&key).is_some_and(is_contested) {
            return Ok(());
        }
        // What happens on the way is not known; a later call reads again.
        self.known.remove(&key);
        let patch = json!({ "status": replacing(&before, wanted.clone()) });
        let written = api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(Error::of("patch", subresource, name));
        match written {
            Ok(_) => {
                self.ours.insert(key.clone(), (wanted.clone(), now));
                self.known.insert(key, wanted);
                Ok(())
            }
            Err(Error::NotFound { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }
}

/// A merge patch keeps what it does not name: fields that were set and no longer are must be null.
fn replacing(before: &Value, mut after: Value) -> Value {
    for (field, _) in before.as_object().into_iter().flatten() {
        if after.get(field).is_none() {
            after[field] = Value::Null;
        }
    }
    after
}

/// Only a change of the status moves the time of the transition.
fn with(
    mut conditions: Vec<StatusCondition>,
    kind: &str,
    ready: &Readiness,
    now: Timestamp,
) -> Vec<StatusCondition> {
    let status = match ready.ready {
        true => ConditionStatus::True,
        false => ConditionStatus::False,
    };
    let mut same = conditions.iter();
    let same = same.find(|condition| condition.kind == kind && condition.status == status);
    let since = same.map(|condition| condition.last_transition_time.clone());
    conditions.retain(|condition| condition.kind != kind);
    conditions.push(StatusCondition {
        kind: kind.to_owned(),
        status,
        last_transition_time: since.unwrap_or_else(|| now.to_string()),
        reason: ready.reason.to_owned(),
        message: truncated(&ready.message, 4000),
    });
    conditions.sort_by(|a, b| a.kind.cmp(&b.kind));
    conditions
}

const READY: &str = "Ready";
/// The credentials of a Proxmox cluster may do no more than kproxide needs.
const TOKEN_FITS: &str = "TokenFits";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_of_status_moves_the_time() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let first = with(
            Vec::new(),
            READY,
            &Readiness::not_ready("NoTemplate", "no template"),
            at(1),
        );
        let second = with(
            first,
            READY,
            &Readiness::not_ready("NoSpace", "no space"),
            at(2),
        );
        assert_eq!(second[0].last_transition_time, "1970-01-01T00:00:01Z");
        assert_eq!(second[0].reason, "NoSpace");
        let third = with(second, READY, &Readiness::ready(), at(3));
        assert_eq!(third.len(), 1);
        assert_eq!(third[0].last_transition_time, "1970-01-01T00:00:03Z");
    }

    #[test]
    fn what_is_no_longer_set_is_removed() {
        assert_eq!(
            replacing(&json!({"a": 1, "b": 2}), json!({"a": 3})),
            json!({"a": 3, "b": null})
        );
    }
}
