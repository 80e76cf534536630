//! A Node that has not come into service by its deadline.

use jiff::Timestamp;

use super::Condition;
use super::launch::fail;
use super::next::{LATER, unread};
use super::observed::{Observed, PodOnNode};
use super::step::{StatusChange, Step};
use super::subject::Subject;
use crate::ledger::later;

/// The deadline is over, and the Node is there but does not come into service; says why. The launch has failed, unless pods run on the Node
/// already: those are not taken away for it, so it is told and left to whoever can help.
pub(super) fn overdue(
    subject: &Subject<'_>,
    observed: &Observed,
    kind: Condition,
    reason: &'static str,
    why: String,
    now: Timestamp,
) -> Step {
    let limit = subject.settings.timeouts.join;
    let message = format!("{why}, {limit:#} after the start of its machine");
    // Only from this record on the Node's pods are looked at: a fresh list for each look would be dear.
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
    let message = format!("{message}; it is not replaced, since pods run on it");
    let mut conditions = subject.status().conditions.iter();
    if conditions.any(|c| c.kind == kind && c.message == message) {
        return Step::back_off(later(now, LATER), message);
    }
    StatusChange::default()
        .condition(kind, false, reason, message.clone(), now)
        .warn("FailedToScaleUp", message.clone())
        .record_and_back_off(later(now, LATER), message)
}

/// It was written down that the Node has not come into service in time.
pub(super) fn is_overdue(subject: &Subject<'_>) -> bool {
    subject.status().is_overdue()
}
