//! A claim's Node, as a drain finds and marks it.

use super::effect::NodeRef;
use super::observed::{NodeLook, Observed};
use super::subject::Subject;
use crate::facts::{NodeFacts, Op};
use crate::ids::NodeName;
use crate::keys::{DRAINING_TAINT, OUT_OF_SERVICE_TAINT};

/// No pod can come to this Node: it has our taint, and is marked unschedulable for people and tools.
pub(super) fn is_cordoned(node: &NodeFacts) -> bool {
    node.unschedulable && has_our_taint(node)
}

/// kproxide has cordoned this Node, at least in part. A Node that is unschedulable without our taint was cordoned by a
/// user.
pub(super) fn is_cordoned_by_us(node: &NodeFacts) -> bool {
    has_our_taint(node)
}

fn has_our_taint(node: &NodeFacts) -> bool {
    node.taints
        .iter()
        .any(|taint| &*taint.key == DRAINING_TAINT)
}

/// Kubernetes knows that nothing runs on it any more.
pub(super) fn is_out_of_service(node: &NodeFacts) -> bool {
    let mut taints = node.taints.iter();
    taints.any(|taint| &*taint.key == OUT_OF_SERVICE_TAINT)
}

/// Its kubelet answers.
pub(super) fn is_ready(observed: &Observed) -> bool {
    match &observed.node {
        Some(NodeLook::One(_, node)) => node.ready && !node.deleting,
        Some(NodeLook::Absent | NodeLook::Several(_)) | None => false,
    }
}

pub(super) fn node_ref(name: &NodeName, node: &NodeFacts) -> NodeRef {
    NodeRef {
        name: name.clone(),
        uid: node.uid.clone(),
    }
}

/// kproxide has begun to evict its pods. From here on the drain goes on.
pub(super) fn evicts(subject: &Subject<'_>) -> bool {
    subject.intent() == Some(Op::Evict)
}
