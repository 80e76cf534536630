//! Reasons of conditions that a later step reads again.

use super::subject::Subject;
use crate::facts::Condition;
use crate::plan::RemovalReason;

/// The Event that says what keeps a Node that could go.
pub const SCALE_DOWN_BLOCKED: &str = "ScaleDownBlocked";
/// The reason of `Unneeded=False` if only a pod keeps the Node.
pub const BLOCKED_BY_POD: &str = "BlockedByPod";
/// And of one that runs no pods and that a user has cordoned.
pub const CORDONED: &str = "Cordoned";

/// The reason of `Launched=False` when our VM was certainly never made, because another VM has its VMID.
pub(super) const VMID_TAKEN: &str = "VmidTaken";

/// The reason of `Launched=False` when the template or the storage has changed since the plan.
pub(super) const OUTDATED: &str = "Outdated";

/// The reason of `Launched=False` when a volume with our VMID was left behind.
pub(super) const NUMBER_SPOILT: &str = "NumberSpoilt";

/// The reason of `Launched=False` while a clone failed and is tried again.
pub(super) const CLONE_FAILED: &str = "CloneFailed";

/// The reason of `Launched=False` while what comes between clone and start failed and is tried again.
pub(super) const PREPARE_FAILED: &str = "PrepareFailed";

/// The reason of `Launched=False` when the lock of a storage was not to be had for all of the time.
pub(super) const STORAGE_BUSY: &str = "StorageBusy";

/// The reason of `Launched=False` when Proxmox refuses what is the same on each of its servers: something of the class, or
/// a privilege of the token.
pub(crate) const REFUSED_EVERYWHERE: &str = "RefusedEverywhere";
/// The reason of `Launched=False` while the VM exists and has not been started yet.
pub(super) const CLONED: &str = "Cloned";
/// The reason of `Launched=False` after a start failed.
pub(super) const START_FAILED: &str = "StartFailed";

/// The reason of `Launched=True` while the join command could not be started.
pub(super) const JOIN_NOT_RUN: &str = "JoinNotRun";

/// The reason of `Registered=False` of a machine whose Node did not come in time.
pub(super) const JOIN_TIMEOUT: &str = "JoinTimeout";

/// The reasons of `Ready`, each with what it says to people.
pub const READY_REASONS: [(&str, &str); 11] = [
    (
        NODE_READY,
        "Its machine is in service, and its Node is Ready.",
    ),
    (
        ZONE_OUTDATED,
        "The same, but its VM has moved to another server, and the label `topology.kubernetes.io/zone` of its Node still names the old one. The message says what keeps it.",
    ),
    (
        NOT_IN_SERVICE,
        "Unknown: its machine is not in service yet. The column PHASE and the Events say how far it is.",
    ),
    (
        AWAITS_DEVICES,
        "Unknown: its Node does not show the devices of its instance type yet. The message says which, and until when kproxide waits.",
    ),
    (
        NODE_NOT_READY,
        "Its Node is not Ready. Look at the kubelet there. kproxide replaces the machine after repairAfter.",
    ),
    (
        SERVER_OFFLINE,
        "The Proxmox server that its machine is on is offline.",
    ),
    (
        NODE_GONE,
        "Its Node is gone. kproxide replaces the machine after repairAfter, unless the Node comes back.",
    ),
    (
        DRAINING,
        "kproxide drains its Node. The condition Drained says why.",
    ),
    (
        TERMINATING,
        "kproxide destroys its machine. If that waits for longer than 60 s, the condition Stalled says for what.",
    ),
    (
        CLOSED,
        "kproxide is done with the NodeClaim and its machine. Finalizers of others hold the NodeClaim. The message names them.",
    ),
    (
        KEPT_FAILED,
        "Its launch failed, and kproxide keeps its machine for you (join.keepFailed of the NodeClass). The message says how to look at it, and until when.",
    ),
];
pub const NODE_READY: &str = "NodeReady";
pub const ZONE_OUTDATED: &str = "ZoneOutdated";
pub const NODE_NOT_READY: &str = "NodeNotReady";
pub const NODE_GONE: &str = "NodeGone";
pub const SERVER_OFFLINE: &str = "ServerOffline";
pub(super) const NOT_IN_SERVICE: &str = "NotInService";
pub(super) const AWAITS_DEVICES: &str = "AwaitsDevices";
pub(super) const DRAINING: &str = "Draining";
pub(super) const TERMINATING: &str = "Terminating";
pub const KEPT_FAILED: &str = "KeptFailed";
pub(super) const CLOSED: &str = "Closed";

/// The reason of `StuckLocked`.
pub(super) const STUCK_LOCKED: &str = "StuckLocked";
/// The reason of `StuckLocked` when the marker or the UPID of our task shows that the VM is our clone.
pub(super) const CLONE_INTERRUPTED: &str = "CloneInterrupted";

/// The condition keeps the reason for the whole drain. The planner reads from it why the drain began.
pub(super) fn recorded_word<'a>(subject: &Subject<'a>) -> &'a str {
    let mut conditions = subject.status().conditions.iter();
    conditions
        .find(|c| c.kind == Condition::Drained)
        .map_or("Deleted", |c| &c.reason)
}

pub(super) fn drained_for(subject: &Subject<'_>, reason: RemovalReason) -> bool {
    subject
        .status()
        .conditions
        .iter()
        .any(|c| c.kind == Condition::Drained && c.reason == reason.as_str())
}
