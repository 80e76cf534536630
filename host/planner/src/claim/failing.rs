//! A launch that has failed: its claim is closed, and the next tick makes another one.

use jiff::Timestamp;

use super::reasons::VMID_TAKEN;
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Condition, Phase};
use crate::mutants::{Mutant, broken};

/// The launch has failed: the claim is closed, and the next tick makes another one.
pub(super) fn fail(kind: Condition, class: &str, message: String, now: Timestamp) -> Step {
    failed_launch(kind, class, &message, now)
        .warn("FailedToScaleUpGroup", message)
        .record()
}

/// What every failed launch writes to its claim.
pub(super) fn failed_launch(
    kind: Condition,
    class: &str,
    message: &str,
    now: Timestamp,
) -> StatusChange {
    let mut change = StatusChange::default()
        .phase(Phase::Draining, now)
        .condition(kind, false, class, message, now)
        .condition(Condition::Drained, false, "LaunchFailed", message, now);
    change.draining_since = Change::Set(now);
    change
}

pub(super) fn too_late(subject: &Subject<'_>, what: &str, now: Timestamp) -> Step {
    let mut message = format!(
        "the VM was not running on {} within {:#} (timeouts.provision). kproxide was waiting for {what}",
        subject.claim.spec.hypervisor, subject.settings.timeouts.provision.0
    );
    if let Some(error) = subject.status().start_error() {
        message.push_str(&format!(". The last error: {error}"));
    }
    fail(Condition::Launched, "ProvisionTimeout", message, now)
}

pub(super) fn clone_too_late(subject: &Subject<'_>, now: Timestamp) -> Step {
    let limit = subject.settings.timeouts.clone.0;
    let message = format!(
        "the clone on {} did not end within {limit:#} (timeouts.clone of the NodeClass). If the copy needs longer, raise it",
        subject.claim.spec.hypervisor
    );
    fail(Condition::Launched, "CloneTimeout", message, now)
}

pub(super) fn taken_by_another(subject: &Subject<'_>, now: Timestamp) -> Step {
    let message = format!(
        "VMID {} belongs to another VM. kproxide leaves it alone",
        subject.claim.spec.vmid
    );
    let mut change = failed_launch(Condition::Launched, VMID_TAKEN, &message, now);
    // A mistake: what is cleaned up is marked first, and without a nonce nothing is.
    change.fresh_nonce = broken(Mutant::EexistCleanedUp) && subject.status().nonce.is_none();
    change.warn("FailedToScaleUpGroup", message).record()
}
