//! Machines that came for nobody: Proxmox was asked for them, and their pods were gone before the machines could serve. Pods that come and go, of ever new
//! shapes, would otherwise use up the numbers of a Proxmox cluster for everybody.
//!
//! They count for the workload, whatever its pods ask for; pods without a controller count for their namespace. With more than 20 in an hour it rests as
//! after a machine in vain. Its row of `tries` has no digest of pods. Such a machine does not count for the pause of a pool: one tenant would stop all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::{GUARDED, Key, has_run, pods_digest, workload};
use crate::facts::{ClaimFacts, LedgerFacts, Tried, Tries};
use crate::ids::{ClaimName, Digest};
use crate::time::later;
use crate::world::World;

/// In an hour.
const MOST_GIVEN_UP: usize = 20;

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
    /// Of a workload, whatever its pods ask for.
    pub(crate) fn is_of_workload(&self) -> bool {
        self.pods.0.is_empty() && !self.is_of_pool()
    }

    /// Of the same workload, whatever its pods ask for.
    fn is_alike(&self, key: &Key<'_>) -> bool {
        self.workload == *key.workload && self.pool == *key.pool && self.settings == *key.settings
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

/// The row for the whole workload, if it has one.
pub(crate) fn row_of_workload<'l>(ledger: &'l LedgerFacts, key: &Key<'_>) -> Option<&'l Tries> {
    let mut rows = ledger.tries.iter().filter(|row| row.is_of_workload());
    rows.find(|row| row.is_alike(key))
}

/// Counts them, each once, where no pod like those that it was made for has got a Node since.
pub(super) fn note(world: &World, tries: &mut Vec<Tries>, found: Vec<GivenUp<'_>>, now: Timestamp) {
    for row in tries.iter_mut() {
        row.given_up
            .retain(|at| *at <= now && now < later(*at, GUARDED));
    }
    if found.is_empty() {
        return;
    }
    let bound = bound(world, &found);
    let mut seen = BTreeSet::new();
    for GivenUp { of, name, claim } in found {
        let is_alike = |pods: &Digest| of.is_of_workload() || *pods == of.pods;
        let mut places = bound
            .iter()
            .filter(|((owner, pods), _)| *owner == of.workload && is_alike(pods));
        let has_place = places.any(|(_, since)| *since >= claim.created);
        if has_place || of.is_of_pool() || !seen.insert(name) {
            continue;
        }
        let row = take(tries, &of);
        row.given_up.push(now);
        let are_many = row.given_up.len() > MOST_GIVEN_UP;
        if are_many {
            row.given_up.remove(0);
        }
        // The one that was tried after a rest came for nobody too.
        if are_many || row.rounds > 0 {
            row.in_vain(claim, now);
        }
    }
}

/// The row for the whole workload, as the newest of all.
fn take<'t>(tries: &'t mut Vec<Tries>, of: &Tries) -> &'t mut Tries {
    let known = tries
        .iter()
        .position(|row| row.is_of_workload() && row.is_alike(&of.key()));
    let row = match known {
        Some(index) => tries.remove(index),
        None => Tries {
            pods: Digest::from(""),
            ..of.key().row()
        },
    };
    tries.push(row);
    tries.last_mut().expect("it was just pushed")
}

/// When pods last got a Node on which they run, by workload, of those that came after the first of these machines was asked for.
fn bound(world: &World, found: &[GivenUp<'_>]) -> BTreeMap<(Arc<str>, Digest), Timestamp> {
    let first = found.iter().map(|it| it.claim.created).min();
    let mut bound = BTreeMap::new();
    for pod in world.pods() {
        let since = pod.bound_since().filter(|since| Some(*since) >= first);
        let Some(since) = since.filter(|_| has_run(&pod)) else {
            continue;
        };
        let last = bound.entry((workload(&pod), pods_digest(pod.spec())));
        let last = last.or_insert(since);
        *last = since.max(*last);
    }
    bound
}

/// The machine is noted for the workload too, while that rests: it is the one that is tried.
pub(super) fn made(tries: &mut [Tries], of: &Tries, tried: &Tried) {
    let mut rows = tries.iter_mut();
    let row = rows.find(|row| row.is_of_workload() && row.is_alike(&of.key()) && row.rounds > 0);
    if let Some(row) = row {
        row.machines.push(tried.clone());
    }
}

/// At most 32 rows are of one namespace. The oldest goes; its machines go on to count for the workload, if that has other rows.
pub(super) fn bound_rows(tries: &mut Vec<Tries>, workload: &Arc<str>) {
    let namespace = namespace_of(workload);
    let is_of = |row: &Tries| !row.is_of_pool() && namespace_of(&row.workload) == namespace;
    while tries.iter().filter(|row| is_of(row)).count() > MOST_OF_NAMESPACE {
        let Some(oldest) = tries.iter().position(is_of) else {
            return;
        };
        let oldest = tries.remove(oldest);
        if !oldest.is_of_workload() && tries.iter().any(|row| row.is_alike(&oldest.key())) {
            let row = take(tries, &oldest);
            row.machines.extend(oldest.machines);
        }
    }
}

/// Of `KIND NAMESPACE/NAME`, or `pods without controller in NAMESPACE`.
fn namespace_of(workload: &str) -> &str {
    let named = workload.rsplit(' ').next().unwrap_or(workload);
    named
        .split_once('/')
        .map_or(named, |(namespace, _)| namespace)
}
