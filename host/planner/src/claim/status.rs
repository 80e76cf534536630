//! What follows from a claim's conditions.

use jiff::{SignedDuration, Timestamp};

use crate::facts::{ClaimStatus, Condition, GIVEN_UP, RemovalReason};
use crate::time::later;

impl ClaimStatus {
    /// Its last drain was given up: when kproxide may try again. It waits as long as the drains have taken so far, at
    /// least a minute and at most an hour.
    pub fn rests_until(&self) -> Option<Timestamp> {
        let given_up = |kind| {
            self.conditions
                .iter()
                .find(|c| c.kind == kind && !c.status && c.reason == GIVEN_UP)
        };
        let ended = given_up(Condition::Unneeded)?.since;
        // After several failed drains in a row, `since` is the time of the first.
        let began = given_up(Condition::Drained).map_or(ended, |drained| drained.since);
        let pause = ended.duration_since(began);
        Some(later(
            ended,
            pause.clamp(SignedDuration::from_mins(1), SignedDuration::from_hours(1)),
        ))
    }

    /// The reason that was written down when the removal began.
    pub(crate) fn removal(&self) -> Option<RemovalReason> {
        self.conditions
            .iter()
            .filter(|condition| {
                matches!(
                    condition.kind,
                    Condition::Drained
                        | Condition::InstanceTerminating
                        | Condition::VolumesDetached
                )
            })
            .find_map(|condition| RemovalReason::from_word(&condition.reason))
    }

    /// Its Node should be in service, but is not.
    pub fn is_overdue(&self) -> bool {
        self.conditions
            .iter()
            .any(|c| matches!(c.kind, Condition::Registered | Condition::Initialized) && !c.status)
    }

    /// Why kproxide leaves the VM alone: it is not provably the claim's, or it is protected.
    pub fn refusal(&self) -> Option<&str> {
        self.conditions
            .iter()
            .filter(|c| {
                matches!(
                    c.kind,
                    Condition::OwnershipMismatch | Condition::ProtectedVM
                )
            })
            .find(|c| c.status)
            .map(|c| &*c.message)
    }
}
