//! Each machine as small as its pods allow.

use std::collections::BTreeMap;

use super::{Packer, by_cost};
use crate::planning::pods::fit::Free;
use crate::planning::up::pools;

impl Packer<'_, '_> {
    /// Makes each machine as small as its pods allow.
    pub(super) fn shrink(&mut self) {
        let by_cost = by_cost(self.pool);
        if by_cost.len() < 2 {
            return;
        }
        let demand_of = self.demand_of();
        for index in 0..self.packing.orders.len() {
            let old = self.packing.orders[index].offer;
            let free = &self.packing.orders[index].free.resources;
            let used = self.offer(old).free.resources.minus(free);
            for offer in by_cost.iter().rev().copied() {
                if self.offer(offer).cost() >= self.offer(old).cost() {
                    break;
                }
                // Most types are too small, and putting in pod by pod takes long.
                if !used.fits(&self.offer(offer).free.resources) {
                    continue;
                }
                let Some(free) = self.refilled(index, offer, &demand_of) else {
                    continue;
                };
                let order = &self.packing.orders[index];
                // A machine that has to stay where it is stays there as a smaller one, too.
                let mut sites = match order.is_pinned {
                    true => self.offer(offer).part.intersection(&order.sites),
                    false => self.offer(offer).part.clone(),
                };
                for (need, _) in &order.pods {
                    sites = sites.intersection(self.admitting.of(demand_of[need], offer));
                }
                let at = order.site;
                self.release(old, at);
                let Some(site) = self.offer(offer).site_with_room(&sites, &self.packing.room)
                else {
                    self.reserve(old, at);
                    continue;
                };
                self.reserve(offer, site);
                let (from, to) = (self.offer(old).size, self.offer(offer).size);
                pools::remove(&mut self.packing.usage, from);
                pools::add(&mut self.packing.usage, to);
                let order = &mut self.packing.orders[index];
                order.offer = offer;
                order.sites = sites;
                order.site = site;
                order.free = free;
                break;
            }
        }
    }

    /// What another offer's machine has left with the pods of this order, if it takes them.
    fn refilled(
        &self,
        order: usize,
        offer: usize,
        demand_of: &BTreeMap<usize, usize>,
    ) -> Option<Free> {
        let mut free = self.offer(offer).free.clone();
        for (need, count) in &self.packing.orders[order].pods {
            let spec = self.demands[demand_of[need]].spec;
            if free.how_many(spec, *count) < *count {
                return None;
            }
            free.put(spec, *count);
        }
        Some(free)
    }
}
