//! Removals of a plan, held against what must never go and against budgets.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Violation;
use crate::claim::Phase;
use crate::facts::{ClaimFacts, LedgerFacts, PoolFacts};
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
            }
            if !has_begun || given_up.contains(name) {
                *removals.staying.entry(pool.clone()).or_default() += 1;
            }
        }
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
        self.begin(claim, reason)
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

    /// Counts a removal that begins now against its pool's budget and, if it is of our own choice, `minNodes`.
    fn begin(&mut self, claim: &ClaimFacts, reason: RemovalReason) -> Option<Violation> {
        if reason == RemovalReason::Maintenance && !self.is_server_left(claim) {
            return Some(Violation::ServerStays);
        }
        let name = &claim.spec.pool;
        let pool: Option<&PoolFacts> = self.world.pools().get(name);
        let under_way = self.under_way.entry(name.clone()).or_default();
        let staying = self.staying.entry(name.clone()).or_default();
        match reason {
            RemovalReason::Lost | RemovalReason::LaunchFailed | RemovalReason::Deleted => {}
            RemovalReason::Empty
            | RemovalReason::Underutilized
            | RemovalReason::Expired
            | RemovalReason::Maintenance
            | RemovalReason::Replace
            | RemovalReason::PoolDeleted
            | RemovalReason::Repair
            | RemovalReason::NodeDeleted => {
                let is_spent = pool.is_none_or(|pool| *under_way >= pool.scale_down.budget);
                if is_spent {
                    return Some(Violation::Budget);
                }
            }
        }
        let goes =
            |pool: &PoolFacts| pool.existence.deleting_since.is_some() && !pool.keep_machines;
        if reason == RemovalReason::PoolDeleted && !pool.is_some_and(goes) {
            return Some(Violation::PoolStays);
        }
        if reason.scales_down() && pool.is_none_or(|pool| *staying <= pool.limits.min_nodes) {
            return Some(Violation::MinNodes);
        }
        if claim.status.node_name.is_some() {
            *under_way += 1;
        }
        *staying = staying.saturating_sub(1);
        None
    }
}
