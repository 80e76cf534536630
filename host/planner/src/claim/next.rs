//! The decision: one step for one claim, from the claim and one observation.

use jiff::{SignedDuration, Timestamp};

use super::observed::{
    Attempted, ClaimLook, Did, Failure, MachineLook, Observed, Outcome, Presence,
};
use super::ownership::Mismatch;
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use super::{Condition, Phase, drain, launch, orphan, register, service, terminate};
use crate::mutants::{Mutant, broken};
use crate::plan::{RemovalReason, Verdict};
use crate::time::later;

/// How long to leave something alone that will pass by itself: a lock, a refusal, a cluster without quorum.
pub(super) const SOON: SignedDuration = SignedDuration::from_secs(5);
/// How long to leave something alone that needs a human.
pub(super) const LATER: SignedDuration = SignedDuration::from_secs(60);

/// Why a deleted claim is left alone.
const SWEPT_AWAY: &str = "Kubernetes deletes this claim because its CustomResourceDefinition is deleted: its machine stays";

/// What to do now. Total and pure: the same input gives the same step, and no input is refused.
///
/// What could not be read is waited for; nothing is concluded from its absence.
pub fn next(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if observed.claim == ClaimLook::Gone {
        return Step::Done;
    }
    if let Some(step) = new_task(subject, observed) {
        return step;
    }
    match observed.claim {
        ClaimLook::Gone | ClaimLook::Here => {}
        ClaimLook::SweptAway => return soon(now, SWEPT_AWAY),
        ClaimLook::Unclear => {
            return unread(observed, "the CustomResourceDefinition of claims", now);
        }
    }
    if subject.deleting() && !subject.claim.has_finalizer {
        return Step::Done;
    }
    if let Verdict::Hold(why) = subject.verdict {
        return Step::wait(None, why.clone());
    }
    // Whatever is to become of it: a machine that was there before its claim is written down first.
    if let (Phase::Pending, Some(adopts)) = (subject.status().phase, &subject.claim.spec.adopts) {
        return orphan::pending(subject, observed, adopts, now);
    }
    match subject.status().phase {
        Phase::Terminating => terminate::next(subject, observed, now),
        Phase::Draining => drain::next(subject, observed, now),
        phase @ (Phase::Pending
        | Phase::Launching
        | Phase::Launched
        | Phase::Registered
        | Phase::Initialized) => {
            if phase == Phase::Initialized && awaits_plan(subject) {
                return Step::wait(None, "deleted: it goes when a plan has counted it");
            }
            if let Some(reason) = to_be_removed(subject) {
                return drain::begin(subject, observed, reason, now);
            }
            match phase {
                Phase::Pending => launch::pending(subject, observed, now),
                Phase::Launching => launch::launching(subject, observed, now),
                Phase::Launched => register::launched(subject, observed, now),
                Phase::Registered => register::registered(subject, observed, now),
                Phase::Initialized | Phase::Draining | Phase::Terminating => {
                    service::initialized(subject, observed, now)
                }
            }
        }
    }
}

/// A task has begun whose name is known only here. Whatever becomes of the claim, it is written down before anything else: without it nobody knows that a clone
/// goes on, or what a destroy warned of.
fn new_task(subject: &Subject<'_>, observed: &Observed) -> Option<Step> {
    let Attempted { did, outcome } = observed.last.as_ref()?;
    let (Did::Clone | Did::Destroy, Outcome::Running(upid)) = (did, outcome) else {
        return None;
    };
    // Who is held from the beginning has begun none, and who has no finalizer is gone.
    let is_held = matches!(subject.verdict, Verdict::Hold(_));
    let is_gone = subject.deleting() && !subject.claim.has_finalizer;
    let change = StatusChange {
        upid: Change::Set(upid.clone()),
        ..StatusChange::default()
    };
    let is_new = subject.status().upid.is_none();
    (is_new && !is_held && !is_gone).then(|| change.record())
}

/// Its claim was deleted after the plan was made. It may be one of many: the breaker has to count it first, and the plan to see whether most go at once.
fn awaits_plan(subject: &Subject<'_>) -> bool {
    subject.deleting()
        && match subject.verdict {
            Verdict::Remove(_) => false,
            Verdict::Keep | Verdict::GiveUp(_) | Verdict::Hold(_) => true,
        }
}

/// A lost VM is not taken from the verdict: the inventory can be wrong, so it is looked at in [`service`].
fn to_be_removed(subject: &Subject<'_>) -> Option<RemovalReason> {
    if subject.deleting() {
        return Some(RemovalReason::Deleted);
    }
    match subject.verdict {
        // The plan would rather have it elsewhere, and did not know that its clone has been asked for meanwhile.
        Verdict::Remove(RemovalReason::LaunchFailed)
            if subject.status().phase != Phase::Pending =>
        {
            None
        }
        Verdict::Remove(RemovalReason::Lost)
        | Verdict::Keep
        | Verdict::GiveUp(_)
        | Verdict::Hold(_) => None,
        Verdict::Remove(
            reason @ (RemovalReason::Empty
            | RemovalReason::Underutilized
            | RemovalReason::Replace
            | RemovalReason::Repair
            | RemovalReason::LaunchFailed
            | RemovalReason::Deleted),
        ) => Some(*reason),
    }
}

/// Look again when it may have passed.
pub(super) fn soon(now: Timestamp, why: impl Into<String>) -> Step {
    Step::back_off(later(now, SOON), why)
}

/// Something that was needed could not be read.
pub(super) fn unread(observed: &Observed, what: &str, now: Timestamp) -> Step {
    let why = if observed.unread.is_empty() {
        format!("{what} could not be read")
    } else {
        format!("{what} could not be read: {}", observed.unread.join("; "))
    };
    soon(now, why)
}

/// Without quorum a cluster refuses every write.
pub(super) fn no_quorum(observed: &Observed, now: Timestamp) -> Option<Step> {
    (observed.quorate == Some(false)).then(|| soon(now, "the Proxmox cluster has no quorum"))
}

/// The VM of our VMID certainly does not exist: its cluster says so with quorum.
pub(super) fn proven_absent(observed: &Observed) -> bool {
    observed.presence == Some(Presence::Free)
        && (observed.quorate == Some(true) || broken(Mutant::QuorumIgnored))
}

/// The machine is not visible, and it is not proven absent: what to wait for.
pub(super) fn not_visible(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    match (&observed.machine, observed.presence, observed.quorate) {
        (Some(MachineLook::Unreachable(why)), _, _) => soon(now, why.clone()),
        (_, _, Some(false)) => soon(now, "the Proxmox cluster has no quorum"),
        (Some(MachineLook::Invisible), Some(Presence::Taken), Some(true)) => {
            refuse(subject, &Mismatch::Invisible, now)
        }
        (
            Some(MachineLook::Visible(_) | MachineLook::Invisible) | None,
            None | Some(Presence::Free | Presence::Taken),
            None | Some(true),
        ) => unread(observed, "the machine", now),
    }
}

/// Nothing is done to a VM that is not provably ours, or that a human protects: a condition and an Event say so once.
pub(super) fn refuse(subject: &Subject<'_>, mismatch: &Mismatch, now: Timestamp) -> Step {
    let kind = match mismatch {
        Mismatch::Protected | Mismatch::Snapshot(_) => Condition::ProtectedVM,
        Mismatch::Marker(_)
        | Mismatch::Name(_)
        | Mismatch::Pool(_)
        | Mismatch::SmbiosUuid(_)
        | Mismatch::OutOfRange
        | Mismatch::Template
        | Mismatch::HaManaged
        | Mismatch::UnknownDisks(_)
        | Mismatch::Invisible
        | Mismatch::SeveralNodes(_) => Condition::OwnershipMismatch,
    };
    let message = format!(
        "VM {} is left alone: {mismatch}; {}",
        subject.claim.spec.vmid,
        mismatch.remedy()
    );
    ask_for_a_human(subject, kind, "Refused", message, now)
}

/// Sets a condition that asks for a human, says so once, and looks again later.
pub(super) fn ask_for_a_human(
    subject: &Subject<'_>,
    kind: Condition,
    reason: &'static str,
    message: String,
    now: Timestamp,
) -> Step {
    let said = subject
        .status()
        .conditions
        .iter()
        .any(|c| c.kind == kind && c.status && c.message == message);
    if said {
        return Step::back_off(later(now, LATER), message);
    }
    StatusChange::default()
        .condition(kind, true, reason, message.clone(), now)
        .warn(
            match kind {
                Condition::ProtectedVM => "ProtectedVM",
                Condition::StuckLocked => "StuckLocked",
                Condition::Reserved
                | Condition::Launched
                | Condition::Registered
                | Condition::Initialized
                | Condition::Unneeded
                | Condition::NodeMissing
                | Condition::Drained
                | Condition::VolumesDetached
                | Condition::InstanceTerminating
                | Condition::OwnershipMismatch => "OwnershipMismatch",
            },
            message.clone(),
        )
        .record_and_back_off(later(now, LATER), message)
}

/// Conditions that asked for a human and no longer hold: the record that takes them back.
pub(super) fn settled(subject: &Subject<'_>, kinds: &[Condition], now: Timestamp) -> Option<Step> {
    let standing: Vec<_> = kinds
        .iter()
        .filter(|kind| subject.status().since(**kind).is_some())
        .collect();
    if standing.is_empty() {
        return None;
    }
    let change = standing
        .into_iter()
        .fold(StatusChange::default(), |change, kind| {
            change.condition(*kind, false, "Settled", "", now)
        });
    Some(change.record())
}

/// The text of a failed or unknown outcome of the last step.
pub(super) fn failed(last: Option<&Attempted>) -> Option<(Failure, &str)> {
    match &last?.outcome {
        Outcome::Failed { failure, text } => Some((*failure, text)),
        Outcome::Unknown(text) => Some((Failure::Retry, text)),
        Outcome::Done | Outcome::Warnings(_) | Outcome::Running(_) | Outcome::Evicted { .. } => {
            None
        }
    }
}
