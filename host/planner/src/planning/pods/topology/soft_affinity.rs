//! What pending pods prefer to stand with, or away from. It keeps no pod away.

use std::collections::{BTreeMap, BTreeSet};

use super::count::{Count, Subject, Who};
use super::{Kin, Spot, Topology};
use crate::facts::{PodTerm, PreferredNeighbours};
use crate::world::{Id, World};

#[derive(Clone)]
pub(super) struct Preferred<'w> {
    pub(super) count: Count<'w>,
    /// It does not count pods that end.
    is_spread: bool,
}

impl<'w> Topology<'w> {
    pub(super) fn count_preferred<'s>(
        &mut self,
        world: &'w World,
        subjects: impl Iterator<Item = &'s (Id, Subject<'w>)>,
        shapes: &mut BTreeMap<Id, Kin<'w>>,
    ) where
        'w: 's,
    {
        let prefers =
            |(_, subject): &&(Id, Subject<'_>)| !subject.spec.preferred_neighbours.is_empty();
        let mut subjects = subjects.filter(prefers).peekable();
        if subjects.peek().is_none() {
            return;
        }
        let pending = world.pending();
        let pending: BTreeSet<Id> = pending.iter().map(|(_, pods)| pods.shape()).collect();
        let mut shared: BTreeMap<(&str, &PodTerm, bool), usize> = BTreeMap::new();
        for (id, subject) in subjects.filter(|(id, _)| pending.contains(id)) {
            for neighbours in &subject.spec.preferred_neighbours {
                let PreferredNeighbours {
                    weight,
                    term,
                    is_spread,
                } = neighbours;
                let counted = (subject.namespace, term, *is_spread);
                let preferred = *shared.entry(counted).or_insert_with(|| {
                    let who = Who::Selected(subject.namespace, std::slice::from_ref(term));
                    self.preferred.push(Preferred {
                        count: Count::new(&term.topology_key, who),
                        is_spread: *is_spread,
                    });
                    self.preferred.len() - 1
                });
                let kin = shapes.entry(*id).or_default();
                kin.prefers.push((preferred, *weight));
            }
        }
    }

    /// How much a pod of this shape prefers the place for the pods that stand in its domains.
    pub(in crate::planning) fn preference(&self, shape: Id, spot: Spot<'_>) -> i64 {
        let prefers = self.shapes.get(&shape).map_or(&[][..], |kin| &kin.prefers);
        let worth = prefers.iter().map(|(preferred, weight)| {
            let Preferred { count, is_spread } = &self.preferred[*preferred];
            let pods = match count.in_domain(spot) {
                Some(pods) => pods,
                None if *is_spread => count.most(),
                None => 0,
            };
            i64::from(*weight) * i64::from(pods)
        });
        worth.sum()
    }

    /// The other half of [`Self::put`], once the hypervisor is chosen.
    pub(in crate::planning) fn put_for_preferences(
        &mut self,
        shape: Id,
        spot: Spot<'_>,
        pods: u32,
    ) {
        self.change_preferred(shape, spot, false, |count| *count += pods);
    }

    pub(super) fn change_preferred(
        &mut self,
        shape: Id,
        spot: Spot<'_>,
        is_deleting: bool,
        by: impl Fn(&mut u32),
    ) {
        let Some(kin) = self.shapes.get(&shape) else {
            return;
        };
        for index in &kin.preferred_in {
            let Preferred { count, is_spread } = &mut self.preferred[*index];
            if !(*is_spread && is_deleting) {
                count.at(spot, &by);
            }
        }
    }
}
