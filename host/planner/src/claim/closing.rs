//! Down, the end: the machine is proven gone. Closes its records.

use jiff::{SignedDuration, Timestamp};

use super::answers::{failed, several, soon, unread};
use super::effect::Effect;
use super::node::node_ref;
use super::observed::{EntryLook, NodeLook, Observed};
use super::reasons::{CLOSED, VMID_TAKEN};
use super::stalled;
use super::step::{StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Condition, Op, Phase};
use crate::plan::Verdict;
use crate::time::later;

/// A finalizer of others that stays for longer than this is told.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Our finalizer is off: kproxide is done with the claim. Others may hold it still.
pub(super) fn closed(subject: &Subject<'_>, now: Timestamp) -> Step {
    let others = &subject.claim.other_finalizers;
    let status = subject.status();
    let began = status.since(Condition::InstanceTerminating);
    let is_held = matches!(subject.verdict, Verdict::Hold(_));
    let is_told = status.phase == Phase::Terminating && !others.is_empty() && !is_held;
    let began = began.filter(|_| is_told);
    let Some(began) = began else {
        return Step::Done;
    };
    let message = format!(
        "kproxide is done with this NodeClaim and its machine. What holds the NodeClaim is of others, who have to take it off: metadata.finalizers has {}",
        others.join(", ")
    );
    let mut conditions = status.conditions.iter();
    if conditions.any(|c| c.kind == Condition::Ready && c.message == message) {
        return Step::Done;
    }
    let end = later(began, PATIENCE);
    if now < end {
        return Step::wait(Some(end), message);
    }
    let mut change = StatusChange::default()
        .condition(Condition::Ready, false, CLOSED, &*message, now)
        .warn("HeldByFinalizer", message);
    if status.since(Condition::Stalled).is_some() {
        change = stalled::ended(change, now);
    }
    change.record()
}

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
    let until = match was_asked_for(subject) {
        true => later(now, subject.settings.quarantine),
        // The row stays until the claim is gone.
        false => now,
    };
    Step::Do(Effect::Quarantine {
        until,
        failure: subject.status().launch_failure(),
    })
}

/// Whether a clone with the claim's number may have been asked for. kproxide writes the nonce before it asks. Without one there was no machine, and the
/// number is free at once: otherwise pods that come and go would use up all numbers for a day. One that belongs to another VM is left alone for as long as
/// any other.
fn was_asked_for(subject: &Subject<'_>) -> bool {
    let mut conditions = subject.status().conditions.iter();
    let is_taken = conditions.any(|it| it.kind == Condition::Launched && it.reason == VMID_TAKEN);
    subject.status().nonce.is_some() || subject.claim.spec.adopts.is_some() || is_taken
}
