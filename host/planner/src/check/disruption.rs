//! Windows and budgets of pools, derived anew from the world.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Violation;
use crate::claim::Condition;
use crate::facts::{ClaimFacts, DisruptionReason, Going, LedgerFacts, PoolFacts};
use crate::ids::{ClaimName, PoolName};
use crate::plan::{Launch, RemovalReason};
use crate::world::World;

/// A launch at a time that its pool does not allow: for pods, or to replace a machine that is to go by kproxide's choice.
pub(super) fn launch_violation(
    world: &World,
    now: Timestamp,
    ledger: &LedgerFacts,
    before: &[Launch],
    launch: &Launch,
) -> Option<Violation> {
    let pool = world.pools().get(&launch.spec.pool)?;
    if launch.for_pods && pool.scale_up.closed_until(now).is_some() {
        return Some(Violation::Window);
    }
    let name = launch.spec.replaces.as_ref()?;
    let old = world.claims().get(name)?;
    let pool = world.pools().get(&old.spec.pool)?;
    let replaced = replaced(world, now, before);
    // One that is not Ready is repaired.
    if replaced.contains(name) || !is_ready(world, old) {
        return None;
    }
    let reason = why_replaced(world, now, old);
    if is_outside(pool, reason, now) {
        return Some(Violation::Window);
    }
    let going = going(world, now, ledger, &replaced);
    let going = going.get(&old.spec.pool).copied().unwrap_or_default();
    let reason = reason
        .disruption()
        .filter(|_| !pool.disruption.budgets.is_empty())?;
    is_over(pool, reason, now, going, true).then_some(Violation::Budget)
}

/// Of a machine that works.
fn why_replaced(world: &World, now: Timestamp, old: &ClaimFacts) -> RemovalReason {
    if old.replace {
        RemovalReason::Replace
    } else if leaves_server(world, old, now) {
        RemovalReason::Maintenance
    } else {
        RemovalReason::Expired
    }
}

/// Its server is to be emptied.
pub(super) fn leaves_server(world: &World, claim: &ClaimFacts, now: Timestamp) -> bool {
    let from = world.empties_from(&claim.spec.cluster, claim.hypervisor());
    from.is_some_and(|from| from <= now)
}

/// No window is open for this reason, or the pool's times cannot be read.
pub(super) fn is_outside(pool: &PoolFacts, reason: RemovalReason, now: Timestamp) -> bool {
    let Some(reason) = reason.disruption() else {
        return false;
    };
    let is_unreadable = pool.times().any(|(_, when)| when.problem().is_some());
    is_unreadable || pool.disruption.closed_until(reason, now).is_some()
}

/// The budgets allow no more. One that is not Ready may go if a person asks for it.
pub(super) fn is_over(
    pool: &PoolFacts,
    reason: DisruptionReason,
    now: Timestamp,
    going: Going,
    is_ready: bool,
) -> bool {
    let left = pool.disruption.left(reason, now, going);
    let is_free = reason.is_asked_for() && !is_ready;
    !is_free && left.is_some_and(|left| left.machines == 0)
}

/// Those that a claim succeeds, or a launch of this plan replaces.
pub(super) fn replaced(world: &World, now: Timestamp, launches: &[Launch]) -> BTreeSet<ClaimName> {
    let succeeds = |claim: &ClaimFacts| {
        let name = claim.spec.replaces.as_ref()?;
        let old = world.claims().get(name)?;
        let pool = world.pools().get(&old.spec.pool);
        let expire_after = pool.and_then(|pool| pool.expire_after);
        let is_so = claim.succeeds(old, expire_after, |end| end <= now);
        is_so.then(|| name.clone())
    };
    let claims = world.claims().values().filter_map(succeeds);
    let launches = launches.iter();
    claims
        .chain(launches.filter_map(|it| it.spec.replaces.clone()))
        .collect()
}

/// How the machines of each pool stand.
pub(super) fn going(
    world: &World,
    now: Timestamp,
    ledger: &LedgerFacts,
    replaced: &BTreeSet<ClaimName>,
) -> BTreeMap<PoolName, Going> {
    let mut by_pool: BTreeMap<PoolName, Going> = BTreeMap::new();
    for (name, claim) in world.claims() {
        let going = by_pool.entry(claim.spec.pool.clone()).or_default();
        let has_node = claim.status.node_name.is_some();
        let is_removed = world.removal_has_begun(name, claim) && has_node;
        let goes = is_removed || replaced.contains(name);
        let free_at = world.gives_place_back(name, claim, ledger);
        let counts = free_at.is_none_or(|moment| moment > now);
        let is_limited = is_limited(world, name, claim);
        going.disrupted += u32::from(goes && is_limited && counts);
        if claim.status.since(Condition::Initialized).is_some() {
            going.initialized += 1;
            let is_out = goes || !is_ready(world, claim);
            going.out += u32::from(is_out && counts);
        }
    }
    by_pool
}

/// It goes, if at all, for a reason that budgets of `disruption` limit.
pub(super) fn is_limited(world: &World, name: &ClaimName, claim: &ClaimFacts) -> bool {
    let begun = world.host().removing.get(name).copied();
    match claim.status.removal().or(begun) {
        Some(reason) => reason.disruption().is_some(),
        None => claim.deleting_since.is_none() && (claim.replace || is_ready(world, claim)),
    }
}

pub(super) fn is_ready(world: &World, claim: &ClaimFacts) -> bool {
    world.node_of(claim).is_some_and(|node| node.facts.ready)
}
