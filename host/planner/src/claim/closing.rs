//! Down, the end: the machine is proven gone. Closes its records.

use jiff::Timestamp;

use super::Condition;
use super::answers::{failed, several, soon, unread};
use super::node::node_ref;
use super::observed::{EntryLook, NodeLook, Observed};
use super::op::{Effect, Op};
use super::reasons::{OUTDATED, VMID_TAKEN};
use super::step::Step;
use super::subject::Subject;
use crate::facts::LaunchFailure;
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
        failure: launch_failure(subject),
    })
}

/// Why the launch failed, for the Ledger's back-off. A VMID that was taken says nothing about the hypervisor.
fn launch_failure(subject: &Subject<'_>) -> Option<LaunchFailure> {
    let status = subject.status();
    if status.since(Condition::Initialized).is_some() {
        return None;
    }
    let is_of_launch = |kind| {
        let of_launch = [
            Condition::Launched,
            Condition::Registered,
            Condition::Initialized,
        ];
        of_launch.contains(&kind)
    };
    let is_of_nobody = |reason: &str| {
        matches!(
            reason,
            "" | VMID_TAKEN | OUTDATED | "ReservationLost" | "Lost"
        )
    };
    let mut conditions = status.conditions.iter();
    conditions
        .find(|c| is_of_launch(c.kind) && !c.status && !is_of_nobody(&c.reason))
        .map(|c| LaunchFailure {
            class: c.reason.as_str().into(),
            message: c.message.clone(),
        })
}
