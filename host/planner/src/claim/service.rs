//! In service: the machine is left alone, unless it has stopped or gone.

use jiff::{SignedDuration, Timestamp};

use super::launch::fail;
use super::next::{failed, not_visible, proven_absent, refuse, settled, soon};
use super::observed::{Did, MachineLook, NodeLook, Observed, Outcome, Power};
use super::ownership::{Disks, is_another, prove};
use super::register::Adoption;
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use super::{Condition, Op, Phase, drain, register};
use crate::ledger::later;
use crate::plan::RemovalReason;

/// A machine that was found stopped is started this often before it counts as lost: twice, since a crash may come between the intent and
/// the start.
const STARTS: u32 = 2;

/// A started machine that has run for so long has recovered.
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
                return match register::adopt(subject, observed, name, node) {
                    Adoption::Complete => register::registered_as(subject, name, node, now),
                    Adoption::Patch(step) => step,
                    Adoption::Lacking(why) => soon(now, why),
                };
            }
            if let Some(step) = settled(subject, &[Condition::NodeMissing], now) {
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
        && let Err(mismatch) = prove(subject, machine, Disks::Recorded)
    {
        return refuse(subject, &mismatch, now);
    }
    Step::wait(
        restarted(subject).then(|| recovery(subject).max(later(now, SignedDuration::from_secs(5)))),
        "in service",
    )
}

/// From this record on the planner counts how long the Node has been away. A kubelet may register again, and then nothing was lost.
fn node_missing(subject: &Subject<'_>, now: Timestamp) -> Option<Step> {
    if subject.status().since(Condition::NodeMissing).is_some() {
        return None;
    }
    let message = "its Node is gone; the machine is replaced, unless it registers again before the pool's repairAfter is over";
    let change = StatusChange::default()
        .condition(Condition::NodeMissing, true, "NodeGone", message, now)
        .warn("NodeMissing", message);
    Some(change.record())
}

/// Something of the machine could not be proven when it was looked at last.
pub(super) fn is_refused(subject: &Subject<'_>) -> bool {
    subject.status().refusal().is_some()
}

/// The machine was found stopped and started again, and has yet to prove itself.
pub(super) fn restarted(subject: &Subject<'_>) -> bool {
    let intent = subject.status().intent.as_ref();
    intent.is_some_and(|intent| intent.op == Op::Start)
}

fn recovery(subject: &Subject<'_>) -> Timestamp {
    let status = subject.status();
    later(
        status.started_at.unwrap_or(subject.claim.created),
        RECOVERED,
    )
}

/// Somebody has migrated the VM: the claim follows. From the inventory alone, since nothing is done to the VM for it.
fn migrated(subject: &Subject<'_>) -> Option<Step> {
    let listed = subject.hint.hypervisor.as_ref()?;
    let status = subject.status();
    let known = status
        .hypervisor
        .as_ref()
        .unwrap_or(&subject.claim.spec.hypervisor);
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

/// If the machine was looked at: a stopped one is started, an absent one is lost. `None`: it runs, or there was no reason to look.
pub(super) fn check_power(
    subject: &Subject<'_>,
    observed: &Observed,
    now: Timestamp,
) -> Option<Step> {
    let machine = match observed.machine.as_ref()? {
        MachineLook::Visible(machine) => machine,
        MachineLook::Invisible | MachineLook::Unreachable(_) => {
            return Some(if proven_absent(observed) {
                lost(
                    subject,
                    format!("VM {} has gone", subject.claim.spec.vmid),
                    now,
                )
            } else {
                not_visible(subject, observed, now)
            });
        }
    };
    if is_another(subject, machine) {
        let why = format!(
            "VM {} has gone, and its VMID belongs to another VM, which is left alone",
            subject.claim.spec.vmid
        );
        return Some(lost(subject, why, now));
    }
    let just_started = observed.last.as_ref().filter(|last| last.did == Did::Start);
    match machine.power {
        Power::Unknown => Some(soon(now, "whether the VM runs is not known")),
        Power::On => {
            let proven = prove(subject, machine, Disks::Recorded).is_ok();
            if proven && subject.status().phase == Phase::Initialized {
                let asked = [Condition::OwnershipMismatch, Condition::ProtectedVM];
                if let Some(step) = settled(subject, &asked, now) {
                    return Some(step);
                }
            }
            // From here its deadlines count anew.
            (just_started.is_some() && subject.status().started_at != Some(now)).then(|| {
                let change = StatusChange {
                    started_at: Some(now),
                    ..StatusChange::default()
                };
                change.record()
            })
        }
        Power::Off => {
            if let Some(last) = just_started {
                return Some(match (&last.outcome, failed(Some(last))) {
                    (Outcome::Running(upid), _) => Step::Follow {
                        upid: upid.clone(),
                        did: Did::Start,
                    },
                    (_, Some((_, text))) => {
                        soon(now, format!("the stopped VM could not be started: {text}"))
                    }
                    (_, None) => soon(now, "the VM was started and does not run"),
                });
            }
            if let Some(lock) = &machine.lock {
                return Some(soon(now, format!("the VM is locked ({lock})")));
            }
            let proven = match prove(subject, machine, Disks::Recorded) {
                Ok(proven) => proven,
                Err(mismatch) => return Some(refuse(subject, &mismatch, now)),
            };
            let just_written = observed
                .last
                .as_ref()
                .is_some_and(|last| last.did == Did::Record);
            let starts = match &subject.status().intent {
                Some(intent) if intent.op == Op::Start => intent.attempt,
                Some(_) | None => 0,
            };
            Some(if starts > 0 && just_written {
                Step::Start(proven)
            } else if starts < STARTS {
                StatusChange::default()
                    .intent(Op::Start, starts + 1)
                    .warn("VMStopped", "the VM was found stopped; it is started")
                    .record()
            } else {
                lost(
                    subject,
                    format!(
                        "VM {} was found stopped again after it was started",
                        subject.claim.spec.vmid
                    ),
                    now,
                )
            })
        }
    }
}

fn lost(subject: &Subject<'_>, why: String, now: Timestamp) -> Step {
    if !subject.armed(now) {
        return Step::wait(
            subject.settings.armed_at,
            format!("{why}; waiting for the end of the cold start"),
        );
    }
    match subject.status().phase {
        Phase::Initialized => drain::begin_because(subject, RemovalReason::Lost, why, now),
        Phase::Pending
        | Phase::Launching
        | Phase::Launched
        | Phase::Registered
        | Phase::Draining
        | Phase::Terminating => fail(Condition::Registered, "Lost", why, now),
    }
}
