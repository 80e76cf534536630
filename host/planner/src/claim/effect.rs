//! What `act` does in the world for a claim, with all that it needs for it.

use jiff::{SignedDuration, Timestamp};

use super::ownership::Proven;
use crate::facts::{Labels, LaunchFailure, Op, Taint};
use crate::ids::{NodeName, PodKey, Uid};

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
            Self::Clone => Op::Clone,
            Self::Configure(_) => Op::Configure,
            Self::Resize(..) => Op::Resize,
            Self::Start(_) => Op::Start,
            Self::Join(_) => Op::Join,
            Self::Evict(_) => Op::Evict,
            Self::Shutdown(..) => Op::Shutdown,
            Self::Stop(_) => Op::Stop,
            Self::Tombstone(_) => Op::Tombstone,
            Self::Destroy(_) => Op::Destroy,
            Self::PatchNode(..) => Op::PatchNode,
            Self::Cordon(_) => Op::Cordon,
            Self::Uncordon(_) => Op::Uncordon,
            Self::OutOfService(_) => Op::OutOfService,
            Self::DeleteClaim => Op::DeleteClaim,
            Self::DeleteNode(_) => Op::DeleteNode,
            Self::Quarantine { .. } => Op::Quarantine,
            Self::RemoveFinalizer => Op::RemoveFinalizer,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRef {
    pub name: NodeName,
    pub uid: Uid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    pub key: PodKey,
    pub uid: Uid,
}

/// What a Node lacks: only what differs is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePatch {
    pub labels: Labels,
    pub annotations: Labels,
    pub add_taints: Vec<Taint>,
    /// Remove `kproxide.dev/unregistered`.
    pub remove_unregistered: bool,
    pub provider_id: Option<String>,
}
