//! The operations on a claim and its machine, as a table: one `match` for each thing that is to be known of all of them.
//!
//! A new one is a variant of [`Op`] and of [`Effect`], a row in each `match` here, its call in `act`, and the phase that
//! asks for it.

use jiff::{SignedDuration, Timestamp};

use super::answers::{no_quorum, soon};
use super::looks::{Looks, Need, machine};
use super::observed::{MachineLook, Observed};
use super::ownership::Proven;
use super::step::{NodePatch, NodeRef, PodRef, StatusChange, Step};
use super::subject::Subject;
use crate::facts::LaunchFailure;
use crate::mutants::{Mutant, broken};

use Op::*;

pub use crate::facts::Op;

/// An operation with all that it takes.
///
/// One that changes a VM carries the [`Proven`] that the VM is the claim's: there is no other way to get one.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask for the clone, into the claim's VMID.
    Clone,
    /// Write the configuration, if its digest is still the proven one.
    Configure(Proven),
    /// Grow the boot disk to so many bytes.
    Resize(Proven, u64),
    Start(Proven),
    /// Run the join command in the guest, unless it has run there.
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
    /// The point of no return; with the UID as precondition.
    DeleteClaim,
    /// With the UID as precondition.
    DeleteNode(NodeRef),
    /// Take the VMID and the address out of use until then, and out of the limits; note the failure, if it was one, against its
    /// hypervisor and storage.
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
            Self::DeleteClaim => DeleteClaim,
            Self::DeleteNode(_) => DeleteNode,
            Self::Quarantine { .. } => Quarantine,
            Self::RemoveFinalizer => RemoveFinalizer,
        }
    }
}

impl Op {
    pub const ALL: [Self; 17] = [
        Clone,
        Configure,
        Resize,
        Start,
        Join,
        Evict,
        Shutdown,
        Stop,
        Tombstone,
        Destroy,
        PatchNode,
        Cordon,
        Uncordon,
        DeleteClaim,
        DeleteNode,
        Quarantine,
        RemoveFinalizer,
    ];

    /// What has to be seen before it is done.
    pub(super) fn needs(self) -> Looks {
        let mut needs = Looks::default();
        match self {
            // Whose VM it is matters once there is one.
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

    /// Its intent is written before it is done, and stands meanwhile.
    fn is_intended(self) -> bool {
        match self {
            Configure | Resize | Start | Join | Shutdown | Stop | Tombstone | Destroy => true,
            // A clone writes a new one for each try; pods are evicted with one only where a repair could still be given up.
            Clone | Evict => false,
            PatchNode | Cordon | Uncordon | DeleteClaim | DeleteNode | Quarantine
            | RemoveFinalizer => false,
        }
    }

    /// Nothing but the task tells how it ends, so an answer that is lost leaves it uncertain: the task is written down before anything else. What the others
    /// come to shows in the next look, so that one whose answer was lost counts as failed.
    pub fn is_uncertain_after_loss(self) -> bool {
        match self {
            Clone | Destroy => true,
            Configure | Resize | Start | Join | Evict | Shutdown | Stop | Tombstone | PatchNode
            | Cordon | Uncordon | DeleteClaim | DeleteNode | Quarantine | RemoveFinalizer => false,
        }
    }

    /// What it waits for, beyond what its phase says: a lock and a quorum where Proxmox would refuse it, the end of the cold start where it cannot be undone.
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
                let why = "to be destroyed, once the cold start is over";
                (!subject.armed(now)).then(|| Step::wait(subject.settings.armed_at, why))
            }
            Clone | Join | Evict | PatchNode | Cordon | Uncordon | DeleteClaim | DeleteNode
            | Quarantine | RemoveFinalizer => None,
        }
    }

    /// What is done to the VM, for the message of its failure; `None` where the phase that asks for it says more.
    pub(super) fn doing(self) -> Option<&'static str> {
        match self {
            Configure => Some("configuring"),
            Resize => Some("growing the disk of"),
            Start => Some("starting"),
            Shutdown => Some("shutting down"),
            Stop => Some("stopping"),
            Tombstone => Some("marking"),
            Destroy => Some("destroying"),
            Clone | Join | Evict | PatchNode | Cordon | Uncordon | DeleteClaim | DeleteNode
            | Quarantine | RemoveFinalizer => None,
        }
    }

    /// The claim itself is another one afterwards, and has to be read again.
    pub fn changes_claim(self) -> bool {
        match self {
            DeleteClaim | RemoveFinalizer => true,
            Clone | Configure | Resize | Start | Join | Evict | Shutdown | Stop | Tombstone
            | Destroy | PatchNode | Cordon | Uncordon | DeleteNode | Quarantine => false,
        }
    }

    /// The record that has to be written first. `None`: it is, or there is none.
    pub(super) fn intent(self, subject: &Subject<'_>) -> Option<Step> {
        let is_missing = self.is_intended() && subject.intent() != Some(self);
        (is_missing && !broken(Mutant::IntentAfterEffect))
            .then(|| StatusChange::default().intent(self, 1).record())
    }
}

/// Proxmox is at work on the VM.
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
        for op in Op::ALL {
            let is_stored = op.is_intended() || matches!(op, Op::Clone | Op::Evict);
            let stored = serde_json::to_string(&op);
            assert_eq!(stored.is_ok(), is_stored, "{op:?}");
            if let Ok(stored) = stored {
                assert_eq!(serde_json::from_str::<Op>(&stored).unwrap(), op);
            }
        }
    }
}
