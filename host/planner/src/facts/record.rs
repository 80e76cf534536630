//! The words that our own records are written in: of a claim's status and of the Ledger.

use serde::{Deserialize, Serialize};

/// Where a claim stands. Only `Draining` goes back (to the phase before, when the drain is given up).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Phase {
    /// The claim exists; nothing was asked of Proxmox yet.
    #[default]
    Pending,
    /// Clone, configuration and start are under way.
    Launching,
    /// The VM was started; its Node is awaited.
    Launched,
    /// Its Node was matched; startup taints or readiness are awaited.
    Registered,
    /// In service.
    Initialized,
    /// Its Node is being emptied; still reversible.
    Draining,
    /// Past the point of no return: the machine is stopped, destroyed, and its absence proven.
    Terminating,
}

/// Conditions of a claim, in Karpenter's words where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Condition {
    Reserved,
    Launched,
    Registered,
    Initialized,
    /// No pod asks for more than this Node's absence would leave: since when it could go.
    Unneeded,
    /// The machine is there and its Node is not: since when. A Node that registers again takes it back.
    NodeMissing,
    Drained,
    VolumesDetached,
    InstanceTerminating,
    /// Its clone left a locked configuration that only root@pam can unlock. Asks for a human.
    StuckLocked,
    /// The VM of our number is not provably ours. Asks for a human; nothing is done to it.
    OwnershipMismatch,
    /// Somebody protected the VM, or keeps a snapshot of it. Asks for a human.
    ProtectedVM,
}

/// What was about to be done, written before it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Intent {
    /// The operation.
    pub op: Op,
    /// Counts from 1 for each operation.
    pub attempt: u32,
    /// Who wrote it: the Lease's transitions and a random part.
    pub epoch: String,
}

// What is done to a machine, its Node and its claim: see `claim/op.rs`.
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
    // Of these no intent is written, so they are never stored.
    #[serde(skip)]
    PatchNode,
    #[serde(skip)]
    Cordon,
    #[serde(skip)]
    Uncordon,
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

/// Why a machine is removed; what follows from that is in [`crate::removal`]. Of two, the later one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RemovalReason {
    /// No pods that would have to move.
    Empty,
    Underutilized,
    /// Older than the pool's `expireAfter`.
    Expired,
    /// The annotation `kproxide.dev/replace`.
    Replace,
    /// Not Ready for too long.
    Repair,
    /// The launch failed or its deadline passed.
    LaunchFailed,
    /// Its claim was deleted by somebody.
    Deleted,
    /// The VM is gone.
    Lost,
}
