//! The claim whose next step is asked for, with everything about its surroundings that changes rarely.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::facts::{
    ClaimFacts, ClaimStatus, Condition, GuestStatus, InventoryFacts, Join, Op, Phase, PoolFacts,
    ProviderId, Timeouts,
};
use crate::ids::{ClaimName, Digest, PodKey, Uid, Vmid};
use crate::plan::Verdict;
use crate::time::later;

/// One claim, what the world says about it, and the rules that apply to it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub name: &'a ClaimName,
    /// As last read or written; the drive keeps it current.
    pub claim: &'a ClaimFacts,
    pub verdict: &'a Verdict,
    pub settings: &'a Settings,
    /// The API's defaults, if its pool is gone.
    pub pool: &'a PoolFacts,
    pub hint: &'a Hint,
}

/// What its class and cluster say, and the flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub vmid_first: Vmid,
    /// Inclusive.
    pub vmid_last: Vmid,
    /// The Proxmox pool that our VMs are in.
    pub pool: Arc<str>,
    pub timeouts: Timeouts,
    pub join: Join,
    /// For how long a machine whose launch failed is kept, stopped, as long as the plan agrees.
    pub keep_failed: SignedDuration,
    pub provider_id: ProviderId,
    /// From the tombstone to a hard stop.
    pub shutdown_timeout: SignedDuration,
    /// For how long the VMID and address of a closed claim are not used again.
    pub quarantine: SignedDuration,
    /// Pods of a lower priority keep no Node.
    pub least_priority: i32,
    /// Nothing destructive is done before this moment; `None`: not at all.
    pub armed_at: Option<Timestamp>,
}

/// What the last inventory said of the machine, and the watch of its Node. It is up to 15 s old: a reason to look, but
/// never evidence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hint {
    pub guest: GuestHint,
    /// Where the inventory lists it.
    pub hypervisor: Option<Arc<str>>,
    /// Its Node's zone is that of a server that the VM has left.
    pub moved: Option<Moved>,
    /// The Node that the claim has recorded is gone, or another one has taken its place, or it is Ready and the claim does
    /// not say so, or the other way round, or its labels of ours are not the claim's.
    pub node_changed: bool,
    /// A person says that its hypervisor is off, and it does not answer.
    pub declared_off: bool,
    /// Proxmox says that its hypervisor is offline.
    pub server_is_off: bool,
    /// Its Node's labels of ours.
    pub restored: Restored,
    /// CSI drivers that its Node still lacks.
    pub registering: Registering,
    /// Devices that its instance type promises. Its Node comes into service once it shows them, or the join deadline is over.
    pub devices: Vec<Arc<str>>,
    /// Pods that came back to its Node during its drain and may end with the machine.
    pub ends_with_it: BTreeSet<Uid>,
    /// The pods on its Node during its drain, each with a digest of what may keep it there.
    pub keepers: BTreeMap<PodKey, Digest>,
    /// `None`: its last drive has done something, or nothing is known of it.
    pub waits: Option<Waits>,
}

/// CSI drivers with a pod on the Node that have not registered there, and until when the taint `unregistered` waits for
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registering {
    pub drivers: Vec<Arc<str>>,
    /// `None`: the Node is not Ready yet.
    pub until: Option<Timestamp>,
}

impl Registering {
    /// Pods must wait for a driver.
    pub fn is_awaited(&self, now: Timestamp) -> bool {
        !self.drivers.is_empty() && self.until.is_none_or(|until| now < until)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestHint {
    /// There is no inventory or an incomplete one, or its hypervisor is not online.
    #[default]
    Unknown,
    Running,
    Stopped,
    /// A complete inventory, in which its own hypervisor answered, does not list it.
    Absent,
}

impl GuestHint {
    pub fn of(claim: &ClaimFacts, inventory: &InventoryFacts) -> Self {
        let is_whole = inventory.reachable && inventory.quorate && inventory.complete;
        match inventory.guests.get(&claim.spec.vmid) {
            None if is_whole && inventory.answers(claim.hypervisor()) => Self::Absent,
            Some(guest) if inventory.reachable && inventory.answers(&guest.hypervisor) => {
                match guest.status {
                    GuestStatus::Running => Self::Running,
                    GuestStatus::Stopped => Self::Stopped,
                    GuestStatus::Unknown => Self::Unknown,
                }
            }
            Some(_) | None => Self::Unknown,
        }
    }
}

impl<'a> Subject<'a> {
    pub(super) fn status(&self) -> &'a ClaimStatus {
        &self.claim.status
    }

    /// The operation that was about to be done when the status was last written.
    pub(super) fn intent(&self) -> Option<Op> {
        self.status().intent.as_ref().map(|intent| intent.op)
    }

    pub(super) fn deleting(&self) -> bool {
        self.claim.deleting_since.is_some()
    }

    /// Destructive steps are allowed now.
    pub(super) fn armed(&self, now: Timestamp) -> bool {
        self.settings.armed_at.is_some_and(|at| at <= now)
    }

    /// The claim has been in service: taking it out may be given up.
    pub(super) fn was_in_service(&self) -> bool {
        self.status().since(Condition::Initialized).is_some()
    }

    pub(super) fn provision_deadline(&self) -> Timestamp {
        self.claim.provision_deadline(&self.settings.timeouts)
    }

    pub(super) fn clone_deadline(&self) -> Timestamp {
        self.claim.clone_deadline(&self.settings.timeouts)
    }

    /// By when the guest agent must have answered.
    pub(super) fn agent_deadline(&self) -> Timestamp {
        self.after(self.status().started_at, self.settings.timeouts.agent.0)
    }

    /// By when its Node must be Ready. A restart starts this time anew, but not without end for a machine that never
    /// stays up.
    pub(super) fn join_deadline(&self) -> Timestamp {
        let limit = self.settings.timeouts.join.0;
        let deadline = later(self.started_at(), limit);
        match self.status().since(Condition::Launched) {
            Some(first) => deadline.min(later(later(first, limit), limit)),
            None => deadline,
        }
    }

    /// By when its Node must be empty.
    pub(super) fn drain_deadline(&self) -> Timestamp {
        let began = self.status().draining_since;
        self.after(began, self.pool.drain_timeout.0)
    }

    /// From when the VM is stopped hard.
    pub(super) fn stop_deadline(&self) -> Timestamp {
        let began = self.status().since(Condition::InstanceTerminating);
        self.after(began, self.settings.shutdown_timeout)
    }

    /// So long after what began, or after the claim if it is not known when.
    fn after(&self, began: Option<Timestamp>, limit: SignedDuration) -> Timestamp {
        later(began.unwrap_or(self.claim.created), limit)
    }

    /// The phase to go back to when the drain is given up.
    pub(super) fn phase_before_drain(&self) -> Phase {
        let status = self.status();
        if status.since(Condition::Initialized).is_some() {
            Phase::Initialized
        } else if status.since(Condition::Registered).is_some() {
            Phase::Registered
        } else if status.started_at.is_some() {
            Phase::Launched
        } else {
            Phase::Launching
        }
    }

    pub(super) fn started_at(&self) -> Timestamp {
        self.status().started_at.unwrap_or(self.claim.created)
    }
}

/// When this process last wrote to the Node, and when it said why. Another process may do both once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub written: Option<Timestamp>,
    pub said: Option<Timestamp>,
}

/// A Node's label `topology.kubernetes.io/zone` names a server that its VM has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    pub from: Arc<str>,
    pub to: Arc<str>,
    /// `None`: kproxide sets the label anew.
    pub keeps: Option<KeepsZone>,
}

/// Why the label stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepsZone {
    /// A pod there uses this PersistentVolume, which is bound to the old zone.
    Volume(Arc<str>),
    CloudController,
}

/// What the last drives of a claim have ended with, as long as its removal did not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    pub since: Timestamp,
    pub why: String,
    /// Since when it is this.
    pub why_since: Timestamp,
}
