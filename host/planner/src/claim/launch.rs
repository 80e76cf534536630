//! Up, first half: clone, read back, configure, grow, start.

use jiff::Timestamp;

use super::answers::{
    SOON, failed_on_vm, follow, not_visible, proven_absent, refuse, settled, soon, unread,
};
use super::clone::clone;
use super::effect::Effect;
use super::failing::{fail, taken_by_another, too_late};
use super::observed::{Failure, MachineLook, Observed, Outcome, Power, Presence};
use super::ownership::{Made, is_another, prove};
use super::power::{pause, starts};
use super::reasons::{PREPARE_FAILED, START_FAILED};
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Condition, Op, Phase};
use crate::time::later;

/// Starts of a new VM before its launch has failed.
const STARTS_MAX: u32 = 5;

/// kproxide has asked Proxmox for nothing yet: write the first intent. But first check that the VMID is free. With
/// least-privilege credentials kproxide cannot see other users' VMs. Once the intent is written, another user's VM with
/// this VMID would look like our own interrupted clone.
pub(super) fn pending(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if !subject.claim.has_finalizer {
        return Step::wait(
            None,
            "the NodeClaim has no finalizer, so kproxide could lose its machine. Delete the NodeClaim",
        );
    }
    match observed.presence {
        None if now >= subject.provision_deadline() => {
            return too_late(subject, "whether its VMID is free", now);
        }
        None => return unread(observed, "whether the VMID is free", now),
        Some(Presence::Taken) => return taken_by_another(subject, now),
        Some(Presence::Free) => {}
    }
    let mut change = StatusChange::default()
        .phase(Phase::Launching, now)
        .intent(Op::Clone, 1)
        .condition(Condition::Reserved, true, "Reserved", "", now);
    change.fresh_nonce = true;
    change.record()
}

pub(super) fn launching(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    match subject.intent() {
        None | Some(Op::Clone) => clone(subject, observed, now),
        Some(op) => prepare(subject, observed, op, now),
    }
}

/// The clone is ours and complete: configure it as the claim says, and start it.
fn prepare(subject: &Subject<'_>, observed: &Observed, intent: Op, now: Timestamp) -> Step {
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
    // Writing the configuration twice does no harm. The next intent shows that it was written.
    let configured = intent != Op::Configure
        || observed
            .tried(Op::Configure)
            .is_some_and(|last| last.outcome == Outcome::Done);
    let made = if configured {
        Made::Configured
    } else {
        Made::Recorded
    };
    let proven = match prove(subject, machine, made) {
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
    // Proxmox can grow a disk and then fail to write the new size to the configuration. A later resize does not write
    // it either. So a resize that is done is not asked for again, whatever the configuration says.
    let is_grown = intent == Op::Start
        || observed
            .tried(Op::Resize)
            .is_some_and(|last| matches!(last.outcome, Outcome::Done | Outcome::Warnings(_)));
    Step::Do(match machine.grow_to {
        _ if !configured => Effect::Configure(proven),
        Some(bytes) if !is_grown => Effect::Resize(proven, bytes),
        Some(_) | None => Effect::Start(proven),
    })
}

/// The outcome of the last configuration, resize or start, if it decides the next step.
fn outcome(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Option<Step> {
    let last = observed.last.as_ref()?;
    if let Some(step) = follow(last) {
        return Some(step);
    }
    let (failure, message) = match failed_on_vm(subject, last) {
        Some(failed) => failed,
        None if last.op == Some(Op::Start) && last.outcome == Outcome::Done => {
            let vmid = subject.claim.spec.vmid;
            let message = format!("VM {vmid} was started, but it does not run");
            (Failure::Retry, message)
        }
        None => return None,
    };
    let late = now >= subject.provision_deadline();
    if last.op == Some(Op::Start) && failure == Failure::Retry && !late {
        return Some(start_failed(subject, message, now));
    }
    Some(match failure {
        Failure::Elsewhere
        | Failure::Outdated
        | Failure::NumberSpoilt
        | Failure::GiveUp
        | Failure::Everywhere => fail(Condition::Launched, failure.as_str(), message, now),
        Failure::Retry | Failure::StorageBusy | Failure::VmidTaken | Failure::Freeze if late => {
            fail(Condition::Launched, failure.as_str(), message, now)
        }
        Failure::Retry | Failure::StorageBusy | Failure::VmidTaken | Failure::Freeze => {
            prepare_failed(subject, message, now)
        }
    })
}

/// It is tried again, and the claim says why.
fn prepare_failed(subject: &Subject<'_>, message: String, now: Timestamp) -> Step {
    let kind = Condition::Launched;
    let change = StatusChange::default().condition(kind, false, PREPARE_FAILED, &*message, now);
    match change.is_in(subject.status()) {
        true => soon(now, message),
        false => change.record_and_back_off(later(now, SOON), message),
    }
}

/// Each failed start rests longer than the one before it. After a handful the launch has failed: Proxmox keeps a short
/// list of tasks, and kproxide's must not push those of others out of it.
fn start_failed(subject: &Subject<'_>, message: String, now: Timestamp) -> Step {
    let tries = starts(subject);
    if tries >= STARTS_MAX {
        let message = format!("{message} ({tries} tries)");
        return fail(Condition::Launched, START_FAILED, message, now);
    }
    StatusChange::default()
        .intent(Op::Start, tries.saturating_add(1))
        .condition(
            Condition::Launched,
            false,
            START_FAILED,
            message.clone(),
            now,
        )
        .record_and_back_off(later(now, pause(tries)), message)
}

fn started(now: Timestamp) -> Step {
    let mut change = StatusChange::default()
        .phase(Phase::Launched, now)
        .condition(Condition::Launched, true, "Started", "", now)
        .say(
            "Launched",
            "the VM was started. kproxide waits for its Node",
        );
    change.intent = Change::Clear;
    change.upid = Change::Clear;
    change.started_at = Some(now);
    change.record()
}
