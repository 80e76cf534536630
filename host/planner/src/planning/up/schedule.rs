//! Which pending pods fit on Nodes that exist or are coming; what is left needs machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::packing::weight;
use super::snapshot::NodeInfo;
use crate::facts::{PodSpec, Served, Shape};
use crate::ids::{ClaimName, NodeName, PoolName};
use crate::plan::RefusedNode;
use crate::plan::report::{PendingOutcome, Why};
use crate::planning::Planning;
use crate::planning::pods::fit::{has_its_node, is_picky};
use crate::world::{Id, NodeView, PendingPods, PodView};

/// The pending pods of one shape, and what becomes of them.
pub(in crate::planning) struct Need<'w> {
    pub(in crate::planning) shape: Id,
    pub(in crate::planning) content: Shape,
    pub(in crate::planning) spec: Arc<PodSpec>,
    pub(in crate::planning) pods: PendingPods<'w>,
    /// Pods without a place yet.
    pub(in crate::planning) left: u32,
    /// Pods that are put off; not among those that are left.
    pub(in crate::planning) later: u32,
    /// Why nothing is done for these pods, whatever there is room for.
    pub(in crate::planning) unserved: Option<PendingOutcome>,
    /// Pods that fit an existing Node, and the first such Node.
    pub(in crate::planning) on_nodes: Option<(NodeName, u32)>,
    pub(in crate::planning) on_claims: Option<(ClaimName, u32)>,
    /// Nodes where they fit and the scheduler has not put them.
    pub(in crate::planning) refused: Vec<RefusedNode>,
    /// The last of these is new in this plan.
    pub(in crate::planning) is_refused_now: bool,
    /// Claims launched for it in this tick, each with its number of pods.
    pub(in crate::planning) launched: Vec<(ClaimName, u32)>,
    /// Why no pool makes a machine for those that are left, or not in this tick.
    pub(in crate::planning) whys: BTreeMap<PoolName, Why>,
}

impl<'w> Need<'w> {
    /// Its pods that no Node and no machine on its way takes.
    pub(in crate::planning) fn unplaced(&self) -> impl Iterator<Item = PodView<'w>> + use<'w> {
        let on_nodes = self.on_nodes.as_ref().map_or(0, |(_, count)| *count);
        let on_claims = self.on_claims.as_ref().map_or(0, |(_, count)| *count);
        self.pods.iter().skip((on_nodes + on_claims) as usize)
    }

    /// So many of its pods are to run on this Node, or on this machine that is coming.
    pub(in crate::planning) fn note_place(&mut self, info: &NodeInfo<'_>, count: u32) {
        if info.is_coming()
            && let Some(claim) = &info.claim
        {
            self.on_claims.get_or_insert_with(|| (claim.clone(), 0)).1 += count;
        } else if let Some(node) = info.node() {
            let first = || (node.name().clone(), 0);
            self.on_nodes.get_or_insert_with(first).1 += count;
        }
    }
}

impl<'w> Planning<'w> {
    /// Step 3: places pods in the order of first-fit decreasing. Called again when a Node has become available.
    pub(in crate::planning) fn schedule(&mut self) {
        if self.needs.is_empty() {
            self.needs = self.pending_by_weight();
            self.recall_refusals();
            self.place_nominated();
        }
        let mut has_put = self.put_needs(|_| true);
        // A pod may wish to stand beside one that was placed after its turn. Each round places a pod, so this ends.
        while has_put {
            has_put = self.put_needs(|need| !need.spec.pod_affinity.is_empty());
        }
        self.place_in_coming_room();
    }

    /// True if one of these pods has found a place.
    fn put_needs(&mut self, is_meant: impl Fn(&Need<'w>) -> bool) -> bool {
        let mut has_put = false;
        for need in &mut self.needs {
            if need.left == 0 || need.unserved.is_some() || !is_meant(need) {
                continue;
            }
            let refused = &need.refused;
            let is_refused = |node: &NodeView<'_>| is_refused(refused, node);
            let put = self
                .snapshot
                .put_pending(need.shape, &need.spec, need.left, is_refused);
            for (index, count) in put {
                has_put = true;
                need.left -= count;
                need.note_place(&self.snapshot.nodes[index], count);
            }
        }
        has_put
    }

    /// First-fit decreasing: higher priority first, as the scheduler does; then pods for which it has chosen a Node, and
    /// pods that fit only some Nodes, so that others do not take their places; then larger ones; then by content.
    fn pending_by_weight(&mut self) -> Vec<Need<'w>> {
        let pending = self.tick.world.pending();
        let served = &self.tick.world.host().served;
        let mut needs: Vec<Need<'w>> = pending
            .into_iter()
            .map(|(shape, pods)| (self.turns.later.get(&pods.shape()), shape, pods))
            .map(|(later, shape, pods)| Need {
                later: later.copied().unwrap_or(0),
                shape: pods.shape(),
                unserved: unserved(&shape.spec, served),
                spec: shape.spec.clone(),
                content: shape,
                left: u32::try_from(pods.len()).unwrap_or(u32::MAX) - later.copied().unwrap_or(0),
                pods,
                on_nodes: None,
                on_claims: None,
                refused: Vec::new(),
                is_refused_now: false,
                launched: Vec::new(),
                whys: BTreeMap::new(),
            })
            .collect();
        needs.sort_by_key(|need| {
            let spec = &need.spec;
            std::cmp::Reverse((
                spec.priority,
                has_its_node(spec),
                is_picky(spec),
                weight(&spec.requests),
            ))
        });
        needs
    }

    /// A pending pod without a place that this Node could take if it stayed.
    pub(in crate::planning) fn pending_pod_for(&self, node: &NodeView<'w>) -> Option<PodView<'w>> {
        let need = self.needs.iter().find(|need| {
            need.left > 0
                && need.unserved.is_none()
                && !is_refused(&need.refused, node)
                && self.snapshot.would_fit(need.shape, &need.spec, node)
        })?;
        need.pods.iter().next()
    }
}

pub(in crate::planning) fn is_refused(refused: &[RefusedNode], node: &NodeView<'_>) -> bool {
    refused.iter().any(|it| it.node == *node.name())
}

fn unserved(spec: &PodSpec, served: &Served) -> Option<PendingOutcome> {
    if spec.priority < served.least_priority {
        return Some(PendingOutcome::Expendable {
            priority: spec.priority,
            least: served.least_priority,
        });
    }
    match spec.unsupported.first() {
        Some(field) => Some(PendingOutcome::NotSupported(field.to_string())),
        None => spec.too_many.map(PendingOutcome::TooMany),
    }
}
