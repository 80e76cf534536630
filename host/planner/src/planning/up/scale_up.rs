//! Which machines to make: for pods that fit nowhere, for `minNodes`, for a pool's headroom. And why a pod gets none.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::packing::{self, Demand, Order, Packing};
use super::pools::{Offer, PoolPlan, SiteSet};
use super::schedule::Need;
use super::snapshot::NodeInfo;
use crate::facts::PodSpec;
use crate::ids::PoolName;
use crate::kubernetes::resources::Resources;
use crate::plan::report::{DaemonsWhy, LearnedWhy, Misfit, Severity, Unusable, Why};
use crate::planning::claims::failed_machines;
use crate::planning::hypervisors::room::Room;
use crate::planning::machines::learned::Learned;
use crate::planning::machines::shape;
use crate::planning::pods::topology::Spot;
use crate::planning::up::launch_backoff::{self, Granted, MadeFor, Share};
use crate::planning::{Planning, Tick};
use crate::reasons::no_hypervisor::{Refusal, Refused};
use crate::time::later;

/// No more Nodes than this are tried again as machines are planned.
const MOST_OPENED: usize = 100;

/// An order of a pool, waiting to be placed.
pub(in crate::planning) struct Wanted {
    /// Index into the tick's pools.
    pub(in crate::planning) pool: usize,
    pub(in crate::planning) order: Order,
    pub(in crate::planning) purpose: Purpose,
    /// Whose pods it is for.
    pub(in crate::planning) made_for: Vec<MadeFor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::planning) enum Purpose {
    Pods,
    MinNodes,
    Headroom,
    /// Of the machine of this row.
    Replacement(usize),
}

impl<'w> Planning<'w> {
    /// Step 4: orders machines, pool by pool. Pods that one pool cannot help go to the next pool. Returns the room that is
    /// left.
    pub(in crate::planning) fn scale_up(&mut self) -> Room {
        self.make_offers();
        let staying = self.staying();
        let mut room = self.placing.room.clone();
        for index in 0..self.pools.len() {
            let mut packing = self.pack_pool(index, &room);
            self.fill_up(
                index,
                staying.get(self.pools[index].name).copied().unwrap_or(0),
                &mut packing,
            );
            room = packing.room;
            self.snapshot.topology = packing.topology;
            self.pools[index].usage = packing.usage;
        }
        room
    }

    fn pack_pool(&mut self, index: usize, room: &Room) -> Packing<'w> {
        let pool = &self.pools[index];
        let mut infeasible: Vec<(usize, Why)> = Vec::new();
        let mut shares: Vec<(usize, Share)> = Vec::new();
        let mut granted = Granted::new();
        for (number, need) in self.needs.iter().enumerate() {
            if need.left == 0 || need.unserved.is_some() {
                continue;
            }
            let why = why_infeasible(&mut self.tick, &self.learned, pool, need);
            if let Some(why) = why.or_else(|| self.why_tainted(pool, need)) {
                infeasible.push((number, why));
                continue;
            }
            let mut share = self.share(pool, need, &mut granted);
            if let Some(until) = share.until {
                self.tick.reached(until);
            }
            let why = share.why.take_if(|_| share.count == 0);
            match why {
                Some(why) => infeasible.push((number, why)),
                None => shares.push((number, share)),
            }
        }
        let needs = &self.needs;
        let demands = shares.iter().map(|(number, share)| Demand {
            need: *number,
            shape: needs[*number].shape,
            spec: &needs[*number].spec,
            count: share.count,
            refused: &needs[*number].refused,
            closed: &share.closed,
        });
        let demands: Vec<Demand<'_>> = demands.collect();
        let stays = self.perhaps_opened(&demands);
        let packing = packing::pack(pool, &demands, room, &self.snapshot.topology, stays);
        let mut left: Vec<(usize, u32, Option<Why>)> = Vec::new();
        for ((demand, count), (number, share)) in demands.iter().zip(&packing.left).zip(&shares) {
            let why = (*count > 0).then(|| self.refusal(pool, demand, &packing));
            let others = self.needs[*number].left - demand.count;
            left.push((*number, others + count, why.or_else(|| share.why.clone())));
        }
        drop(demands);
        let name = pool.name.clone();
        let reasons = left.iter().filter_map(|(_, _, why)| match why {
            Some(Why::NoHypervisor(reasons)) => Some(reasons),
            Some(_) | None => None,
        });
        for (hypervisor, reason) in reasons.flatten() {
            let key = (name.clone(), hypervisor.clone());
            self.placing
                .rejected
                .entry(key)
                .or_insert_with(|| reason.clone());
        }
        for (_, _, why) in &left {
            if let Some(why) = why {
                failed_machines::note(&mut self.placing.lacking, &name, why);
            }
        }
        for (need, count, why) in left {
            let need = &mut self.needs[need];
            need.left = count;
            if let Some(why) = why {
                need.whys.insert(name.clone(), why);
            }
        }
        for (need, why) in infeasible {
            self.needs[need].whys.insert(name.clone(), why);
        }
        for ((need, node), count) in &packing.on_nodes {
            let (need, info) = (&mut self.needs[*need], &mut self.snapshot.nodes[*node]);
            info.place.free.put(&need.spec, *count);
            info.promised += count;
            need.note_place(info, *count);
        }
        for order in &packing.orders {
            let mut made_for = Vec::new();
            for (need, count) in &order.pods {
                let share = shares.iter_mut().find(|(number, _)| number == need);
                made_for.extend(share.into_iter().flat_map(|(_, share)| share.take(*count)));
            }
            self.placing.wanted.push(Wanted {
                pool: index,
                order: order.clone(),
                purpose: Purpose::Pods,
                made_for,
            });
        }
        packing
    }

    /// Nodes that have room for pods whose wish for neighbours, or whose spread, keeps them away as things stand.
    fn perhaps_opened(&self, demands: &[Demand<'_>]) -> Vec<(usize, NodeInfo<'w>)> {
        let may_change = |demand: &&Demand<'_>| {
            !demand.spec.pod_affinity.is_empty() || !demand.spec.spread.is_empty()
        };
        let demands: Vec<_> = demands.iter().filter(may_change).collect();
        if demands.is_empty() {
            return Vec::new();
        }
        let has_room = |info: &NodeInfo<'_>| demands.iter().any(|demand| info.takes(demand.spec));
        let nodes = self.snapshot.nodes.iter().enumerate();
        let nodes = nodes.filter(|(_, info)| has_room(info)).take(MOST_OPENED);
        nodes.map(|(index, info)| (index, info.clone())).collect()
    }

    /// Machines beyond what pods ask: up to `minNodes`, and until the pool's headroom is free.
    fn fill_up(&mut self, index: usize, staying: u32, packing: &mut Packing<'_>) {
        let pool = &self.pools[index];
        if pool.class.is_err() {
            return;
        }
        let mut count =
            staying.saturating_add(u32::try_from(packing.orders.len()).unwrap_or(u32::MAX));
        let (least, keeps_free) = (self.least(pool.name), self.keeps_free(pool.name));
        let mut free = self.free_in(pool.name);
        for order in &packing.orders {
            free.add(&order.free.resources);
        }
        let mut tried = false;
        loop {
            let lacking = keeps_free.first_lacking(&free);
            let purpose = match (count < least, &lacking) {
                (true, _) => Purpose::MinNodes,
                (false, Some(_)) => Purpose::Headroom,
                (false, None) => break,
            };
            // A machine that does not offer what is lacking would not help, and kproxide would make another one in
            // every tick.
            let helps = |offer: &Offer<'_>| match &lacking {
                Some(lack) if purpose == Purpose::Headroom => {
                    offer.free.resources.amount(&lack.resource) > 0
                }
                Some(_) | None => true,
            };
            let mut rests = None;
            let may_be_made = |offer: &Offer<'_>| {
                !offer.is_retry
                    && helps(offer)
                    && match self.turn_of_pool(pool, &offer.instance_type.name) {
                        Ok(is_trial) => !(is_trial && tried),
                        Err(why) => {
                            rests.get_or_insert(why);
                            false
                        }
                    }
            };
            let Some(order) = packing::open_empty(pool, packing, may_be_made) else {
                if tried {
                    break;
                }
                let wanted = match purpose {
                    Purpose::MinNodes => "minNodes",
                    Purpose::Headroom | Purpose::Pods | Purpose::Replacement(_) => "headroom",
                };
                let why = match &lacking {
                    Some(lack) if !pool.offers.is_empty() && !pool.offers.iter().any(helps) => {
                        let largest = pool.offers.iter().max_by_key(|offer| offer.cost());
                        let daemons = largest.and_then(|offer| {
                            taken_by_daemons(&self.learned, pool, offer, &lack.resource)
                        });
                        Why::Unusable(Unusable::Lacks(lack.resource.clone(), daemons))
                    }
                    Some(_) | None => rests.unwrap_or_else(|| self.why_no_more(pool, packing)),
                };
                let about = format!("NodePool/{}", pool.name);
                let message =
                    format!("kproxide can make no more machines for the pool's {wanted}: {why}");
                failed_machines::note(&mut self.placing.lacking, pool.name, &why);
                self.tick.found(Severity::Warning, about, message);
                break;
            };
            let instance_type = &pool.offers[order.offer].instance_type.name;
            free.add(&order.free.resources);
            count += 1;
            tried |= self.turn_of_pool(pool, instance_type).unwrap_or(false);
            self.placing.wanted.push(Wanted {
                pool: index,
                order,
                purpose,
                made_for: vec![launch_backoff::of_pool()],
            });
        }
    }

    /// Why not even the smallest machine can be made.
    pub(in crate::planning) fn why_no_more(
        &self,
        pool: &PoolPlan<'_>,
        packing: &Packing<'_>,
    ) -> Why {
        let Some(offer) = pool.offers.iter().min_by_key(|offer| offer.cost()) else {
            return pool.nothing_to_make();
        };
        match pool.limit(&packing.usage, offer.size) {
            Some(limit) => Why::Limit(limit),
            None => Why::NoHypervisor(self.site_reasons(pool, offer, &offer.part, &packing.room)),
        }
    }

    /// Free room on the pool's machines, including coming ones.
    pub(in crate::planning) fn free_in(&self, pool: &PoolName) -> Resources {
        let mut free = Resources::default();
        for info in self
            .snapshot
            .nodes
            .iter()
            .filter(|info| info.pool.as_ref() == Some(pool))
        {
            if info.is_open() {
                free.add(&info.place.free.resources);
            }
        }
        free
    }

    /// Why packing left pods of this demand without a machine, although the pool could make one for them.
    pub(in crate::planning) fn refusal(
        &self,
        pool: &PoolPlan<'_>,
        demand: &Demand<'_>,
        packing: &Packing<'_>,
    ) -> Why {
        let fitting = |offer: &&Offer<'_>| {
            offer.free.misfit(demand.spec).is_none() && !offer.admitting(demand.spec).is_empty()
        };
        let offers: Vec<&Offer<'_>> = pool.offers.iter().filter(fitting).collect();
        let kept_away = |profile| {
            let spot = Spot::to_be_made(profile, "a new host");
            packing.topology.misfit(demand.shape, spot)
        };
        let looks = offers.iter().flat_map(|offer| offer.looks());
        let misfits: Option<Vec<_>> = looks.map(|(_, profile)| kept_away(profile)).collect();
        if let Some(misfit) = misfits.and_then(|all| all.into_iter().next()) {
            return Why::Misfit(Box::new(misfit));
        }
        let limits = offers
            .iter()
            .map(|offer| pool.limit(&packing.usage, offer.size));
        if let Some(limit) = limits.clone().flatten().next()
            && limits.clone().all(|limit| limit.is_some())
        {
            return Why::Limit(limit);
        }
        let smallest = offers.iter().min_by_key(|offer| offer.cost());
        let reasons = smallest.map(|offer| {
            let admitting = offer.admitting(demand.spec);
            let admitting = offer.those(&admitting, |site| {
                kept_away(&offer.profiles[site]).is_none()
            });
            self.site_reasons(pool, offer, &admitting, &packing.room)
        });
        Why::NoHypervisor(reasons.unwrap_or_default())
    }

    fn site_reasons(
        &self,
        pool: &PoolPlan<'_>,
        offer: &Offer<'_>,
        admitting: &SiteSet,
        room: &Room,
    ) -> Vec<Refused> {
        let reason = |index: usize| match &offer.sites[index] {
            Err(reason) => reason.clone(),
            Ok(_) if !admitting.contains(index) => Refusal::NotWhatPodsNeed,
            Ok(site) => match room.refusal(&self.hypervisors, site, offer.size) {
                Some(refusal) => refusal,
                None => Refusal::TakenBefore,
            },
        };
        pool.hypervisors
            .iter()
            .enumerate()
            .map(|(index, hypervisor)| {
                (self.hypervisors.all[*hypervisor].id.clone(), reason(index))
            })
            .collect()
    }
}

/// Why no machine of this pool could ever help these pods as things stand; `None`: one could.
fn why_infeasible(
    tick: &mut Tick<'_>,
    learned: &Learned,
    pool: &PoolPlan<'_>,
    need: &Need<'_>,
) -> Option<Why> {
    if let Some(why) = never_fits(tick, learned, pool, &need.spec) {
        return Some(why);
    }
    if let Some(closed) = tick.pool_times.get(pool.name).and_then(|it| it.no_launches) {
        return Some(Why::Window(closed.opens));
    }
    let window = pool.facts.scale_up.stabilization_window.0;
    if window.is_positive() {
        let first = need
            .pods
            .iter()
            .filter_map(|pod| pod.unschedulable_since())
            .min();
        if let Some(first) = first
            && !tick.reached(later(first, window))
        {
            let seconds = window.as_secs();
            return Some(Why::Stabilizing { seconds });
        }
    }
    None
}

/// Why no machine of this pool takes pods of this spec; `None`: one does.
pub(in crate::planning) fn never_fits(
    tick: &mut Tick<'_>,
    learned: &Learned,
    pool: &PoolPlan<'_>,
    spec: &PodSpec,
) -> Option<Why> {
    if let Err(why) = &pool.class {
        return Some(Why::Unusable(why.clone()));
    }
    if pool.offers.is_empty() {
        return Some(pool.nothing_to_make());
    }
    let fitting: Vec<&Offer<'_>> = pool
        .offers
        .iter()
        .filter(|offer| offer.free.misfit(spec).is_none())
        .collect();
    if fitting.is_empty() {
        return learned_too_big(tick, learned, pool, spec).or_else(|| too_big(learned, pool, spec));
    }
    if fitting
        .iter()
        .any(|offer| !offer.admitting(spec).is_empty())
    {
        return None;
    }
    let profiles = fitting.iter().flat_map(|offer| offer.looks());
    let misfits = profiles.filter_map(|(_, profile)| profile.misfit(spec));
    let misfits: Vec<Misfit<'_>> = misfits.collect();
    let is_of_labels = |misfit: &&Misfit<'_>| matches!(misfit, Misfit::Labels(_));
    let other = misfits.iter().find(|misfit| !is_of_labels(misfit));
    let misfit = other.or(misfits.first())?;
    Some(Why::Misfit(Box::new(misfit.clone().into_owned())))
}

/// Which Node has taught that a type is too small for pods of this spec, where its nominal size is large enough.
fn learned_too_big(
    tick: &mut Tick<'_>,
    learned: &Learned,
    pool: &PoolPlan<'_>,
    spec: &PodSpec,
) -> Option<Why> {
    let class = pool.class.as_ref().ok()?;
    let mut offers: Vec<_> = pool.offers.iter().collect();
    offers.sort_by_key(|offer| Reverse(offer.cost()));
    let taught = offers.into_iter().find_map(|offer| {
        let size = offer.instance_type;
        // Its disk is the template's, if it has none of its own, and may be as large as one likes.
        let disk = u64::MAX;
        let name = &pool.facts.node_class;
        let (_, profile) = offer.looks().next()?;
        let daemons = shape::sum(learned.daemons_on(name, size, profile).into_iter());
        let nominal = learned.nominal(name, class, size, disk).minus(&daemons);
        if !spec.requests.fits(&nominal) {
            return None;
        }
        let lack = spec.requests.first_lacking(&offer.free.resources)?;
        let teacher = learned.teacher(&pool.facts.node_class, size, &lack.resource)?;
        Some((size.name.clone(), lack, teacher))
    });
    let (instance_type, lack, teacher) = taught?;
    tick.reached(teacher.again);
    Some(Why::LearnedTooBig(Box::new(LearnedWhy {
        resource: lack.resource,
        requested: lack.asked,
        offered: lack.offered.max(0),
        instance_type,
        class: pool.facts.node_class.clone(),
        node: teacher.node,
        since: teacher.since,
        again: teacher.again,
    })))
}

/// DaemonSets that a reason names.
const MOST_DAEMON_SETS: usize = 3;

/// What DaemonSets take of this resource of a machine of this offer. `None`: nothing.
fn taken_by_daemons(
    learned: &Learned,
    pool: &PoolPlan<'_>,
    offer: &Offer<'_>,
    resource: &Arc<str>,
) -> Option<Box<DaemonsWhy>> {
    let (_, profile) = offer.looks().next()?;
    let sets = learned.daemon_sets_on(&pool.facts.node_class, offer.instance_type, profile);
    let sets = sets.into_iter().map(|(key, spec)| {
        let asked = spec.requests.amount(resource);
        (key.clone(), asked)
    });
    let mut sets: Vec<_> = sets.filter(|(_, asked)| *asked > 0).collect();
    let asked = sets.iter().map(|(_, asked)| *asked);
    let asked = asked.fold(0, i64::saturating_add);
    sets.sort_by_key(|(_, asked)| Reverse(*asked));
    sets.truncate(MOST_DAEMON_SETS);
    (asked > 0).then(|| {
        Box::new(DaemonsWhy {
            resource: resource.clone(),
            asked,
            of: offer.free.resources.amount(resource).saturating_add(asked),
            sets,
        })
    })
}

/// Why no type is large enough for pods of this spec. If a pod lacks something on every type, names the resource that
/// the largest type lacks: of several, the one it lacks least of.
fn too_big(learned: &Learned, pool: &PoolPlan<'_>, spec: &PodSpec) -> Option<Why> {
    let misfits = pool
        .offers
        .iter()
        .filter_map(|offer| offer.free.misfit(spec));
    let is_other = |misfit: &Misfit<'_>| !matches!(misfit, Misfit::TooLittle { .. });
    if let Some(misfit) = misfits.clone().find(is_other) {
        return Some(Why::Misfit(Box::new(misfit.into_owned())));
    }
    let lacks = |offer: &Offer<'_>| spec.requests.first_lacking(&offer.free.resources);
    let largest = pool.offers.iter().max_by_key(|offer| offer.cost())?;
    let lack = lacks(largest)?;
    let lacking = pool.offers.iter().filter_map(|offer| {
        let of_one = lacks(offer)?;
        (of_one.resource == lack.resource).then_some((of_one.offered, offer))
    });
    let (offered, offer) = lacking.max_by_key(|(offered, _)| *offered)?;
    let daemons = taken_by_daemons(learned, pool, offer, &lack.resource);
    Some(Why::TooBig {
        largest: offered.max(0),
        requested: lack.asked,
        daemons: daemons.filter(|daemons| lack.asked <= daemons.of),
        resource: lack.resource,
    })
}

/// Gives the pods of an order that was not placed back to their needs, with the reason, for the report.
pub(in crate::planning) fn put_back(
    needs: &mut [Need<'_>],
    pool: &PoolName,
    order: &Order,
    why: &Why,
) {
    let mut by_need: BTreeMap<usize, u32> = BTreeMap::new();
    for (need, count) in &order.pods {
        *by_need.entry(*need).or_default() += count;
    }
    for (need, count) in by_need {
        let need = &mut needs[need];
        need.left += count;
        need.whys.insert(pool.clone(), why.clone());
    }
}
