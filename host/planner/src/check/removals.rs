//! Removals of a plan, held against what must never go and against budgets.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Violation;
use crate::claim::{Condition, Phase};
use crate::facts::{ClaimFacts, DisruptionReason, Going, LedgerFacts, PoolFacts};
use crate::guard::anchor;
use crate::ids::{ClaimName, PoolName};
use crate::keys::{CONTROL_PLANE_ROLES, DO_NOT_DISRUPT, KARPENTER_DO_NOT_DISRUPT};
use crate::kubernetes::eviction::{Protection, protection};
use crate::plan::{Advance, Launch, Plan, RemovalReason, Verdict};
use crate::world::World;

/// Removals looked at one after the other, in the plan's order.
pub(super) struct Removals<'w> {
    world: &'w World,
    now: Timestamp,
    /// Nodes of each pool whose removal has begun or begins now.
    under_way: BTreeMap<PoolName, u32>,
    /// Those of them that no budget of `disruption` limits.
    forced: BTreeMap<PoolName, u32>,
    /// What budgets of `disruption` look at.
    going: BTreeMap<PoolName, Going>,
    /// Machines whose replacement is there or ordered: their removal has begun.
    replaced: BTreeSet<ClaimName>,
    /// Machines of each pool that stay.
    staying: BTreeMap<PoolName, u32>,
    seen: BTreeSet<ClaimName>,
    /// Claims whose removal the Ledger counts when the plan's removals begin.
    counted: BTreeSet<ClaimName>,
    /// The Ledger then says that too many machines are bad at once, and no user has confirmed it.
    frozen: bool,
    /// As it is then.
    ledger: LedgerFacts,
}

impl<'w> Removals<'w> {
    /// A drain that the plan gives up is under way until it is undone, and its machine stays.
    pub(super) fn new(world: &'w World, now: Timestamp, plan: &Plan) -> Self {
        let given_up: BTreeSet<&ClaimName> = plan
            .advances
            .iter()
            .filter(|advance| matches!(advance.verdict, Verdict::GiveUp(_)))
            .map(|advance| &advance.claim)
            .collect();
        let ledger = super::ledger_of(world, plan);
        let mut removals = Self {
            world,
            now,
            under_way: BTreeMap::new(),
            forced: BTreeMap::new(),
            going: BTreeMap::new(),
            replaced: replaced(world, &plan.launches),
            staying: BTreeMap::new(),
            seen: BTreeSet::new(),
            frozen: super::is_frozen(&ledger),
            counted: ledger
                .removals
                .iter()
                .map(|row| row.claim.clone())
                .collect(),
            ledger,
        };
        for (name, claim) in world.claims() {
            let pool = &claim.spec.pool;
            let has_begun = world.removal_has_begun(name, claim);
            let free_at = world.gives_place_back(name, claim, &removals.ledger);
            let is_free = free_at.is_some_and(|moment| moment <= now);
            if has_begun && claim.status.node_name.is_some() && !is_free {
                *removals.under_way.entry(pool.clone()).or_default() += 1;
                let is_forced = !is_limited(world, name, claim);
                *removals.forced.entry(pool.clone()).or_default() += u32::from(is_forced);
            }
            if !has_begun || given_up.contains(name) {
                *removals.staying.entry(pool.clone()).or_default() += 1;
            }
        }
        removals.going = going(world, &removals.ledger, &removals.replaced);
        removals
    }

    pub(super) fn violation(
        &mut self,
        advance: &Advance,
        reason: RemovalReason,
    ) -> Option<Violation> {
        let world = self.world;
        let Some(claim) = world.claims().get(&advance.claim) else {
            return Some(Violation::NoSuchClaim);
        };
        if claim.uid != advance.uid || !self.seen.insert(advance.claim.clone()) {
            return Some(Violation::NotOurs);
        }
        if let Some(violation) = self.node_violation(claim) {
            return Some(violation);
        }
        let armed_at = world.host().armed_at;
        if armed_at.is_none_or(|moment| self.now < moment) {
            return Some(Violation::NotArmed);
        }
        if anchor::hold(world, Some(&self.ledger), &claim.spec.cluster).is_some() {
            return Some(Violation::Anchor);
        }
        if self.frozen && reason != RemovalReason::LaunchFailed {
            return Some(Violation::Frozen);
        }
        // A paused pool begins no removal; those under way are finished.
        let is_paused = claim.status.phase <= Phase::Initialized
            && world
                .pools()
                .get(&claim.spec.pool)
                .is_some_and(|pool| pool.paused);
        // Once the claim is deleted there is nothing left to protect: half a termination would only stay half.
        let is_protected = reason.is_voluntary()
            && (claim.do_not_disrupt || self.is_node_protected(claim))
            && claim.deleting_since.is_none();
        if claim.paused || is_paused || is_protected {
            return Some(Violation::Protected);
        }
        if world.removal_has_begun(&advance.claim, claim) {
            return None;
        }
        if claim.status.phase == Phase::Initialized && !self.counted.contains(&advance.claim) {
            return Some(Violation::NotCounted);
        }
        self.begin(&advance.claim, claim, reason)
    }

    fn is_node_protected(&self, claim: &ClaimFacts) -> bool {
        let Some(node) = self.world.node_of(claim) else {
            return false;
        };
        let annotations = &node.facts.annotations;
        let karpenters = annotations.get(KARPENTER_DO_NOT_DISRUPT);
        let is_karpenters = match protection(karpenters.map(String::as_str), node.facts.created) {
            Protection::No => false,
            Protection::Until(end) => self.now < end,
            Protection::Always => true,
        };
        is_karpenters
            || annotations
                .get(DO_NOT_DISRUPT)
                .is_some_and(|value| value == "true")
    }

    /// A person wants the server of the machine empty, or it is in maintenance and the ProxmoxCluster says `replace`.
    fn is_server_left(&self, claim: &ClaimFacts) -> bool {
        let clusters = self.world.clusters();
        let Some(cluster) = clusters.get(&claim.spec.cluster) else {
            return false;
        };
        let inventory = self.world.inventories().get(&claim.spec.cluster);
        let server = inventory.and_then(|it| it.hypervisors.get(claim.hypervisor()));
        cluster.hypervisors.drain.contains(claim.hypervisor())
            || (cluster.leaves_maintenance() && server.is_some_and(|it| it.maintenance))
    }

    fn node_violation(&self, claim: &ClaimFacts) -> Option<Violation> {
        let node = self.world.node_of(claim)?;
        let labels = &node.facts.labels;
        if self.world.host().own_node.as_ref() == Some(node.name()) {
            Some(Violation::OwnNode)
        } else if CONTROL_PLANE_ROLES
            .iter()
            .any(|role| labels.contains_key(*role))
        {
            Some(Violation::ControlPlane)
        } else {
            None
        }
    }

    /// Counts a removal that begins now against its pool's budgets and, if it is of our own choice, `minNodes` and windows.
    fn begin(
        &mut self,
        name: &ClaimName,
        claim: &ClaimFacts,
        reason: RemovalReason,
    ) -> Option<Violation> {
        if reason == RemovalReason::Maintenance && !self.is_server_left(claim) {
            return Some(Violation::ServerStays);
        }
        let (of, now) = (&claim.spec.pool, self.now);
        let pool: Option<&PoolFacts> = self.world.pools().get(of);
        let under_way = self.under_way.entry(of.clone()).or_default();
        let staying = self.staying.entry(of.clone()).or_default();
        let forced = self.forced.entry(of.clone()).or_default();
        let going = self.going.entry(of.clone()).or_default();
        let is_ready = is_ready(self.world, claim);
        let has_budgets = pool.is_some_and(|pool| !pool.disruption.budgets.is_empty());
        let has_begun = self.replaced.contains(name);
        match (reason, pool) {
            (RemovalReason::Lost | RemovalReason::LaunchFailed | RemovalReason::Deleted, _) => {}
            (_, None) => return Some(Violation::Budget),
            (_, Some(pool)) => {
                let counted = if has_budgets { *forced } else { *under_way };
                let is_spent = match reason.disruption().filter(|_| has_budgets) {
                    Some(_) if has_begun => false,
                    Some(reason) => is_over(pool, reason, now, *going, is_ready),
                    None => counted >= pool.scale_down.budget,
                };
                if is_spent {
                    return Some(Violation::Budget);
                }
                if !has_begun && is_outside(pool, reason, now) {
                    return Some(Violation::Window);
                }
            }
        }
        let goes =
            |pool: &PoolFacts| pool.existence.deleting_since.is_some() && !pool.keep_machines;
        if reason == RemovalReason::PoolDeleted && !pool.is_some_and(goes) {
            return Some(Violation::PoolStays);
        }
        if reason.scales_down() && pool.is_none_or(|pool| *staying <= pool.least(now)) {
            return Some(Violation::MinNodes);
        }
        if claim.status.node_name.is_some() {
            *under_way += 1;
            *forced += u32::from(reason.disruption().is_none());
        }
        if !has_begun {
            going.out += u32::from(is_ready);
            going.disrupted += u32::from(reason.disruption().is_some());
        }
        *staying = staying.saturating_sub(1);
        None
    }
}

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
    let replaced = replaced(world, before);
    // One that is not Ready is repaired.
    if replaced.contains(name) || !is_ready(world, old) {
        return None;
    }
    let reason = match old.replace {
        true => RemovalReason::Replace,
        false => RemovalReason::Expired,
    };
    if is_outside(pool, reason, now) {
        return Some(Violation::Window);
    }
    let going = going(world, ledger, &replaced);
    let going = going.get(&old.spec.pool).copied().unwrap_or_default();
    let reason = reason
        .disruption()
        .filter(|_| !pool.disruption.budgets.is_empty())?;
    is_over(pool, reason, now, going, true).then_some(Violation::Budget)
}

/// No window is open for this reason, or the pool's times cannot be read.
fn is_outside(pool: &PoolFacts, reason: RemovalReason, now: Timestamp) -> bool {
    let Some(reason) = reason.disruption() else {
        return false;
    };
    let is_unreadable = pool.times().any(|(_, when)| when.problem().is_some());
    is_unreadable || pool.disruption.closed_until(reason, now).is_some()
}

/// The budgets allow no more. One that is not Ready may go if a person asks for it.
fn is_over(
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

/// Those that a claim, or a launch of this plan, replaces.
fn replaced(world: &World, launches: &[Launch]) -> BTreeSet<ClaimName> {
    let claims = world.claims().values();
    let claims =
        claims.filter(|it| it.status.phase <= Phase::Initialized && it.deleting_since.is_none());
    let specs = claims
        .map(|it| &it.spec)
        .chain(launches.iter().map(|it| &it.spec));
    specs.filter_map(|spec| spec.replaces.clone()).collect()
}

fn going(
    world: &World,
    ledger: &LedgerFacts,
    replaced: &BTreeSet<ClaimName>,
) -> BTreeMap<PoolName, Going> {
    let mut by_pool: BTreeMap<PoolName, Going> = BTreeMap::new();
    for (name, claim) in world.claims() {
        let going = by_pool.entry(claim.spec.pool.clone()).or_default();
        let has_node = claim.status.node_name.is_some();
        let is_removed = world.removal_has_begun(name, claim) && has_node;
        let goes = is_removed || replaced.contains(name);
        let free = world.gives_place_back(name, claim, ledger);
        let is_limited = is_limited(world, name, claim);
        going.disrupted += u32::from(goes && is_limited && free.is_none());
        if claim.status.since(Condition::Initialized).is_some() {
            going.initialized += 1;
            let is_out = goes || !is_ready(world, claim);
            going.out += u32::from(is_out && free.is_none());
        }
    }
    by_pool
}

/// It goes, if at all, for a reason that budgets of `disruption` limit.
fn is_limited(world: &World, name: &ClaimName, claim: &ClaimFacts) -> bool {
    let begun = world.host().removing.get(name).copied();
    match claim.status.removal().or(begun) {
        Some(reason) => reason.disruption().is_some(),
        None => claim.deleting_since.is_none() && (claim.replace || is_ready(world, claim)),
    }
}

fn is_ready(world: &World, claim: &ClaimFacts) -> bool {
    world.node_of(claim).is_some_and(|node| node.facts.ready)
}
