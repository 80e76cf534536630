//! Drains a Node: taint it, evict its pods, wait until its volumes are detached. Then delete the claim.
//!
//! Every error counts as "still there".

use jiff::{SignedDuration, Timestamp};

use super::answers::{LATER, SOON, failed, soon, unread};
use super::node::{evicts, is_cordoned, node_ref};
use super::observed::{NodeLook, Observed, Outcome, PodOnNode, Refusal};
use super::op::{Effect, Op};
use super::power::is_down;
use super::reasons::recorded_word;
use super::step::{PodRef, StatusChange, Step};
use super::subject::Subject;
use super::{Condition, Phase};
use crate::hold::Hold;
use crate::plan::RemovalReason;
use crate::time::later;

/// Between two attempts to evict the same pod.
const EVICTION_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// An Event tells of a blocked drain after this long.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// The first of these that is not done: taint, list, evict, detach, delete.
pub(super) fn empty(
    subject: &Subject<'_>,
    observed: &Observed,
    reason: RemovalReason,
    now: Timestamp,
) -> Step {
    if reason == RemovalReason::Lost {
        return emptied(subject, observed, now);
    }
    match &observed.node {
        None => return unread(observed, "the Node", now),
        Some(NodeLook::One(name, node)) => {
            if !is_cordoned(node) {
                return match failed(observed.tried(Op::Cordon)) {
                    Some((_, text)) => {
                        soon(now, format!("Node {name} could not be cordoned: {text}"))
                    }
                    None => Step::Do(Effect::Cordon(node_ref(name, node))),
                };
            }
        }
        Some(NodeLook::Absent | NodeLook::Several(_)) => {}
    }
    let Some(pods) = &observed.pods else {
        return unread(observed, "the pods of its Node", now);
    };
    let leaving: Vec<_> = pods.iter().filter(|pod| pod.must_leave()).collect();
    let late = now >= subject.drain_deadline();
    if leaving.is_empty() || (late && subject.deleting()) {
        return detach(subject, observed, reason, &leaving, now);
    }
    if late && stuck(reason, &leaving) {
        return detach(subject, observed, reason, &leaving, now);
    }
    // With the Node tainted, the plan simulates the removal once more before the first pod has to go.
    if observed.tried(Op::Cordon).is_some() && reason.is_voluntary() {
        return Step::wait(
            Some(later(now, SignedDuration::from_secs(1))),
            "the Node is tainted. kproxide simulates its removal again",
        );
    }
    // Until this intent is written, a repair is given up if the Node becomes Ready.
    if reason == RemovalReason::Repair && !evicts(subject) {
        return StatusChange::default().intent(Op::Evict, 1).record();
    }
    evict(subject, observed, &leaving, now)
}

/// All remaining pods were evicted already, so their PodDisruptionBudgets have agreed. They cannot finish, because the
/// kubelet is dead.
fn stuck(reason: RemovalReason, leaving: &[&PodOnNode]) -> bool {
    !reason.is_voluntary() && leaving.iter().all(|pod| pod.deleting)
}

fn evict(
    subject: &Subject<'_>,
    observed: &Observed,
    leaving: &[&PodOnNode],
    now: Timestamp,
) -> Step {
    let again = later(now, EVICTION_PAUSE);
    let staying: Vec<_> = leaving.iter().filter(|pod| !pod.deleting).collect();
    let last = observed.tried(Op::Evict);
    if let Some((_, text)) = failed(last) {
        return soon(now, format!("its pods could not be evicted: {text}"));
    }
    if let Some(Outcome::Evicted { refused }) = last.map(|last| &last.outcome)
        && !refused.is_empty()
    {
        return held_up(subject, refused, now);
    }
    if staying.is_empty() || last.is_some() {
        let names: Vec<_> = leaving.iter().take(3).map(|p| p.key.to_string()).collect();
        return Step::wait(
            Some(again),
            format!("{} pods are leaving: {}", leaving.len(), names.join(", ")),
        );
    }
    let pods = staying.into_iter().map(|pod| PodRef {
        key: pod.key.clone(),
        uid: pod.uid.clone(),
    });
    Step::Do(Effect::Evict(pods.collect()))
}

/// A PodDisruptionBudget or an error keeps a pod. One Event for each such pod.
fn held_up(subject: &Subject<'_>, refused: &[Refusal], now: Timestamp) -> Step {
    let again = later(now, EVICTION_PAUSE);
    let first = refused.iter().find(|r| r.by_budget).or(refused.first());
    let why = match first {
        Some(refusal) => format!("pod {} cannot be evicted: {}", refusal.pod, refusal.why),
        None => "no pod can be evicted".to_owned(),
    };
    let patient = subject
        .status()
        .draining_since
        .is_some_and(|since| now < later(since, PATIENCE));
    if patient {
        return Step::back_off(again, why);
    }
    tell(subject, why, again, now)
}

/// Something blocks the drain until a person helps or it passes. Says so once.
fn tell(subject: &Subject<'_>, why: String, again: Timestamp, now: Timestamp) -> Step {
    let mut conditions = subject.status().conditions.iter();
    if conditions.any(|c| c.kind == Condition::Drained && c.message == why) {
        return Step::back_off(again, why);
    }
    StatusChange::default()
        .condition(
            Condition::Drained,
            false,
            recorded_word(subject),
            why.clone(),
            now,
        )
        .warn("ScaleDownHeldUp", why.clone())
        .record_and_back_off(again, why)
}

/// No pod is left that must leave. Now wait for the volumes.
fn detach(
    subject: &Subject<'_>,
    observed: &Observed,
    reason: RemovalReason,
    left: &[&PodOnNode],
    now: Timestamp,
) -> Step {
    let Some(attachments) = &observed.attachments else {
        return unread(observed, "the volumes of its Node", now);
    };
    let late = now >= subject.drain_deadline();
    let must_go = subject.deleting() || !reason.is_voluntary();
    // Kubernetes keeps the volumes of a dead Node attached while the Node exists. A machine that does not run cannot
    // write to them.
    let forced = late && (subject.deleting() || (must_go && is_down(subject, observed)));
    if !attachments.is_empty() && !forced {
        let why = format!("volumes are still attached: {}", attachments.join(", "));
        if !(late && must_go) {
            return soon(now, why);
        }
        let why = format!(
            "{why}. The machine may still write to them: stop VM {}, or delete NodeClaim {}",
            subject.claim.spec.vmid, subject.name
        );
        return tell(subject, why, later(now, SOON), now);
    }
    if let Some(step) = unguarded(subject, now) {
        return step;
    }
    if subject.status().since(Condition::Drained).is_none() {
        let mut change = StatusChange::default();
        if left.is_empty() && attachments.is_empty() {
            change = change
                .condition(Condition::Drained, true, recorded_word(subject), "", now)
                .condition(Condition::VolumesDetached, true, "Detached", "", now);
        } else {
            let pods: Vec<_> = left.iter().take(3).map(|p| p.key.to_string()).collect();
            let message = format!(
                "the drain took longer than {:#} (drainTimeout). kproxide removes the machine with {} pods ({}) and these volumes: {}",
                subject.pool.drain_timeout,
                left.len(),
                pods.join(", "),
                attachments.join(", ")
            );
            change = change
                .condition(
                    Condition::Drained,
                    true,
                    recorded_word(subject),
                    message.clone(),
                    now,
                )
                .warn("DrainForced", message);
        }
        return change.record();
    }
    emptied(subject, observed, now)
}

/// The claim has no finalizer: if it were deleted now, kproxide would lose its machine.
fn unguarded(subject: &Subject<'_>, now: Timestamp) -> Option<Step> {
    let unguarded = !subject.deleting() && !subject.claim.has_finalizer;
    unguarded.then(|| {
        tell(
            subject,
            Hold::NoFinalizer.to_string(),
            later(now, LATER),
            now,
        )
    })
}

/// The point of no return, and the first step after it.
fn emptied(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if let Some((_, text)) = failed(observed.tried(Op::DeleteClaim)) {
        return soon(now, format!("the claim could not be deleted: {text}"));
    }
    if let Some(step) = unguarded(subject, now) {
        return step;
    }
    if !subject.deleting() {
        return Step::Do(Effect::DeleteClaim);
    }
    StatusChange::default()
        .phase(Phase::Terminating)
        .intent(Op::Tombstone, 1)
        .condition(Condition::InstanceTerminating, true, "Terminating", "", now)
        .record()
}
