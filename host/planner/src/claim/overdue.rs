//! A Node that has not come into service by its deadline.

use jiff::Timestamp;

use super::answers::{LATER, unread};
use super::failing::fail;
use super::observed::{NodeLook, Observed, PodOnNode};
use super::step::{StatusChange, Step};
use super::subject::Subject;
use crate::facts::Condition;
use crate::time::later;

/// The reason of a Node that is known and not Ready.
pub(super) const NOT_READY: &str = "NotReadyTimeout";

/// The Node is known, but is not in service when the deadline is over. The launch has failed, unless pods run on the
/// Node already. kproxide does not evict those: it reports the Node and waits for a person, as long as the Node is not
/// broken.
pub(super) fn overdue(
    subject: &Subject<'_>,
    observed: &Observed,
    kind: Condition,
    reason: &'static str,
    why: &str,
    now: Timestamp,
) -> Step {
    let limit = subject.settings.timeouts.join.0;
    let message = format!("{why}, {limit:#} after the start of its machine");
    // Only after this record kproxide lists the Node's pods. A fresh list for every look would be expensive.
    if !is_overdue(subject) {
        return StatusChange::default()
            .condition(kind, false, reason, message, now)
            .record();
    }
    match &observed.pods {
        None => return unread(observed, "the pods of its Node", now),
        Some(pods) if !pods.iter().any(PodOnNode::must_leave) => {
            return fail(kind, reason, message, now);
        }
        Some(_) => {}
    }
    let unless = match &observed.node {
        Some(NodeLook::One(_, node)) if node.ready => "",
        Some(NodeLook::One(..) | NodeLook::Absent | NodeLook::Several(_)) | None => {
            " before the pool's repairAfter is over"
        }
    };
    let message =
        format!("{message}. kproxide does not replace it{unless}, because pods run on it");
    let mut conditions = subject.status().conditions.iter();
    if conditions.any(|c| c.kind == kind && c.message == message) {
        return Step::back_off(later(now, LATER), message);
    }
    StatusChange::default()
        .condition(kind, false, reason, message.clone(), now)
        .warn("FailedToScaleUpGroup", message.clone())
        .record_and_back_off(later(now, LATER), message)
}

/// The claim records that the Node did not come into service in time.
pub(super) fn is_overdue(subject: &Subject<'_>) -> bool {
    subject.status().is_overdue()
}

/// The deadline is over, and the Node has been NotReady or gone for longer than repairAfter.
pub(super) fn is_broken(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> bool {
    let since = match &observed.node {
        Some(NodeLook::One(_, node)) if !node.ready => Some(node.ready_since),
        Some(NodeLook::Absent) => subject.status().since(Condition::NodeMissing),
        Some(NodeLook::One(..) | NodeLook::Several(_)) | None => None,
    };
    let repaired_at = since.map(|since| later(since, subject.pool.repair_after.0));
    now >= subject.join_deadline() && repaired_at.is_some_and(|at| now >= at)
}

pub(super) fn broken(subject: &Subject<'_>, kind: Condition, now: Timestamp) -> Step {
    let message = format!(
        "its Node was not Ready {:#} after the machine's start, and has not been Ready for {:#} (repairAfter)",
        subject.settings.timeouts.join.0, subject.pool.repair_after.0
    );
    fail(kind, NOT_READY, message, now)
}
