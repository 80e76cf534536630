//! Machines that came for nobody: Proxmox was asked for them, and their pods were gone before the machines could serve. Pods that come and go, of ever new
//! shapes, would otherwise use up the numbers of a Proxmox cluster for everybody.
//!
//! They count for the workload, whatever its pods ask for, and for the whole namespace: whoever makes pods may name another controller in each. With more
//! than 20 in an hour the workload rests as after a machine in vain, with more than 40 the namespace. Such rows of `tries` have no digest of pods. Such a
//! machine does not count for the pause of a pool: one tenant would stop all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::workload::{namespace_of, of_namespace};
use super::{GUARDED, Key, MOST_ROWS, has_run, pods_digest, workload};
use crate::facts::{ClaimFacts, LedgerFacts, OF_NAMESPACE, Tried, Tries, most_given_up};
use crate::ids::{ClaimName, Digest};
use crate::time::later;
use crate::world::World;

/// Rows of one namespace.
const MOST_OF_NAMESPACE: usize = 32;

/// The machine of a row that nobody came to use.
pub(super) struct GivenUp<'w> {
    pub(super) of: Tries,
    pub(super) name: ClaimName,
    pub(super) claim: &'w ClaimFacts,
}

impl<'w> GivenUp<'w> {
    pub(super) fn of(row: &Tries, tried: Tried, claim: &'w ClaimFacts) -> Self {
        Self {
            of: row.key().row(),
            name: tried.claim,
            claim,
        }
    }
}

impl Tries {
    /// Of a workload or of a namespace, whatever its pods ask for.
    pub(crate) fn is_whole(&self) -> bool {
        self.pods.0.is_empty() && !self.is_of_pool()
    }

    pub(crate) fn is_of_namespace(&self) -> bool {
        self.workload.starts_with(OF_NAMESPACE)
    }

    /// It is for the whole workload or the whole namespace of this key.
    fn covers(&self, key: &Key<'_>) -> bool {
        let namespace = self.workload.strip_prefix(OF_NAMESPACE);
        (self.workload == *key.workload || namespace == Some(namespace_of(key.workload)))
            && self.is_whole()
            && self.pool == *key.pool
            && self.settings == *key.settings
    }

    /// One of its machines is used. A namespace has machines of rows that had to go too: of it, only one that was tried ends the rest.
    pub(super) fn used(&mut self, claim: &ClaimFacts) {
        if !self.is_of_namespace() || self.at.is_none_or(|at| claim.created > at) {
            self.ends();
        }
    }

    fn key(&self) -> Key<'_> {
        Key {
            workload: &self.workload,
            pods: &self.pods,
            pool: &self.pool,
            instance_type: &self.instance_type,
            settings: &self.settings,
        }
    }
}

/// The rows for the whole workload and for its whole namespace, as far as there are any.
pub(crate) fn whole_rows<'l>(
    ledger: &'l LedgerFacts,
    key: &Key<'_>,
) -> impl Iterator<Item = &'l Tries> {
    ledger.tries.iter().filter(|row| row.covers(key))
}

/// Counts them, each once.
pub(super) fn note(tries: &mut Vec<Tries>, found: Vec<GivenUp<'_>>, now: Timestamp) {
    for row in tries.iter_mut() {
        row.given_up
            .retain(|at| *at <= now && now < later(*at, GUARDED));
    }
    let mut seen = BTreeSet::new();
    for GivenUp { of, name, claim } in found {
        if of.is_of_pool() || !seen.insert(name) {
            continue;
        }
        for workload in BTreeSet::from([of_namespace(&of.workload), of.workload.clone()]) {
            let row = take(tries, &workload, &of);
            row.given_up.push(now);
            let are_many = row.given_up.len() > most_given_up(&workload);
            if are_many {
                row.given_up.remove(0);
            }
            // The one that was tried after a rest came for nobody too.
            if are_many || row.rounds > 0 {
                row.in_vain(claim, now);
            }
            bound_rows(tries, &workload);
        }
    }
}

/// The row for this whole workload or namespace, as the newest of all.
fn take<'t>(tries: &'t mut Vec<Tries>, workload: &Arc<str>, of: &Tries) -> &'t mut Tries {
    let whole = Key {
        workload,
        pods: &Digest::from(""),
        ..of.key()
    };
    let known = tries
        .iter()
        .position(|row| row.workload == *workload && row.covers(&whole));
    let row = match known {
        Some(index) => tries.remove(index),
        None => whole.row(),
    };
    tries.push(row);
    tries.last_mut().expect("it was just pushed")
}

/// When pods last got a Node on which they run, by workload and what they ask for.
pub(super) struct Places(BTreeMap<(Arc<str>, Digest), Timestamp>);

impl Places {
    /// Of pods that came there since.
    pub(super) fn of(world: &World, first: Option<Timestamp>) -> Self {
        let mut places = BTreeMap::new();
        for pod in world.pods() {
            let since = pod.bound_since().filter(|since| Some(*since) >= first);
            let Some(since) = since.filter(|_| has_run(&pod)) else {
                continue;
            };
            let last = places.entry((workload(&pod), pods_digest(pod.spec())));
            let last = last.or_insert(since);
            *last = since.max(*last);
        }
        Self(places)
    }

    /// A pod like those that the machine was made for has got a Node since, whichever: the machine was wanted.
    pub(super) fn has_taken(&self, row: &Tries, claim: &ClaimFacts) -> bool {
        let is_alike = |pods: &Digest| row.is_whole() || *pods == row.pods;
        let mut places = self.0.iter();
        places.any(|((owner, pods), since)| {
            *owner == row.workload && is_alike(pods) && *since >= claim.created
        })
    }
}

/// The machine is noted for the whole workload and namespace too, while they rest: it is the one that is tried.
pub(super) fn made(tries: &mut [Tries], of: &Tries, tried: &Tried) {
    let rows = tries.iter_mut();
    for row in rows.filter(|row| row.rounds > 0 && row.covers(&of.key())) {
        // A machine may be for pods of several workloads.
        row.machines.retain(|known| known != tried);
        row.machines.push(tried.clone());
    }
}

/// At most 32 rows are of one namespace, and 256 in all. Of a namespace the oldest goes that does not rest, and its machines go on to count for the namespace.
pub(super) fn bound_rows(tries: &mut Vec<Tries>, workload: &Arc<str>) {
    let namespace = namespace_of(workload);
    let is_of = |row: &Tries| !row.is_of_pool() && namespace_of(&row.workload) == namespace;
    let may_go = |row: &Tries| is_of(row) && !row.is_of_namespace();
    while tries.iter().filter(|row| is_of(row)).count() > MOST_OF_NAMESPACE {
        let mut rows = tries.iter();
        let idle = rows.position(|row| may_go(row) && row.rounds == 0);
        let Some(oldest) = idle.or_else(|| tries.iter().position(may_go)) else {
            break;
        };
        let oldest = tries.remove(oldest);
        let tried = oldest.machines.iter().filter(|tried| !tried.in_vain);
        let tried: Vec<Tried> = tried.cloned().collect();
        if !tried.is_empty() {
            let row = take(tries, &of_namespace(workload), &oldest);
            row.machines.retain(|known| !tried.contains(known));
            row.machines.extend(tried);
        }
    }
    let surplus = tries.len().saturating_sub(MOST_ROWS);
    tries.drain(..surplus);
}
