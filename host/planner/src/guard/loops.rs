//! The law of loops: kproxide makes ever fewer machines for a workload that does not use them, whatever the cause is.
//!
//! A machine is used once an ordinary pod has run on it. It was made in vain if it was in service for 3 minutes while
//! its pods stayed pending, or if it was removed unused. After that its workload rests for 5 minutes. Then kproxide
//! tries one machine, and none while an unused one stands. Each further machine in vain doubles the rest, up to 6 hours.
//! A used machine ends all this, and so do other pods, other settings, or a new value of `kproxide.dev/retry`. If a Node of
//! the class offers something else, the rest is as short as the first.

mod given_up;
mod offers;
mod workload;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

pub(crate) use self::given_up::whole_rows;
use self::given_up::{GivenUp, Places};
pub(crate) use self::workload::{pods_digest, workload};
use crate::claim::{Condition, Phase};
use crate::facts::{
    ClaimFacts, ClassFacts, EntryState, Existence, InVain, LedgerEntry, LedgerFacts, PoolFacts,
    RemovalReason, Tried, Tries,
};
use crate::ids::{ClaimName, Digest, InstanceTypeName, PoolName, digest};
use crate::keys::OF_POOL;
use crate::time::later;
use crate::world::{PodView, World};

/// So long a machine may be in service while its pods stay pending.
pub(crate) const PATIENCE: SignedDuration = SignedDuration::from_mins(3);

const FIRST_REST: SignedDuration = SignedDuration::from_mins(5);
const LONGEST_REST: SignedDuration = SignedDuration::from_hours(6);

/// So long after the last machine in vain a row is forgotten.
const MEMORY: SignedDuration = SignedDuration::from_hours(24);

/// Pods that have waited for so long are not merely on their way to a Node.
const WAITING: SignedDuration = SignedDuration::from_mins(1);

/// So many machines in a row may come after their pods are gone.
const MOST_LATE: u32 = 2;

const MOST_ROWS: usize = 256;

/// With more machines in vain within [`GUARDED`] a pool's launches pause.
const MOST_IN_VAIN: usize = 10;
const GUARDED: SignedDuration = SignedDuration::from_hours(1);

/// What a machine is made for.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) workload: &'a Arc<str>,
    pub(crate) pods: &'a Digest,
    pub(crate) pool: &'a PoolName,
    pub(crate) instance_type: &'a InstanceTypeName,
    pub(crate) settings: &'a Digest,
}

impl Key<'_> {
    fn is_of(&self, row: &Tries) -> bool {
        row.workload == *self.workload
            && row.pods == *self.pods
            && row.pool == *self.pool
            && row.instance_type == *self.instance_type
            && row.settings == *self.settings
    }

    /// A row of which nothing is known yet.
    fn row(&self) -> Tries {
        Tries {
            workload: self.workload.clone(),
            pool: self.pool.clone(),
            instance_type: self.instance_type.clone(),
            pods: self.pods.clone(),
            settings: self.settings.clone(),
            machines: Vec::new(),
            given_up: Vec::new(),
            rounds: 0,
            late: 0,
            at: None,
            node: None,
        }
    }
}

impl Tries {
    /// The next machine may be tried then. `None`: it is not limited.
    pub(crate) fn rests_until(&self) -> Option<Timestamp> {
        let doublings = self.rounds.checked_sub(1)?.min(10);
        let rest = FIRST_REST.checked_mul(1 << doublings);
        Some(later(
            self.at?,
            rest.unwrap_or(LONGEST_REST).min(LONGEST_REST),
        ))
    }

    /// Its pods were gone when the machines came.
    pub(crate) fn arrives_too_late(&self) -> bool {
        self.late > MOST_LATE
    }

    pub(crate) fn is_of_pool(&self) -> bool {
        *self.workload == *OF_POOL
    }

    /// The workload does not rest any longer.
    fn ends(&mut self) {
        (self.rounds, self.late, self.at, self.node) = (0, 0, None, None);
    }

    /// It rests as after the first machine in vain. Nobody has used one yet, so one is tried then.
    fn rests_anew(&mut self) {
        (self.rounds, self.late) = (self.rounds.min(1), 0);
    }

    /// A machine whose NodeClaim was made after the last one in vain begins a new round.
    fn in_vain(&mut self, claim: &ClaimFacts, now: Timestamp) {
        if self.rounds == 0 || self.at.is_none_or(|at| claim.created > at) {
            self.rounds = self.rounds.saturating_add(1);
        }
        self.at = Some(now);
        self.node = claim.status.node_name.clone();
    }
}

/// The row of this key.
pub(crate) fn row<'l>(ledger: &'l LedgerFacts, key: &Key<'_>) -> Option<&'l Tries> {
    ledger.tries.iter().find(|row| key.is_of(row))
}

/// Notes that this plan makes a machine.
pub(crate) fn made(ledger: &mut LedgerFacts, key: &Key<'_>, claim: &ClaimName) {
    let rows = &mut ledger.tries;
    let known = rows.iter().position(|row| key.is_of(row));
    let mut row = match known {
        Some(index) => rows.remove(index),
        None => key.row(),
    };
    let tried = Tried {
        claim: claim.clone(),
        in_vain: false,
    };
    given_up::made(rows, &row, &tried);
    row.machines.push(tried);
    rows.push(row);
    given_up::bound_rows(rows, key.workload);
}

/// Until when the pool makes no machine, because too many were made in vain.
pub(crate) fn paused_until(
    ledger: &LedgerFacts,
    pool: &PoolName,
    settings: &Digest,
) -> Option<Timestamp> {
    let of_pool = ledger.in_vain.iter();
    let of_pool = of_pool.filter(|it| it.pool == *pool && it.settings == *settings);
    // Ascending, and those of the last hour alone.
    let at: Vec<Timestamp> = of_pool.map(|it| it.at).collect();
    let ends = at.len().checked_sub(MOST_IN_VAIN + 1)?;
    Some(later(at[ends], GUARDED))
}

/// Digest of what a pool's machines are made from.
pub(crate) fn settings(world: &World, pool: &PoolName) -> Digest {
    let mut hasher = DefaultHasher::new();
    let facts = world.pools().get(pool);
    // Another version of kproxide may write these facts otherwise. Then rests end once.
    let pool_alone = facts.map(|facts| PoolFacts {
        // kproxide's finalizer comes and goes with the machines.
        existence: Existence::default(),
        ..PoolFacts::clone(facts)
    });
    format!("{pool_alone:?}").hash(&mut hasher);
    let class = facts.and_then(|facts| world.classes().get(&facts.node_class));
    if let (Some(facts), Some(class)) = (facts, class) {
        let class_alone = ClassFacts {
            learned: Vec::new(),
            existence: Existence::default(),
            ..ClassFacts::clone(class)
        };
        format!("{class_alone:?}").hash(&mut hasher);
        for name in world.inventories().keys() {
            if facts.clusters.is_empty() || facts.clusters.contains(name) {
                for template in world.templates(class, name) {
                    template.digest.hash(&mut hasher);
                }
            }
        }
    }
    digest(&hasher)
}

/// Finds out which machines were used and which were made in vain. Tells when time alone changes that.
pub(crate) fn review(world: &World, ledger: &mut LedgerFacts, now: Timestamp) -> Vec<Timestamp> {
    let mut moments = Vec::new();
    let LedgerFacts {
        tries,
        in_vain,
        entries,
        ..
    } = ledger;
    let waiting = match tries.is_empty() {
        true => BTreeMap::new(),
        false => waiting(world),
    };
    let tried = tries.iter().flat_map(|row| &row.machines);
    let tried = tried.filter_map(|tried| world.claims().get(&tried.claim));
    let first = tried.map(|claim| claim.created).min();
    let mut places = None;
    let mut given_up = Vec::new();
    for row in tries.iter_mut() {
        // A clock that was ahead must not make it rest for longer.
        row.at = row.at.map(|at| at.min(now));
        for mut tried in std::mem::take(&mut row.machines) {
            let claim = world.claims().get(&tried.claim);
            let verdict = match claim {
                Some(claim) => judge(world, row, &tried, claim, &waiting, now, &mut moments),
                None if is_reserved(entries, &tried.claim) => Verdict::Open,
                None => Verdict::Gone,
            };
            match (verdict, claim) {
                (Verdict::Open, _) => row.machines.push(tried),
                (Verdict::Used, Some(claim)) => row.used(claim),
                (Verdict::InVain | Verdict::Late, Some(claim)) => {
                    let is_late = verdict == Verdict::Late;
                    if is_late {
                        // Pods that are alike take each other's machines.
                        let places = places.get_or_insert_with(|| Places::of(world, first));
                        if places.has_taken(row, claim) {
                            continue;
                        }
                        given_up.push(GivenUp::of(row, tried.clone(), claim));
                    }
                    if row.is_whole() {
                        continue;
                    }
                    row.late = if is_late {
                        row.late.saturating_add(1)
                    } else {
                        0
                    };
                    if is_late && !row.arrives_too_late() {
                        row.at = Some(now);
                        continue;
                    }
                    row.in_vain(claim, now);
                    if !is_late {
                        in_vain.push(InVain {
                            pool: row.pool.clone(),
                            settings: row.settings.clone(),
                            claim: tried.claim.clone(),
                            at: now,
                        });
                    }
                    if !is_leaving(claim) {
                        tried.in_vain = true;
                        row.machines.push(tried);
                    }
                }
                (_, None) | (Verdict::Gone, _) => {}
            }
        }
        if let Some(until) = row.rests_until() {
            moments.push(until);
        }
    }
    given_up::note(tries, given_up, now);
    forget(tries, now);
    moments.extend(offers::review(world, ledger, now));
    let LedgerFacts { tries, in_vain, .. } = ledger;
    forget(tries, now);
    in_vain.retain(|it| now < later(it.at, GUARDED));
    let surplus = in_vain.len().saturating_sub(MOST_ROWS);
    in_vain.drain(..surplus);
    moments.extend(in_vain.first().map(|it| later(it.at, GUARDED)));
    moments
}

/// Rows that say nothing any more.
fn forget(tries: &mut Vec<Tries>, now: Timestamp) {
    tries.retain(|row| {
        let forgotten = row.at.map(|at| later(at, MEMORY));
        !(row.machines.is_empty() && row.given_up.is_empty())
            || forgotten.is_some_and(|moment| now < moment)
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Used,
    InVain,
    /// Removed unused, and no pod waited for it.
    Late,
    /// It says nothing: it never came into service, or broke, or a person removed it.
    Gone,
    Open,
}

/// Since when pods wait that are alike, by workload.
type Waiting = BTreeMap<(Arc<str>, Digest), Timestamp>;

fn waiting(world: &World) -> Waiting {
    let mut waiting = Waiting::new();
    for (shape, pods) in world.pending() {
        let digest = pods_digest(&shape.spec);
        for pod in pods.iter() {
            let Some(since) = pod.unschedulable_since() else {
                continue;
            };
            let first = waiting.entry((workload(&pod), digest.clone()));
            let first = first.or_insert(since);
            *first = since.min(*first);
        }
    }
    waiting
}

fn judge(
    world: &World,
    row: &Tries,
    tried: &Tried,
    claim: &ClaimFacts,
    waiting: &Waiting,
    now: Timestamp,
    moments: &mut Vec<Timestamp>,
) -> Verdict {
    let node = world.node_of(claim);
    if node.is_some_and(|node| node.pods().any(|pod| has_run(&pod))) {
        return Verdict::Used;
    }
    let is_leaving = is_leaving(claim);
    let Some(served) = claim.status.since(Condition::Initialized) else {
        // A launch that failed says nothing of its pods, nor does what a person deletes. Nothing else ends a launch that Proxmox was asked for.
        return match is_leaving {
            true => Verdict::Gone,
            false => Verdict::Open,
        };
    };
    let first = waiting.get(&(row.workload.clone(), row.pods.clone()));
    let waits_since = |moment: Timestamp| first.is_some_and(|since| *since <= moment);
    if is_leaving {
        let begun = world.host().removing.get(&tried.claim).copied();
        let reason = claim.status.removal().or(begun);
        return match reason.is_some_and(RemovalReason::scales_down) {
            _ if tried.in_vain => Verdict::Gone,
            false => Verdict::Gone,
            // It was there until the end of the schedule that it was made for.
            true if row.is_of_pool() && was_scheduled(world, row, claim, now) => Verdict::Gone,
            true if row.is_of_pool() || waits_since(served) => Verdict::InVain,
            true if waits_since(now.checked_sub(WAITING).unwrap_or(now)) => Verdict::InVain,
            true => Verdict::Late,
        };
    }
    // Its pods still run on the machine that it replaces.
    let old = claim.spec.replaces.as_ref();
    if old.is_some_and(|old| world.claims().contains_key(old)) {
        return Verdict::Open;
    }
    let end = later(served, PATIENCE);
    if now < end {
        moments.push(end);
    }
    let is_idle = node.is_none_or(|node| node.is_empty());
    let is_refused = now >= end && is_idle && !tried.in_vain && waits_since(served);
    match is_refused && !row.is_of_pool() {
        true => Verdict::InVain,
        false => Verdict::Open,
    }
}

fn was_scheduled(world: &World, row: &Tries, claim: &ClaimFacts, now: Timestamp) -> bool {
    let pool = world.pools().get(&row.pool);
    pool.is_some_and(|pool| pool.was_scheduled(claim.created, now))
}

fn is_reserved(entries: &[LedgerEntry], claim: &ClaimName) -> bool {
    let mut entries = entries.iter();
    entries.any(|entry| entry.claim == *claim && matches!(entry.state, EntryState::Reserved { .. }))
}

fn is_leaving(claim: &ClaimFacts) -> bool {
    claim.status.phase == Phase::Terminating || claim.deleting_since.is_some()
}

/// It is no DaemonSet's and no static pod, and its containers have run.
fn has_run(pod: &PodView<'_>) -> bool {
    let is_ordinary = !pod.is_mirror() && !pod.is_of_daemon_set();
    is_ordinary && pod.has_run()
}
