//! Machines for something else than pending pods: for those of a machine that is replaced, for `minNodes`, for headroom.

use super::{Admitting, Demand, Order, Packer, Packing, by_cost, nothing, pack};
use crate::planning::hypervisors::room::Room;
use crate::planning::pods::topology::Topology;
use crate::planning::up::pools::{self, Offer, PoolPlan};

/// One machine for all these pods, the cheapest. If no type takes them all, as many machines as they need.
pub(in crate::planning) fn pack_together<'w>(
    pool: &PoolPlan<'w>,
    demands: &[Demand<'_>],
    room: &Room,
    topology: &Topology<'w>,
) -> Packing<'w> {
    let admitting = Admitting::new(pool, demands);
    for offer in by_cost(pool).into_iter().rev() {
        let mut packer = Packer {
            pool,
            demands,
            admitting: &admitting,
            opening: vec![offer],
            packing: nothing(pool, demands, room, topology, Vec::new()),
        };
        packer.fill();
        let packing = packer.packing;
        if packing.orders.len() == 1 && packing.left.iter().all(|left| *left == 0) {
            return packing;
        }
    }
    pack(pool, demands, room, topology, Vec::new())
}

/// A machine without pods, as small as possible of those that help: for `minNodes` and for headroom.
pub(in crate::planning) fn open_empty(
    pool: &PoolPlan<'_>,
    packing: &mut Packing<'_>,
    mut helps: impl FnMut(&Offer<'_>) -> bool,
) -> Option<Order> {
    let mut by_cost: Vec<&Offer<'_>> = pool.offers.iter().filter(|offer| helps(offer)).collect();
    by_cost.sort_by_key(|offer| (offer.cost(), &offer.instance_type.name));
    let (offer, site) = by_cost.into_iter().find_map(|offer| {
        if pool.limit(&packing.usage, offer.size).is_some() {
            return None;
        }
        Some((offer, offer.site_with_room(&offer.part, &packing.room)?))
    })?;
    offer.take_room(site, &mut packing.room);
    pools::add(&mut packing.usage, offer.size);
    let index = pool
        .offers
        .iter()
        .position(|other| std::ptr::eq(other, offer))?;
    Some(Order {
        offer: index,
        sites: offer.part.clone(),
        is_pinned: false,
        host: "".into(),
        site,
        free: offer.free.clone(),
        pods: Vec::new(),
    })
}
