//! What becomes of the pods of a Node that is to be replaced.

use super::{ClusterSnapshot, Moves, Topology, in_order, needs_place};
use crate::ids::ClaimName;
use crate::world::{NodeView, PodView};

impl<'w> ClusterSnapshot<'w> {
    /// Closes this Node and moves the pods that must leave it to other existing Nodes. Pods that fit on none count nowhere,
    /// until [`Self::stay`] undoes all this.
    pub(in crate::planning) fn leave(&mut self, node: &NodeView<'w>) -> Moves<'w> {
        let mut moves = self.moves_from(node);
        if let Some(own) = moves.from {
            self.nodes[own].is_open = false;
        }
        for pod in in_order(node.pods().filter(needs_place)) {
            if self.move_pod(&pod, &mut moves).is_none() {
                moves.stuck.push(pod);
            }
        }
        for pod in &moves.stuck {
            self.recount(moves.from, pod.shape_id(), Topology::take_back);
        }
        moves
    }

    /// The pods of this Node stay on it.
    pub(in crate::planning) fn stay(&mut self, node: &NodeView<'w>, mut moves: Moves<'w>) {
        for pod in std::mem::take(&mut moves.stuck) {
            self.recount(moves.from, pod.shape_id(), Topology::put);
        }
        if let Some(own) = moves.from {
            self.nodes[own].is_open = node.facts.ready && !node.facts.deleting;
        }
        self.take_back(moves);
    }

    /// Puts these pods on machines that are coming, and tells the first. `None`: they do not take all of them, and nothing
    /// has changed.
    pub(in crate::planning) fn put_on_coming(
        &mut self,
        pods: &[PodView<'w>],
        is_meant: impl Fn(&ClaimName) -> bool,
    ) -> Option<ClaimName> {
        let mut put: Vec<(usize, PodView<'w>)> = Vec::new();
        for pod in pods {
            let (spec, shape) = (pod.spec(), pod.shape_id());
            let place = self.nodes.iter().position(|info| {
                info.is_coming
                    && info.claim.as_ref().is_some_and(&is_meant)
                    && info.takes(spec)
                    && !self.topology.keeps_away(shape, info.spot())
            });
            let Some(place) = place else {
                for (place, pod) in put.into_iter().rev() {
                    self.nodes[place].place.free.take_back(pod.spec(), 1);
                    self.nodes[place].promised -= 1;
                    self.recount(Some(place), pod.shape_id(), Topology::take_back);
                }
                return None;
            };
            self.nodes[place].place.free.put(spec, 1);
            self.nodes[place].promised += 1;
            self.recount(Some(place), shape, Topology::put);
            put.push((place, *pod));
        }
        let (first, _) = put.first()?;
        self.nodes[*first].claim.clone()
    }
}
