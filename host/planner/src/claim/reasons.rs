//! Reasons of conditions that a later step reads again.

use super::Condition;
use super::subject::Subject;
use crate::plan::RemovalReason;

/// The reason of `Launched=False` when our VM was certainly never made: its VMID belongs to another one.
pub(super) const VMID_TAKEN: &str = "VmidTaken";

/// The reason of `Launched=False` when what was planned to be cloned is not there any more as it was.
pub(super) const OUTDATED: &str = "Outdated";

/// The reason of `StuckLocked`.
pub(super) const STUCK_LOCKED: &str = "StuckLocked";
/// The same, where the marker or the number of our own task says that the VM is the clone we asked for.
pub(super) const CLONE_INTERRUPTED: &str = "CloneInterrupted";

/// The reason stays on the condition for the whole drain: the planner reads there why it began.
pub(super) fn recorded_word<'a>(subject: &Subject<'a>) -> &'a str {
    let mut conditions = subject.status().conditions.iter();
    conditions
        .find(|c| c.kind == Condition::Drained)
        .map_or("Deleted", |c| &c.reason)
}

pub(super) fn drained_for(subject: &Subject<'_>, reason: RemovalReason) -> bool {
    subject
        .status()
        .conditions
        .iter()
        .any(|c| c.kind == Condition::Drained && c.reason == reason.as_str())
}
