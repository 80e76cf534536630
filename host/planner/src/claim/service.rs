//! In service: kproxide does nothing to the machine, unless the VM has stopped or gone.

use jiff::{SignedDuration, Timestamp};

use super::adopt::{Adoption, adopt, registered_as};
use super::answers::{LATER, refuse, settled, soon};
use super::labels::{Restoring, restoring};
use super::moved::zone_set;
use super::observed::{MachineLook, NodeLook, Observed};
use super::ownership::{Made, prove};
use super::power::{check_power, is_down};
use super::reasons::{NODE_GONE, NODE_NOT_READY, NODE_READY, SERVER_OFFLINE, ZONE_OUTDATED};
use super::step::{Change, StatusChange, Step};
use super::subject::{Moved, Subject};
use crate::facts::{ClaimStatus, Condition, NodeFacts, Op, Phase};
use crate::time::later;

/// A machine that kproxide has restarted counts as recovered after it has run this long.
const RECOVERED: SignedDuration = SignedDuration::from_mins(5);

pub(super) fn initialized(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if let Some(step) = check_power(subject, observed, now) {
        return step;
    }
    if let Some(step) = migrated(subject) {
        return step;
    }
    match &observed.node {
        Some(NodeLook::One(name, node)) => {
            if subject.status().node_uid.as_ref() != Some(&node.uid) {
                return match adopt(subject, observed, name, node, now) {
                    Adoption::Complete => registered_as(subject, name, node, now),
                    Adoption::Patch(step) => step,
                    Adoption::Lacking(why) => soon(now, why),
                };
            }
            if let Some(step) = settled(subject, &[Condition::NodeMissing], now) {
                return step;
            }
            if let Some(step) = followed(subject, node, now) {
                return step;
            }
            if let Some(step) = zone_set(subject, observed, (name, node), now) {
                return step;
            }
            if restarted(subject) && node.ready && now >= recovery(subject) {
                let change = StatusChange {
                    intent: Change::Clear,
                    ..StatusChange::default()
                };
                return change.record();
            }
        }
        Some(NodeLook::Absent) => {
            if let Some(step) = node_missing(subject, now) {
                return step;
            }
        }
        Some(NodeLook::Several(_)) | None => {}
    }
    if is_refused(subject)
        && let Some(MachineLook::Visible(machine)) = &observed.machine
        && let Err(mismatch) = prove(subject, machine, Made::Configured)
    {
        return refuse(subject, &mismatch, now);
    }
    // A new verdict of the plan ends the pause.
    if is_down(subject, observed) {
        return Step::back_off(
            later(now, LATER),
            "its VM is not there, and not given up yet",
        );
    }
    let mut next =
        restarted(subject).then(|| recovery(subject).max(later(now, SignedDuration::from_secs(5))));
    if let Some(NodeLook::One(name, node)) = &observed.node {
        match restoring(subject, (name, node), now) {
            Restoring::Nothing => {}
            Restoring::Later(at) => next = Some(next.map_or(at, |next| next.min(at))),
            Restoring::Now(step) => return step,
        }
    }
    Step::wait(next, "in service")
}

/// The condition Ready follows the Node and its server.
fn followed(subject: &Subject<'_>, node: &NodeFacts, now: Timestamp) -> Option<Step> {
    let (is_off, moved) = (subject.hint.server_is_off, subject.hint.moved.as_ref());
    if !ready_differs(subject.status(), node, is_off, moved) {
        return None;
    }
    let (reason, outdated) = ready_reason(node, is_off, moved);
    let message = match (reason, outdated) {
        (_, Some(moved)) => moved.to_string(),
        (SERVER_OFFLINE, None) => format!(
            "its server {} is offline, as Proxmox says",
            subject.claim.hypervisor()
        ),
        (NODE_NOT_READY, None) => "its Node is not Ready: look at the kubelet there. kproxide replaces the machine if the Node stays so for repairAfter".to_owned(),
        (_, None) => String::new(),
    };
    let is_ready = [NODE_READY, ZONE_OUTDATED].contains(&reason);
    let change =
        StatusChange::default().condition(Condition::Ready, is_ready, reason, message, now);
    Some(change.record())
}

fn ready_reason<'m>(
    node: &NodeFacts,
    server_is_off: bool,
    moved: Option<&'m Moved>,
) -> (&'static str, Option<&'m Moved>) {
    // The label that kproxide sets anew is not worth a word.
    let moved = moved.filter(|moved| moved.keeps.is_some());
    match (server_is_off, node.ready, moved) {
        (true, ..) => (SERVER_OFFLINE, None),
        (false, false, _) => (NODE_NOT_READY, None),
        (false, true, Some(moved)) => (ZONE_OUTDATED, Some(moved)),
        (false, true, None) => (NODE_READY, None),
    }
}

/// The claim is in service, and its condition Ready does not say what is so.
pub fn ready_differs(
    status: &ClaimStatus,
    node: &NodeFacts,
    server_is_off: bool,
    moved: Option<&Moved>,
) -> bool {
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|condition| condition.kind == Condition::Ready);
    let (reason, outdated) = ready_reason(node, server_is_off, moved);
    let differs = match (ready, outdated) {
        // An earlier version of kproxide wrote no such condition.
        (None, _) => reason != NODE_READY,
        (Some(ready), Some(moved)) => ready.reason != reason || ready.message != moved.to_string(),
        (Some(ready), None) => ready.reason != reason,
    };
    status.phase == Phase::Initialized && differs
}

/// Records that the Node is gone: the planner counts from then. If the kubelet registers again, nothing was lost.
pub(super) fn node_missing(subject: &Subject<'_>, now: Timestamp) -> Option<Step> {
    if subject.status().since(Condition::NodeMissing).is_some() {
        return None;
    }
    let message = "its Node is gone. kproxide replaces the machine, unless the Node registers again before repairAfter is over";
    let change = StatusChange::default()
        .condition(Condition::NodeMissing, true, NODE_GONE, message, now)
        .condition(Condition::Ready, false, NODE_GONE, message, now)
        .warn("NodeMissing", message);
    Some(change.record())
}

/// The last proof of ownership failed.
pub(super) fn is_refused(subject: &Subject<'_>) -> bool {
    subject.status().refusal().is_some()
}

/// The VM was stopped, kproxide has started it again, and it has not run for long enough yet.
pub(super) fn restarted(subject: &Subject<'_>) -> bool {
    subject.intent() == Some(Op::Start)
}

fn recovery(subject: &Subject<'_>) -> Timestamp {
    let status = subject.status();
    later(
        status.started_at.unwrap_or(subject.claim.created),
        RECOVERED,
    )
}

/// The VM has been migrated: record its new hypervisor. The inventory is enough for this, because nothing is done to
/// the VM.
fn migrated(subject: &Subject<'_>) -> Option<Step> {
    let listed = subject.hint.hypervisor.as_ref()?;
    let known = subject.claim.hypervisor();
    if listed == known {
        return None;
    }
    let mut change = StatusChange::default().say(
        "Migrated",
        format!("the VM has moved from {known} to {listed}"),
    );
    change.hypervisor = Some(listed.clone());
    Some(change.record())
}
