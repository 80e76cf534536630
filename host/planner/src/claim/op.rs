//! The operations on a claim and its machine, as a table: each `match` is a column, each operation a row.
//!
//! To add one, add a variant to [`Op`] and to [`super::effect::Effect`], a row to each `match` here, its call in `act`, and the phase
//! that asks for it.

use jiff::Timestamp;

use super::answers::{no_quorum, soon};
use super::looks::{Looks, Need, machine};
use super::observed::{MachineLook, Observed};
use super::step::{StatusChange, Step};
use super::subject::Subject;

use Op::*;

use crate::facts::Op;

impl Op {
    /// What has to be observed before it.
    pub(super) fn needs(self) -> Looks {
        let mut needs = Looks::default();
        match self {
            // If a VM has the VMID, it matters whose it is.
            Clone => {
                needs.presence = Need::Always;
                needs.machine = Need::IfNeeded;
            }
            Configure | Resize | Start | Shutdown | Stop | Tombstone | Destroy => needs = machine(),
            Join => {
                needs = machine();
                needs.join = true;
            }
            PatchNode | Cordon | Uncordon | DeleteNode => needs.node = true,
            OutOfService => {
                needs = machine();
                needs.node = true;
            }
            Evict => (needs.node, needs.pods) = (true, true),
            DeleteClaim => {
                (needs.node, needs.pods, needs.attachments) = (true, true, true);
            }
            Quarantine | RemoveFinalizer => {
                needs = machine();
                (needs.entry, needs.node, needs.quorum) = (true, true, Need::Always);
            }
        }
        needs
    }

    /// kproxide writes its intent first, and keeps it until the operation is done.
    fn is_intended(self) -> bool {
        match self {
            Configure | Resize | Start | Join | Shutdown | Stop | Tombstone | Destroy => true,
            // `clone` writes a new intent for each try. `empty` writes one for evictions only in a repair, which can
            // still be given up.
            Clone | Evict => false,
            PatchNode | Cordon | Uncordon | OutOfService | DeleteClaim | DeleteNode
            | Quarantine | RemoveFinalizer => false,
        }
    }

    /// Only its task tells how it ends. So kproxide writes the task down before anything else, and if the answer is
    /// lost the outcome is uncertain. The outcome of the others shows when kproxide looks again, so that a lost answer
    /// counts as a failure.
    pub fn is_uncertain_after_loss(self) -> bool {
        match self {
            Clone | Destroy => true,
            Configure | Resize | Start | Join | Evict | Shutdown | Stop | Tombstone | PatchNode
            | Cordon | Uncordon | OutOfService | DeleteClaim | DeleteNode | Quarantine
            | RemoveFinalizer => false,
        }
    }

    /// What it waits for, in addition to what its phase says: that a lock goes and quorum comes (Proxmox would refuse
    /// it otherwise), and that the cold start is over (if it cannot be undone).
    pub(super) fn held(
        self,
        subject: &Subject<'_>,
        observed: &Observed,
        now: Timestamp,
    ) -> Option<Step> {
        match self {
            Configure | Resize | Start => {
                locked(observed, now).or_else(|| no_quorum(observed, now))
            }
            Tombstone | Shutdown | Stop | Destroy => {
                let why = "kproxide destroys it once --cold-start is over";
                (!subject.armed(now)).then(|| Step::wait(subject.settings.armed_at, why))
            }
            Clone | Join | Evict | PatchNode | Cordon | Uncordon | OutOfService | DeleteClaim
            | DeleteNode | Quarantine | RemoveFinalizer => None,
        }
    }

    /// The verb in the message of its failure. `None` if the phase that asks for it has a message of its own.
    pub(super) fn doing(self) -> Option<&'static str> {
        match self {
            Configure => Some("configuring"),
            Resize => Some("growing the disk of"),
            Start => Some("starting"),
            Shutdown => Some("shutting down"),
            Stop => Some("stopping"),
            Tombstone => Some("marking"),
            Destroy => Some("destroying"),
            Clone | Join | Evict | PatchNode | Cordon | Uncordon | OutOfService | DeleteClaim
            | DeleteNode | Quarantine | RemoveFinalizer => None,
        }
    }

    /// It changes the claim, which must then be read again.
    pub fn changes_claim(self) -> bool {
        match self {
            DeleteClaim | RemoveFinalizer => true,
            Clone | Configure | Resize | Start | Join | Evict | Shutdown | Stop | Tombstone
            | Destroy | PatchNode | Cordon | Uncordon | OutOfService | DeleteNode | Quarantine => {
                false
            }
        }
    }

    /// The intent that has to be written first. `None`: it is written already, or the operation has none.
    pub(super) fn intent(self, subject: &Subject<'_>) -> Option<Step> {
        let is_missing = self.is_intended() && subject.intent() != Some(self);
        is_missing.then(|| StatusChange::default().intent(self, 1).record())
    }
}

/// The VM is locked: Proxmox is working on it.
fn locked(observed: &Observed, now: Timestamp) -> Option<Step> {
    let Some(MachineLook::Visible(machine)) = &observed.machine else {
        return None;
    };
    let lock = machine.lock.as_ref()?;
    Some(soon(now, format!("the VM is locked ({lock})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_operations_with_an_intent_are_stored() {
        for op in crate::claim::tests::arbitrary::OPS {
            let is_stored = op.is_intended() || matches!(op, Op::Clone | Op::Evict);
            let stored = serde_json::to_string(&op);
            assert_eq!(stored.is_ok(), is_stored, "{op:?}");
            if let Ok(stored) = stored {
                assert_eq!(serde_json::from_str::<Op>(&stored).unwrap(), op);
            }
        }
    }
}
