//! Answers that every phase gives: wait, look again, refuse, ask for a human.

use jiff::{SignedDuration, Timestamp};

use super::observed::{Attempted, Failure, MachineLook, Observed, Outcome, Presence};
use super::ownership::Mismatch;
use super::step::{StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Condition, Op};
use crate::ids::NodeName;
use crate::time::later;

/// How long to wait for something that passes by itself: a lock, a refusal, a cluster without quorum.
pub(super) const SOON: SignedDuration = SignedDuration::from_secs(5);
/// How long to wait for something that needs a person.
pub(super) const LATER: SignedDuration = SignedDuration::from_secs(60);

/// Look again after [`SOON`].
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
    observed.presence == Some(Presence::Free) && observed.quorate == Some(true)
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

/// kproxide does nothing to a VM that is not provably ours, or that a person has protected. A condition and an Event
/// say so once.
pub(super) fn refuse(subject: &Subject<'_>, mismatch: &Mismatch, now: Timestamp) -> Step {
    let (kind, event) = match matches!(mismatch, Mismatch::Protected | Mismatch::Snapshot(_)) {
        true => (Condition::ProtectedVM, "ProtectedVM"),
        false => (Condition::OwnershipMismatch, "OwnershipMismatch"),
    };
    let message = format!(
        "VM {} is left alone: {mismatch}; {}",
        subject.claim.spec.vmid,
        mismatch.remedy()
    );
    ask_for_a_human(subject, (kind, event), "Refused", message, now)
}

pub(super) fn several(subject: &Subject<'_>, names: &[NodeName], now: Timestamp) -> Step {
    let names: Vec<_> = names.iter().map(NodeName::as_str).collect();
    refuse(subject, &Mismatch::SeveralNodes(names.join(", ")), now)
}

/// Sets a condition that asks for a person, sends one Event, and looks again later.
pub(super) fn ask_for_a_human(
    subject: &Subject<'_>,
    (kind, event): (Condition, &'static str),
    reason: &'static str,
    message: String,
    now: Timestamp,
) -> Step {
    let mut conditions = subject.status().conditions.iter();
    if conditions.any(|c| c.kind == kind && c.status && c.message == message) {
        return Step::back_off(later(now, LATER), message);
    }
    StatusChange::default()
        .condition(kind, true, reason, message.clone(), now)
        .warn(event, message.clone())
        .record_and_back_off(later(now, LATER), message)
}

/// Sets conditions that asked for a person to False, once their cause is gone.
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

/// The task of the last step is under way.
pub(super) fn follow(last: &Attempted) -> Option<Step> {
    match (&last.outcome, last.op) {
        (Outcome::Running(upid), Some(op)) => Some(Step::Follow {
            upid: upid.clone(),
            op,
        }),
        (_, _) => None,
    }
}

/// What was last done to the VM has failed; says what, and why.
pub(super) fn failed_on_vm(subject: &Subject<'_>, last: &Attempted) -> Option<(Failure, String)> {
    let doing = last.op.and_then(Op::doing)?;
    let (failure, text) = failed(Some(last))?;
    let vmid = subject.claim.spec.vmid;
    Some((failure, format!("{doing} VM {vmid} failed: {text}")))
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
