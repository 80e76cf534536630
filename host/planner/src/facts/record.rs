//! The words in kproxide's own records: phases, conditions, operations and reasons of removals.

use serde::{Deserialize, Serialize};

/// How far a claim is. Only `Draining` can go back: to the phase before it, when the drain is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Phase {
    /// The claim exists. kproxide has asked Proxmox for nothing yet.
    #[default]
    Pending,
    /// kproxide clones, configures and starts the VM.
    Launching,
    /// The VM was started. kproxide waits for its Node.
    Launched,
    /// The Node is there. kproxide waits until it is Ready and without startup taints.
    Registered,
    /// In service.
    Initialized,
    /// kproxide drains the Node. This can still be undone.
    Draining,
    /// Past the point of no return: kproxide stops and destroys the VM, and proves that it is gone.
    Terminating,
}

/// Conditions of a claim, in Karpenter's words where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Condition {
    Reserved,
    Launched,
    Registered,
    Initialized,
    /// All pods would fit without this Node: since when.
    Unneeded,
    /// kproxide may remove the machine now. False: the reason says why it stays.
    Removable,
    /// The machine exists but its Node does not: since when. False again once the Node registers.
    NodeMissing,
    Drained,
    VolumesDetached,
    InstanceTerminating,
    /// Its removal cannot be undone any more, and waits: since when. The message says for what.
    Stalled,
    /// Its Node does not answer, and nothing proves that the machine is off. May need a person.
    NotProvenOff,
    /// A clone left a locked VM that only root@pam can unlock. Needs a person.
    StuckLocked,
    /// The VM with this VMID is not provably ours. kproxide does nothing to it. Needs a person.
    OwnershipMismatch,
    /// A user set Proxmox's protection on the VM, or made a snapshot of it. Needs a person.
    ProtectedVM,
    /// The machine is in service, and its Node is Ready.
    Ready,
}

/// An operation that kproxide is about to do. It writes this first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Intent {
    /// The operation.
    pub op: Op,
    /// Which try of the operation this is, from 1.
    pub attempt: u32,
    /// Which process wrote it: the Lease's number of transitions, and a random part.
    pub epoch: String,
}

// The operations on a machine, its Node and its claim. `claim/op.rs` has the table of what is known of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Op {
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
    // kproxide writes no intent for the following, so they are never stored.
    #[serde(skip)]
    PatchNode,
    #[serde(skip)]
    Cordon,
    #[serde(skip)]
    Uncordon,
    #[serde(skip)]
    OutOfService,
    #[serde(skip)]
    DeleteClaim,
    #[serde(skip)]
    DeleteNode,
    #[serde(skip)]
    Quarantine,
    #[serde(skip)]
    RemoveFinalizer,
}

/// The reason of `Drained` and `Unneeded` once a drain was given up.
pub const GIVEN_UP: &str = "GivenUp";

/// Why a machine is removed. [`crate::facts::removal`] says what follows from it. Removals with a later reason of this list
/// go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RemovalReason {
    /// It runs no pod that would have to move.
    Empty,
    /// Its pods fit on other Nodes.
    Underutilized,
    /// Older than the pool's `expireAfter`.
    Expired,
    /// Its server is to be emptied.
    Maintenance,
    /// The annotation `kproxide.dev/replace`.
    Replace,
    /// Somebody deletes its NodePool.
    PoolDeleted,
    /// Not Ready for too long.
    Repair,
    /// Its Node was deleted while its VM ran, and has not come back within the pool's `repairAfter`.
    NodeDeleted,
    /// The launch failed or its deadline passed.
    LaunchFailed,
    /// A user deleted its claim.
    Deleted,
    /// The VM is gone.
    Lost,
}
