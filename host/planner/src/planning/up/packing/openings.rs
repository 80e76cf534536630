//! Which types are tried as the first one to open, and in which order.

use super::Demand;
use crate::kubernetes::resources::Resources;
use crate::planning::hypervisors::room::Room;
use crate::planning::up::pools::PoolPlan;

/// The pool's offers, the largest first.
pub(super) fn by_cost(pool: &PoolPlan<'_>) -> Vec<usize> {
    let mut by_cost: Vec<usize> = (0..pool.offers.len()).collect();
    by_cost.sort_by(|a, b| {
        let name = |index: &usize| (&pool.offers[*index].instance_type.name, *index);
        (pool.offers[*b].cost(), name(a)).cmp(&(pool.offers[*a].cost(), name(b)))
    });
    by_cost
}

/// Those of these offers that can be made, the cheapest first: by what machines of each would cost if the pods' CPU, memory and number filled them without
/// a gap. Whether one takes the pods is not looked at.
pub(super) fn promising(
    pool: &PoolPlan<'_>,
    demands: &[Demand<'_>],
    room: &Room,
    offers: &[usize],
) -> Vec<usize> {
    let mut asked = Resources::default();
    for demand in demands {
        asked.add_times(&demand.spec.requests, i64::from(demand.count));
    }
    let cost = |index: &usize| {
        let offer = &pool.offers[*index];
        offer.site_with_room(&offer.part, room)?;
        let free = &offer.free.resources;
        let share = |asked: i64, free: i64| match asked {
            ..=0 => Some(0),
            _ => {
                let (asked, free) = (u128::try_from(asked).ok()?, u128::try_from(free).ok()?);
                (u128::from(offer.cost()) * asked).checked_div(free)
            }
        };
        let cpu = share(asked.milli_cores, free.milli_cores)?;
        let memory = share(asked.memory_bytes, free.memory_bytes)?;
        let pods = share(asked.pods, free.pods)?;
        Some((cpu.max(memory).max(pods), *index))
    };
    let mut costs: Vec<(u128, usize)> = offers.iter().filter_map(cost).collect();
    // Those of equal promise stay in their order.
    costs.sort_by_key(|(cost, _)| *cost);
    costs.into_iter().map(|(_, index)| index).collect()
}
