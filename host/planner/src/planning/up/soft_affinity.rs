//! What pods prefer: node affinity, other pods to stand with or away from, and topology spreads with `ScheduleAnyway`.
//! It decides between the hypervisors that the policy ranks; node affinity also between types of equal cost. kproxide
//! makes no machine for it, and no dearer one. It decides nothing where
//!
//! - the pods' affinity, anti-affinity or spread fixes the hypervisor,
//! - a machine is replaced,
//! - a later machine would find no room, or pods that must spread would get another zone,
//! - a pool gets more than 100 machines at once, for their type.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::packing::{Demand, Order, Packing};
use super::placement::REJECTED_NAMED_MAX;
use super::pools::{Offer, PoolPlan};
use super::scale_up::Purpose;
use super::schedule::Need;
use crate::facts::PodSpec;
use crate::kubernetes::selector;
use crate::plan::question::{RankQuestion, Ranking, Scored};
use crate::planning::Planning;
use crate::planning::pods::topology::Spot;
use crate::reasons::no_hypervisor::{Refusal, Refused};
use crate::world::Id;

/// Of the hypervisors that pods prefer to the chosen one, so many are looked at.
const MOST_LIKED: usize = 8;

impl Offer<'_> {
    /// How much of the node affinity that these pods prefer a machine there would have.
    fn preference<'p>(&self, place: usize, pods: impl Iterator<Item = (&'p PodSpec, u32)>) -> i64 {
        let profile = &self.profiles[place];
        pods.map(|(spec, count)| {
            i64::from(count) * selector::preference(spec, &profile.name, &profile.labels)
        })
        .sum()
    }
}

impl Packing<'_> {
    /// How much of the node affinity that pods prefer these machines have, each where it has most.
    pub(in crate::planning) fn preference(
        &self,
        pool: &PoolPlan<'_>,
        demands: &[Demand<'_>],
    ) -> i64 {
        if demands
            .iter()
            .all(|it| it.spec.preferred_node_affinity.is_empty())
        {
            return 0;
        }
        let spec_of: BTreeMap<usize, &PodSpec> =
            demands.iter().map(|it| (it.need, it.spec)).collect();
        let of_order = |order: &Order| {
            let offer = &pool.offers[order.offer];
            let places = (0..offer.profiles.len()).filter(|place| order.sites.contains(*place));
            let pods = || {
                order
                    .pods
                    .iter()
                    .map(|(need, count)| (spec_of[need], *count))
            };
            places.map(|place| offer.preference(place, pods())).max()
        };
        self.orders.iter().filter_map(of_order).sum()
    }
}

impl<'w> Planning<'w> {
    /// The placement that the pods prefer most, if they prefer it to the chosen one and every later order finds room
    /// beside it. Of equal ones the first.
    pub(in crate::planning) fn preferred<'s>(
        &self,
        placements: &[&'s Scored],
        chosen: &'s Scored,
    ) -> &'s Scored {
        if !self.prefers_any() {
            return chosen;
        }
        let least = self.preference(chosen.index);
        // Pods would spread to the first machine of a zone, and take the room of those that it is made for.
        let may_open = self.opens_domain(chosen.index);
        let stays_within = |it: &&&Scored| may_open || !self.opens_domain(it.index);
        let within = placements.iter().filter(stays_within);
        let liked = within.map(|it| (self.preference(it.index), *it));
        let mut liked: Vec<(i64, &Scored)> = liked.filter(|(much, _)| *much > least).collect();
        liked.sort_by_key(|(much, _)| Reverse(*much));
        let all_fit = |mut room| {
            let mut later = self.later_orders().iter();
            later.all(|wanted| self.find_room(&mut room, wanted))
        };
        let beside = |place: u32| self.room_beside(place).is_some_and(all_fit);
        let found = liked
            .into_iter()
            .take(MOST_LIKED)
            .find(|(_, it)| beside(it.index));
        found.map_or(chosen, |(_, it)| it)
    }

    /// Whether there is anything to compare: few pods prefer anything, and there may be a thousand hypervisors.
    fn prefers_any(&self) -> bool {
        let mut pods = self.pods_of_order();
        pods.any(|(need, _)| {
            !need.spec.preferred_node_affinity.is_empty()
                || !need.spec.preferred_neighbours.is_empty()
        })
    }

    fn opens_domain(&self, place: u32) -> bool {
        self.snapshot
            .topology
            .opens_domain(self.spot_of_order(place))
    }

    fn spot_of_order(&self, place: u32) -> Spot<'_> {
        let wanted = &self.placing.wanted[self.placing.next];
        let offer = &self.pools[wanted.pool].offers[wanted.order.offer];
        wanted.order.spot_at(offer, place as usize)
    }

    /// How much of what the pods of this order prefer its machine would have there.
    fn preference(&self, place: u32) -> i64 {
        let wanted = &self.placing.wanted[self.placing.next];
        let offer = &self.pools[wanted.pool].offers[wanted.order.offer];
        let pods = self
            .pods_of_order()
            .map(|(need, count)| (&*need.spec, count));
        let of_nodes = offer.preference(place as usize, pods);
        let spot = self.spot_of_order(place);
        let of_pods = self.pods_of_order().map(|(need, count)| {
            let preference = self.snapshot.topology.preference(need.shape, spot);
            i64::from(count) * preference
        });
        of_nodes + of_pods.sum::<i64>()
    }

    /// The pods that the order is for, by need, and how many of each.
    fn pods_of_order(&self) -> impl Iterator<Item = (&Need<'w>, u32)> {
        let wanted = &self.placing.wanted[self.placing.next];
        let is_for_pods = wanted.purpose == Purpose::Pods;
        let pods = wanted.order.pods.iter().filter(move |_| is_for_pods);
        pods.map(|(need, count)| (&self.needs[*need], *count))
    }

    /// The pods of this order will stand there: those of later orders may prefer that, or not.
    pub(in crate::planning) fn note_neighbours(&mut self, place: usize) {
        let pods: Vec<(Id, u32)> = self
            .pods_of_order()
            .map(|(need, count)| (need.shape, count))
            .collect();
        let wanted = &self.placing.wanted[self.placing.next];
        let spot = wanted
            .order
            .spot_at(&self.pools[wanted.pool].offers[wanted.order.offer], place);
        for (shape, count) in pods {
            self.snapshot
                .topology
                .put_for_preferences(shape, spot, count);
        }
    }

    /// Adds the hypervisors that the policy scored at least as high, and that the pods prefer less.
    pub(in crate::planning) fn less_preferred(
        &self,
        question: &RankQuestion,
        ranking: &Ranking,
        chosen: &Scored,
        mut rejected: Vec<Refused>,
    ) -> Vec<Refused> {
        if !self.prefers_any() {
            return rejected;
        }
        let most = self.preference(chosen.index);
        for scored in &ranking.placements {
            let Some(candidate) = question.candidates.get(scored.index as usize) else {
                continue;
            };
            let hypervisor = &candidate.hypervisor.id;
            if scored.score >= chosen.score
                && self.preference(scored.index) < most
                && rejected.iter().all(|(refused, _)| refused != hypervisor)
            {
                rejected.push((hypervisor.clone(), Refusal::PodsPreferAnother));
            }
        }
        rejected.truncate(REJECTED_NAMED_MAX);
        rejected
    }
}
