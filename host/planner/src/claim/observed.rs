//! What was just read of one claim's machine and surroundings. `None` means "not looked at, or not answered": never "not there".

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::facts::{NodeFacts, Op, PodFacts, PodPhase};
use crate::ids::{NodeName, PodKey, Uid};
use crate::kubernetes::eviction::{ENDS, Ties};
use crate::kubernetes::taints::tolerates_drain;
use crate::time::later;

/// One observation. All of it was read after the last step. Pods were read after the Node, so that their list is newer
/// than the Node's taint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    pub claim: ClaimLook,
    /// Our present leadership wrote the claim's intent.
    pub own_intent: bool,
    /// The Proxmox cluster can agree on writes.
    pub quorate: Option<bool>,
    pub presence: Option<Presence>,
    pub machine: Option<MachineLook>,
    /// State of the task that the claim has recorded.
    pub task: Option<Outcome>,
    pub node: Option<NodeLook>,
    /// Every pod bound to the Node, by a fresh list.
    pub pods: Option<Vec<PodOnNode>>,
    /// Volumes attached to the Node, each with its VolumeAttachment, in words for people.
    pub attachments: Option<Vec<String>>,
    pub join: Option<JoinLook>,
    /// What the guest says of itself, if no Node is there.
    pub evidence: Option<Evidence>,
    pub entry: Option<EntryLook>,
    /// The step before this observation, if there was one in this drive.
    pub last: Option<Attempted>,
    /// Volumes that the recorded task, a destroy, says it could not remove.
    pub leftovers: Vec<String>,
    /// What could not be read, and why: for people.
    pub unread: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimLook {
    #[default]
    Here,
    /// No claim of that name, or another one (by UID).
    Gone,
    /// Kubernetes deletes it because the NodeClaim CRD is being deleted. No user wants the machine gone.
    SweptAway,
    /// It is deleted, but the CRD could not be read, so it is unknown whether a user wanted that.
    Unclear,
}

/// Is there a VM of this VMID anywhere in the cluster, visible to us or not?
/// Proxmox: `GET /cluster/nextid?vmid=` needs no privilege and sees VMs that our token does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Free,
    Taken,
}

#[derive(Clone, Debug, PartialEq)]
pub enum MachineLook {
    Visible(Box<Machine>),
    /// The complete list of VMs does not show us one of this VMID.
    Invisible,
    /// Why a hypervisor that may hold it cannot be asked.
    Unreachable(String),
}

/// A VM as its configuration and status show it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    pub hypervisor: Arc<str>,
    pub name: Option<Arc<str>>,
    pub pool: Option<Arc<str>>,
    pub marker: Marker,
    pub smbios_uuid: Option<Uid>,
    pub lock: Option<Arc<str>>,
    pub power: Power,
    /// The kind of a task that runs for it, such as `qmstart`. Only [`super::Looks::tasks`] asks for it.
    pub task: Option<Arc<str>>,
    pub protected: bool,
    /// The snapshot that its state has come from, if it has any.
    pub snapshot: Option<Arc<str>>,
    pub template: bool,
    pub ha_managed: bool,
    /// Its volumes, PersistentVolumes' excepted.
    pub disks: Vec<Arc<str>>,
    /// Those of its volumes that are PersistentVolumes'.
    pub persistent: Vec<Arc<str>>,
    pub digest: Arc<str>,
    /// Its boot disk is smaller than the claim asks for; the size wanted in bytes.
    pub grow_to: Option<u64>,
}

/// What the ownership marker in the description says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marker {
    /// Valid, and of this claim, VMID and nonce.
    Ours,
    /// The same, and its machine is being terminated.
    Tombstoned,
    /// There is one that is not valid for this claim and VMID.
    Foreign,
    #[default]
    Missing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// Anything that is not stopped: running, paused, suspended.
    On,
    Off,
    #[default]
    Unknown,
}

/// How an effect or a Proxmox task stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done,
    /// Done, with this many warnings. Proxmox warns after a destroy if volumes stayed behind.
    Warnings(u32),
    /// A task has begun, or is still under way.
    Running(Arc<str>),
    Failed {
        failure: Failure,
        text: String,
    },
    /// It may have taken effect or not: kproxide must look.
    Unknown(String),
    /// Evictions, those refused or failed listed. The others were accepted.
    Evicted {
        refused: Vec<Refusal>,
    },
}

/// For logs.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Warnings(count) => write!(f, "done, with {count} warnings"),
            Self::Running(task) => write!(f, "task {task} is under way"),
            Self::Failed { failure, text } => write!(f, "failed ({}): {text}", failure.as_str()),
            Self::Unknown(why) => write!(f, "perhaps done: {why}"),
            Self::Evicted { refused } => match refused.first() {
                None => f.write_str("all evictions were accepted"),
                Some(Refusal { pod, why, .. }) => {
                    write!(
                        f,
                        "{} evictions were refused, first that of pod {pod}: {why}",
                        refused.len()
                    )
                }
            },
        }
    }
}

/// What a failure asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// Try the same again later.
    Retry,
    /// This hypervisor or storage cannot do it.
    Elsewhere,
    /// Something changed since the claim was planned. This is no failure of a hypervisor: another claim can be made at
    /// once.
    Outdated,
    /// Trying again cannot help: a person must change something.
    GiveUp,
    /// The same, and it would fail alike on every hypervisor of the Proxmox cluster.
    Everywhere,
    /// Something with this VMID was left behind, so no machine can have it. Another number can be taken at once.
    NumberSpoilt,
    /// The lock of a storage was not to be had. This passes, and no hypervisor is to blame.
    StorageBusy,
    /// The VMID exists already.
    VmidTaken,
    /// The whole cluster refuses writes or our credentials.
    Freeze,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub pod: PodKey,
    /// Refused by a PodDisruptionBudget (429), in the API server's words; otherwise an error.
    pub by_budget: bool,
    pub why: String,
}

/// What the last step of this drive was, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempted {
    /// `None`: the status was written.
    pub op: Option<Op>,
    pub outcome: Outcome,
}

impl Observed {
    /// What came of that operation, if it was the last step of this drive.
    pub(super) fn tried(&self, op: Op) -> Option<&Attempted> {
        self.last.as_ref().filter(|last| last.op == Some(op))
    }

    /// The last step of this drive has written the status.
    pub(super) fn has_just_recorded(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.op.is_none())
    }
}

/// The Kubernetes Node whose `systemUUID` is the machine's SMBIOS UUID.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeLook {
    Absent,
    One(NodeName, Box<NodeFacts>),
    /// More than one claims to be this machine.
    Several(Vec<NodeName>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct PodOnNode {
    pub key: PodKey,
    pub uid: Uid,
    pub created: Timestamp,
    pub deleting: bool,
    /// When its grace ends or has ended, if it is being deleted.
    pub grace_ends: Option<Timestamp>,
    /// Succeeded or Failed: it runs no more.
    pub finished: bool,
    pub mirror: bool,
    pub daemon_set: bool,
    pub bare: bool,
    pub unfinished_job: bool,
    pub do_not_disrupt: bool,
    /// Until then it keeps its Node.
    pub protected_until: Option<Timestamp>,
    pub safe_to_evict: bool,
    /// It is waited for and not evicted.
    pub on_completion: bool,
    /// It tolerates the taints of a drain, so that it may come back after its eviction.
    pub tolerates_drain: bool,
    pub local_volumes: bool,
    pub empty_dir: bool,
    pub priority: i32,
}

impl PodOnNode {
    /// The part of a pod that a drain looks at.
    pub fn of(key: &PodKey, pod: &PodFacts) -> Self {
        let finished = match pod.phase {
            PodPhase::Succeeded | PodPhase::Failed => true,
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => false,
        };
        let owned_by = |kind: &str| pod.owner.as_ref().is_some_and(|o| &*o.kind == kind);
        Self {
            key: key.clone(),
            uid: pod.uid.clone(),
            created: pod.created,
            deleting: pod.deleting,
            grace_ends: pod.grace_ends,
            finished,
            mirror: pod.mirror,
            daemon_set: owned_by("DaemonSet"),
            bare: pod.owner.is_none() && !pod.mirror,
            unfinished_job: pod.is_of_job() && !finished,
            do_not_disrupt: pod.do_not_disrupt,
            protected_until: pod.protected_until,
            safe_to_evict: pod.safe_to_evict,
            on_completion: pod.on_completion,
            tolerates_drain: tolerates_drain(&pod.spec.tolerations),
            local_volumes: pod.spec.local_volumes,
            empty_dir: pod.spec.empty_dir,
            priority: pod.spec.priority,
        }
    }

    /// Pods of a priority below `least_priority` are expendable.
    pub(super) fn ties(&self, least_priority: i32, now: Timestamp) -> Ties<'_> {
        Ties {
            namespace: &self.key.namespace,
            do_not_disrupt: self.is_protected(now),
            safe_to_evict: self.safe_to_evict || self.on_completion,
            is_bare: self.bare,
            of_unfinished_job: self.unfinished_job,
            local_volumes: self.local_volumes,
            empty_dir: self.empty_dir,
            is_expendable: self.priority < least_priority,
        }
    }

    /// Its own annotation keeps its Node.
    pub(super) fn is_protected(&self, now: Timestamp) -> bool {
        self.do_not_disrupt || self.protected_until.is_some_and(|until| now < until)
    }

    /// It should have ended long ago: something that kproxide cannot help holds it, such as a finalizer.
    pub(super) fn is_stuck(&self, now: Timestamp) -> bool {
        self.deleting && self.grace_ends.is_some_and(|end| now >= later(end, ENDS))
    }

    /// It must leave before its Node may go: it still runs, and is not of a DaemonSet or a static pod.
    pub fn must_leave(&self) -> bool {
        !self.finished && !self.mirror && !self.daemon_set
    }
}

/// How the join command in the guest stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinLook {
    /// The guest agent does not answer (yet).
    AgentSilent(String),
    /// Proxmox or the agent refuses, and will refuse again.
    Refused(String),
    /// cloud-init has not finished.
    Booting,
    NotRun,
    Running,
    Succeeded,
    Failed {
        exit_code: i64,
        /// The end of what it printed, for the user, as one line without secrets.
        output: String,
    },
}

/// What the guest of a machine says by its agent. The words are the guest's: whoever reads them makes one line of each,
/// without control characters, and bounds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Each with the name of its interface; those of loopback are left out. `None`: not said.
    pub addresses: Option<Vec<String>>,
    /// What `cloud-init status --long` prints. Empty: nothing.
    pub cloud_init: String,
    /// The path of a log. Empty: there is none.
    pub log: String,
    /// Its last lines.
    pub log_end: String,
    /// Why the agent did not say everything.
    pub unsaid: Option<String>,
}

/// The claim's entry in the Ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryLook {
    /// Reserved or live, for this claim and VMID.
    Ours,
    Quarantined,
    /// Not there, or of another VMID.
    Missing,
}
