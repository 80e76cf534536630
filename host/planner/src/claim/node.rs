//! A claim's Node, as a drain finds and marks it.

use super::Op;
use super::step::NodeRef;
use super::subject::Subject;
use crate::facts::NodeFacts;
use crate::ids::NodeName;
use crate::keys::DRAINING_TAINT;

/// No pod can come to this Node: our taint stands, and it is marked for people and tools.
pub(super) fn is_cordoned(node: &NodeFacts) -> bool {
    node.unschedulable && has_our_taint(node)
}

/// Something of [`is_cordoned`] is there that we have put. A mark without our taint is somebody else's.
pub(super) fn is_cordoned_by_us(node: &NodeFacts) -> bool {
    has_our_taint(node)
}

fn has_our_taint(node: &NodeFacts) -> bool {
    node.taints
        .iter()
        .any(|taint| &*taint.key == DRAINING_TAINT)
}

pub(super) fn node_ref(name: &NodeName, node: &NodeFacts) -> NodeRef {
    NodeRef {
        name: name.clone(),
        uid: node.uid.clone(),
    }
}

/// Its pods have been asked to leave: from here on its drain goes on.
pub(super) fn evicts(subject: &Subject<'_>) -> bool {
    subject.intent() == Some(Op::Evict)
}
