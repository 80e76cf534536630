//! What `act` has to read before it asks for the next step. As little as the phase needs, because every claim is looked
//! at in every tick.

use super::begin::is_chosen;
use super::looks::{Looks, Need, machine};
use super::observed::Attempted;
use super::reasons::drained_for;
use super::subject::{GuestHint, Subject};
use super::{overdue, service};
use crate::facts::{Condition, Join, Op, Phase};
use crate::plan::{RemovalReason, Verdict};

/// What the next decision about this claim needs: everything that the operations need which may follow.
pub fn looks(subject: &Subject<'_>, last: Option<&Attempted>) -> Looks {
    match subject.verdict {
        Verdict::Hold(_) => return Looks::default(),
        Verdict::Keep | Verdict::Remove(_) | Verdict::GiveUp(_) => {}
    }
    Looks {
        definition: subject.deleting(),
        tasks: subject.status().phase >= Phase::Draining && may_be_off(subject),
        ..of_phase(subject, last)
    }
}

fn of_phase(subject: &Subject<'_>, last: Option<&Attempted>) -> Looks {
    let status = subject.status();
    match status.phase {
        Phase::Pending if subject.claim.spec.adopts.is_some() => Looks {
            node: true,
            ..machine()
        },
        Phase::Pending => Looks {
            presence: Need::Always,
            ..Looks::default()
        },
        Phase::Launching => match subject.intent() {
            None | Some(Op::Clone) => cloning(subject, last),
            Some(op) => op.needs(),
        },
        Phase::Launched | Phase::Registered | Phase::Initialized => in_service(subject),
        Phase::Draining
            if vm_is_suspect(subject) || is_about_to_be_deleted(subject) || may_be_off(subject) =>
        {
            Op::DeleteClaim.needs().and(machine())
        }
        Phase::Draining => Op::DeleteClaim.needs(),
        Phase::Terminating => Looks {
            task: status.upid.clone(),
            ..Op::Destroy.needs().and(Op::RemoveFinalizer.needs())
        },
    }
}

fn cloning(subject: &Subject<'_>, last: Option<&Attempted>) -> Looks {
    let about_to_clone = last.is_some_and(|attempted| attempted.op.is_none());
    Looks {
        entry: about_to_clone,
        task: subject.status().upid.clone(),
        // A task that cannot be read has certainly ended if the VMID is free.
        quorum: match &subject.status().upid {
            Some(_) => Need::Always,
            None => Need::No,
        },
        ..Op::Clone.needs()
    }
}

fn in_service(subject: &Subject<'_>) -> Looks {
    let status = subject.status();
    let initialized = status.phase == Phase::Initialized;
    let joins_by_guest =
        status.phase == Phase::Launched && subject.settings.join == Join::GuestExec;
    let unsettled = service::restarted(subject);
    let missing = subject.hint.node_changed || status.since(Condition::NodeMissing).is_some();
    let mut looks = Looks {
        pods: !initialized && overdue::is_overdue(subject),
        ..Looks::default()
    };
    if !initialized || unsettled || missing {
        looks = looks.and(Op::PatchNode.needs());
    }
    if joins_by_guest {
        looks = looks.and(Op::Join.needs());
    }
    if status.phase == Phase::Launched && overdue::is_overdue(subject) {
        looks = looks.and(machine());
        looks.evidence = true;
    }
    if vm_is_suspect(subject) || unsettled || ownership_is_asked(subject) {
        looks = looks.and(Op::Start.needs());
    }
    looks
}

/// A voluntary removal begins with the proof of ownership. A refusal stays until a proof has succeeded.
fn ownership_is_asked(subject: &Subject<'_>) -> bool {
    let is_in_service = subject.status().phase == Phase::Initialized;
    service::is_refused(subject) || is_in_service && is_chosen(subject)
}

/// The last moment at which a removal can still be given up.
fn is_about_to_be_deleted(subject: &Subject<'_>) -> bool {
    is_chosen(subject) && subject.status().since(Condition::Drained).is_some()
}

/// Its kubelet may have gone for good, so that only the proof that the machine is off lets its pods end.
fn may_be_off(subject: &Subject<'_>) -> bool {
    let repairs = [RemovalReason::Repair, RemovalReason::NodeDeleted];
    subject.deleting() || repairs.into_iter().any(|why| drained_for(subject, why))
}

/// There is a reason to doubt that the VM runs.
fn vm_is_suspect(subject: &Subject<'_>) -> bool {
    let listed = match subject.hint.guest {
        GuestHint::Stopped | GuestHint::Absent => true,
        GuestHint::Unknown | GuestHint::Running => false,
    };
    listed || *subject.verdict == Verdict::Remove(RemovalReason::Lost)
}
