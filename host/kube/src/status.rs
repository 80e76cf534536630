//! Status of pools, classes and clusters: written when something changes, never as a heartbeat.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::check::learned;
use kproxide_planner::facts::{ClassFacts, LearnedNode};
use kproxide_planner::ids::{ClassName, ClusterName, PoolName};
use kproxide_planner::mutants::{Mutant, broken};
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::Client;
use super::convert::truncated;
use super::crd::{
    ConditionStatus, NodeClass, NodeClassStatus, NodePool, NodePoolStatus, PolicyStatus,
    ProxmoxCluster, ProxmoxClusterStatus, StatusCondition,
};
use super::error::Error;

/// A condition has another status than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub kind: &'static str,
    /// Something is wrong by now.
    pub is_bad: bool,
    /// `None`: it is new.
    pub from: Option<ConditionStatus>,
    pub to: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

impl Turn {
    /// Of those that come at a limited pace.
    fn counts(&self) -> bool {
        !self.is_bad || self.from == Some(self.to)
    }
}

/// All that is found of an object in one tick.
#[derive(Clone, Copy)]
pub struct Found<'f> {
    /// Of the object that was judged.
    pub generation: i64,
    /// One for each condition.
    pub conditions: &'f [Condition<'f>],
}

/// A condition as it is to stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition<'f> {
    /// Its type, such as `Ready`.
    pub kind: &'static str,
    pub status: ConditionStatus,
    /// One CamelCase word for programs.
    pub reason: &'static str,
    /// For people. Without counters: each other text is another write.
    pub message: &'f str,
    /// It was so for long enough to be said. What is not ripe changes no status.
    pub is_ripe: bool,
    /// Something is wrong. That is never held back.
    pub is_bad: bool,
}

/// The condition that says whether an object can be used.
pub const READY: &str = "Ready";
/// The reason of a condition that is not known yet.
pub const NOT_JUDGED: &str = "NotJudgedYet";

/// So many changes of a condition come at once, and each further one so long after the last: at most 12 in an hour, and no
/// condition says for longer what is over. The last of those at once is for a change of status, so that ever other texts do
/// not keep it waiting. That something is wrong, which was well before, is written at once and not counted: with what takes
/// it back at most 25 changes in an hour.
const AT_ONCE: usize = 7;
const THEN_EVERY: SignedDuration = SignedDuration::from_mins(10);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// An object, by its kind and its name.
type Key = (&'static str, String);

/// Writes status, and remembers what it wrote so that nothing is written twice. Forgetting it costs a read, nothing more.
#[derive(Default)]
pub struct StatusWriter {
    /// By kind and name: the status as it stands on the server, to our knowledge.
    known: BTreeMap<Key, Value>,
    /// What this process wrote last, and when.
    ours: BTreeMap<Key, (Value, Timestamp)>,
    /// When conditions changed in the last hour.
    changes: BTreeMap<(Key, &'static str), VecDeque<Timestamp>>,
    /// Changes that were sent, and whose answer was lost.
    unanswered: BTreeMap<Key, Vec<Turn>>,
}

/// If another writer overwrites our status, wait this long before writing again. It may be an earlier leader that does
/// not know yet, and sees something else. Otherwise both would overwrite each other without pause.
const CONTESTED: SignedDuration = SignedDuration::from_secs(10);

/// What goes wrong with a policy in ever other words is written this often.
const ERROR_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// Since when the same bytes answer, and what went wrong with them last.
fn since_before(
    mut policies: Vec<PolicyStatus>,
    before: &[PolicyStatus],
    now: Timestamp,
) -> Vec<PolicyStatus> {
    for policy in &mut policies {
        let is_same = |it: &&PolicyStatus| {
            (&it.kind, &it.name, &it.digest) == (&policy.kind, &policy.name, &policy.digest)
        };
        let Some(old) = before.iter().find(is_same) else {
            continue;
        };
        policy.since.clone_from(&old.since);
        let at = old.last_error_time.as_deref();
        let at = at.and_then(|at| at.parse::<Timestamp>().ok());
        let is_recent = at.is_some_and(|at| now.duration_since(at) < ERROR_PAUSE);
        if policy.last_error.is_none() || policy.last_error == old.last_error || is_recent {
            policy.last_error.clone_from(&old.last_error);
            policy.last_error_time.clone_from(&old.last_error_time);
        }
    }
    policies
}

impl StatusWriter {
    /// The number is what `kubectl get nodepool` and the scale subresource show: machines of the pool, those on their way included.
    ///
    /// # Errors
    /// Nothing is lost: the next call tries again. An object that is gone is no error.
    pub async fn pool(
        &mut self,
        client: &Client,
        pool: &PoolName,
        (nodes, policies): (u32, Vec<PolicyStatus>),
        found: Found<'_>,
        now: Timestamp,
    ) -> Result<Vec<Turn>, Error> {
        self.write::<NodePool, NodePoolStatus>(
            client,
            ("nodepools", "nodepools/status"),
            pool.as_str(),
            found,
            now,
            |before: NodePoolStatus, conditions| NodePoolStatus {
                nodes,
                policies: since_before(policies, &before.policies, now),
                conditions,
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
        found: Found<'_>,
        now: Timestamp,
    ) -> Result<Vec<Turn>, Error> {
        self.write::<NodeClass, NodeClassStatus>(
            client,
            ("nodeclasses", "nodeclasses/status"),
            class.as_str(),
            found,
            now,
            |before, conditions| NodeClassStatus {
                conditions,
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
        found: Found<'_>,
        now: Timestamp,
    ) -> Result<Vec<Turn>, Error> {
        let resource = ("proxmoxclusters", "proxmoxclusters/status");
        self.write::<ProxmoxCluster, ProxmoxClusterStatus>(
            client,
            resource,
            cluster.as_str(),
            found,
            now,
            |before, conditions| ProxmoxClusterStatus {
                reachable: Some(seen.reachable == Some(true)),
                quorate: seen.quorate,
                // Values that are unknown now stay as they were last seen.
                version: seen.version.or(before.version),
                hypervisors: match seen.hypervisors.is_empty() {
                    true => before.hypervisors,
                    false => seen.hypervisors,
                },
                key_fingerprint: seen.key_fingerprint.or(before.key_fingerprint),
                conditions,
            },
        )
        .await
    }

    /// Another leader may have written other statuses in between. How often this process changed them still counts.
    pub fn begin_term(&mut self) {
        self.known.clear();
        self.ours.clear();
        self.unanswered.clear();
    }

    /// The object has changed, and its status perhaps with it.
    pub fn forget(&mut self, resource: &'static str, name: &str) {
        self.known.remove(&(resource, name.to_owned()));
    }

    /// The object is gone.
    pub fn forget_all(&mut self, resource: &'static str, name: &str) {
        let key = (resource, name.to_owned());
        self.known.remove(&key);
        self.ours.remove(&key);
        self.unanswered.remove(&key);
        self.changes.retain(|(of, _), _| *of != key);
    }

    /// The conditions as they are to stand, and those that say something else than before.
    fn settled(
        &mut self,
        key: &Key,
        mut conditions: Vec<StatusCondition>,
        found: Found<'_>,
        now: Timestamp,
    ) -> (Vec<StatusCondition>, Vec<Turn>) {
        // What stays is written again, whoever wrote it.
        for condition in &mut conditions {
            condition.message = truncated(&condition.message, 4000);
        }
        let mut turns = Vec::new();
        for judged in found.conditions {
            let kind = judged.kind;
            let at = conditions.iter().position(|it| it.kind == kind);
            let old = at.map(|at| &conditions[at]);
            let Some((status, reason, message)) = ripe(old, judged) else {
                continue;
            };
            let message = match broken(Mutant::ConditionsCount) {
                // Counting faster would keep it writing without a pause, for minutes of real time.
                true => (now.as_second() / 30).to_string(),
                false => truncated(message, 4000),
            };
            let stays = old.filter(|old| old.status == status);
            let since = stays.map(|old| old.last_transition_time.clone());
            let says_so = stays.is_some_and(|old| old.reason == reason && old.message == message);
            if !says_so {
                let at_once = match stays {
                    Some(_) => AT_ONCE - 1,
                    None => AT_ONCE,
                };
                let may_change =
                    stays.is_none() && judged.is_bad || self.may_change(key, kind, at_once, now);
                if !may_change && !broken(Mutant::ConditionsCount) {
                    continue;
                }
                turns.push(Turn {
                    kind,
                    is_bad: judged.is_bad,
                    from: old.map(|old| old.status),
                    to: status,
                    reason,
                    message: message.clone(),
                });
            }
            let new = StatusCondition {
                kind: kind.to_owned(),
                status,
                observed_generation: Some(found.generation),
                last_transition_time: since.unwrap_or_else(|| format!("{now:.0}")),
                reason: reason.to_owned(),
                message,
            };
            match at {
                Some(at) => conditions[at] = new,
                None => conditions.push(new),
            }
        }
        // What people look for comes first.
        conditions.sort_by(|a, b| (a.kind != READY, &a.kind).cmp(&(b.kind != READY, &b.kind)));
        (conditions, turns)
    }

    fn may_change(
        &mut self,
        key: &Key,
        kind: &'static str,
        at_once: usize,
        now: Timestamp,
    ) -> bool {
        let Some(changes) = self.changes.get_mut(&(key.clone(), kind)) else {
            return true;
        };
        let is_old = |at: &Timestamp| now.duration_since(*at) >= HOUR;
        while changes.front().is_some_and(is_old) {
            changes.pop_front();
        }
        let last = changes.back();
        changes.len() < at_once || last.is_some_and(|last| now.duration_since(*last) >= THEN_EVERY)
    }

    async fn write<K, S>(
        &mut self,
        client: &Client,
        (resource, subresource): (&'static str, &'static str),
        name: &str,
        found: Found<'_>,
        now: Timestamp,
        after: impl FnOnce(S, Vec<StatusCondition>) -> S,
    ) -> Result<Vec<Turn>, Error>
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
                None => return Ok(Vec::new()),
            },
        };
        let conditions = serde_json::from_value(before["conditions"].clone()).unwrap_or_default();
        let (conditions, turns) = self.settled(&key, conditions, found, now);
        let wanted = after(
            serde_json::from_value(before.clone()).unwrap_or_default(),
            conditions,
        );
        let wanted = serde_json::to_value(wanted).expect("a status is plain data");
        if wanted == before {
            // A write whose answer was lost has come through.
            let turns = self.unanswered.remove(&key).unwrap_or_default();
            self.known.insert(key, wanted);
            return Ok(turns);
        }
        let is_contested = |(ours, at): &(Value, Timestamp)| {
            !before.is_null() && *ours != before && now.duration_since(*at).abs() < CONTESTED
        };
        if self.ours.get(&key).is_some_and(is_contested) {
            return Ok(Vec::new());
        }
        for turn in turns.iter().filter(|turn| turn.counts()) {
            let memory = (key.clone(), turn.kind);
            self.changes.entry(memory).or_default().push_back(now);
        }
        let is_turn = |turn: &Turn| turn.from != Some(turn.to);
        let turns: Vec<Turn> = turns.into_iter().filter(is_turn).collect();
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
                self.unanswered.remove(&key);
                self.known.insert(key, wanted);
                Ok(turns)
            }
            Err(Error::NotFound { .. }) => Ok(Vec::new()),
            Err(other) => {
                self.unanswered.insert(key, turns);
                Err(other)
            }
        }
    }
}

/// What is to be said of a condition now. `None`: what stands there.
fn ripe<'j>(
    old: Option<&StatusCondition>,
    judged: &Condition<'j>,
) -> Option<(ConditionStatus, &'static str, &'j str)> {
    let says = Some((judged.status, judged.reason, judged.message));
    match old {
        Some(old) if old.status == judged.status => says,
        _ if judged.is_ripe => says,
        Some(_) => None,
        None => Some((ConditionStatus::Unknown, NOT_JUDGED, "")),
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

#[cfg(test)]
mod tests;
