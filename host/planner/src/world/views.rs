//! Pods and Nodes as their readers see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::interner::Id;
use super::pods::{NodeSlot, Pod, PodIx, Pods};
use crate::facts::{CsiNodeFacts, Labels, NodeFacts, Owner, PodFacts, PodPhase, PodSpec};
use crate::ids::{NodeName, PodKey, Uid};
use crate::kubernetes::eviction::{ENDS, Ties};
use crate::kubernetes::resources::Resources;
use crate::time::later;

/// A pod as planning and its callers see it.
#[derive(Clone, Copy)]
pub struct PodView<'w> {
    pub(super) pods: &'w Pods,
    pub(super) pod: &'w Pod,
}

/// A Node that exists, with its pods.
#[derive(Clone, Copy)]
pub struct NodeView<'w> {
    pub(super) pods: &'w Pods,
    pub(super) slot: &'w NodeSlot,
    pub(super) index: usize,
    pub facts: &'w NodeFacts,
}

/// The pending pods of one shape, by name.
#[derive(Clone, Copy)]
pub(crate) struct PendingPods<'w> {
    pub(super) pods: &'w Pods,
    pub(super) shape: Id,
    pub(super) by_name: &'w BTreeMap<Arc<str>, PodIx>,
}

impl<'w> PendingPods<'w> {
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn shape(&self) -> Id {
        self.shape
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PodView<'w>> + use<'w> {
        let pods = self.pods;
        self.by_name.values().map(move |ix| pods.view(*ix))
    }
}

impl<'w> PodView<'w> {
    pub fn key(&self) -> PodKey {
        PodKey {
            namespace: self.namespace().clone(),
            name: self.pod.name.clone(),
        }
    }

    pub fn namespace(&self) -> &'w Arc<str> {
        &self.pods.shapes.get(self.pod.shape).namespace
    }

    pub fn name(&self) -> &'w Arc<str> {
        &self.pod.name
    }

    pub fn uid(&self) -> &'w Uid {
        &self.pod.uid
    }

    pub(crate) fn created(&self) -> Timestamp {
        self.pod.created
    }

    pub fn labels(&self) -> &'w Labels {
        self.pods.labels.get(self.pod.labels)
    }

    pub fn spec(&self) -> &'w PodSpec {
        self.shared_spec()
    }

    pub(crate) fn shared_spec(&self) -> &'w Arc<PodSpec> {
        self.pods
            .specs
            .get(self.pods.shapes.get(self.pod.shape).spec)
    }

    /// Equal for pods of one shape; never to order by.
    pub(crate) fn shape_id(&self) -> Id {
        self.pod.shape
    }

    pub fn owner(&self) -> Option<&'w Owner> {
        self.pod.owner.map(|id| self.pods.owners.get(id))
    }

    pub fn phase(&self) -> PodPhase {
        self.pod.phase
    }

    /// It has run, if only for a second.
    pub(crate) fn has_run(&self) -> bool {
        self.pod.started || matches!(self.phase(), PodPhase::Running | PodPhase::Succeeded)
    }

    pub fn is_ready(&self) -> bool {
        self.pod.ready
    }

    pub fn is_deleting(&self) -> bool {
        self.pod.deleting
    }

    /// When its grace ends or has ended, if it is being deleted.
    pub(crate) fn grace_ends(&self) -> Option<Timestamp> {
        self.pod.rare.as_ref()?.grace_ends
    }

    /// It should have ended by now. Nobody knows when it will.
    pub(crate) fn is_stuck(&self, now: Timestamp) -> bool {
        let end = self.grace_ends().map(|end| later(end, ENDS));
        self.is_deleting() && end.is_some_and(|end| now >= end)
    }

    /// Karpenter's `do-not-disrupt` with a duration keeps its Node until then.
    pub(crate) fn protected_until(&self) -> Option<Timestamp> {
        self.pod.rare.as_ref()?.protected_until
    }

    /// A drain waits for its end and does not evict it.
    pub(crate) fn is_on_completion(&self) -> bool {
        self.pod.on_completion
    }

    pub fn is_mirror(&self) -> bool {
        self.pod.mirror
    }

    pub fn do_not_disrupt(&self) -> bool {
        self.pod.do_not_disrupt
    }

    pub(crate) fn ties(&self, now: Timestamp) -> Ties<'w> {
        let protected = self.protected_until().is_some_and(|until| now < until);
        Ties {
            namespace: self.namespace(),
            do_not_disrupt: self.do_not_disrupt() || protected,
            safe_to_evict: self.pod.safe_to_evict || self.is_on_completion(),
            is_bare: self.owner().is_none(),
            of_unfinished_job: self.is_of_job(),
            local_volumes: self.spec().local_volumes,
            empty_dir: self.spec().empty_dir,
            is_expendable: self.is_expendable(),
        }
    }

    pub fn is_of_daemon_set(&self) -> bool {
        self.pod.of_daemon_set
    }

    pub fn is_of_job(&self) -> bool {
        self.pod.of_job
    }

    pub fn unschedulable_since(&self) -> Option<Timestamp> {
        self.pod.said_since.filter(|_| self.pod.node.is_none())
    }

    pub(crate) fn bound_since(&self) -> Option<Timestamp> {
        self.pod.said_since.filter(|_| self.pod.node.is_some())
    }

    /// The Node on which the scheduler has preempted others for it.
    pub fn nominated(&self) -> Option<&'w NodeName> {
        self.pod.nominated()
    }

    pub fn node(&self) -> Option<&'w NodeName> {
        let slot = self.pods.nodes[self.pod.node?.0 as usize].as_ref();
        slot.map(|slot| &slot.name)
    }

    /// Has not ended: it takes room on its Node.
    pub fn is_alive(&self) -> bool {
        self.pod.is_alive()
    }

    /// Its priority is so low that it keeps no Node.
    pub fn is_expendable(&self) -> bool {
        self.spec().priority < self.pods.served.least_priority
    }

    /// Removing its Node means that it must run elsewhere: it has not ended, is not on its way out, and neither a DaemonSet nor a kubelet
    /// ties it to the Node.
    pub fn is_movable(&self) -> bool {
        self.pod.is_movable()
    }

    /// As it was told, put together again.
    pub fn to_facts(&self) -> PodFacts {
        PodFacts {
            uid: self.pod.uid.clone(),
            created: self.pod.created,
            node: self.node().cloned(),
            phase: self.pod.phase,
            unschedulable_since: self.unschedulable_since(),
            bound_since: self.bound_since(),
            nominated: self.nominated().cloned(),
            ready: self.pod.ready,
            deleting: self.pod.deleting,
            grace_ends: self.grace_ends(),
            owner: self.owner().cloned(),
            mirror: self.pod.mirror,
            runs_once: self.pod.runs_once,
            started: self.pod.started,
            do_not_disrupt: self.pod.do_not_disrupt,
            safe_to_evict: self.pod.safe_to_evict,
            on_completion: self.pod.on_completion,
            protected_until: self.protected_until(),
            labels: self.labels().clone(),
            // The World keeps them apart: few pods have any.
            claims: Vec::new(),
            spec: self.spec().clone(),
        }
    }
}

impl<'w> NodeView<'w> {
    /// Its place in tables of this World's Nodes; never to order by.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub fn name(&self) -> &'w NodeName {
        &self.slot.name
    }

    /// What its CSI drivers say of it; `None`: none has registered.
    pub fn csi(&self) -> Option<&'w CsiNodeFacts> {
        self.slot.csi.as_deref()
    }

    /// Sum over the pods that have not ended.
    pub fn requested(&self) -> Resources {
        self.slot.requested.value()
    }

    /// Sum over the pods that would have to move.
    pub fn movable(&self) -> Resources {
        self.slot.movable.value()
    }

    pub fn movable_pods(&self) -> u32 {
        self.slot.movable_pods
    }

    /// The Node runs no pod that a drain would wait for, not even one that is terminating.
    pub fn is_empty(&self) -> bool {
        let leaves = |pod: PodView<'_>| {
            pod.is_alive() && pod.is_deleting() && !pod.is_mirror() && !pod.is_of_daemon_set()
        };
        self.movable_pods() == 0 && !self.pods().any(leaves)
    }

    /// It runs a pod for whose load the cluster needs room when the Node goes.
    pub(crate) fn carries_load(&self, now: Timestamp) -> bool {
        let counts = |pod: PodView<'_>| {
            let is_bound = pod.is_mirror() || pod.is_of_daemon_set();
            pod.is_alive() && !is_bound && !pod.is_expendable() && !pod.is_stuck(now)
        };
        !self.is_empty() && self.pods().any(counts)
    }

    /// In no order.
    pub fn pods(&self) -> impl Iterator<Item = PodView<'w>> + use<'w> {
        let pods = self.pods;
        self.slot.pods.iter().map(move |ix| pods.view(*ix))
    }
}

/// Those labels alone.
pub(super) fn project(labels: &Labels, keys: &BTreeSet<String>) -> Labels {
    if keys.is_empty() {
        return Labels::new();
    }
    labels
        .iter()
        .filter(|(key, _)| keys.contains(*key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
