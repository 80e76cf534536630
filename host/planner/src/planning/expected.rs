//! What kproxide expects of the machines that it could make, for tests to compare with kube-scheduler's answers.

use jiff::Timestamp;

use super::{Limits, Planning};
use crate::facts::{Labels, Taint};
use crate::ids::ObjectKey;
use crate::kubernetes::resources::Resources;
use crate::plan::question::{Answer, Question};
use crate::plan::report::Misfit;
use crate::planning::machines::shape::{self, NEW};
use crate::planning::pods::filters::Filters;
use crate::planning::pods::fit::{Free, NodeProfile};
use crate::planning::pods::topology::Spot;
use crate::world::{PodView, World};

/// A machine that could be made, as pods would find it.
pub struct Expected<'w> {
    profile: NodeProfile<'w>,
    free: Free,
    /// What its kubelet will offer.
    pub allocatable: Resources,
    /// The DaemonSets that will have a pod on it.
    pub daemons: Vec<&'w ObjectKey>,
}

impl<'w> Filters<'w> {
    /// The first filter that would keep a pending pod away from a machine, were it made.
    pub fn misfit_on(&self, pod: &PodView<'w>, machine: &Expected<'_>) -> Option<Misfit<'static>> {
        let Expected { profile, free, .. } = machine;
        let of_place = free
            .misfit(pod.spec())
            .or_else(|| profile.misfit(pod.spec()));
        let spot = Spot::to_be_made(profile, NEW);
        let of_place = of_place.map(Misfit::into_owned);
        of_place.or_else(|| self.topology.misfit(pod.shape_id(), spot))
    }
}

impl Expected<'_> {
    /// The labels of its Node, if the Node had this name.
    pub fn labels(&self, name: &str) -> Labels {
        let labels = self.profile.labels.iter();
        let named = labels.map(|(key, value)| {
            let value = if value == NEW { name } else { value };
            (key.clone(), value.to_owned())
        });
        named.collect()
    }

    pub fn taints(&self) -> &[Taint] {
        &self.profile.taints
    }
}

impl<'w> Planning<'w> {
    /// The machines that could be made now, one for each pool, instance type and hypervisor. Label policies are asked,
    /// and no other policies.
    pub fn machines_to_come(
        world: &'w World,
        now: Timestamp,
        limits: Limits,
        mut ask: impl FnMut(&Question) -> Answer,
    ) -> Vec<Expected<'w>> {
        let mut planning = Self::new(world, now, limits);
        while let Some(question @ Question::Decorate(_)) = planning.question() {
            planning.answer(ask(&question));
        }
        let offers = planning.pools.into_iter().flat_map(|pool| pool.offers);
        let offers = offers.filter(|offer| !offer.is_retry);
        let expected = offers.flat_map(|offer| {
            let looks = offer.looks();
            let expected = looks.map(|(_, profile)| {
                let sets = world.daemon_sets().iter();
                let coming = sets.filter(|(_, set)| profile.misfit(&set.spec).is_none());
                let (daemons, specs): (Vec<_>, Vec<_>) =
                    coming.map(|(key, set)| (key, &set.spec)).unzip();
                Expected {
                    profile: profile.clone(),
                    free: offer.free.clone(),
                    allocatable: offer.free.resources.plus(&shape::sum(specs.into_iter())),
                    daemons,
                }
            });
            expected.collect::<Vec<_>>()
        });
        expected.collect()
    }
}
