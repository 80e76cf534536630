//! Removals of a plan, held against what must never go and against budgets.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Violation;
use super::disruption::{
    going, is_limited, is_outside, is_over, is_ready, leaves_server, replaced,
};
use crate::claim::Phase;
use crate::facts::{ClaimFacts, Going, LedgerFacts, PoolFacts};
use crate::guard::anchor;
use crate::ids::{ClaimName, PoolName};
use crate::keys::{CONTROL_PLANE_ROLES, DO_NOT_DISRUPT, KARPENTER_DO_NOT_DISRUPT};
use crate::kubernetes::eviction::{Protection, protection};
use crate::plan::{Advance, Plan, RemovalReason, Verdict};
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
            replaced: replaced(world, now, &plan.launches),
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
        removals.going = going(world, now, &removals.ledger, &removals.replaced);
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
        if reason == RemovalReason::Maintenance && !leaves_server(self.world, claim, self.now) {
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
