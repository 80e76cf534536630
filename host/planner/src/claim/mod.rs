//! The life of one claim: from a reservation to a Node, and back to nothing.
//!
//! [`Phase`] is where it stands, [`Intent`] what was about to be done to its machine when the status was last written. The decision what to
//! do next is a pure function of the claim and of what was just observed of its machine:
//!
//! ```text
//! looks(subject) ─► act reads ─► Observed ─► next(subject, observed, now) ─► Step ─► act performs ─► (again, until it waits)
//! ```
//!
//! Up: `launch` (`clone`, configure, start), `register` (join, label; `overdue`, if it is late), `service` (keep; `power`, if it has stopped or gone).
//! An orphan that is taken over comes in by `orphan`, and goes on where it stands.
//! Down: `drain` (whether; `empty` is how; reversible), `terminate` (proof, tombstone, stop, destroy), `closing` (proof of absence, records).

mod subject;

mod observed;

mod looks;

mod step;

mod ownership;

mod next;

mod launch;

mod orphan;

mod clone;

mod register;

mod overdue;

mod service;

mod power;

mod drain;

mod empty;

mod terminate;

mod closing;

mod ledger;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod tests;

use serde::{Deserialize, Serialize};

pub(crate) use drain::STAYS_READY;
pub use ledger::{Closing, close, entry_of};
pub use looks::{Looks, Need, looks};
pub use next::next;
pub use observed::{
    Attempted, ClaimLook, Did, EntryLook, Failure, JoinLook, Machine, MachineLook, Marker,
    NodeLook, Observed, Outcome, PodOnNode, Power, Presence, Refusal,
};
pub use ownership::{Mismatch, Proven, is_proven, same_uuid};
pub use register::provider_id;
pub use step::{Change, NodePatch, NodeRef, Note, PodRef, StatusChange, Step, Then, unneeded};
pub use subject::{GuestHint, Hint, ProviderId, Settings, Subject};

/// The taint that a kubelet registers with and that is removed once its Node is labelled (effect `NoExecute`).
pub const UNREGISTERED_TAINT: &str = "kproxide.dev/unregistered";
/// The taint of a Node that is being emptied (effect `NoSchedule`).
pub const DRAINING_TAINT: &str = "kproxide.dev/draining";
/// Kubernetes: the taint of a Node that a cloud controller manager will initialize, provider ID included.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The reason of `Drained` and `Unneeded` once a drain was given up.
pub const GIVEN_UP: &str = "GivenUp";

/// The reason of `Unneeded=False` where nothing but a pod keeps the Node.
pub const BLOCKED_BY_POD: &str = "BlockedByPod";

/// What is said of a claim that is not removed before somebody has put its finalizer back.
pub(crate) const NO_FINALIZER: &str =
    "its finalizer kproxide.dev/machine is gone: put it back, or its machine would be leaked";

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
    Evict,
    Shutdown,
    Stop,
    Tombstone,
    Destroy,
}
