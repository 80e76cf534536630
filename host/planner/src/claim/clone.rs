//! Up, the first step: ask for the clone once, follow its task, read the VM back.

use jiff::{SignedDuration, Timestamp};

use super::answers::{proven_absent, soon, unread};
use super::effect::Effect;
use super::failing::{clone_too_late, fail, failed_launch, taken_by_another, too_late};
use super::observed::{EntryLook, Failure, MachineLook, Marker, Observed, Outcome, Presence};
use super::ownership::{Made, is_another, prove};
use super::reasons::{CLONE_FAILED, CLONE_INTERRUPTED, CLONED, STUCK_LOCKED, VMID_TAKEN};
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Condition, Op};
use crate::time::later;

/// A clone that has just been asked for may take a moment to show.
const SHORTLY: SignedDuration = SignedDuration::from_secs(2);

/// The intent to clone is written. The task and the VMID show whether the clone was asked for, and what became of it.
pub(super) fn clone(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if subject.status().upid.is_some() {
        return match &observed.task {
            // Its hypervisor may be gone for good, and the task's log with it. A VMID that is certainly free shows as
            // well that the task has ended.
            None if proven_absent(observed) => cloned(subject, observed, now),
            None if now >= subject.provision_deadline() => too_late(
                subject,
                "the end of the clone's task, which cannot be read",
                now,
            ),
            None => unread(observed, "the clone's task", now),
            Some(Outcome::Running(upid)) => {
                if now >= subject.clone_deadline() {
                    return clone_too_late(subject, now);
                }
                Step::Follow {
                    upid: upid.clone(),
                    op: Op::Clone,
                }
            }
            Some(Outcome::Failed { failure, text }) => {
                clone_failed(subject, observed, *failure, text, now)
            }
            Some(
                Outcome::Done
                | Outcome::Warnings(_)
                | Outcome::Unknown(_)
                | Outcome::Evicted { .. },
            ) => cloned(subject, observed, now),
        };
    }
    match observed.tried(Op::Clone) {
        Some(last) => match &last.outcome {
            Outcome::Failed { failure, text } => {
                clone_failed(subject, observed, *failure, text, now)
            }
            Outcome::Unknown(text) => Step::back_off(
                later(now, pause(subject)),
                format!("whether the clone was begun is not known ({text})"),
            ),
            // A running task is already recorded in the claim.
            Outcome::Running(_)
            | Outcome::Done
            | Outcome::Warnings(_)
            | Outcome::Evicted { .. } => cloned(subject, observed, now),
        },
        None => cloned(subject, observed, now),
    }
}

/// No task is known to run: the VMID shows how far the clone came.
fn cloned(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    match observed.presence {
        None => unread(observed, "whether the VMID is free", now),
        Some(Presence::Free) => ask_for_clone(subject, observed, now),
        Some(Presence::Taken)
            if observed.machine == Some(MachineLook::Invisible)
                && nobody_has_asked(subject, observed) =>
        {
            taken_by_another(subject, now)
        }
        Some(Presence::Taken) => read_back(subject, observed, now),
    }
}

/// The VMID is free. kproxide asks for the clone directly after it has written the intent, and never on an older
/// intent: another leader, or this process before a crash, may have asked already.
fn ask_for_clone(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if now >= subject.provision_deadline() {
        return too_late(subject, "the clone", now);
    }
    // The record just written must be this intent, and not the last clone's task, nor a record whose answer was lost.
    let just_written = subject.status().upid.is_none()
        && observed
            .last
            .as_ref()
            .is_some_and(|last| last.op.is_none() && last.outcome == Outcome::Done);
    if !just_written {
        return again(subject).record();
    }
    match observed.entry {
        None => unread(observed, "the Ledger", now),
        Some(EntryLook::Ours) => Step::Do(Effect::Clone),
        Some(EntryLook::Quarantined | EntryLook::Missing) => fail(
            Condition::Launched,
            "ReservationLost",
            format!(
                "VMID {} is no longer reserved for this claim",
                subject.claim.spec.vmid
            ),
            now,
        ),
    }
}

fn clone_failed(
    subject: &Subject<'_>,
    observed: &Observed,
    failure: Failure,
    text: &str,
    now: Timestamp,
) -> Step {
    match observed.presence {
        None => return unread(observed, "whether the VMID is free", now),
        Some(Presence::Taken) => {
            if failure == Failure::VmidTaken && first_and_only(subject, observed) {
                return match &observed.machine {
                    Some(MachineLook::Visible(machine)) if !is_another(subject, machine) => {
                        read_back(subject, observed, now)
                    }
                    Some(MachineLook::Visible(_) | MachineLook::Invisible) => {
                        taken_by_another(subject, now)
                    }
                    Some(MachineLook::Unreachable(_)) | None => {
                        unread(observed, "the VM of our VMID", now)
                    }
                };
            }
            return read_back(subject, observed, now);
        }
        Some(Presence::Free) => {}
    }
    let hypervisor = &subject.claim.spec.hypervisor;
    let message = format!("cloning on {hypervisor} failed: {text}");
    match failure {
        // Its task has found what no list shows. With this number it would find it again.
        Failure::VmidTaken if subject.status().upid.is_some() => {
            fail(Condition::Launched, VMID_TAKEN, message, now)
        }
        Failure::Elsewhere
        | Failure::Outdated
        | Failure::NumberSpoilt
        | Failure::GiveUp
        | Failure::Everywhere => fail(Condition::Launched, failure.as_str(), message, now),
        Failure::Retry | Failure::StorageBusy | Failure::VmidTaken | Failure::Freeze => {
            if now >= subject.provision_deadline() {
                return fail(Condition::Launched, failure.as_str(), message, now);
            }
            let kind = Condition::Launched;
            again(subject)
                .condition(kind, false, CLONE_FAILED, &*message, now)
                .record_and_back_off(later(now, pause(subject)), message)
        }
    }
}

/// Before the next try, longer with each one.
fn pause(subject: &Subject<'_>) -> SignedDuration {
    SignedDuration::from_secs(5 * i64::from(attempt(subject).clamp(1, 12)))
}

/// This process wrote the first intent a moment ago and has not asked for a clone yet. So a VM with this VMID is not
/// our clone.
fn nobody_has_asked(subject: &Subject<'_>, observed: &Observed) -> bool {
    observed.has_just_recorded() && attempt(subject) == 1 && subject.status().upid.is_none()
}

/// Only this process can have asked for this clone, and only once. So if Proxmox refuses because the VMID exists, our
/// clone was never made.
fn first_and_only(subject: &Subject<'_>, observed: &Observed) -> bool {
    attempt(subject) == 1 && (observed.own_intent || subject.status().upid.is_some())
}

fn attempt(subject: &Subject<'_>) -> u32 {
    let intent = subject.status().intent.as_ref();
    intent.map_or(0, |intent| intent.attempt)
}

fn again(subject: &Subject<'_>) -> StatusChange {
    let mut change = StatusChange::default().intent(Op::Clone, attempt(subject).saturating_add(1));
    change.upid = Change::Clear;
    // Without its nonce a claim could never prove that the machine is its own.
    change.fresh_nonce = subject.status().nonce.is_none();
    change
}

/// A VM of our VMID exists: is it our clone, and is it finished?
fn read_back(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    let expired = now >= subject.provision_deadline();
    // A task that has just ended well may have taken longer than that.
    let is_made = matches!(observed.task, Some(Outcome::Done | Outcome::Warnings(_)));
    let given_up = expired && !(is_made && now < subject.clone_deadline());
    let machine = match &observed.machine {
        Some(MachineLook::Visible(machine)) => machine,
        // Proxmox adds a clone to its pool last. Until then kproxide's token cannot see it.
        Some(MachineLook::Invisible) if given_up => {
            return stuck(
                subject,
                STUCK_LOCKED,
                "a VM that kproxide's token cannot see has this VMID: an interrupted clone, or another user's VM. Look at it as root@pam",
                now,
            );
        }
        Some(MachineLook::Invisible) => {
            return Step::back_off(later(now, SHORTLY), "the clone is not visible yet");
        }
        Some(MachineLook::Unreachable(why)) if given_up => {
            return too_late(subject, why, now);
        }
        Some(MachineLook::Unreachable(why)) => return soon(now, why.clone()),
        None => return unread(observed, "the VM of our VMID", now),
    };
    if is_another(subject, machine) {
        return taken_by_another(subject, now);
    }
    if let Some(lock) = &machine.lock {
        if !expired {
            return Step::back_off(later(now, SHORTLY), format!("the VM is locked ({lock})"));
        }
        if !matches!(&**lock, "clone" | "create") {
            return too_late(subject, "the clone", now);
        }
        let is_marked = matches!(machine.marker, Marker::Ours | Marker::Tombstoned);
        return if is_marked || subject.status().upid.is_some() {
            stuck(
                subject,
                CLONE_INTERRUPTED,
                "the clone was interrupted and left a locked VM. Only root@pam can remove it: `qm unlock`, `qm destroy`, and `pvesm list` for disks that are left",
                now,
            )
        } else {
            stuck(
                subject,
                STUCK_LOCKED,
                "a locked VM has this VMID, and nothing shows that it is kproxide's. Find out whose it is before you unlock or remove it",
                now,
            )
        };
    }
    if machine.marker == Marker::Tombstoned {
        return fail(
            Condition::Launched,
            "Condemned",
            "the clone is marked as condemned already".to_owned(),
            now,
        );
    }
    match prove(subject, machine, Made::Cloned) {
        // Proxmox adds the pool last.
        Err(mismatch) if !given_up => Step::back_off(
            later(now, SHORTLY),
            format!("the clone is not complete: {mismatch}"),
        ),
        Err(mismatch) => fail(
            Condition::Launched,
            "CloneIncomplete",
            format!("the clone was not completed: {mismatch}"),
            now,
        ),
        Ok(_) => match &machine.smbios_uuid {
            Some(uuid) => {
                let mut change = StatusChange::default()
                    .intent(Op::Configure, 1)
                    .condition(Condition::Launched, false, CLONED, "", now);
                change.upid = Change::Clear;
                change.smbios_uuid = Some(uuid.clone());
                change.disks = Some(machine.disks.clone());
                change.hypervisor = Some(machine.hypervisor.clone());
                change.record()
            }
            None => fail(
                Condition::Launched,
                "NoSmbiosUuid",
                "the clone has no SMBIOS UUID, so kproxide could not recognize its Node. Give the template one (`smbios1`)"
                    .to_owned(),
                now,
            ),
        },
    }
}

fn stuck(subject: &Subject<'_>, reason: &'static str, what: &str, now: Timestamp) -> Step {
    let message = format!("{}: {what}", subject.claim.spec.vmid);
    failed_launch(Condition::Launched, STUCK_LOCKED, &message, now)
        .condition(Condition::StuckLocked, true, reason, message.clone(), now)
        .warn("StuckLocked", message)
        .record()
}
