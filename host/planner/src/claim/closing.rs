//! Down, the end: the machine is proven gone. Closes its records.

use jiff::Timestamp;

use super::answers::{failed, several, soon, unread};
use super::node::node_ref;
use super::observed::{EntryLook, NodeLook, Observed};
use super::op::{Effect, Op};
use super::step::Step;
use super::subject::Subject;
use crate::time::later;

/// Our VM does not exist. Deletes the Node, quarantines the Ledger's entry and closes the claim, in this order.
pub(super) fn close(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    let closing = [Op::DeleteNode, Op::Quarantine, Op::RemoveFinalizer];
    let last = closing.into_iter().find_map(|op| observed.tried(op));
    if let Some((_, text)) = failed(last) {
        return soon(now, format!("the claim could not be closed: {text}"));
    }
    match &observed.node {
        None => return unread(observed, "the Node", now),
        Some(NodeLook::Several(names)) => {
            return several(subject, names, now);
        }
        Some(NodeLook::One(name, node)) if node.deleting => {
            return soon(now, format!("Node {name} is being deleted"));
        }
        Some(NodeLook::One(name, node)) => {
            return Step::Do(Effect::DeleteNode(node_ref(name, node)));
        }
        Some(NodeLook::Absent) => {}
    }
    match observed.entry {
        None => unread(observed, "the Ledger", now),
        Some(EntryLook::Quarantined) => Step::Do(Effect::RemoveFinalizer),
        // A missing entry is created, because the VMID and the address must rest in any case.
        Some(EntryLook::Ours | EntryLook::Missing) => quarantine(subject, now),
    }
}

pub(super) fn quarantine(subject: &Subject<'_>, now: Timestamp) -> Step {
    Step::Do(Effect::Quarantine {
        until: later(now, subject.settings.quarantine),
        failure: subject.status().launch_failure(),
    })
}
