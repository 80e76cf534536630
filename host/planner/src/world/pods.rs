//! Pods and the Nodes that they stand on, with the indexes that planning reads, kept up with each change.
//!
//! A pod costs at most 128 bytes here and shares its shape with its siblings. A Node's slot exists while the Node is known or a pod names it,
//! so that events may come in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::interner::{Id, Interner};
use super::views::{NodeView, PendingPods, PodView, project};
use crate::facts::{
    CsiNodeFacts, LabelSelector, Labels, NodeFacts, Owner, PodFacts, PodPhase, PodSpec, Served,
    Shape,
};
use crate::ids::{NodeName, PodKey, Uid};
use crate::keys::DEFAULT_SCHEDULER;
use crate::kubernetes::resources::ExactSum;

/// The key of a shape's interner: equal specs have equal ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShapeKey {
    pub(super) namespace: Arc<str>,
    pub(super) spec: Id,
    labels: Labels,
}

/// A shape that some pod has.
#[derive(Clone, Copy)]
pub(crate) struct ShapeView<'w> {
    pub(crate) namespace: &'w str,
    pub(crate) spec: &'w PodSpec,
    pub(crate) labels: &'w Labels,
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
    pub(super) created: Timestamp,
    /// Since when it has its Node, or without one since when the scheduler refuses it.
    pub(super) said_since: Option<Timestamp>,
    pub(super) rare: Option<Box<Rare>>,
    pub(super) shape: Id,
    pub(super) labels: Id,
    pub(super) owner: Option<Id>,
    pub(super) node: Option<NodeIx>,
    pub(super) phase: PodPhase,
    pub(super) ready: bool,
    pub(super) deleting: bool,
    pub(super) mirror: bool,
    pub(super) runs_once: bool,
    pub(super) started: bool,
    pub(super) do_not_disrupt: bool,
    pub(super) safe_to_evict: bool,
    pub(super) on_completion: bool,
    pub(super) of_daemon_set: bool,
    pub(super) of_job: bool,
}

/// What few pods have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rare {
    pub(super) nominated: Option<NodeName>,
    pub(super) grace_ends: Option<Timestamp>,
    pub(super) protected_until: Option<Timestamp>,
}

impl Pod {
    /// Has not ended: it takes room on its Node.
    pub(super) fn is_alive(&self) -> bool {
        match self.phase {
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => true,
            PodPhase::Succeeded | PodPhase::Failed => false,
        }
    }

    pub(super) fn nominated(&self) -> Option<&NodeName> {
        self.rare.as_ref()?.nominated.as_ref()
    }

    /// Removing its Node means that it must run elsewhere.
    pub(super) fn is_movable(&self) -> bool {
        self.is_alive() && !self.deleting && !self.mirror && !self.of_daemon_set
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodIx(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeIx(pub(super) u32);

#[derive(Clone, Debug)]
pub(super) struct NodeSlot {
    pub(super) name: NodeName,
    pub(super) facts: Option<Box<NodeFacts>>,
    pub(super) csi: Option<Box<CsiNodeFacts>>,
    /// In no order.
    pub(super) pods: Vec<PodIx>,
    /// Of the pods that have not ended.
    pub(super) requested: ExactSum,
    pub(super) movable: ExactSum,
    pub(super) movable_pods: u32,
}

/// By shape, then by name.
type ByShape = BTreeMap<Id, BTreeMap<Arc<str>, PodIx>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    by_key: BTreeMap<PodKey, PodIx>,
    pods: Vec<Option<Pod>>,
    free_pods: Vec<PodIx>,
    nodes_by_name: BTreeMap<NodeName, NodeIx>,
    pub(super) nodes: Vec<Option<NodeSlot>>,
    free_nodes: Vec<NodeIx>,
    nodes_by_uuid: BTreeMap<Uid, BTreeSet<NodeName>>,
    pub(super) specs: Interner<Arc<PodSpec>>,
    pub(super) labels: Interner<Labels>,
    pub(super) owners: Interner<Owner>,
    pub(super) shapes: Interner<ShapeKey>,
    pub(super) served: Served,
    /// Unschedulable pods.
    pending: ByShape,
    /// Those of them for which the scheduler has nominated a Node.
    nominated: BTreeSet<PodIx>,
    /// Pods that are being deleted and still take room on their Nodes.
    ending: BTreeSet<PodIx>,
    /// Pods that have no Node yet and wait for a scheduler whose pods are not served.
    of_others: ByShape,
    /// The keys that selectors read.
    projected: BTreeSet<String>,
    /// Selectors have come or gone, and perhaps read other keys.
    pub(super) must_regroup: bool,
}

/// Whose pod it is.
enum Scheduler {
    Served,
    Other,
}

/// By which a pod names other pods. Nobody looks at the terms of a pod that has too many.
pub(super) fn selectors(spec: &PodSpec) -> impl Iterator<Item = &LabelSelector> {
    let spec = Some(spec).filter(|spec| spec.too_many.is_none());
    spec.into_iter().flat_map(|spec| {
        let terms = spec.pod_affinity.iter().chain(&spec.pod_anti_affinity);
        let terms = terms.chain(spec.preferred_neighbours.iter().map(|one| &one.term));
        let of_terms = terms.filter_map(|term| term.selector.as_ref());
        of_terms.chain(spec.spread.iter().filter_map(|one| one.selector.as_ref()))
    })
}

impl Pods {
    pub(crate) fn set_pod(&mut self, key: PodKey, facts: Option<Box<PodFacts>>) {
        if let Some(facts) = &facts
            && !self.must_regroup
        {
            let mut selectors = selectors(&facts.spec);
            let is_new = |key: &str| !self.projected.contains(key);
            self.must_regroup = selectors.any(|it| it.keys().any(is_new));
        }
        if let Some(ix) = self.by_key.get(&key).copied() {
            self.unlink(ix);
            match facts {
                Some(facts) => {
                    let pod = self.intern(&key, facts);
                    let old = self.pods[ix.0 as usize].replace(pod);
                    // Linked before the old one lets go, so that what both hold is never freed.
                    self.link(ix);
                    self.release(old);
                }
                None => {
                    self.by_key.remove(&key);
                    let old = self.pods[ix.0 as usize].take();
                    self.release(old);
                    self.free_pods.push(ix);
                }
            }
        } else if let Some(facts) = facts {
            let pod = self.intern(&key, facts);
            let ix = self.free_pods.pop().unwrap_or_else(|| {
                self.pods.push(None);
                PodIx(u32::try_from(self.pods.len() - 1).expect("fewer than 2^32 pods"))
            });
            // The map shares the texts of the pod.
            let key = PodKey {
                namespace: self.shapes.get(pod.shape).namespace.clone(),
                name: pod.name.clone(),
            };
            self.by_key.insert(key, ix);
            self.pods[ix.0 as usize] = Some(pod);
            self.link(ix);
        }
    }

    fn intern(&mut self, key: &PodKey, facts: Box<PodFacts>) -> Pod {
        let facts = *facts;
        let kind = facts.owner.as_ref().map(|owner| owner.kind.clone());
        let of_job = facts.is_of_job();
        let rare = Rare {
            nominated: facts.nominated,
            grace_ends: facts.grace_ends,
            protected_until: facts.protected_until,
        };
        let spec = self.specs.hold(Arc::new(facts.spec));
        let labels = self.labels.hold(facts.labels);
        let shape = self.shapes.hold(ShapeKey {
            namespace: key.namespace.clone(),
            spec,
            labels: project(self.labels.get(labels), &self.projected),
        });
        Pod {
            name: key.name.clone(),
            uid: facts.uid,
            created: facts.created,
            said_since: match facts.node {
                Some(_) => facts.bound_since,
                None => facts.unschedulable_since,
            },
            rare: (rare != Rare::default()).then(|| Box::new(rare)),
            shape,
            labels,
            owner: facts.owner.map(|owner| self.owners.hold(owner)),
            node: facts.node.map(|name| self.node_slot(name)),
            phase: facts.phase,
            ready: facts.ready,
            deleting: facts.deleting,
            mirror: facts.mirror,
            runs_once: facts.runs_once,
            started: facts.started,
            do_not_disrupt: facts.do_not_disrupt,
            safe_to_evict: facts.safe_to_evict,
            on_completion: facts.on_completion,
            of_daemon_set: kind.as_deref() == Some("DaemonSet"),
            of_job,
        }
    }

    fn release(&mut self, pod: Option<Pod>) {
        let Some(pod) = pod else { return };
        let spec = self.shapes.get(pod.shape).spec;
        self.shapes.release(pod.shape);
        let freed = self.specs.release(spec);
        self.must_regroup |= freed.is_some_and(|spec| selectors(&spec).next().is_some());
        self.labels.release(pod.labels);
        if let Some(owner) = pod.owner {
            self.owners.release(owner);
        }
        if let Some(node) = pod.node {
            self.free_node_if_unused(node);
        }
    }

    /// Enters a pod into the indexes.
    fn link(&mut self, ix: PodIx) {
        let pod = self.pods[ix.0 as usize]
            .as_ref()
            .expect("the pod was just set");
        let requests = &self.specs.get(self.shapes.get(pod.shape).spec).requests;
        if let Some(node) = pod.node {
            let slot = self.nodes[node.0 as usize]
                .as_mut()
                .expect("a pod's node has a slot");
            slot.pods.push(ix);
            if pod.is_alive() {
                slot.requested.add(requests);
            }
            if pod.is_movable() {
                slot.movable.add(requests);
                slot.movable_pods += 1;
            }
            if pod.is_alive() && pod.deleting {
                self.ending.insert(ix);
            }
        }
        let (shape, name) = (pod.shape, pod.name.clone());
        let is_nominated = pod.nominated().is_some();
        let waiting = match self.waits_for(pod) {
            Some(Scheduler::Served) => {
                self.nominated.extend(is_nominated.then_some(ix));
                &mut self.pending
            }
            Some(Scheduler::Other) => &mut self.of_others,
            None => return,
        };
        waiting.entry(shape).or_default().insert(name, ix);
    }

    /// Takes a pod out of the indexes.
    fn unlink(&mut self, ix: PodIx) {
        self.ending.remove(&ix);
        let pod = self.pods[ix.0 as usize]
            .as_ref()
            .expect("an indexed pod exists");
        let requests = &self.specs.get(self.shapes.get(pod.shape).spec).requests;
        if let Some(node) = pod.node {
            let slot = self.nodes[node.0 as usize]
                .as_mut()
                .expect("a pod's node has a slot");
            if let Some(position) = slot.pods.iter().position(|other| *other == ix) {
                slot.pods.swap_remove(position);
            }
            if pod.is_alive() {
                slot.requested.subtract(requests);
            }
            if pod.is_movable() {
                slot.movable.subtract(requests);
                slot.movable_pods -= 1;
            }
            // A pod with a Node waits for none.
            return;
        }
        self.nominated.remove(&ix);
        for waiting in [&mut self.pending, &mut self.of_others] {
            if let Some(pods) = waiting.get_mut(&pod.shape) {
                pods.remove(&pod.name);
                if pods.is_empty() {
                    waiting.remove(&pod.shape);
                }
            }
        }
    }

    /// Served pods wait for a machine if the scheduler has refused them, and a new Node could change that. Pods of DaemonSets
    /// belong to Nodes that exist. Another scheduler may not run at all, and then nobody says anything of its pods.
    fn waits_for(&self, pod: &Pod) -> Option<Scheduler> {
        let spec = self.specs.get(self.shapes.get(pod.shape).spec);
        let name = spec.scheduler_name.as_deref();
        let is_served = self
            .served
            .schedulers
            .contains(name.unwrap_or(DEFAULT_SCHEDULER));
        if pod.node.is_some() || !pod.is_movable() {
            None
        } else if !is_served {
            Some(Scheduler::Other)
        } else {
            pod.said_since.map(|_| Scheduler::Served)
        }
    }

    /// Which pods are served from now on. In practice this comes once, before the first pod.
    pub(crate) fn serve(&mut self, served: Served) {
        if self.served == served {
            return;
        }
        let all: Vec<PodIx> = self.by_key.values().copied().collect();
        all.iter().for_each(|ix| self.unlink(*ix));
        self.served = served;
        all.iter().for_each(|ix| self.link(*ix));
    }

    pub(crate) fn set_node(&mut self, name: NodeName, facts: Option<Box<NodeFacts>>) {
        let ix = self.node_slot(name.clone());
        let slot = self.nodes[ix.0 as usize]
            .as_mut()
            .expect("the slot was just made");
        let new_uuid = facts.as_ref().and_then(|facts| facts.system_uuid.clone());
        let old = std::mem::replace(&mut slot.facts, facts);
        let old_uuid = old.and_then(|facts| facts.system_uuid);
        if old_uuid != new_uuid {
            if let Some(uuid) = old_uuid
                && let Some(names) = self.nodes_by_uuid.get_mut(&uuid)
            {
                names.remove(&name);
                if names.is_empty() {
                    self.nodes_by_uuid.remove(&uuid);
                }
            }
            if let Some(uuid) = new_uuid {
                self.nodes_by_uuid.entry(uuid).or_default().insert(name);
            }
        }
        self.free_node_if_unused(ix);
    }

    pub(crate) fn set_csi_node(&mut self, name: NodeName, facts: Option<Box<CsiNodeFacts>>) {
        let ix = self.node_slot(name);
        let slot = self.nodes[ix.0 as usize].as_mut();
        slot.expect("the slot was just made").csi = facts;
        self.free_node_if_unused(ix);
    }

    fn node_slot(&mut self, name: NodeName) -> NodeIx {
        if let Some(ix) = self.nodes_by_name.get(&name) {
            return *ix;
        }
        let ix = self.free_nodes.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            NodeIx(u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes"))
        });
        self.nodes_by_name.insert(name.clone(), ix);
        self.nodes[ix.0 as usize] = Some(NodeSlot {
            name,
            facts: None,
            csi: None,
            pods: Vec::new(),
            requested: ExactSum::default(),
            movable: ExactSum::default(),
            movable_pods: 0,
        });
        ix
    }

    fn free_node_if_unused(&mut self, ix: NodeIx) {
        let unused = self.nodes[ix.0 as usize]
            .as_ref()
            .is_some_and(|slot| slot.facts.is_none() && slot.csi.is_none() && slot.pods.is_empty());
        if unused && let Some(slot) = self.nodes[ix.0 as usize].take() {
            self.nodes_by_name.remove(&slot.name);
            self.free_nodes.push(ix);
        }
    }

    /// From now on selectors read these labels.
    pub(super) fn project_on(&mut self, keys: BTreeSet<String>) {
        self.must_regroup = false;
        if keys == self.projected {
            return;
        }
        self.projected = keys;
        let all: Vec<PodIx> = self.by_key.values().copied().collect();
        for ix in all {
            let pod = self.pods[ix.0 as usize].as_ref();
            let pod = pod.expect("an indexed pod exists");
            let old = self.shapes.get(pod.shape);
            let labels = project(self.labels.get(pod.labels), &self.projected);
            if labels == old.labels {
                continue;
            }
            let new = ShapeKey {
                namespace: old.namespace.clone(),
                spec: old.spec,
                labels,
            };
            self.unlink(ix);
            let new = self.shapes.hold(new);
            let pod = self.pods[ix.0 as usize].as_mut();
            let old = std::mem::replace(&mut pod.expect("it is there").shape, new);
            self.shapes.release(old);
            self.link(ix);
        }
    }

    /// All Nodes' indexes are below it.
    pub(crate) fn node_places(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn shape_count(&self) -> usize {
        self.shapes.len()
    }

    /// In no order.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (Id, ShapeView<'_>)> {
        self.shapes.iter().map(|(id, shape)| {
            let view = ShapeView {
                namespace: &shape.namespace,
                spec: self.specs.get(shape.spec),
                labels: &shape.labels,
            };
            (id, view)
        })
    }

    /// Every pod, by namespace and name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PodView<'_>> {
        self.by_key.values().map(|ix| self.view(*ix))
    }

    /// The key of a pod that is there: it shares its texts with all who have it.
    pub(super) fn known_key(&self, key: &PodKey) -> Option<&PodKey> {
        Some(self.by_key.get_key_value(key)?.0)
    }

    pub(crate) fn get(&self, key: &PodKey) -> Option<PodView<'_>> {
        self.by_key.get(key).map(|ix| self.view(*ix))
    }

    /// What CSI drivers say of Nodes, by the Node's name.
    pub(crate) fn csi_nodes(&self) -> impl Iterator<Item = (&NodeName, &CsiNodeFacts)> {
        let slots = self.nodes_by_name.iter();
        slots.filter_map(|(name, ix)| {
            let slot = self.nodes[ix.0 as usize].as_ref()?;
            Some((name, slot.csi.as_deref()?))
        })
    }

    /// Every Node that exists, by name.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.nodes_by_name
            .values()
            .filter_map(|ix| self.node_view(*ix))
    }

    pub(crate) fn node(&self, name: &NodeName) -> Option<NodeView<'_>> {
        self.nodes_by_name
            .get(name)
            .and_then(|ix| self.node_view(*ix))
    }

    pub(crate) fn nodes_with_uuid(&self, uuid: &Uid) -> impl Iterator<Item = &NodeName> + use<'_> {
        self.nodes_by_uuid.get(uuid).into_iter().flatten()
    }

    pub(crate) fn pending(&self) -> Vec<(Shape, PendingPods<'_>)> {
        self.in_order(&self.pending)
    }

    /// In no order.
    pub(crate) fn nominated(&self) -> impl Iterator<Item = PodView<'_>> {
        self.nominated.iter().map(|ix| self.view(*ix))
    }

    /// In no order.
    pub(crate) fn ending(&self) -> impl Iterator<Item = PodView<'_>> {
        self.ending.iter().map(|ix| self.view(*ix))
    }

    pub(crate) fn of_other_schedulers(&self) -> Vec<(Shape, PendingPods<'_>)> {
        self.in_order(&self.of_others)
    }

    /// Shapes in an order that depends on their content alone, each with its pods by name.
    fn in_order<'p>(&'p self, waiting: &'p ByShape) -> Vec<(Shape, PendingPods<'p>)> {
        let mut waiting: Vec<_> = waiting
            .iter()
            .map(|(id, pods)| {
                (
                    self.shape(*id),
                    PendingPods {
                        pods: self,
                        shape: *id,
                        by_name: pods,
                    },
                )
            })
            .collect();
        waiting.sort_by(|(a, _), (b, _)| a.cmp(b));
        waiting
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn shape(&self, id: Id) -> Shape {
        let ShapeKey {
            namespace,
            spec,
            labels,
        } = self.shapes.get(id);
        Shape {
            namespace: namespace.clone(),
            spec: self.specs.get(*spec).clone(),
            labels: labels.clone(),
        }
    }

    pub(super) fn view(&self, ix: PodIx) -> PodView<'_> {
        PodView {
            pods: self,
            pod: self.pods[ix.0 as usize]
                .as_ref()
                .expect("an indexed pod exists"),
        }
    }

    fn node_view(&self, ix: NodeIx) -> Option<NodeView<'_>> {
        let slot = self.nodes[ix.0 as usize].as_ref()?;
        Some(NodeView {
            pods: self,
            slot,
            index: ix.0 as usize,
            facts: slot.facts.as_deref()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_takes_at_most_128_bytes_beside_its_shape() {
        let entry = size_of::<Option<Pod>>() + size_of::<PodIx>();
        assert!(entry <= 128, "{entry}");
    }
}
