//! Up, first half: clone, read back, configure, grow, start.

use jiff::{SignedDuration, Timestamp};

use super::next::{failed, not_visible, proven_absent, refuse, settled, soon, unread};
use super::observed::{
    Did, EntryLook, Failure, MachineLook, Marker, Observed, Outcome, Power, Presence,
};
use super::ownership::{Disks, is_another, prove};
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use super::{Condition, Op, Phase};
use crate::ledger::later;

/// The reason of `Launched=False` when our VM was certainly never made: its VMID belongs to another one.
pub(super) const VMID_TAKEN: &str = "VmidTaken";

/// A clone that has just been asked for may take a moment to show.
const SHORTLY: SignedDuration = SignedDuration::from_secs(2);

/// Nothing was asked of Proxmox: write down that it is about to be.
pub(super) fn pending(subject: &Subject<'_>, now: Timestamp) -> Step {
    if !subject.claim.has_finalizer {
        return Step::wait(
            None,
            "the claim has no finalizer, so its machine could be leaked: delete it",
        );
    }
    let mut change = StatusChange::default()
        .phase(Phase::Launching)
        .intent(Op::Clone, 1)
        .condition(Condition::Reserved, true, "Reserved", "", now);
    change.fresh_nonce = true;
    change.record()
}

pub(super) fn launching(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    match subject.status().intent.as_ref().map(|intent| intent.op) {
        None | Some(Op::Clone) => clone(subject, observed, now),
        Some(
            Op::Configure
            | Op::Resize
            | Op::Start
            | Op::Join
            | Op::Evict
            | Op::Shutdown
            | Op::Stop
            | Op::Tombstone
            | Op::Destroy,
        ) => prepare(subject, observed, now),
    }
}

/// The launch has failed: the claim is closed, and the next tick makes another one.
pub(super) fn fail(kind: Condition, class: &str, message: String, now: Timestamp) -> Step {
    let mut change = StatusChange::default()
        .phase(Phase::Draining)
        .condition(kind, false, class, message.clone(), now)
        .condition(
            Condition::Drained,
            false,
            "LaunchFailed",
            message.clone(),
            now,
        )
        .warn("FailedToScaleUp", message);
    change.draining_since = Change::Set(now);
    change.record()
}

/// The intent to clone stands. Whether the clone was asked for, and what became of it, is seen from the task and from the VMID.
fn clone(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if subject.status().upid.is_some() {
        return match &observed.task {
            None => unread(observed, "the clone's task", now),
            Some(Outcome::Running(upid)) => {
                if now >= subject.provision_deadline() {
                    return too_late(subject, "the clone", now);
                }
                Step::Follow {
                    upid: upid.clone(),
                    did: Did::Clone,
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
    match observed.last.as_ref().filter(|last| last.did == Did::Clone) {
        Some(last) => match &last.outcome {
            Outcome::Running(upid) => {
                let change = StatusChange {
                    upid: Change::Set(upid.clone()),
                    ..StatusChange::default()
                };
                change.record()
            }
            Outcome::Failed { failure, text } => {
                clone_failed(subject, observed, *failure, text, now)
            }
            Outcome::Unknown(text) => Step::back_off(
                later(now, SHORTLY),
                format!("whether the clone was begun is not known ({text})"),
            ),
            Outcome::Done | Outcome::Warnings(_) | Outcome::Evicted { .. } => {
                cloned(subject, observed, now)
            }
        },
        None => cloned(subject, observed, now),
    }
}

/// No task is under way that we know of: the VMID tells how far the clone came.
fn cloned(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    match observed.presence {
        None => unread(observed, "whether the VMID is free", now),
        Some(Presence::Free) => ask_for_clone(subject, observed, now),
        Some(Presence::Taken) => read_back(subject, observed, now),
    }
}

/// The VMID is free. The clone is asked for directly after its intent was written, and never on an older intent: another leader, or
/// ourselves before a crash, may have asked for that one.
fn ask_for_clone(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if now >= subject.provision_deadline() {
        return too_late(subject, "the clone", now);
    }
    let just_written = observed
        .last
        .as_ref()
        .is_some_and(|last| last.did == Did::Record);
    if !just_written {
        return again(subject).record();
    }
    match observed.entry {
        None => unread(observed, "the Ledger", now),
        Some(EntryLook::Ours) => Step::Clone,
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
        Failure::Elsewhere | Failure::GiveUp => {
            fail(Condition::Launched, failure.as_str(), message, now)
        }
        Failure::Retry | Failure::VmidTaken | Failure::Freeze => {
            if now >= subject.provision_deadline() {
                return fail(Condition::Launched, failure.as_str(), message, now);
            }
            let attempt = attempt(subject);
            let pause = SignedDuration::from_secs(5 * i64::from(attempt.min(12)));
            again(subject).record_and_back_off(later(now, pause), message)
        }
    }
}

/// Nobody can have asked for this clone but ourselves, once: a refusal because of the VMID means that ours was never made.
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
    // A claim that has lost its nonce could never prove its machine.
    change.fresh_nonce = subject.status().nonce.is_none();
    change
}

/// A VM of our VMID exists: is it our clone, and is it finished?
fn read_back(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    let expired = now >= subject.provision_deadline();
    let machine = match &observed.machine {
        Some(MachineLook::Visible(machine)) => machine,
        // Proxmox: a clone joins its pool last; before that our token does not see it.
        Some(MachineLook::Invisible) if expired => {
            return stuck(
                subject,
                "VMID is taken by a VM that our credentials do not show: an interrupted clone, or somebody else's",
                now,
            );
        }
        Some(MachineLook::Invisible) => {
            return Step::back_off(later(now, SHORTLY), "the clone is not visible yet");
        }
        Some(MachineLook::Unreachable(why)) if expired => {
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
        return if matches!(&**lock, "clone" | "create") {
            stuck(
                subject,
                "clone was interrupted and left a locked VM that only root@pam can unlock or remove (`qm unlock`, `qm destroy`)",
                now,
            )
        } else {
            too_late(subject, "the clone", now)
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
    match prove(subject, machine, Disks::Unrecorded) {
        // The pool is added last.
        Err(mismatch) if !expired => Step::back_off(
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
                let mut change = StatusChange::default().intent(Op::Configure, 1);
                change.upid = Change::Clear;
                change.smbios_uuid = Some(uuid.clone());
                change.disks = Some(machine.disks.clone());
                change.hypervisor = Some(machine.hypervisor.clone());
                change.record()
            }
            None => fail(
                Condition::Launched,
                "NoSmbiosUuid",
                "the clone has no SMBIOS UUID, so its Node could not be recognized: give the template one (`smbios1`)"
                    .to_owned(),
                now,
            ),
        },
    }
}

fn taken_by_another(subject: &Subject<'_>, now: Timestamp) -> Step {
    fail(
        Condition::Launched,
        VMID_TAKEN,
        format!(
            "VMID {} belongs to another VM, which is left alone",
            subject.claim.spec.vmid
        ),
        now,
    )
}

fn stuck(subject: &Subject<'_>, what: &str, now: Timestamp) -> Step {
    let message = format!("{}: {what}", subject.claim.spec.vmid);
    let mut change = StatusChange::default()
        .phase(Phase::Draining)
        .condition(
            Condition::Launched,
            false,
            "StuckLocked",
            message.clone(),
            now,
        )
        .condition(
            Condition::StuckLocked,
            true,
            "StuckLocked",
            message.clone(),
            now,
        )
        .condition(
            Condition::Drained,
            false,
            "LaunchFailed",
            message.clone(),
            now,
        )
        .warn("StuckLocked", message);
    change.draining_since = Change::Set(now);
    change.record()
}

fn too_late(subject: &Subject<'_>, what: &str, now: Timestamp) -> Step {
    fail(
        Condition::Launched,
        "ProvisionTimeout",
        format!(
            "not running on {} within {:#}, still waiting for {what}",
            subject.claim.spec.hypervisor, subject.settings.timeouts.provision
        ),
        now,
    )
}

/// The clone is ours and complete: make it what the claim asks for, and start it.
fn prepare(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    let machine = match &observed.machine {
        Some(MachineLook::Visible(machine)) => machine,
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => {
            if proven_absent(observed) {
                return fail(
                    Condition::Launched,
                    "Lost",
                    format!("VM {} disappeared", subject.claim.spec.vmid),
                    now,
                );
            }
            if now >= subject.provision_deadline() {
                return too_late(subject, "the VM to be visible", now);
            }
            return not_visible(subject, observed, now);
        }
    };
    if is_another(subject, machine) {
        return taken_by_another(subject, now);
    }
    let proven = match prove(subject, machine, Disks::Recorded) {
        Ok(proven) => proven,
        Err(mismatch) => return refuse(subject, &mismatch, now),
    };
    if let Some(step) = settled(
        subject,
        &[Condition::OwnershipMismatch, Condition::ProtectedVM],
        now,
    ) {
        return step;
    }
    if machine.power == Power::On {
        return started(now);
    }
    if let Some(step) = outcome(subject, observed, now) {
        return step;
    }
    if now >= subject.provision_deadline() {
        return too_late(subject, "its start", now);
    }
    if let Some(lock) = &machine.lock {
        return soon(now, format!("the VM is locked ({lock})"));
    }
    let intent = subject.status().intent.as_ref().map(|intent| intent.op);
    // Writing a configuration twice does no harm; the next intent says that it was written.
    let configured = observed
        .last
        .as_ref()
        .is_some_and(|last| last.did == Did::Configure && last.outcome == Outcome::Done);
    if intent == Some(Op::Configure) && !configured {
        return Step::Configure(proven);
    }
    if let Some(bytes) = machine.grow_to {
        return if intent == Some(Op::Resize) {
            Step::Resize(proven, bytes)
        } else {
            StatusChange::default().intent(Op::Resize, 1).record()
        };
    }
    if intent == Some(Op::Start) {
        Step::Start(proven)
    } else {
        StatusChange::default().intent(Op::Start, 1).record()
    }
}

/// What came of the last configuration, resize or start, if that decides what follows.
fn outcome(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Option<Step> {
    let last = observed.last.as_ref()?;
    if let Outcome::Running(upid) = &last.outcome {
        return Some(Step::Follow {
            upid: upid.clone(),
            did: last.did,
        });
    }
    if last.did == Did::Start && last.outcome == Outcome::Done {
        return Some(soon(now, "the VM was started and does not run"));
    }
    let (failure, text) = failed(Some(last))?;
    let doing = match last.did {
        Did::Configure => "configuring",
        Did::Resize => "growing the disk of",
        Did::Start => "starting",
        Did::Record
        | Did::Clone
        | Did::Join
        | Did::PatchNode
        | Did::Cordon
        | Did::Uncordon
        | Did::Evict
        | Did::DeleteClaim
        | Did::Tombstone
        | Did::Shutdown
        | Did::Stop
        | Did::Destroy
        | Did::DeleteNode
        | Did::Quarantine
        | Did::RemoveFinalizer => return None,
    };
    let message = format!("{doing} VM {} failed: {text}", subject.claim.spec.vmid);
    let late = now >= subject.provision_deadline();
    Some(match failure {
        Failure::Elsewhere | Failure::GiveUp => {
            fail(Condition::Launched, failure.as_str(), message, now)
        }
        Failure::Retry | Failure::VmidTaken | Failure::Freeze if late => {
            fail(Condition::Launched, failure.as_str(), message, now)
        }
        Failure::Retry | Failure::VmidTaken | Failure::Freeze => soon(now, message),
    })
}

fn started(now: Timestamp) -> Step {
    let mut change = StatusChange::default()
        .phase(Phase::Launched)
        .condition(Condition::Launched, true, "Started", "", now)
        .say("Launched", "the VM was started; its Node is awaited");
    change.intent = Change::Clear;
    change.upid = Change::Clear;
    change.started_at = Some(now);
    change.record()
}
