//! Finds for each claim whether its machine is coming, in service or leaving, and whether kproxide may act on it at
//! all.
//!
//! Decides the removals that need no choice: those that have begun, claims that a user deleted, machines that are lost
//! or broken, and requested replacements. `scale_down` chooses among Nodes that are merely unneeded.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use crate::claim::{Condition, GuestHint, Phase};
use crate::facts::{ClaimFacts, ClaimSpec, EntryState, Join, LedgerFacts, NodeFacts, PoolFacts};
use crate::guard::{self, Deed, freeze};
use crate::ids::{ClaimName, PoolName};
use crate::keys::{DO_NOT_DISRUPT, KARPENTER_DO_NOT_DISRUPT, SCALE_DOWN_DISABLED};
use crate::kubernetes::eviction::{Protection, protection};
use crate::kubernetes::taints;
use crate::plan::report::Severity;
use crate::plan::{RemovalReason, Verdict};
use crate::planning::claims::drain_backoff::{claimant, rests};
use crate::planning::claims::failed_machines::is_kept;
use crate::planning::claims::may_remove::{Removal, is_paused, may_remove, may_touch};
use crate::planning::pods::returning_pods::returned_and_stays;
use crate::planning::{Planning, Tick};
use crate::reasons::kept::{GiveUp, Kept, Replacing};
use crate::reasons::on_hold::Hold;
use crate::time::later;
use crate::world::{NodeView, World};

/// A claim with everything that is known beside it.
pub(in crate::planning) struct ClaimState<'w> {
    pub(in crate::planning) name: &'w ClaimName,
    pub(in crate::planning) claim: &'w ClaimFacts,
    /// `None`: the pool is gone.
    pub(in crate::planning) pool: Option<&'w PoolFacts>,
    pub(in crate::planning) node: Option<NodeView<'w>>,
    pub(in crate::planning) stage: Stage,
    pub(in crate::planning) verdict: Verdict,
    /// The reason of a drain that has to be checked again in every tick.
    pub(in crate::planning) reviewed: Option<RemovalReason>,
    /// Why a removal that is wanted has to wait.
    pub(in crate::planning) waiting: Option<Hold>,
    /// It is to go once its replacement is in service, if one is needed.
    pub(in crate::planning) outgoing: Option<RemovalReason>,
    /// What it waits for.
    pub(in crate::planning) replacing: Option<Replacing>,
    /// Its replacement is not begun: no window is open for that, or a budget is used up. It may go for another reason.
    pub(in crate::planning) postponed: Option<Kept>,
    /// A replacement is on its way, or has been in service for a short time.
    pub(in crate::planning) has_successor: bool,
    /// Its removal is recorded in the claim, or this plan records it.
    has_begun: bool,
    /// Its removal takes no place in the pool's budget.
    pub(super) gave_place_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::planning) enum Stage {
    /// Its Node will come. Pending pods may count on it.
    Coming,
    /// Its launch is past its deadline. Pods no longer count on it.
    Overdue,
    InService,
    /// Being removed: takes no pods.
    Leaving,
}

impl ClaimState<'_> {
    /// Its Node is being drained or is gone. The pool's budget counts these. A drain that is given up counts until it
    /// is undone.
    pub(super) fn is_under_way(&self) -> bool {
        (self.stage == Stage::Leaving || self.has_begun)
            && self.claim.status.node_name.is_some()
            && !self.gave_place_back
    }

    /// What the claim itself says against acting on it.
    fn own_hold(&self, world: &World, removing: bool) -> Option<Hold> {
        let is_ready = self.node.is_some_and(|node| node.facts.ready);
        if self.claim.paused {
            Some(Hold::ClaimPaused)
        } else if removing && is_unguarded(self.claim) {
            Some(Hold::NoFinalizer)
        } else if let Some(hold) = has_two_claims(world, self.name, self.claim) {
            Some(hold)
        } else if is_condemned(self.claim) && self.claim.deleting_since.is_none() && is_ready {
            Some(Hold::StaysReady)
        } else {
            None
        }
    }
}

impl Planning<'_> {
    /// Step 1: a stage and a verdict for every claim.
    pub(in crate::planning) fn judge_claims(&mut self) {
        let world = self.tick.world;
        for (name, claim) in world.claims() {
            let row = judge(&mut self.tick, &self.ledger, name, claim);
            if row
                .node
                .is_some_and(|node| world.host().own_node.as_ref() == Some(node.name()))
            {
                self.tick.found(
                    Severity::Warning,
                    format!("NodeClaim/{name}"),
                    "kproxide itself runs on this Node, so it never drains it. Keep kproxide off the Nodes that it manages",
                );
            }
            if is_unguarded(claim) {
                let claim = format!("NodeClaim/{name}");
                self.tick
                    .found(Severity::Warning, claim, Hold::NoFinalizer.to_string());
            }
            self.rows.push(row);
        }
        self.find_successors();
        self.repair_and_replace();
        for index in 0..self.rows.len() {
            self.guard(index);
        }
        self.count_decided();
    }

    fn find_successors(&mut self) {
        let claims = self.tick.world.claims();
        let mut replaced = BTreeSet::new();
        for row in &self.rows {
            let old = row.claim.spec.replaces.as_ref();
            let Some((name, old)) = old.and_then(|old| claims.get_key_value(old)) else {
                continue;
            };
            let pool = self.tick.world.pools().get(&old.spec.pool);
            let expire_after = pool.and_then(|pool| pool.expire_after);
            let is_over = |end| self.tick.reached(end);
            if row.claim.succeeds(old, expire_after, is_over) {
                replaced.insert(name);
            }
        }
        for row in &mut self.rows {
            row.has_successor = replaced.contains(row.name);
        }
    }

    /// Machines that are lost, or whose pool is being deleted, within each pool's budget. Those that are broken, too old, or
    /// whose replacement was asked for, may need a new machine first.
    fn repair_and_replace(&mut self) {
        let mut wanted: Vec<(RemovalReason, usize)> = Vec::new();
        for (index, row) in self.rows.iter_mut().enumerate() {
            if row.stage != Stage::Leaving
                && let Some(reason) = removal_wanted(&mut self.tick, row)
            {
                let is_going = row.pool.is_some_and(|pool| pool.going_since().is_some());
                match reason.is_replaced() && !is_going {
                    true => row.outgoing = Some(reason),
                    false => wanted.push((reason, index)),
                }
            }
        }
        if freeze::is_frozen(&self.ledger) {
            for (_, index) in wanted.iter().filter(|(reason, _)| !reason.is_voluntary()) {
                self.rows[*index].waiting = Some(Hold::Frozen);
            }
            for row in &mut self.rows {
                let forced = row.outgoing.filter(|reason| !reason.is_voluntary());
                row.waiting = row.waiting.take().or(forced.map(|_| Hold::Frozen));
            }
            return;
        }
        // Lost machines first: they cost nothing to remove.
        wanted.sort_by_key(|(reason, index)| (std::cmp::Reverse(*reason), *index));
        let mut budgets = self.budgets();
        for (reason, index) in wanted {
            let Some(pool) = self.rows[index].pool.filter(|pool| !pool.paused) else {
                continue;
            };
            let is_held = self.hold_on(index, Some(reason)).is_some();
            let row = &mut self.rows[index];
            if is_held {
                // It says why it stays, and takes no other's turn.
                row.remove(reason);
                continue;
            }
            if !reason.is_budgeted() {
                // The budget does not stop it, but it counts in the budget.
                if row.claim.status.node_name.is_some() {
                    budgets.take(row, reason);
                }
                row.remove(reason);
            } else if budgets.allow(row, pool, reason) {
                budgets.take(row, reason);
                row.remove(reason);
            }
        }
    }

    /// Number of machines of each pool that exist or are coming, and stay. `minNodes` is compared with this.
    pub(in crate::planning) fn staying(&self) -> BTreeMap<PoolName, u32> {
        let mut staying: BTreeMap<PoolName, u32> = BTreeMap::new();
        for row in &self.rows {
            match row.stage {
                Stage::Coming | Stage::InService => {
                    *staying.entry(row.claim.spec.pool.clone()).or_default() += 1;
                }
                Stage::Overdue | Stage::Leaving => {}
            }
        }
        for adoption in self.adoptions.iter().filter(|it| !it.is_condemned()) {
            *staying.entry(adoption.spec.pool.clone()).or_default() += 1;
        }
        for entry in &self.ledger.entries {
            match entry.state {
                EntryState::Reserved { .. } => *staying.entry(entry.pool.clone()).or_default() += 1,
                EntryState::Live | EntryState::Quarantined { .. } => {}
            }
        }
        staying
    }

    /// Number of machines of a pool that are in service and stay. Scale-down leaves at least `minNodes` of these,
    /// because a coming machine may still fail.
    pub(in crate::planning) fn serving(&self, pool: &PoolName) -> u32 {
        let serving = self
            .rows
            .iter()
            .filter(|row| row.stage == Stage::InService && row.claim.spec.pool == *pool);
        u32::try_from(serving.count()).unwrap_or(u32::MAX)
    }

    /// What forbids to act on the claim: to remove its machine, or to go on with it.
    pub(in crate::planning) fn hold_on(
        &mut self,
        index: usize,
        removing: Option<RemovalReason>,
    ) -> Option<Hold> {
        let world = self.tick.world;
        let row = &self.rows[index];
        let cluster = &row.claim.spec.cluster;
        row.own_hold(world, removing.is_some()).or_else(|| {
            let asked = match removing {
                Some(reason) => {
                    let removal = Removal {
                        reason,
                        claim: Some(row.claim),
                        has_begun: row.claim.status.phase > Phase::Initialized,
                        has_replacement: row.has_successor,
                        cluster,
                        pool: Some(&row.claim.spec.pool),
                        node: row.node,
                    };
                    may_remove(&mut self.tick, &self.ledger, &removal)
                }
                None => may_stay(world, &self.ledger, row.claim),
            };
            asked.err()
        })
    }

    /// Turns a verdict into a hold where something forbids acting on the claim.
    fn guard(&mut self, index: usize) {
        let row = &self.rows[index];
        let removing = match row.verdict {
            Verdict::Remove(reason) => Some(reason),
            Verdict::Keep | Verdict::GiveUp(_) | Verdict::Hold(_) => row
                .reviewed
                .or(is_condemned(row.claim).then_some(RemovalReason::Deleted)),
        };
        let hold = self.hold_on(index, removing);
        let row = &self.rows[index];
        // In a freeze, `review_drains` gives up drains that can be undone. A condemned machine has no service to go
        // back to.
        let can_go_back = row.reviewed.is_some() && !is_condemned(row.claim);
        let hold = hold.filter(|hold| !can_go_back || *hold != Hold::Frozen);
        if let Some(hold) = hold {
            let world = self.tick.world;
            let claim = row.claim;
            // A claim that is held before kproxide asked for its clone may never become a Node.
            let is_forgotten = row.stage == Stage::Coming
                && claim.status.phase == Phase::Pending
                && world.classes().get(&claim.spec.class).is_some_and(|class| {
                    let end = later(claim.created, class.timeouts.provision.0);
                    self.tick.reached(end)
                });
            let row = &mut self.rows[index];
            if is_forgotten {
                row.stage = Stage::Overdue;
            }
            row.verdict = Verdict::Hold(hold);
            row.reviewed = None;
            if row.stage == Stage::Leaving && !row.has_begun {
                row.stage = Stage::InService;
            }
        }
    }

    /// Checks on this tick's snapshot whether each voluntary drain should go on: its pods must still fit elsewhere, and
    /// no pending pod may fit on the Node.
    pub(in crate::planning) fn review_drains(&mut self) {
        self.review_each(|reason| !reason.scales_down());
        // Machines that go in any case come first: two pods must not be promised the same room.
        for row in &self.rows {
            if let (Verdict::Remove(_), Some(node)) = (&row.verdict, &row.node) {
                self.snapshot.make_room_for(node);
            }
        }
        self.review_each(RemovalReason::scales_down);
    }

    fn review_each(&mut self, is_meant: impl Fn(RemovalReason) -> bool) {
        for index in 0..self.rows.len() {
            let reviewed = &mut self.rows[index].reviewed;
            let Some(reason) = reviewed.take_if(|reason| is_meant(*reason)) else {
                continue;
            };
            match self.drain_problem(index, reason) {
                None => self.rows[index].remove(reason),
                Some(problem) => {
                    let row = &mut self.rows[index];
                    row.verdict = Verdict::GiveUp(problem);
                    row.stage = Stage::InService;
                    self.snapshot.reopen(row);
                    self.schedule();
                }
            }
        }
    }

    fn drain_problem(&mut self, index: usize, reason: RemovalReason) -> Option<GiveUp> {
        if freeze::is_frozen(&self.ledger) {
            return Some(GiveUp::Frozen);
        }
        let row = &self.rows[index];
        let Some(pool) = row.pool else {
            return Some(GiveUp::PoolGone);
        };
        let node = row.node?;
        if pool.paused {
            return Some(GiveUp::PoolPaused(row.claim.spec.pool.clone()));
        }
        if is_protected(&mut self.tick, row) {
            return Some(GiveUp::DoNotDisrupt);
        }
        if reason == RemovalReason::PoolDeleted && pool.going_since().is_none() {
            return Some(GiveUp::MachinesKept);
        }
        if reason == RemovalReason::Maintenance && !must_leave(&mut self.tick, row.claim) {
            return Some(GiveUp::ServerStays);
        }
        if !reason.scales_down() {
            return None;
        }
        if !pool.scale_down.enabled {
            return Some(GiveUp::ScaleDownOff);
        }
        if stays_unneeded(&node) {
            return Some(GiveUp::ScaleDownDisabled);
        }
        if let Some(pod) = self.pending_pod_for(&node) {
            let digest = claimant(&pod);
            return Some(GiveUp::Pending(pod.key(), digest));
        }
        let since = row.claim.status.draining_since;
        if let Some(back) =
            since.and_then(|since| returned_and_stays(self.tick.world, &node, since))
        {
            return Some(GiveUp::CameBack(Box::new(back)));
        }
        match self.snapshot.move_away(&node) {
            Ok(_) => None,
            Err(stuck) => Some(GiveUp::Stuck(stuck)),
        }
    }
}

fn judge<'w>(
    tick: &mut Tick<'w>,
    ledger: &LedgerFacts,
    name: &'w ClaimName,
    claim: &'w ClaimFacts,
) -> ClaimState<'w> {
    let world = tick.world;
    let free_at = world.gives_place_back(name, claim, ledger);
    let mut row = ClaimState {
        name,
        claim,
        pool: world.pools().get(&claim.spec.pool),
        node: world.node_of(claim),
        stage: Stage::InService,
        verdict: Verdict::Keep,
        reviewed: None,
        waiting: None,
        outgoing: None,
        replacing: None,
        postponed: None,
        has_successor: false,
        has_begun: world.removal_has_begun(name, claim),
        gave_place_back: free_at.is_some_and(|moment| tick.reached(moment)),
    };
    let begun = world.host().removing.get(name).copied();
    let recorded = claim.status.removal().or(begun);
    if is_kept(tick, name, claim) {
        row.stage = Stage::Leaving;
    } else if claim.status.phase == Phase::Terminating || claim.deleting_since.is_some() {
        row.remove(recorded.unwrap_or(RemovalReason::Deleted));
    } else if row.has_begun {
        match recorded.unwrap_or(RemovalReason::Underutilized) {
            reason if reason.is_voluntary() => {
                row.stage = Stage::Leaving;
                row.reviewed = Some(reason);
            }
            reason => row.remove(reason),
        }
    } else if let Some(why) = withdrawn(world, claim) {
        tick.found(
            Severity::Notice,
            format!("NodeClaim/{name}"),
            format!("{why}. Nothing was asked of it yet, so kproxide closes the NodeClaim. If a machine is still wanted, kproxide makes it elsewhere"),
        );
        row.verdict = Verdict::Remove(RemovalReason::LaunchFailed);
        row.stage = Stage::Overdue;
    } else if claim.status.phase < Phase::Initialized {
        let comes_now = row
            .node
            .is_some_and(|node| node.facts.ready && !awaits_startup(row.pool, node.facts));
        let is_given_up = !comes_now || claim.status.is_overdue();
        row.stage = match claim.spec.is_condemned() || (is_overdue(tick, claim) && is_given_up) {
            true => Stage::Overdue,
            false => Stage::Coming,
        };
    }
    row
}

/// Why a claim that has asked Proxmox for nothing yet must be closed: its hypervisor is no longer available, say. Once
/// kproxide has asked for the clone, the machine stays on its hypervisor, like any other VM there.
fn withdrawn(world: &World, claim: &ClaimFacts) -> Option<String> {
    let ClaimSpec {
        cluster,
        hypervisor,
        adopts,
        ..
    } = &claim.spec;
    if claim.status.phase != Phase::Pending || !claim.has_finalizer || adopts.is_some() {
        return None;
    }
    let pool = world.pools().get(&claim.spec.pool);
    if pool.is_some_and(|pool| pool.going_since().is_some()) {
        return Some(format!("NodePool {} is being deleted", claim.spec.pool));
    }
    if claim.spec.clone.is_none() {
        return Some(
            "an earlier version of kproxide made it, which wrote down no template".to_owned(),
        );
    }
    let facts = world.clusters().get(cluster)?;
    if facts.excludes(hypervisor) {
        return Some(format!(
            "hypervisor {hypervisor} is excluded by spec.hypervisors of the ProxmoxCluster"
        ));
    }
    if facts.drains(hypervisor) {
        return Some(format!(
            "hypervisor {hypervisor} is to be emptied (spec.hypervisors.drain of the ProxmoxCluster)"
        ));
    }
    let inventory = world.inventories().get(cluster)?;
    let why = match inventory.hypervisors.get(hypervisor) {
        Some(hypervisor) if hypervisor.maintenance => "is in maintenance",
        None if inventory.reachable && inventory.quorate && inventory.complete => {
            "is not in its cluster any more"
        }
        Some(_) | None => return None,
    };
    Some(format!("hypervisor {hypervisor} {why}"))
}

/// The claim was made in order to remove a machine that had none. Each of its steps continues that removal, whatever
/// the verdict is.
fn is_condemned(claim: &ClaimFacts) -> bool {
    claim.spec.is_condemned() && claim.status.phase < Phase::Terminating
}

/// The Node still has a startup taint. Nothing guarantees that it will ever be removed.
fn awaits_startup(pool: Option<&PoolFacts>, node: &NodeFacts) -> bool {
    let startup = pool.map_or(&[][..], |pool| &pool.startup_taints);
    let mut taints = node.taints.iter();
    taints.any(|taint| taints::delays_service(startup, taint))
}

/// Longer than a start takes on a storage that is busy with copies.
const START_LASTS: SignedDuration = SignedDuration::from_mins(1);

/// `claim::next` enforces the deadline. From then on pods no longer count on the machine.
fn is_overdue(tick: &mut Tick<'_>, claim: &ClaimFacts) -> bool {
    let Some(class) = tick.world.classes().get(&claim.spec.class) else {
        return false;
    };
    let timeouts = &class.timeouts;
    let is_reserved = claim.status.since(Condition::Reserved).is_some();
    let end = match claim.status.started_at {
        // It is waiting for its turn to be cloned. That is not its fault.
        None if !is_reserved && claim.status.phase == Phase::Pending && claim.has_finalizer => {
            return false;
        }
        None if claim.is_cloning() => claim.clone_deadline(timeouts),
        // A start that is under way is followed past the deadline.
        None if claim.is_starting() => later(claim.provision_deadline(timeouts), START_LASTS),
        None => claim.provision_deadline(timeouts),
        Some(started) => match class.join.way() {
            Join::Template => later(started, timeouts.join.0),
            Join::GuestExec => later(later(started, timeouts.agent.0), timeouts.join.0),
        },
    };
    tick.reached(end)
}

/// Why this claim should go, independent of what the pool needs.
fn removal_wanted(tick: &mut Tick<'_>, row: &ClaimState<'_>) -> Option<RemovalReason> {
    let is_ready = row.node.is_some_and(|node| node.facts.ready);
    if row.claim.status.phase == Phase::Initialized && !is_ready {
        if is_lost(tick.world, row.claim) {
            return Some(RemovalReason::Lost);
        }
        let (broken_since, reason) = match &row.node {
            Some(node) => (Some(node.facts.ready_since), RemovalReason::Repair),
            None => {
                let missing = row.claim.status.since(Condition::NodeMissing);
                (missing, why_node_is_missing(tick.world, row.claim))
            }
        };
        let repair_after = row.pool?.repair_after.0;
        if broken_since.is_some_and(|since| tick.reached(later(since, repair_after))) {
            return Some(reason);
        }
    }
    if is_protected(tick, row) || row.claim.status.refusal().is_some() {
        return None;
    }
    let rests = rests(tick, row.claim).is_some();
    if row.pool.is_some_and(|pool| pool.going_since().is_some()) {
        return (!rests).then_some(RemovalReason::PoolDeleted);
    }
    // It stays until the machine is gone that it replaces.
    let replaced = row.claim.spec.replaces.as_ref();
    if replaced.is_some_and(|old| tick.world.claims().contains_key(old)) {
        return None;
    }
    if row.claim.replace {
        return Some(RemovalReason::Replace);
    }
    let is_initialized = row.claim.status.phase == Phase::Initialized;
    if is_initialized && must_leave(tick, row.claim) {
        return Some(RemovalReason::Maintenance);
    }
    let expires = later(row.claim.created, row.pool?.expire_after?.0);
    let is_old = is_initialized && tick.reached(expires);
    is_old.then_some(RemovalReason::Expired)
}

/// The claim has no finalizer: if it were deleted, kproxide would lose its machine.
pub(in crate::planning) fn is_unguarded(claim: &ClaimFacts) -> bool {
    let has_machine = claim.status.phase > Phase::Pending;
    has_machine && !claim.has_finalizer && claim.deleting_since.is_none()
}

/// The VM of a Node that somebody has deleted runs on. Otherwise the machine itself is broken.
fn why_node_is_missing(world: &World, claim: &ClaimFacts) -> RemovalReason {
    let inventory = world.inventories().get(&claim.spec.cluster);
    match inventory.map(|inventory| GuestHint::of(claim, inventory)) {
        Some(GuestHint::Running) => RemovalReason::NodeDeleted,
        Some(GuestHint::Stopped | GuestHint::Absent | GuestHint::Unknown) | None => {
            RemovalReason::Repair
        }
    }
}

/// A complete inventory does not list its VM. `act` proves that the VM is gone before it closes the claim.
fn is_lost(world: &World, claim: &ClaimFacts) -> bool {
    let inventory = world.inventories().get(&claim.spec.cluster);
    inventory.is_some_and(|inventory| GuestHint::of(claim, inventory) == GuestHint::Absent)
}

/// It has to leave the server on which its VM is now.
fn must_leave(tick: &mut Tick<'_>, claim: &ClaimFacts) -> bool {
    let cluster = &claim.spec.cluster;
    let from = tick.world.empties_from(cluster, claim.hypervisor());
    from.is_some_and(|from| tick.reached(from))
}

/// Claim or Node carry `kproxide.dev/do-not-disrupt`, or the Node Karpenter's.
pub(in crate::planning) fn is_protected(tick: &mut Tick<'_>, row: &ClaimState<'_>) -> bool {
    let annotation = |key: &str| row.node.and_then(|node| node.facts.annotations.get(key));
    let created = row
        .node
        .map_or(row.claim.created, |node| node.facts.created);
    let karpenters = annotation(KARPENTER_DO_NOT_DISRUPT).map(String::as_str);
    row.claim.do_not_disrupt
        || annotation(DO_NOT_DISRUPT).is_some_and(|value| value == "true")
        || match protection(karpenters, created) {
            Protection::No => false,
            Protection::Until(end) => !tick.reached(end),
            Protection::Always => true,
        }
}

/// The Node carries Cluster Autoscaler's `scale-down-disabled`.
pub(in crate::planning) fn stays_unneeded(node: &NodeView<'_>) -> bool {
    let value = node.facts.annotations.get(SCALE_DOWN_DISABLED);
    value.is_some_and(|value| value == "true")
}

/// Whether kproxide may act on a machine that stays: go on making it, or keep it in service.
fn may_stay(world: &World, ledger: &LedgerFacts, claim: &ClaimFacts) -> Result<(), Hold> {
    let ClaimSpec { pool, cluster, .. } = &claim.spec;
    let would_begin = matches!(claim.status.phase, Phase::Pending | Phase::Initialized);
    if would_begin && is_paused(world, pool) {
        return Err(Hold::PoolPaused(pool.clone()));
    }
    if let Some(hold) = guard::hold(world, ledger, cluster, Deed::Launch) {
        return Err(hold);
    }
    match claim.status.phase < Phase::Launched {
        true => may_touch(world, cluster),
        false => Ok(()),
    }
}

/// Another claim names the same VM: it was restored from a backup, or a user made it. A claim that has adopted its
/// machine yields to the other.
fn has_two_claims(world: &World, name: &ClaimName, claim: &ClaimFacts) -> Option<Hold> {
    let adopts = claim.spec.adopts.as_ref()?;
    let spec = &claim.spec;
    let mut others = world.claims().iter().filter(|(other, _)| *other != name);
    let (other, _) = others.find(|(_, other)| {
        other.uid == adopts.claim_uid
            || (other.spec.vmid == spec.vmid && other.spec.cluster == spec.cluster)
    })?;
    Some(Hold::TwoClaims {
        other: other.clone(),
        vmid: spec.vmid,
    })
}
