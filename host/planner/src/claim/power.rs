//! Is the machine there, and does it run?

use jiff::Timestamp;

use super::launch::fail;
use super::next::{failed, not_visible, proven_absent, refuse, settled, soon};
use super::observed::{Did, MachineLook, Observed, Outcome, Power};
use super::ownership::{Disks, is_another, prove};
use super::step::{StatusChange, Step};
use super::subject::Subject;
use super::{Condition, Op, Phase, drain};
use crate::plan::RemovalReason;

/// A machine that was found stopped is started this often before it counts as lost: twice, since a crash may come between the intent and
/// the start.
const STARTS: u32 = 2;

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
