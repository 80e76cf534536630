//! The new machine first: a machine that is to be replaced stays in service until its pods, `minNodes` and the pool's
//! headroom can do without it. What lacks room elsewhere gets a machine that names the old one (`spec.replaces`).
//!
//! Nothing of this is remembered. Each plan simulates the removal again, and a machine that is coming is room to wait
//! for. So after a restart no second one is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::facts::{EntryState, PodSpec};
use crate::guard::freeze;
use crate::guard::loops::{pods_digest, workload};
use crate::ids::{ClaimName, HypervisorId};
use crate::kubernetes::resources::Lack;
use crate::plan::question::Size;
use crate::plan::report::Why;
use crate::plan::{RemovalReason, Verdict};
use crate::planning::Planning;
use crate::planning::claims::drain_backoff::rests;
use crate::planning::claims::failed_machines;
use crate::planning::claims::stages::{ClaimState, Stage};
use crate::planning::hypervisors::room::Room;
use crate::planning::up::launch_backoff::{self, MadeFor};
use crate::planning::up::packing::{self, Demand, Packing, weight};
use crate::planning::up::pools::{self, Offer};
use crate::planning::up::scale_up::{Purpose, Wanted, never_fits};
use crate::planning::up::snapshot::Moves;
use crate::reasons::kept::{Kept, Replacing, Stuck};
use crate::reasons::on_hold::Hold;
use crate::world::{Id, PodView};

/// Pods of one shape that fit on no other Node.
struct Group<'w> {
    shape: Id,
    spec: Arc<PodSpec>,
    pods: Vec<PodView<'w>>,
}

/// What is missing without the old machine.
enum Lacking<'w> {
    Nothing,
    Pods(Vec<Group<'w>>),
    Machine,
    Headroom(Lack),
}

enum Next {
    Go,
    /// And whether it takes its turn in the pool's budget.
    Wait(Replacing, bool),
    /// Pending pods are to run on it. Once they do, they count.
    Later,
}

enum NotMade {
    /// There is room once the old machine has gone.
    NoRoom {
        why: Why,
        /// At once: what it lacks is in no quarantine then.
        is_made_at_once: bool,
    },
    /// It would not be in service before the windows close.
    TooLate(Hold),
    Other(Why),
}

/// What a machine that goes leaves to its replacement.
#[derive(Clone, Copy)]
enum Freed {
    /// All but what is in quarantine first: its VMID and its address.
    AtOnce,
    All,
}

impl<'w> Planning<'w> {
    /// The NodeClaim that this one replaces, if that one is still to go or on its way out.
    pub(in crate::planning) fn replaces_standing(
        &self,
        row: &ClaimState<'_>,
    ) -> Option<&'w ClaimName> {
        let old = row.claim.spec.replaces.as_ref()?;
        let old = self.rows.iter().find(|row| row.name == old)?;
        let is_going = old.outgoing.is_some() || old.reviewed.is_some();
        (is_going || old.stage == Stage::Leaving).then_some(old.name)
    }

    /// Whose machine this order replaces.
    pub(in crate::planning) fn replaced_by(&self, wanted: &Wanted) -> Option<&'w ClaimName> {
        match wanted.purpose {
            Purpose::Replacement(row) => Some(self.rows[row].name),
            Purpose::Pods | Purpose::MinNodes | Purpose::Headroom => None,
        }
    }

    /// Keeps the room of replacements for the pods that they are made for, before pending pods are placed.
    pub(in crate::planning) fn hold_room(&mut self) {
        for index in 0..self.rows.len() {
            let row = &self.rows[index];
            let (Some(_), Some(node)) = (row.outgoing, row.node) else {
                continue;
            };
            let replacements = self.replacements(index, Stage::Coming);
            if replacements.is_empty() {
                continue;
            }
            let moves = self.snapshot.leave(&node);
            for pod in &moves.stuck {
                let is_meant = |claim: &ClaimName| replacements.contains(&claim);
                self.snapshot.put_on_coming(&[*pod], is_meant);
            }
            self.snapshot.stay(&node, moves);
        }
    }

    /// The claims at this stage that replace the machine of this row.
    fn replacements(&self, index: usize, stage: Stage) -> Vec<&'w ClaimName> {
        let old = self.rows[index].name;
        let rows = self.rows.iter().filter(|row| {
            row.stage == stage
                && row.claim.deleting_since.is_none()
                && row.claim.spec.replaces.as_ref() == Some(old)
        });
        rows.map(|row| row.name).collect()
    }

    /// Lets the machines go that are to be replaced and are not needed any more, and orders replacements for the others,
    /// within each pool's budget.
    pub(in crate::planning) fn replace(&mut self, mut room: Room) {
        if freeze::is_frozen(&self.ledger) {
            return;
        }
        let rows = self.rows.iter().enumerate();
        let outgoing = rows.filter_map(|(index, row)| Some((row.outgoing?, index)));
        // Those that have a replacement keep their turn.
        let mut outgoing: Vec<_> = outgoing
            .map(|(reason, index)| {
                let has_none = !self.rows[index].has_successor;
                (has_none, std::cmp::Reverse(reason), index)
            })
            .collect();
        outgoing.sort_unstable();
        let mut budgets = self.budgets();
        for (has_none, std::cmp::Reverse(reason), index) in outgoing {
            let row = &self.rows[index];
            let Some(pool) = row.pool.filter(|pool| !pool.paused) else {
                continue;
            };
            let is_resting = reason.is_voluntary() && rests(&mut self.tick, row.claim).is_some();
            if is_resting || row.verdict != Verdict::Keep {
                continue;
            }
            // Budgets of `disruption` count it from when its replacement's claim exists.
            let is_limited = reason.disruption().is_some() && !pool.disruption.budgets.is_empty();
            let is_counted = is_limited && !has_none;
            if !is_counted && !budgets.allow(row, pool, reason) {
                let why = budgets.why(&row.claim.spec.pool, reason);
                self.rows[index].postponed = Some(why);
                continue;
            }
            match self.hold_on(index, Some(reason)) {
                None => {}
                Some(hold @ (Hold::Window(_) | Hold::TimesUnreadable(_))) => {
                    self.rows[index].postponed = Some(Kept::Held(hold));
                    continue;
                }
                Some(hold) => {
                    self.rows[index].verdict = Verdict::Hold(hold);
                    continue;
                }
            }
            let takes_turn = match self.succeed(index, reason, &mut room) {
                Next::Go => true,
                Next::Wait(replacing, takes_turn) => {
                    self.rows[index].replacing = Some(replacing);
                    takes_turn
                }
                Next::Later => false,
            };
            if takes_turn && !is_counted {
                budgets.take(&self.rows[index], reason);
            }
        }
    }

    fn succeed(&mut self, index: usize, reason: RemovalReason, room: &mut Room) -> Next {
        let node = self.rows[index].node;
        let at = node.and_then(|node| self.snapshot.index_of_node(&node));
        if at.is_some_and(|at| self.snapshot.nodes[at].promised > 0) {
            return Next::Later;
        }
        let moves = node.map(|node| self.snapshot.leave(&node));
        let moves = moves.unwrap_or_default();
        if let Some(claim) = self.replacements(index, Stage::Coming).first() {
            return Next::Wait(Replacing::Coming((*claim).clone()), true);
        }
        let lacking = self.lacking(index, &moves);
        if matches!(lacking, Lacking::Nothing) {
            return self.go(index, reason, moves);
        }
        if let Some(claim) = self.coming_instead(index, &lacking, &moves) {
            return Next::Wait(Replacing::Coming(claim), true);
        }
        if let (Some(claim), Some(pod)) = (self.unused(index), moves.stuck.first()) {
            let (pod, volume) = (pod.key(), None);
            let stuck = Replacing::Stuck(claim.clone(), Stuck { pod, volume });
            return Next::Wait(stuck, true);
        }
        let is_repair = reason.is_repair();
        match self.order_replacement(index, reason, &lacking, room) {
            Ok(()) => Next::Wait(Replacing::Ordered, true),
            Err(NotMade::TooLate(hold)) => {
                self.remain(index, moves);
                self.rows[index].postponed = Some(Kept::Held(hold));
                Next::Later
            }
            Err(NotMade::NoRoom {
                why,
                is_made_at_once,
            }) => {
                let name = self.rows[index].claim.spec.pool.clone();
                failed_machines::note(&mut self.placing.lacking, &name, &why);
                let pool = self.rows[index].pool;
                // A machine that works is not given up for one that comes a day later.
                if !is_repair && !is_made_at_once {
                    self.remain(index, moves);
                    return Next::Wait(Replacing::NotMade(Box::new(why)), false);
                }
                let waits =
                    reason.waits_for_room() && !pool.is_some_and(|it| it.disruption.old_first);
                if waits {
                    self.remain(index, moves);
                    return Next::Wait(Replacing::NoRoom(reason, Box::new(why)), false);
                }
                self.rows[index].replacing = Some(Replacing::OldFirst(Box::new(why)));
                self.go(index, reason, moves)
            }
            // A broken Node is no better a place for pods that no machine could take.
            Err(NotMade::Other(Why::Misfit(_) | Why::TooBig { .. } | Why::Unusable(_)))
                if is_repair =>
            {
                self.go(index, reason, moves)
            }
            Err(NotMade::Other(why)) => {
                let name = self.rows[index].claim.spec.pool.clone();
                failed_machines::note(&mut self.placing.lacking, &name, &why);
                self.remain(index, moves);
                Next::Wait(Replacing::NotMade(Box::new(why)), false)
            }
        }
    }

    fn remain(&mut self, index: usize, moves: Moves<'w>) {
        if let Some(node) = self.rows[index].node {
            self.snapshot.stay(&node, moves);
        }
    }

    fn go(&mut self, index: usize, reason: RemovalReason, moves: Moves<'w>) -> Next {
        if let Some(wait) = self.count_removal(index, reason) {
            self.remain(index, moves);
            let row = &mut self.rows[index];
            (row.waiting, row.replacing) = (Some(Hold::Breaker(wait)), None);
        } else {
            self.rows[index].remove(reason);
        }
        Next::Go
    }

    fn lacking(&self, index: usize, moves: &Moves<'w>) -> Lacking<'w> {
        if !moves.stuck.is_empty() {
            return Lacking::Pods(groups(&moves.stuck));
        }
        let row = &self.rows[index];
        if row.pool.is_none() {
            return Lacking::Nothing;
        }
        let pool = &row.claim.spec.pool;
        if self.serving(pool) <= self.least(pool) {
            return Lacking::Machine;
        }
        let headroom = self.keeps_free(pool);
        if headroom.is_zero() {
            return Lacking::Nothing;
        }
        let free = self.free_in(&row.claim.spec.pool);
        let lack = headroom.first_lacking(&free);
        lack.map_or(Lacking::Nothing, Lacking::Headroom)
    }

    /// A machine on its way, made for something else, that is enough.
    fn coming_instead(
        &mut self,
        index: usize,
        lacking: &Lacking<'w>,
        moves: &Moves<'w>,
    ) -> Option<ClaimName> {
        match lacking {
            Lacking::Pods(_) => self.snapshot.put_on_coming(&moves.stuck, |_| true),
            Lacking::Machine => {
                let pool = &self.rows[index].claim.spec.pool;
                let staying = self.staying().get(pool).copied().unwrap_or(0);
                let least = self.least(pool);
                let rows = self.rows.iter().filter(|row| row.stage == Stage::Coming);
                let rows = rows.map(|row| (row.name, &row.claim.spec.pool));
                let entries = self
                    .ledger
                    .entries
                    .iter()
                    .filter(|entry| matches!(entry.state, EntryState::Reserved { .. }));
                let mut coming = rows.chain(entries.map(|entry| (&entry.claim, &entry.pool)));
                let is_enough = staying.saturating_sub(1) >= least;
                let (claim, _) = coming.find(|(_, of)| *of == pool && is_enough)?;
                Some(claim.clone())
            }
            Lacking::Nothing | Lacking::Headroom(_) => None,
        }
    }

    /// A replacement in service that has no pods and takes none of this machine's. Another one would not help either.
    fn unused(&self, index: usize) -> Option<&'w ClaimName> {
        let served = self.replacements(index, Stage::InService);
        served.into_iter().find(|claim| {
            let row = self.rows.iter().find(|row| row.name == *claim);
            let node = row.and_then(|row| row.node);
            node.is_none_or(|node| node.is_empty() && !self.snapshot.awaits_pods(&node))
        })
    }

    /// Orders the replacement: of the machine's own pool, or else of another one that its pods may use.
    fn order_replacement(
        &mut self,
        index: usize,
        reason: RemovalReason,
        lacking: &Lacking<'w>,
        room: &mut Room,
    ) -> Result<(), NotMade> {
        let own = &self.rows[index].claim.spec.pool;
        let own = self.pools.iter().position(|pool| pool.name == own);
        let others = (0..self.pools.len())
            .filter(|pool| matches!(lacking, Lacking::Pods(_)) && Some(*pool) != own);
        let mut pools: Vec<usize> = own.into_iter().chain(others).collect();
        if !self.rows[index].has_successor {
            let mut too_late = None;
            pools.retain(|pool| {
                let late = self.too_late(index, reason, *pool);
                too_late = too_late.take().or(late.clone());
                late.is_none()
            });
            if let Some(hold) = too_late.filter(|_| pools.is_empty()) {
                return Err(NotMade::TooLate(hold));
            }
        }
        let mut first = None;
        for pool in &pools {
            match self.pack_for(*pool, lacking, room) {
                Ok((packing, made_for)) => {
                    *room = packing.room;
                    self.snapshot.topology = packing.topology;
                    self.pools[*pool].usage = packing.usage;
                    for mut order in packing.orders {
                        // They are pods that run, so no pending ones are to be told.
                        order.pods.clear();
                        self.placing.wanted.push(Wanted {
                            pool: *pool,
                            order,
                            purpose: Purpose::Replacement(index),
                            made_for: made_for.clone(),
                        });
                    }
                    return Ok(());
                }
                Err(why) => {
                    first.get_or_insert(why);
                }
            }
        }
        let mut would_fit = |freed: Freed| {
            pools.iter().any(|pool| {
                self.with_room_of(index, *pool, room, freed, |planning, room| {
                    planning.pack_for(*pool, lacking, room).is_ok()
                })
            })
        };
        if first.is_some() && would_fit(Freed::All) {
            let is_made_at_once = would_fit(Freed::AtOnce);
            if let Some(why) = first {
                return Err(NotMade::NoRoom {
                    why,
                    is_made_at_once,
                });
            }
        }
        let nothing = Why::Unusable(crate::plan::report::Unusable::NothingToMake);
        Err(NotMade::Other(first.unwrap_or(nothing)))
    }

    fn too_late(&mut self, index: usize, reason: RemovalReason, pool: usize) -> Option<Hold> {
        let class = self.pools[pool].class.as_ref().ok()?;
        let pool = &self.rows[index].claim.spec.pool;
        self.comes_too_late(pool, reason, class.comes_within())
    }

    /// What would be if the machine of this row were gone, and no longer counted anywhere.
    fn with_room_of<T>(
        &mut self,
        index: usize,
        pool: usize,
        room: &Room,
        freed: Freed,
        then: impl FnOnce(&mut Self, &Room) -> T,
    ) -> T {
        let claim = self.rows[index].claim;
        let size = Size {
            milli_cores: claim.spec.resources.milli_cores,
            memory_bytes: claim.spec.resources.memory_bytes,
        };
        let id = HypervisorId {
            name: claim.hypervisor().clone(),
            ..claim.spec.hypervisor_id()
        };
        let mut room = room.clone();
        let plan = &self.pools[pool];
        let at = self.hypervisors.index_of(&id);
        let at = at.and_then(|at| plan.hypervisors.iter().position(|place| *place == at));
        let site = at.and_then(|at| {
            let mut sites = plan.offers.iter().map(|offer| &offer.sites[at]);
            sites.find_map(|site| site.as_ref().ok())
        });
        if let Some(site) = site {
            let has_quarantine = !self.tick.limits.quarantine.is_zero();
            match freed {
                Freed::AtOnce if has_quarantine => room.give_back_but_numbers(site, size),
                Freed::AtOnce | Freed::All => room.give_back(site, size),
            }
        }
        let is_own = *plan.name == claim.spec.pool;
        let before = plan.usage;
        if is_own && before.nodes > 0 {
            pools::remove(&mut self.pools[pool].usage, size);
        }
        let result = then(self, &room);
        self.pools[pool].usage = before;
        result
    }

    /// The machines of this pool that make up for what is lacking, and whom they are made for.
    fn pack_for(
        &mut self,
        index: usize,
        lacking: &Lacking<'w>,
        room: &Room,
    ) -> Result<(Packing<'w>, Vec<MadeFor>), Why> {
        let groups = match lacking {
            Lacking::Pods(groups) => groups,
            Lacking::Nothing => &Vec::new(),
            Lacking::Machine => return self.pack_empty(index, None, room),
            Lacking::Headroom(lack) => return self.pack_empty(index, Some(lack), room),
        };
        let pool = &self.pools[index];
        let mut closed: Vec<Vec<usize>> = Vec::new();
        let mut made_for: Vec<MadeFor> = Vec::new();
        let mut resting = None;
        for group in groups {
            let why = never_fits(&mut self.tick, &self.learned, pool, &group.spec);
            if let Some(why) = why {
                return Err(why);
            }
            let mut of_group = Vec::new();
            let owners = group.pods.iter().map(workload);
            let owners: std::collections::BTreeSet<_> = owners.collect();
            for owner in owners {
                let owner = (owner, pods_digest(&group.spec));
                for (offer, of) in pool.offers.iter().enumerate() {
                    let name = &of.instance_type.name;
                    let rest = self.rest_of(pool, &owner, name, &group.spec);
                    if rest.is_some() || of.is_retry {
                        of_group.push(offer);
                    }
                    if let Some((why, until)) = rest {
                        resting.get_or_insert(why);
                        until.map(|until| self.tick.reached(until));
                    }
                }
                made_for.push(owner);
            }
            closed.push(of_group);
        }
        let demands = groups.iter().zip(&closed).enumerate();
        let demands = demands.map(|(need, (group, closed))| Demand {
            need,
            shape: group.shape,
            spec: &group.spec,
            count: u32::try_from(group.pods.len()).unwrap_or(u32::MAX),
            refused: &[],
            closed,
        });
        let demands: Vec<Demand<'_>> = demands.collect();
        let packing = packing::pack_together(pool, &demands, room, &self.snapshot.topology);
        let left = packing.left.iter().position(|left| *left > 0);
        match left {
            None => Ok((packing, made_for)),
            Some(left) => {
                Err(resting.unwrap_or_else(|| self.refusal(pool, &demands[left], &packing)))
            }
        }
    }

    /// A machine without pods, for `minNodes` or for what the headroom lacks.
    fn pack_empty(
        &self,
        index: usize,
        lack: Option<&Lack>,
        room: &Room,
    ) -> Result<(Packing<'w>, Vec<MadeFor>), Why> {
        let pool = &self.pools[index];
        if let Err(why) = &pool.class {
            return Err(Why::Unusable(why.clone()));
        }
        let mut packing = packing::nothing(pool, &[], room, &self.snapshot.topology, Vec::new());
        let mut rests = None;
        let may_be_made = |offer: &Offer<'_>| {
            let helps = lack.is_none_or(|lack| offer.free.resources.amount(&lack.resource) > 0);
            let turn = self.turn_of_pool(pool, &offer.instance_type.name);
            let turn = turn.map_err(|why| rests.get_or_insert(why).clone());
            !offer.is_retry && helps && turn.is_ok()
        };
        match packing::open_empty(pool, &mut packing, may_be_made) {
            Some(order) => {
                packing.orders.push(order);
                Ok((packing, vec![launch_backoff::of_pool()]))
            }
            None => Err(rests.unwrap_or_else(|| self.why_no_more(pool, &packing))),
        }
    }
}

/// By priority and size, as pending pods are placed.
fn groups<'w>(pods: &[PodView<'w>]) -> Vec<Group<'w>> {
    let mut by_shape: BTreeMap<Id, Group<'w>> = BTreeMap::new();
    for pod in pods {
        let group = by_shape.entry(pod.shape_id()).or_insert_with(|| Group {
            shape: pod.shape_id(),
            spec: pod.shared_spec().clone(),
            pods: Vec::new(),
        });
        group.pods.push(*pod);
    }
    let mut groups: Vec<Group<'w>> = by_shape.into_values().collect();
    groups.sort_by_key(|group| {
        let size = weight(&group.spec.requests);
        let first = group.pods.first().map(|pod| pod.key());
        (std::cmp::Reverse((group.spec.priority, size)), first)
    });
    groups
}
