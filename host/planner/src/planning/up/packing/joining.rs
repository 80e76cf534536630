//! Whether all pods find their place however a pool's machines join: all at once, or one by one, the first order first
//! or last.
//!
//! Packing puts one pod after the other. When it comes to a pod with a topology spread, machines that it opens later
//! are no domains yet. When they all stand, an empty domain that has no room can keep such a pod away from its machine.
//!
//! Not looked at: machines of other pools, those for `minNodes` and headroom, and zones in which no machine has to
//! stand. The next tick sees where these are made, and makes another machine where one is needed.

use std::collections::BTreeMap;

use super::{Packer, Packing, opened_node, spot};
use crate::planning::pods::fit::Free;
use crate::planning::pods::topology::Topology;
use crate::planning::up::snapshot::NodeInfo;

/// More machines, or more pods with rules about their neighbours, are not played through: it takes too long.
const MOST_MACHINES: usize = 100;
const MOST_PODS: u32 = 1_000;

/// Packing is done again at most so often.
const MOST_TURNS: usize = 3;

/// Machines that have joined, Nodes that stood there before, and pods that wait for a place on them.
struct Joining<'w> {
    topology: Topology<'w>,
    nodes: Vec<(usize, NodeInfo<'w>)>,
    joined: Vec<(usize, Free)>,
    /// By demand. Only pods with rules about their neighbours wait: the others stand where they were planned.
    waiting: BTreeMap<usize, u32>,
}

impl<'w> Packer<'_, 'w> {
    /// What was packed. Where pods would be stuck, packing is done again: pods without rules come first, because their
    /// full machines are what the others get stuck on, and the domains of the turn before are known.
    pub(super) fn so_that_none_is_stuck(mut self, before: &Packing<'w>) -> Packing<'w> {
        let mut stuck = self.stuck(before);
        for _ in 0..MOST_TURNS {
            if stuck == 0 {
                break;
            }
            let mut again = Packer {
                packing: before.clone(),
                opening: self.opening.clone(),
                ..self
            };
            for order in &self.packing.orders {
                let spot = spot(self.pool, order);
                again.packing.topology.open_domains(spot, order.stays());
            }
            again.fill_round(|packer, demand| !packer.one_by_one(demand));
            again.fill();
            again.shrink();
            let still_stuck = again.stuck(before);
            let is_better = again.unhelped() + still_stuck < self.unhelped() + stuck;
            if !is_better || again.leaves_before(&self) {
                break;
            }
            (self, stuck) = (again, still_stuck);
        }
        self.packing
    }

    fn unhelped(&self) -> u32 {
        self.packing.left.iter().sum()
    }

    /// More pods of a demand have no machine than there, and others have a lower priority.
    fn leaves_before(&self, other: &Self) -> bool {
        let priorities = self.demands.iter().map(|demand| demand.spec.priority);
        let least = priorities.clone().min();
        let left = self.packing.left.iter().zip(&other.packing.left);
        let mut left = left.zip(priorities);
        left.any(|((now, was), priority)| now > was && Some(priority) != least)
    }

    /// How many pods would stay pending in the worst of these ways to join, because their neighbours keep them away
    /// from room that there is.
    fn stuck(&self, before: &Packing<'w>) -> u32 {
        let waiting = self.with_rules();
        let orders = self.packing.orders.len();
        let pods: u32 = waiting.values().sum();
        if !(2..=MOST_MACHINES).contains(&orders) || !(1..=MOST_PODS).contains(&pods) {
            return 0;
        }
        let all: Vec<usize> = (0..orders).collect();
        let one_by_one = all.iter().map(std::slice::from_ref);
        let last_first = one_by_one.clone().rev();
        let at_once = std::iter::once(&*all);
        let ways = [
            self.play(before, &waiting, at_once),
            self.play(before, &waiting, one_by_one),
            self.play(before, &waiting, last_first),
        ];
        ways.into_iter().max().unwrap_or(0)
    }

    /// The demands whose pods have rules about their neighbours, and how many of each have a machine.
    fn with_rules(&self) -> BTreeMap<usize, u32> {
        let planned = |demand: usize| self.demands[demand].count - self.packing.left[demand];
        let with_rules = (0..self.demands.len()).filter(|demand| self.one_by_one(*demand));
        let planned = with_rules.map(|demand| (demand, planned(demand)));
        planned.filter(|(_, pods)| *pods > 0).collect()
    }

    fn play<'o>(
        &self,
        before: &Packing<'w>,
        waiting: &BTreeMap<usize, u32>,
        batches: impl Iterator<Item = &'o [usize]>,
    ) -> u32 {
        let mut joining = Joining {
            topology: before.topology.clone(),
            nodes: before.stays.clone(),
            joined: Vec::new(),
            waiting: waiting.clone(),
        };
        let demand_of = self.demand_of();
        for batch in batches {
            let before = joining.joined.len();
            for order in batch {
                self.join(&mut joining, *order, &demand_of);
            }
            self.bind(&mut joining, before);
        }
        while self.bind(&mut joining, 0) {}
        let waiting = joining.waiting.iter().filter(|(demand, _)| {
            let is_kept_away =
                |(order, free): &(usize, Free)| self.has_room(**demand, *order, free);
            joining.joined.iter().any(is_kept_away)
        });
        waiting.map(|(_, pods)| pods).sum()
    }

    /// The machine stands, with the pods that have no rules.
    fn join(&self, joining: &mut Joining<'w>, index: usize, demand_of: &BTreeMap<usize, usize>) {
        let order = &self.packing.orders[index];
        let spot = spot(self.pool, order);
        joining.topology.open_domains(spot, order.stays());
        let mut free = self.offer(order.offer).free.clone();
        for (need, count) in &order.pods {
            let demand = demand_of[need];
            if !self.one_by_one(demand) {
                let demand = &self.demands[demand];
                free.put(demand.spec, *count);
                joining.topology.put_in_thought(demand.shape, spot, *count);
            }
        }
        joining.joined.push((index, free));
    }

    /// Each waiting pod takes the first place that it finds, as kube-scheduler could: on one of the machines that
    /// joined from this one on, or on a Node. True if one has found some.
    fn bind(&self, joining: &mut Joining<'w>, first: usize) -> bool {
        let Joining {
            topology,
            nodes,
            joined,
            waiting,
        } = joining;
        let mut has_bound = false;
        for (demand, pods) in waiting.iter_mut() {
            let (shape, spec) = (self.demands[*demand].shape, self.demands[*demand].spec);
            while *pods > 0 {
                // Nodes were there before the first machine. They are looked at then, and at the end.
                let node = (first == 0)
                    .then(|| opened_node(nodes, topology, &self.demands[*demand]))
                    .flatten();
                if let Some((_, info)) = node {
                    info.place.free.put(spec, 1);
                    topology.put_in_thought(shape, info.spot(), 1);
                } else {
                    let found = joined[first..].iter_mut().find(|(order, free)| {
                        let spot = spot(self.pool, &self.packing.orders[*order]);
                        self.has_room(*demand, *order, free) && !topology.keeps_away(shape, spot)
                    });
                    let Some((order, free)) = found else { break };
                    free.put(spec, 1);
                    topology.put_in_thought(
                        shape,
                        spot(self.pool, &self.packing.orders[*order]),
                        1,
                    );
                }
                *pods -= 1;
                has_bound = true;
            }
        }
        waiting.retain(|_, pods| *pods > 0);
        has_bound
    }

    fn has_room(&self, demand: usize, order: usize, free: &Free) -> bool {
        let order = &self.packing.orders[order];
        let admits = self.admitting.of(demand, order.offer).contains(order.site);
        admits && free.misfit(self.demands[demand].spec).is_none()
    }
}
