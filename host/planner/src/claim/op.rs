//! The operations on a claim and its machine, as a table: each `match` is a column, each operation a row.
//!
//! To add one, add a variant to [`Op`] and to [`Effect`], a row to each `match` here, its call in `act`, and the phase
//! that asks for it.

use jiff::{SignedDuration, Timestamp};

use super::answers::{no_quorum, soon};
use super::looks::{Looks, Need, machine};
use super::observed::{MachineLook, Observed};
use super::ownership::Proven;
use super::step::{NodePatch, NodeRef, PodRef, StatusChange, Step};
use super::subject::Subject;
use crate::facts::LaunchFailure;

use Op::*;

pub use crate::facts::Op;

/// An operation with its arguments.
///
/// An operation on a VM carries the proof that the VM is the claim's ([`Proven`]). Only `prove` makes such a proof.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask for the clone, into the claim's VMID.
    Clone,
    /// Write the configuration, if its digest is still the proven one.
    Configure(Proven),
    /// Grow the boot disk to this many bytes.
    Resize(Proven, u64),
    Start(Proven),
    /// Run the join script in the guest, unless it has run there already.
    Join(Proven),
    /// Through the Eviction API, each with its UID as precondition.
    Evict(Vec<PodRef>),
    Shutdown(Proven, SignedDuration),
    Stop(Proven),
    /// Mark the VM as condemned, if its digest is still the proven one.
    Tombstone(Proven),
    /// With `purge`, and never with the removal of unreferenced disks.
    Destroy(Proven),
    PatchNode(NodeRef, Box<NodePatch>),
    /// Put our drain taint on the Node and mark it unschedulable.
    Cordon(NodeRef),
    /// Undo [`Effect::Cordon`].
    Uncordon(NodeRef),
    /// Tell Kubernetes that nothing runs on this Node any more.
    OutOfService(NodeRef),
    /// The point of no return; with the UID as precondition.
    DeleteClaim,
    /// With the UID as precondition.
    DeleteNode(NodeRef),
    /// Keep the VMID and the address from being used again until then, and no longer count the machine in the limits.
    /// If the launch failed, note that for its hypervisor and storage.
    Quarantine {
        until: Timestamp,
        failure: Option<LaunchFailure>,
    },
    /// The claim is closed.
    RemoveFinalizer,
}

impl Effect {
    pub fn op(&self) -> Op {
        match self {
            Self::Clone => Clone,
            Self::Configure(_) => Configure,
            Self::Resize(..) => Resize,
            Self::Start(_) => Start,
            Self::Join(_) => Join,
            Self::Evict(_) => Evict,
            Self::Shutdown(..) => Shutdown,
            Self::Stop(_) => Stop,
            Self::Tombstone(_) => Tombstone,
            Self::Destroy(_) => Destroy,
            Self::PatchNode(..) => PatchNode,
            Self::Cordon(_) => Cordon,
            Self::Uncordon(_) => Uncordon,
            Self::OutOfService(_) => OutOfService,
            Self::DeleteClaim => DeleteClaim,
            Self::DeleteNode(_) => DeleteNode,
            Self::Quarantine { .. } => Quarantine,
            Self::RemoveFinalizer => RemoveFinalizer,
        }
    }
}

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
