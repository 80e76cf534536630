//! Drains a Node: taint it, evict its pods, wait until its volumes are detached. Then delete the claim.
//!
//! Every error counts as "still there".

use jiff::{SignedDuration, Timestamp};

use super::answers::{LATER, SOON, failed, soon, unread};
use super::effect::{Effect, PodRef};
use super::node::{evicts, is_cordoned, is_ready, node_ref};
use super::observed::{NodeLook, Observed, Outcome, PodOnNode, Refusal};
use super::off::dead_node;
use super::power::is_down;
use super::reasons::recorded_word;
use super::step::{StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Condition, Op, Phase};
use crate::plan::RemovalReason;
use crate::reasons::on_hold::Hold;
use crate::time::later;

/// Between two attempts to evict the same pod.
const EVICTION_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// So long after its pods have left, an attachment does not hold up a drain. The attach-detach controller, too, detaches
/// by force after 6 minutes.
const LEFT_BEHIND: SignedDuration = SignedDuration::from_mins(6);

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
    if let Some(step) = dead_node(subject, observed, reason, now) {
        return step;
    }
    let leaving = leaving(subject, pods, now);
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
    if reason.is_repair() && !evicts(subject) {
        return StatusChange::default().intent(Op::Evict, 1).record();
    }
    evict(subject, observed, &leaving, now)
}

/// The pods that are waited for. One that should have ended long ago is not, nor one that ends with the machine.
pub(super) fn leaving<'o>(
    subject: &Subject<'_>,
    pods: &'o [PodOnNode],
    now: Timestamp,
) -> Vec<&'o PodOnNode> {
    let ends_with_it =
        |pod: &PodOnNode| is_back(subject, pod) && subject.hint.ends_with_it.contains(&pod.uid);
    let leaving = pods
        .iter()
        .filter(|pod| pod.must_leave() && !pod.is_stuck(now));
    leaving.filter(|pod| !ends_with_it(pod)).collect()
}

/// It came to the Node during the drain, because it tolerates the taints. It would do so again after its eviction.
fn is_back(subject: &Subject<'_>, pod: &PodOnNode) -> bool {
    let began = subject.status().draining_since;
    pod.tolerates_drain && began.is_some_and(|began| pod.created > began)
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
    let staying = next_to_evict(subject, leaving);
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
        return Step::wait(Some(again), awaited(subject, leaving));
    }
    let pods = staying.into_iter().map(|pod| PodRef {
        key: pod.key.clone(),
        uid: pod.uid.clone(),
    });
    Step::Do(Effect::Evict(pods.collect()))
}

/// Pods that may come back are evicted last, and once: those that have come back are not evicted again.
fn next_to_evict<'o>(subject: &Subject<'_>, leaving: &[&'o PodOnNode]) -> Vec<&'o PodOnNode> {
    let asked = leaving.iter().copied().filter(|pod| !pod.on_completion);
    let (last, first): (Vec<_>, Vec<_>) = asked.partition(|pod| pod.tolerates_drain);
    let mut next = if first.is_empty() { last } else { first };
    next.retain(|pod| !pod.deleting && !is_back(subject, pod));
    next
}

/// What a drain waits for.
fn awaited(subject: &Subject<'_>, leaving: &[&PodOnNode]) -> String {
    let names: Vec<_> = leaving.iter().take(3).map(|p| p.key.to_string()).collect();
    let names = names.join(", ");
    if leaving.iter().all(|pod| pod.on_completion) {
        format!("kproxide waits for the end of {names} (safe-to-evict: on-completion)")
    } else if leaving.iter().all(|pod| is_back(subject, pod)) {
        format!(
            "pods came back after their eviction, because they tolerate the taints of a drain: {names}"
        )
    } else {
        format!("{} pods are leaving: {names}", leaving.len())
    }
}

/// What has held up a drain that took too long.
pub(super) fn unfinished(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> String {
    let leaving = leaving(subject, observed.pods.as_deref().unwrap_or_default(), now);
    let volumes = observed.attachments.as_deref().unwrap_or_default();
    if !leaving.is_empty() {
        awaited(subject, &leaving)
    } else {
        still_attached(volumes)
    }
}

fn still_attached(volumes: &[String]) -> String {
    format!("volumes are still attached: {}", volumes.join(", "))
}

/// No pod is left that must leave, and the kubelet answers. So what is attached still is detached soon, or was left
/// behind: a drain that was given up for it would begin again, and find the same.
pub(super) fn awaits_volumes_alone(
    subject: &Subject<'_>,
    observed: &Observed,
    now: Timestamp,
) -> bool {
    let (Some(pods), Some(attachments)) = (&observed.pods, &observed.attachments) else {
        return false;
    };
    leaving(subject, pods, now).is_empty() && !attachments.is_empty() && is_ready(observed)
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
pub(super) fn tell(subject: &Subject<'_>, why: String, again: Timestamp, now: Timestamp) -> Step {
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
///
/// On a Node whose kubelet answers, pods that are gone write to no volume. Then an attachment that stays was left behind. The
/// machine is shut down, and [`super::terminate`] does not destroy it while a PersistentVolume's disk is in its configuration.
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
        let why = still_attached(attachments);
        if left.is_empty() && is_ready(observed) {
            let began = subject.status().draining_since;
            match subject.status().since(Condition::Drained) {
                Some(since) if now >= later(since, LEFT_BEHIND) => {
                    return left_behind(subject, observed, &why, now);
                }
                Some(_) => return soon(now, why),
                None if late || began.is_some_and(|began| now > later(began, PATIENCE)) => {
                    return StatusChange::default()
                        .condition(Condition::Drained, true, recorded_word(subject), "", now)
                        .warn("ScaleDownHeldUp", waits_for_volumes(subject, &why))
                        .record();
                }
                None => {}
            }
        }
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
            if let Some(stuck) = still_terminating(observed, now) {
                change = change.warn("PodsLeftBehind", stuck);
            }
        } else {
            let pods: Vec<_> = left.iter().take(3).map(|p| p.key.to_string()).collect();
            let message = format!(
                "the drain took longer than {:#} (drainTimeout). kproxide removes the machine with {} pods ({}) and these volumes: {}",
                subject.pool.drain_timeout.0,
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
    if !attachments.is_empty() {
        return left_behind(subject, observed, &still_attached(attachments), now);
    }
    if left.is_empty() && subject.status().since(Condition::VolumesDetached).is_none() {
        return StatusChange::default()
            .condition(Condition::VolumesDetached, true, "Detached", "", now)
            .record();
    }
    emptied(subject, observed, now)
}

fn waits_for_volumes(subject: &Subject<'_>, why: &str) -> String {
    let limit = subject.pool.drain_timeout.0;
    let longer = match limit < LEFT_BEHIND + PATIENCE {
        true => format!(" The drainTimeout of its NodePool, {limit:#}, is too short for that."),
        false => String::new(),
    };
    format!(
        "{why}. No pod is left that uses them, so kproxide waits up to {LEFT_BEHIND:#} for Kubernetes to detach them.{longer} If one stays, delete its VolumeAttachment"
    )
}

/// Pods that nobody waits for. They stay in Kubernetes after their Node is gone, so somebody has to know.
fn still_terminating(observed: &Observed, now: Timestamp) -> Option<String> {
    let pods = observed.pods.iter().flatten();
    let stuck = pods.filter(|pod| pod.must_leave() && pod.is_stuck(now));
    let names: Vec<String> = stuck.take(3).map(|pod| pod.key.to_string()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "still Terminating long after their grace: {}. kproxide does not wait for such pods. The machine goes, and they stay in Kubernetes until you take off what holds them (see metadata.finalizers)",
            names.join(", ")
        )
    })
}

/// The drain goes on without these volumes. Says so once.
fn left_behind(subject: &Subject<'_>, observed: &Observed, why: &str, now: Timestamp) -> Step {
    let message = format!(
        "{why}, although no pod is left that uses them. kproxide shuts VM {} down, and destroys it when no disk of a PersistentVolume is attached to it",
        subject.claim.spec.vmid
    );
    let mut conditions = subject.status().conditions.iter();
    let is_told = conditions.any(|c| {
        (c.kind == Condition::VolumesDetached && c.message == message)
            // The drain was forced.
            || (c.kind == Condition::Drained && c.status && !c.message.is_empty())
    });
    if is_told {
        return emptied(subject, observed, now);
    }
    StatusChange::default()
        .condition(
            Condition::VolumesDetached,
            false,
            "LeftBehind",
            message.clone(),
            now,
        )
        .warn("VolumesLeftBehind", message)
        .record()
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
        .phase(Phase::Terminating, now)
        .intent(Op::Tombstone, 1)
        .condition(Condition::InstanceTerminating, true, "Terminating", "", now)
        .record()
}
