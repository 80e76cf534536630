//! The life of one claim: from a reservation to a Node, and back to nothing.
//!
//! [`Phase`] is where it stands, [`Intent`] what was about to be done to its machine when the status was last written. The decision what to
//! do next is a pure function of the claim and of what was just observed of its machine.

use serde::{Deserialize, Serialize};

/// Where a claim stands. Only `Draining` goes back (to the phase before, when the drain is given up).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    Drained,
    VolumesDetached,
    InstanceTerminating,
    /// Its clone left a locked configuration that only root@pam can unlock. Asks for a human.
    StuckLocked,
    /// The VM of our number is not provably ours. Asks for a human; nothing is done to it.
    OwnershipMismatch,
    /// Somebody protected the VM. Asks for a human.
    ProtectedVM,
}

/// What was about to be done, written before it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub op: Op,
    /// Counts from 1 for each operation.
    pub attempt: u32,
    /// Who wrote it: the Lease's transitions and a random part.
    pub epoch: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Op {
    Clone,
    Configure,
    Resize,
    Start,
    Join,
    Shutdown,
    Stop,
    Tombstone,
    Destroy,
}
