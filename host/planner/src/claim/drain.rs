//! Down, the reversible half: the Node is tainted, its pods are evicted, its volumes are detached. Then the claim is deleted.
//!
//! Every error counts as "still there".

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::answers::{SOON, failed, proven_absent, several, soon, unread};
use super::begin::{Obstacle, obstacle, warming_up};
use super::effect::Effect;
use super::empty::{awaits_volumes_alone, empty, leaving, tell, unfinished};
use super::node::{evicts, is_cordoned_by_us, is_ready, node_ref};
use super::observed::{MachineLook, NodeLook, Observed};
use super::ownership::{Mismatch, is_another};
use super::power::is_down;
use super::reasons::drained_for;
use super::status::retry_digest;
use super::step::{Change, StatusChange, Step};
use super::subject::{GuestHint, Subject};
use crate::facts::{BlockedDrains, Condition, GIVEN_UP, Op};
use crate::ids::{Digest, PodKey};
use crate::kubernetes::eviction::{Blocker, blocker};
use crate::plan::{RemovalReason, Verdict};
use crate::reasons::kept::GiveUp;
use crate::reasons::on_hold::Hold;
use crate::time::later;

/// So many pods that keep a Node are remembered.
const MOST_KEEPERS: usize = 16;

pub(super) fn next(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if let Some(NodeLook::Several(names)) = &observed.node {
        return several(subject, names, now);
    }
    match course(subject, observed, now) {
        Course::Abandon(why) => abandon(subject, observed, &why, now),
        Course::Wait(step) => step,
        Course::GoOn(_) if !subject.armed(now) => warming_up(subject),
        Course::GoOn(reason) => empty(subject, observed, reason, now),
    }
}

enum Course {
    GoOn(RemovalReason),
    Abandon(Stays),
    Wait(Step),
}

/// Why kproxide gives a drain up, so that the machine stays.
enum Stays {
    Planned(GiveUp),
    Unwanted,
    Recovered,
    /// And what it was waiting for.
    Late(SignedDuration, String),
    Came(PodKey),
    Pod(PodKey, Blocker),
    Refused(Mismatch),
    Ready,
    NotLost,
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planned(why) => why.fmt(f),
            Self::Unwanted => f.write_str("kproxide no longer has to remove it"),
            Self::Recovered => f.write_str("its Node is Ready again"),
            Self::Late(limit, awaited) => write!(
                f,
                "the drain took longer than {limit:#} (drainTimeout). {awaited}"
            ),
            Self::Came(pod) => write!(f, "pod {pod} has come to it after kproxide found it empty"),
            Self::Pod(pod, by) => write!(f, "pod {pod} {by}"),
            Self::Refused(mismatch) => mismatch.fmt(f),
            Self::Ready => f.write_str("its Node is Ready"),
            Self::NotLost => f.write_str("its VM is there after all"),
        }
    }
}

/// Should this drain go on? It cannot be given up if the claim was deleted, or if the machine never was in service.
fn course(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Course {
    let late = now >= subject.drain_deadline();
    if subject.deleting() {
        // No pod has to leave a machine that is gone.
        let is_lost = drained_for(subject, RemovalReason::Lost)
            && is_down(subject, observed)
            && !is_ready(observed);
        return Course::GoOn(if is_lost {
            RemovalReason::Lost
        } else {
            RemovalReason::Deleted
        });
    }
    if subject.claim.spec.is_condemned() {
        return condemned(subject, observed);
    }
    if !subject.was_in_service() {
        return Course::GoOn(RemovalReason::LaunchFailed);
    }
    let suspect = match subject.hint.guest {
        GuestHint::Stopped | GuestHint::Absent => true,
        GuestHint::Unknown | GuestHint::Running => false,
    };
    match subject.verdict {
        Verdict::Remove(RemovalReason::Lost) => lost(subject, observed, now),
        _ if suspect && drained_for(subject, RemovalReason::Lost) => lost(subject, observed, now),
        Verdict::GiveUp(why) => Course::Abandon(Stays::Planned(why.clone())),
        Verdict::Keep => Course::Abandon(Stays::Unwanted),
        Verdict::Hold(why) => Course::Wait(Step::wait(None, why.to_string())),
        Verdict::Remove(reason) if reason.is_repair() && has_recovered(subject, observed) => {
            Course::Abandon(Stays::Recovered)
        }
        Verdict::Remove(reason) if !reason.is_voluntary() => Course::GoOn(*reason),
        Verdict::Remove(reason) => {
            // When all its pods have left, only volumes hold it up, and these not for ever.
            let has_pods_left = subject.status().since(Condition::Drained).is_none()
                && !awaits_volumes_alone(subject, observed, now);
            if late && has_pods_left {
                let limit = subject.pool.drain_timeout.0;
                return Course::Abandon(Stays::Late(limit, unfinished(subject, observed, now)));
            }
            match blocked(subject, observed, *reason, now) {
                // A user asked for this replacement. If kproxide gave it up, it would begin again at once. So it waits.
                Some(why) if !reason.scales_down() => {
                    Course::Wait(tell(subject, why.to_string(), later(now, SOON), now))
                }
                Some(why) => Course::Abandon(why),
                None => last_look(subject, observed, *reason, now),
            }
        }
    }
}

/// Only the plan wants this machine gone, so it goes on only while the plan agrees.
fn condemned(subject: &Subject<'_>, observed: &Observed) -> Course {
    if is_ready(observed) {
        return Course::Wait(Step::wait(None, Hold::StaysReady.to_string()));
    }
    match &subject.verdict {
        Verdict::Remove(_) => Course::GoOn(RemovalReason::Deleted),
        Verdict::Hold(why) => Course::Wait(Step::wait(None, why.to_string())),
        Verdict::Keep | Verdict::GiveUp(_) => Course::Wait(Step::wait(None, "the plan keeps it")),
    }
}

/// The Node to be repaired is Ready again, and no pod was evicted yet.
fn has_recovered(subject: &Subject<'_>, observed: &Observed) -> bool {
    is_ready(observed) && !evicts(subject) && subject.status().since(Condition::Drained).is_none()
}

/// The Node is empty. Before the claim is deleted, which cannot be undone, prove that the machine may be destroyed.
fn last_look(
    subject: &Subject<'_>,
    observed: &Observed,
    reason: RemovalReason,
    now: Timestamp,
) -> Course {
    if subject.status().since(Condition::Drained).is_none() {
        return Course::GoOn(reason);
    }
    match obstacle(subject, observed, now) {
        Ok(()) => Course::GoOn(reason),
        Err(Obstacle::Refused(mismatch)) => Course::Abandon(Stays::Refused(mismatch)),
        Err(Obstacle::Unknown(step)) => Course::Wait(step),
    }
}

/// The inventory says that the VM is gone. That alone is no proof.
fn lost(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Course {
    let gone = Course::GoOn(RemovalReason::Lost);
    if is_ready(observed) {
        return Course::Abandon(Stays::Ready);
    }
    if proven_absent(observed) {
        return gone;
    }
    match &observed.machine {
        Some(MachineLook::Visible(machine)) if is_another(subject, machine) => gone,
        Some(MachineLook::Visible(_)) => Course::Abandon(Stays::NotLost),
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => {
            Course::Wait(unread(observed, "the machine", now))
        }
    }
}

/// A pod that keeps its Node and came after the removal was simulated.
fn blocked(
    subject: &Subject<'_>,
    observed: &Observed,
    reason: RemovalReason,
    now: Timestamp,
) -> Option<Stays> {
    let pods = observed.pods.as_deref().unwrap_or_default();
    let mut staying = pods.iter().filter(|pod| pod.must_leave() && !pod.deleting);
    // The Node was empty when the removal was simulated, so no place was found for a pod that came later.
    let least_priority = subject.settings.least_priority;
    if reason == RemovalReason::Empty {
        let mut counts = staying.filter(|it| it.priority >= least_priority || it.is_protected(now));
        return counts.next().map(|pod| Stays::Came(pod.key.clone()));
    }
    // What blocks scale-down does not block a replacement.
    let rules = reason
        .scales_down()
        .then_some(&subject.pool.scale_down.blocked_by);
    staying.find_map(|pod| {
        let blocker = blocker(&pod.ties(least_priority, now), rules)?;
        Some(Stays::Pod(pod.key.clone(), blocker))
    })
}

/// If pods kept it, it rests ever longer. What the plan or a person has changed is no such thing.
fn blocked_drains(
    subject: &Subject<'_>,
    observed: &Observed,
    stays: &Stays,
    now: Timestamp,
) -> Option<BlockedDrains> {
    let mut digests: Vec<Digest> = Vec::new();
    let pods = match stays {
        Stays::Late(..) => {
            let pods = observed.pods.as_deref().unwrap_or_default();
            let pods = leaving(subject, pods, now);
            pods.into_iter().map(|pod| pod.key.clone()).collect()
        }
        Stays::Pod(pod, _) | Stays::Came(pod) => vec![pod.clone()],
        Stays::Planned(GiveUp::CameBack(back)) => vec![back.pod.clone()],
        Stays::Planned(GiveUp::Stuck(stuck)) => vec![stuck.pod.clone()],
        Stays::Planned(GiveUp::Pending(_, digest)) => {
            digests.push(digest.clone());
            Vec::new()
        }
        Stays::Refused(_) => Vec::new(),
        Stays::Planned(_) | Stays::Unwanted | Stays::Recovered | Stays::Ready | Stays::NotLost => {
            return None;
        }
    };
    let keepers = &subject.hint.keepers;
    let known = pods.iter().filter_map(|pod| keepers.get(pod).cloned());
    digests.extend(known);
    // Pods that the plan has not seen: only time ends that rest, so it grows no longer than the first.
    let is_unknown = !pods.is_empty() && digests.is_empty();
    digests.sort();
    digests.dedup();
    digests.truncate(MOST_KEEPERS);
    let status = subject.status();
    Some(BlockedDrains::one_more(
        status.blocked_drains.as_ref().filter(|_| !is_unknown),
        status.draining_since.unwrap_or(now),
        digests,
        retry_digest(subject.pool.retry.as_ref()),
        now,
    ))
}

/// Uncordon the Node, then record that the drain was given up. What follows is decided by the next plan, because this
/// one still wants the machine gone.
fn abandon(subject: &Subject<'_>, observed: &Observed, stays: &Stays, now: Timestamp) -> Step {
    let why = &*stays.to_string();
    match &observed.node {
        None => return unread(observed, "the Node", now),
        Some(NodeLook::One(name, node)) if is_cordoned_by_us(node) => {
            if let Some((_, text)) = failed(observed.tried(Op::Uncordon)) {
                return soon(now, format!("Node {name} could not be uncordoned: {text}"));
            }
            return Step::Do(Effect::Uncordon(node_ref(name, node)));
        }
        Some(NodeLook::One(..) | NodeLook::Absent | NodeLook::Several(_)) => {}
    }
    let message = format!("{} stays: {why}", subject.name);
    let mut change = StatusChange::default()
        .phase(subject.phase_before_drain(), now)
        .condition(Condition::Drained, false, GIVEN_UP, why, now)
        .condition(Condition::VolumesDetached, false, GIVEN_UP, "", now)
        .condition(Condition::Unneeded, false, GIVEN_UP, "", now)
        .warn("ScaleDownFailed", message);
    change.draining_since = Change::Clear;
    change.blocked_drains = blocked_drains(subject, observed, stays, now);
    if evicts(subject) {
        change.intent = Change::Clear;
    }
    change.record_and_back_off(later(now, SOON), why)
}
