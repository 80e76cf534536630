//! What the filters say of a pod and a Node, outside of any plan: the question that kube-scheduler answers.

use std::collections::BTreeMap;

use super::fit::Place;
use super::topology::{Spot, Topology, Turns};
use crate::ids::NodeName;
use crate::plan::report::Misfit;
use crate::world::{NodeView, PodView, World};

/// The filters of one World, for the pods and Nodes in it.
pub struct Filters<'w> {
    pub(in crate::planning) topology: Topology<'w>,
    nodes: BTreeMap<&'w NodeName, Place<'w>>,
}

impl<'w> Filters<'w> {
    pub fn of(world: &'w World) -> Self {
        let attached = world.attached();
        let place = |node: NodeView<'w>| (node.name(), Place::with_attached(node, &attached));
        let nodes = world.nodes().map(place);
        Self {
            topology: Topology::of(world, &Turns::default()),
            nodes: nodes.collect(),
        }
    }

    /// The first filter that keeps a pending pod away from a Node of this World. `None`: it fits.
    pub fn misfit(&self, pod: &PodView<'w>, node: &NodeName) -> Option<Misfit<'static>> {
        let place = &self.nodes[node];
        let of_place = place.misfit(pod.spec()).map(Misfit::into_owned);
        let spot = Spot::of(&place.profile);
        of_place.or_else(|| self.topology.misfit(pod.shape_id(), spot))
    }

    /// The same, once the pods of a lower priority are gone from the Node: kube-scheduler removes them for the pod.
    pub fn misfit_if_preempting(
        &self,
        pod: &PodView<'w>,
        node: &NodeName,
    ) -> Option<Misfit<'static>> {
        let misfit = self.misfit(pod, node)?;
        let place = &self.nodes[node];
        let is_lower = |other: &PodView<'w>| other.spec().priority < pod.spec().priority;
        let spot = Spot::of(&place.profile);
        let fits = place.fits_without(pod.spec(), is_lower)
            && !self.topology.keeps_away(pod.shape_id(), spot);
        (!fits).then_some(misfit)
    }
}
