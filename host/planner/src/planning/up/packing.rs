//! Packing pods into machines that do not exist yet: first-fit decreasing, tried with each instance type first, the cheapest result taken.

mod apart;
mod joining;
mod openings;
mod shrinking;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(in crate::planning) use self::apart::{open_empty, pack_together};
use self::openings::{by_cost, promising};
use super::pools::{self, Offer, PoolPlan, SiteSet};
use super::schedule::is_refused;
use super::snapshot::NodeInfo;
use crate::facts::PodSpec;
use crate::kubernetes::resources::Resources;
use crate::ledger::Usage;
use crate::plan::RefusedNode;
use crate::planning::hypervisors::room::Room;
use crate::planning::pods::fit::{Demanded, Free, demanded};
use crate::planning::pods::topology::{Spot, Topology};
use crate::world::Id;

/// One core weighs as much as 4 GiB, the usual proportion of machines.
pub(in crate::planning) const BYTES_PER_MILLI_CORE: u64 = (4 << 30) / 1000;

/// No more types than this, the largest, are tried as the first one to open. A machine is made smaller with all of them.
const MOST_OPENINGS: usize = 16;

/// Where more machines than this hold all pods, each try takes long. Then only so many types are tried: the largest, and those that promise to be cheapest.
const MANY_ORDERS: usize = 100;
const FEW_OPENINGS: usize = 3;

/// How large a pod is, for first-fit decreasing.
pub(in crate::planning) fn weight(requests: &Resources) -> i128 {
    i128::from(requests.milli_cores) * i128::from(BYTES_PER_MILLI_CORE)
        + i128::from(requests.memory_bytes)
}

/// Pods of one shape that want machines of a pool.
pub(in crate::planning) struct Demand<'a> {
    /// Index into the tick's needs.
    pub(in crate::planning) need: usize,
    pub(in crate::planning) shape: Id,
    pub(in crate::planning) spec: &'a PodSpec,
    pub(in crate::planning) count: u32,
    /// Nodes where the scheduler has not put these pods although they fit.
    pub(in crate::planning) refused: &'a [RefusedNode],
    /// Offers that these pods may not have.
    pub(in crate::planning) closed: &'a [usize],
}

/// A machine that packing wants.
#[derive(Clone, Debug)]
pub(in crate::planning) struct Order {
    /// Index into the pool's offers.
    pub(in crate::planning) offer: usize,
    /// The hypervisors on which it would admit all its pods.
    pub(in crate::planning) sites: SiteSet,
    /// Where room was found for it; the policy may choose another.
    pub(in crate::planning) site: usize,
    /// Where it stands makes a difference to its pods or to others: it stays at `site`.
    is_pinned: bool,
    /// Stands for its host name.
    host: Arc<str>,
    pub(in crate::planning) free: Free,
    /// Needs and how many of each.
    pub(in crate::planning) pods: Vec<(usize, u32)>,
}

impl Order {
    /// Its machine on one of the offer's hypervisors.
    pub(in crate::planning) fn spot_at<'o>(
        &'o self,
        offer: &'o Offer<'_>,
        place: usize,
    ) -> Spot<'o> {
        Spot::to_be_made(&offer.profiles[place], &self.host)
    }

    /// No policy puts it on another hypervisor.
    fn stays(&self) -> bool {
        self.is_pinned || self.sites.len() == 1
    }
}

#[derive(Clone)]
pub(in crate::planning) struct Packing<'w> {
    pub(in crate::planning) orders: Vec<Order>,
    /// Pods without a machine, per demand.
    pub(in crate::planning) left: Vec<u32>,
    pub(in crate::planning) room: Room,
    pub(in crate::planning) usage: Usage,
    pub(in crate::planning) topology: Topology<'w>,
    /// Nodes that only rules about neighbours close to a pod, by their index in the snapshot. The pods of a new machine
    /// may open them: a pod wishes to stand beside them, or its spread may go one further.
    stays: Vec<(usize, NodeInfo<'w>)>,
    /// What those Nodes take, by need and index.
    pub(in crate::planning) on_nodes: BTreeMap<(usize, usize), u32>,
}

impl Packing<'_> {
    /// More pods placed, then cheaper machines, then fewer of them, then those that pods prefer.
    fn is_better_than(&self, other: &Self, pool: &PoolPlan<'_>, demands: &[Demand<'_>]) -> bool {
        let key = |packing: &Self| {
            let left: u64 = packing.left.iter().map(|left| u64::from(*left)).sum();
            let cost: u128 = packing
                .orders
                .iter()
                .map(|order| u128::from(pool.offers[order.offer].cost()))
                .sum();
            (left, cost, packing.orders.len())
        };
        match key(self).cmp(&key(other)) {
            Ordering::Less => true,
            Ordering::Equal => self.preference(pool, demands) > other.preference(pool, demands),
            Ordering::Greater => false,
        }
    }
}

/// Packs as much as fits within the pool's limits and the room there is.
pub(in crate::planning) fn pack<'w>(
    pool: &PoolPlan<'w>,
    demands: &[Demand<'_>],
    room: &Room,
    topology: &Topology<'w>,
    stays: Vec<(usize, NodeInfo<'w>)>,
) -> Packing<'w> {
    let admitting = Admitting::new(pool, demands);
    let by_cost = by_cost(pool);
    let nothing = nothing(pool, demands, room, topology, stays);
    let packed = |first: usize| {
        let others = by_cost.iter().copied().filter(|other| *other != first);
        let mut packer = Packer {
            pool,
            demands,
            admitting: &admitting,
            opening: std::iter::once(first).chain(others).collect(),
            packing: nothing.clone(),
        };
        packer.fill();
        packer.shrink();
        packer
    };
    let Some((largest, smaller)) = by_cost.split_first() else {
        return nothing;
    };
    let mut best = packed(*largest);
    let Packing { orders, left, .. } = &best.packing;
    let is_enough = orders.len() > MANY_ORDERS && left.iter().all(|left| *left == 0);
    let next = match is_enough {
        true => promising(pool, demands, room, smaller),
        false => smaller.to_vec(),
    };
    let most = if is_enough {
        FEW_OPENINGS
    } else {
        MOST_OPENINGS
    } - 1;
    for first in next.into_iter().take(most) {
        let other = packed(first);
        if other.packing.is_better_than(&best.packing, pool, demands) {
            best = other;
        }
    }
    best.so_that_none_is_stuck(&nothing)
}

/// A Node that takes a pod of this demand.
fn opened_node<'n, 'w>(
    nodes: &'n mut [(usize, NodeInfo<'w>)],
    topology: &Topology<'w>,
    demand: &Demand<'_>,
) -> Option<&'n mut (usize, NodeInfo<'w>)> {
    nodes.iter_mut().find(|(_, info)| {
        let is_refused = info
            .node()
            .is_some_and(|node| is_refused(demand.refused, &node));
        !is_refused && info.takes(demand.spec) && !topology.keeps_away(demand.shape, info.spot())
    })
}

/// Where the machine of this order is to stand.
fn spot<'o>(pool: &'o PoolPlan<'_>, order: &'o Order) -> Spot<'o> {
    order.spot_at(&pool.offers[order.offer], order.site)
}

/// Before the first machine is packed.
pub(in crate::planning) fn nothing<'w>(
    pool: &PoolPlan<'w>,
    demands: &[Demand<'_>],
    room: &Room,
    topology: &Topology<'w>,
    stays: Vec<(usize, NodeInfo<'w>)>,
) -> Packing<'w> {
    Packing {
        orders: Vec::new(),
        left: demands.iter().map(|demand| demand.count).collect(),
        room: room.clone(),
        usage: pool.usage,
        topology: topology.clone(),
        stays,
        on_nodes: BTreeMap::new(),
    }
}

/// Which hypervisors' machines admit which pods, per offer. Pods that demand the same of a Node's profile share an answer.
struct Admitting {
    group_of: Vec<usize>,
    sets: Vec<Vec<SiteSet>>,
}

impl Admitting {
    fn new(pool: &PoolPlan<'_>, demands: &[Demand<'_>]) -> Self {
        let mut groups: BTreeMap<Demanded<'_>, usize> = BTreeMap::new();
        let mut sets = Vec::new();
        let group_of = demands.iter().map(|demand| {
            let spec = demand.spec;
            *groups.entry(demanded(spec)).or_insert_with(|| {
                sets.push(
                    pool.offers
                        .iter()
                        .map(|offer| offer.admitting(spec))
                        .collect(),
                );
                sets.len() - 1
            })
        });
        let group_of = group_of.collect();
        let mut admitting = Self { group_of, sets };
        let closing = demands.iter().enumerate();
        for (index, demand) in closing.filter(|(_, demand)| !demand.closed.is_empty()) {
            admitting.close(index, demand.closed);
        }
        admitting
    }

    /// These offers admit no pods of this demand.
    fn close(&mut self, demand: usize, offers: &[usize]) {
        let mut sets = self.sets[self.group_of[demand]].clone();
        for offer in offers {
            sets[*offer] = SiteSet::default();
        }
        self.group_of[demand] = self.sets.len();
        self.sets.push(sets);
    }

    fn of(&self, demand: usize, offer: usize) -> &SiteSet {
        &self.sets[self.group_of[demand]][offer]
    }
}

struct Packer<'a, 'w> {
    pool: &'a PoolPlan<'w>,
    demands: &'a [Demand<'a>],
    admitting: &'a Admitting,
    /// Offers in the order in which they are tried for a new machine.
    opening: Vec<usize>,
    packing: Packing<'w>,
}

impl<'w> Packer<'_, 'w> {
    fn fill(&mut self) {
        let mut has_put = self.fill_round(|_, _| true);
        // A pod may wish to stand beside one that was placed after its turn. Each round places a pod, so this ends.
        while has_put {
            has_put = self
                .fill_round(|packer, demand| !packer.demands[demand].spec.pod_affinity.is_empty());
        }
    }

    /// True if one of these pods has found a place.
    fn fill_round(&mut self, is_meant: impl Fn(&Self, usize) -> bool) -> bool {
        let mut has_put = false;
        for demand in 0..self.demands.len() {
            let mut left = self.packing.left[demand];
            if left == 0 || !is_meant(self, demand) {
                continue;
            }
            let one_by_one = self.one_by_one(demand);
            // Machines that may take another of these pods. They only get fuller.
            let mut open: Vec<usize> = (0..self.packing.orders.len()).collect();
            let mut is_first = true;
            while left > 0 {
                if one_by_one && self.put_on_node(demand) {
                    left -= 1;
                    continue;
                }
                let before = left;
                if one_by_one || std::mem::take(&mut is_first) {
                    open.retain(|order| {
                        let put = match left {
                            0 => Some(0),
                            _ => self.fill_open(demand, *order, left),
                        };
                        left -= put.unwrap_or(0);
                        put.is_some()
                    });
                }
                if left == 0 || (one_by_one && left < before) {
                    continue;
                }
                let Some(opened) = self.open(demand, left) else {
                    break;
                };
                left -= opened;
                open.push(self.packing.orders.len() - 1);
            }
            has_put |= left < self.packing.left[demand];
            self.packing.left[demand] = left;
        }
        has_put
    }

    /// Each pod with rules about its neighbours may open or close machines for the next.
    fn one_by_one(&self, demand: usize) -> bool {
        self.packing.topology.has_rules(self.demands[demand].shape)
    }

    /// Puts a pod on a Node that a planned machine has opened to it.
    fn put_on_node(&mut self, demand: usize) -> bool {
        let Demand {
            need, shape, spec, ..
        } = self.demands[demand];
        let Packing {
            stays,
            topology,
            on_nodes,
            ..
        } = &mut self.packing;
        let Some((index, info)) = opened_node(stays, topology, &self.demands[demand]) else {
            return false;
        };
        info.place.free.put(spec, 1);
        topology.put(shape, info.spot(), 1);
        *on_nodes.entry((need, *index)).or_default() += 1;
        true
    }

    fn offer(&self, index: usize) -> &Offer<'w> {
        &self.pool.offers[index]
    }

    /// Puts pods into a machine that is open; tells how many. `None`: it takes no more of them, whatever else is packed.
    fn fill_open(&mut self, demand: usize, index: usize, left: u32) -> Option<u32> {
        let Demand { spec, shape, .. } = self.demands[demand];
        let order = &self.packing.orders[index];
        let most = if self.one_by_one(demand) {
            left.min(1)
        } else {
            left
        };
        let count = order.free.how_many(spec, most);
        if count == 0 {
            return None;
        }
        let sites = order
            .sites
            .intersection(self.admitting.of(demand, order.offer));
        if sites.is_empty() {
            return None;
        }
        let (at, offer) = (order.site, order.offer);
        let needs_place = self.packing.topology.needs_place(shape);
        // A machine with such pods stays where room was found for it.
        if (needs_place || order.is_pinned) && !sites.contains(at) {
            return Some(0);
        }
        let spot = spot(self.pool, order);
        if self.packing.topology.keeps_away(shape, spot) {
            let is_for_good = self.packing.topology.host_keeps_away(shape, spot);
            return (!is_for_good).then_some(0);
        }
        let Some(site) = self.stay_or_move(offer, at, &sites) else {
            return Some(0);
        };
        let order = &mut self.packing.orders[index];
        order.free.put(spec, count);
        order.sites = sites;
        order.site = site;
        order.pods.push((self.demands[demand].need, count));
        if needs_place {
            self.pin(index);
        }
        self.count(index, shape, count);
        Some(count)
    }

    /// The rules of pods about their neighbours keep a pod of this shape away from a machine there.
    fn keeps_away(&self, shape: Id, offer: usize, site: usize, host: &str) -> bool {
        let spot = Spot::to_be_made(&self.pool.offers[offer].profiles[site], host);
        self.packing.topology.keeps_away(shape, spot)
    }

    fn pin(&mut self, index: usize) {
        let order = &mut self.packing.orders[index];
        if order.is_pinned {
            return;
        }
        order.is_pinned = true;
        order.sites = SiteSet::default();
        order.sites.insert(order.site);
        self.open_domains(index);
    }

    /// Pods that come later spread over this machine, too.
    fn open_domains(&mut self, index: usize) {
        let order = &self.packing.orders[index];
        let spot = spot(self.pool, order);
        self.packing.topology.open_domains(spot, order.stays());
    }

    fn count(&mut self, index: usize, shape: Id, count: u32) {
        let order = &self.packing.orders[index];
        let spot = spot(self.pool, order);
        self.packing.topology.put_in_thought(shape, spot, count);
    }

    /// A place of this set for a planned machine that is at `at` so far: there, or where there is room.
    fn stay_or_move(&mut self, offer: usize, at: usize, sites: &SiteSet) -> Option<usize> {
        if sites.contains(at) {
            return Some(at);
        }
        let to = self
            .offer(offer)
            .site_with_room(sites, &self.packing.room)?;
        self.release(offer, at);
        self.reserve(offer, to);
        Some(to)
    }

    fn reserve(&mut self, offer: usize, at: usize) {
        self.pool.offers[offer].take_room(at, &mut self.packing.room);
    }

    fn release(&mut self, offer: usize, at: usize) {
        let offer = &self.pool.offers[offer];
        if let Ok(site) = &offer.sites[at] {
            self.packing.room.give_back(site, offer.size);
        }
    }

    /// Opens a machine for pods of this demand; tells how many it takes. `None`: no type takes them within limits and room.
    fn open(&mut self, demand: usize, left: u32) -> Option<u32> {
        let Demand { spec, shape, .. } = self.demands[demand];
        let needs_place = self.packing.topology.needs_place(shape);
        let host = self.packing.topology.next_host(self.pool.name.as_str());
        let found = self.opening.iter().find_map(|index| {
            let offer = self.offer(*index);
            if offer.free.misfit(spec).is_some()
                || self.pool.limit(&self.packing.usage, offer.size).is_some()
            {
                return None;
            }
            let sites = self.admitting.of(demand, *index);
            let sites = match needs_place {
                true => offer.those(sites, |site| !self.keeps_away(shape, *index, site, &host)),
                false => sites.clone(),
            };
            let crowd = |site: &usize| {
                let spot = Spot::to_be_made(&offer.profiles[*site], &host);
                self.packing.topology.crowd(shape, spot)
            };
            let room = &self.packing.room;
            let site = match needs_place {
                true => offer.sites_with_room(&sites, room).min_by_key(crowd)?,
                false => offer.site_with_room(&sites, room)?,
            };
            Some((*index, sites, site))
        });
        let (offer, sites, site) = match found {
            Some(found) => found,
            None => self.make_room(demand)?,
        };
        if self.keeps_away(shape, offer, site, &host) {
            return None;
        }
        let mut free = self.offer(offer).free.clone();
        let most = if self.one_by_one(demand) { 1 } else { left };
        let count = free.how_many(spec, most);
        free.put(spec, count);
        self.packing.topology.take_host();
        self.reserve(offer, site);
        let size = self.offer(offer).size;
        pools::add(&mut self.packing.usage, size);
        self.packing.orders.push(Order {
            offer,
            sites,
            site,
            is_pinned: false,
            host,
            free,
            pods: vec![(self.demands[demand].need, count)],
        });
        let index = self.packing.orders.len() - 1;
        match needs_place {
            true => self.pin(index),
            false => self.open_domains(index),
        }
        self.count(index, shape, count);
        Some(count)
    }

    /// Moves machines that could as well stand elsewhere away from a hypervisor that this demand needs.
    fn make_room(&mut self, demand: usize) -> Option<(usize, SiteSet, usize)> {
        let spec = self.demands[demand].spec;
        for index in self.opening.clone() {
            let (size, count) = (self.offer(index).size, self.offer(index).sites.len());
            if self.offer(index).free.misfit(spec).is_some()
                || self.pool.limit(&self.packing.usage, size).is_some()
            {
                continue;
            }
            let sites = self.admitting.of(demand, index).clone();
            for place in (0..count).filter(|place| sites.contains(*place)) {
                if self.clear(index, place) {
                    return Some((index, sites, place));
                }
            }
        }
        None
    }

    /// Moves machines away from this place until one more of this offer fits; if that cannot be, nothing moves.
    fn clear(&mut self, offer: usize, place: usize) -> bool {
        let Ok(wanted) = self.pool.offers[offer].sites[place].clone() else {
            return false;
        };
        let mut moved: Vec<(usize, usize)> = Vec::new();
        for index in 0..self.packing.orders.len() {
            let order = &self.packing.orders[index];
            let stands_here = match &self.offer(order.offer).sites[order.site] {
                Ok(site) => site.hypervisor == wanted.hypervisor,
                Err(_) => false,
            };
            if !stands_here {
                continue;
            }
            let (of, from, mut others) = (order.offer, order.site, order.sites.clone());
            others.remove(from);
            let Some(to) = self.offer(of).site_with_room(&others, &self.packing.room) else {
                continue;
            };
            self.shift(index, of, to);
            moved.push((index, from));
            if self.packing.room.has_room(&wanted, self.offer(offer).size) {
                return true;
            }
        }
        for (index, from) in moved.into_iter().rev() {
            let of = self.packing.orders[index].offer;
            self.shift(index, of, from);
        }
        false
    }

    fn shift(&mut self, order: usize, offer: usize, to: usize) {
        let from = std::mem::replace(&mut self.packing.orders[order].site, to);
        self.release(offer, from);
        self.reserve(offer, to);
    }

    /// Demands by their needs.
    fn demand_of(&self) -> BTreeMap<usize, usize> {
        let demands = self.demands.iter().enumerate();
        demands
            .map(|(index, demand)| (demand.need, index))
            .collect()
    }
}
