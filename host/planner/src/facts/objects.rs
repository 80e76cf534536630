//! The operator's objects and our own records, as the planner reads them. The API's types (`host/src/kube/crd.rs`) are converted into these.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::kubernetes::{Labels, Taint};
use super::record::{Condition, Intent, Phase, RemovalReason};
use crate::ids::{
    ClaimName, ClassName, ClusterName, Digest, HypervisorId, InstanceTypeName, NodeName, PoolName,
    StorageName, Uid, Vmid,
};
use crate::resources::Resources;

/// ProxmoxCluster: where machines may be made, and what must stay free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterFacts {
    pub vmid_first: Vmid,
    /// Inclusive.
    pub vmid_last: Vmid,
    /// The Proxmox pool that our VMs are put into.
    pub pool: Arc<str>,
    /// Empty: every hypervisor.
    pub include: Vec<Arc<str>>,
    pub exclude: Vec<Arc<str>>,
    pub min_available_cpu_cores: u64,
    pub min_available_memory_bytes: u64,
    pub overcommit_cpu: f64,
    pub overcommit_memory: f64,
    pub system_reserved_milli_cores: u64,
    pub system_reserved_memory_bytes: u64,
    pub max_machines_per_hypervisor: Option<u32>,
    pub clones_per_storage: u32,
    pub clones_per_hypervisor: u32,
    /// The object cannot be used as it stands; says why. Nothing is launched there.
    pub problem: Option<String>,
}

/// NodeClass: what a machine is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassFacts {
    pub template: Arc<str>,
    /// The template exists once on each hypervisor (of the same name), and clones stay where their template is.
    pub local_template: bool,
    /// The disk of a full clone goes here; `None`: where the template's is.
    pub storage: Option<StorageName>,
    /// Linked clones take no room in the storage at first.
    pub linked: Option<bool>,
    pub instance_types: Vec<InstanceType>,
    pub arch: Arc<str>,
    pub os: Arc<str>,
    /// Capacity less this is allocatable, until a real Node of the type has shown its own.
    pub overhead_milli_cores: u64,
    pub overhead_memory_bytes: u64,
    /// Addresses that machines of this class may be given, in order; `None`: DHCP.
    pub addresses: Option<Vec<AddressRange>>,
    pub timeouts: Timeouts,
    /// How a started machine becomes a Node.
    pub join: Join,
    /// Changes when the class changes in a way that new machines would show: with the template's digest, what drift is measured by.
    pub digest: Digest,
    pub problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceType {
    pub name: InstanceTypeName,
    pub cores: u32,
    pub memory_bytes: u64,
    pub disk_bytes: Option<u64>,
    /// Default 110, as the kubelet's.
    pub max_pods: u32,
    /// Devices and other extended resources that its Nodes will offer.
    pub extended: Resources,
}

/// Inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    pub first: std::net::IpAddr,
    pub last: std::net::IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Join {
    /// The template joins by itself at first boot.
    Template,
    /// A command runs through the guest agent, once per claim.
    GuestExec,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeouts {
    /// From the clone's intent to a started VM.
    pub provision: SignedDuration,
    /// From start to the guest agent's first answer, where one is needed.
    pub agent: SignedDuration,
    /// From start to a Ready Node.
    pub join: SignedDuration,
}

/// NodePool: how many machines of which classes, with which labels, under which policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolFacts {
    pub uid: Uid,
    pub class: ClassName,
    /// Empty: every cluster.
    pub clusters: Vec<ClusterName>,
    pub min_nodes: u32,
    pub max_nodes: u32,
    pub max_milli_cores: Option<u64>,
    pub max_memory_bytes: Option<u64>,
    /// Pools of higher weight are tried first.
    pub weight: i32,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Removed by whoever set them (a CNI, say) before a Node counts as Initialized.
    pub startup_taints: Vec<Taint>,
    pub policies: PoolPolicies,
    pub paused: bool,
    pub scale_up_stabilization: SignedDuration,
    pub scale_down: ScaleDown,
    pub drain_timeout: SignedDuration,
    /// A Node that is not Ready for so long is replaced.
    pub repair_after: SignedDuration,
    /// Room kept free in the pool, beyond what pods ask.
    pub headroom: Resources,
    pub problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolPolicies {
    pub host_selection: PolicyUse,
    pub scale_down: PolicyUse,
    pub labels: PolicyUse,
}

/// A policy by name, with the operator's settings as JSON text (`labelTemplates` already merged in).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyUse {
    pub policy: PolicyRef,
    pub settings: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PolicyRef {
    pub kind: PolicyKind,
    pub name: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    HostSelection,
    ScaleDown,
    Labels,
}

impl PolicyKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostSelection => "host-selection",
            Self::ScaleDown => "scale-down",
            Self::Labels => "labels",
        }
    }
}

impl From<PolicyRef> for String {
    fn from(policy: PolicyRef) -> Self {
        format!("{}/{}", policy.kind.as_str(), policy.name)
    }
}

impl TryFrom<String> for PolicyRef {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (kind, name) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} is not kind/name"))?;
        let kind = match kind {
            "host-selection" => PolicyKind::HostSelection,
            "scale-down" => PolicyKind::ScaleDown,
            "labels" => PolicyKind::Labels,
            other => return Err(format!("{other:?} is not a kind of policy")),
        };
        Ok(Self {
            kind,
            name: name.into(),
        })
    }
}

/// Which bytes answer for a policy's name now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFacts {
    pub digest: Digest,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleDown {
    pub enabled: bool,
    /// H in A × (1 + H) < T − K.
    pub load_headroom: f64,
    pub stabilization: SignedDuration,
    pub min_node_age: SignedDuration,
    pub unneeded_time: SignedDuration,
    /// Removals of this pool under way at once, at most.
    pub budget: u32,
    pub blocked_by: BlockedBy,
}

/// Which pods keep their Node from going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedBy {
    pub local_volumes: bool,
    pub bare_pods: bool,
    pub unfinished_jobs: bool,
    pub empty_dir: bool,
    pub kube_system: bool,
}

/// NodeClaim: the durable record of one wanted machine. The specification never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimFacts {
    pub uid: Uid,
    pub created: Timestamp,
    /// Somebody, we included, has deleted the claim: it is drained and its machine terminated.
    pub deleting_since: Option<Timestamp>,
    pub has_finalizer: bool,
    pub spec: ClaimSpec,
    pub status: ClaimStatus,
    /// `kproxide.dev/replace: "true"` on the claim: it goes as soon as budget allows.
    pub replace: bool,
    pub do_not_disrupt: bool,
    pub paused: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimSpec {
    pub pool: PoolName,
    pub class: ClassName,
    pub cluster: ClusterName,
    pub vmid: Vmid,
    pub vm_name: Arc<str>,
    /// Where it is made. A later migration shows in the status.
    pub hypervisor: Arc<str>,
    pub storage: Option<StorageName>,
    pub instance_type: InstanceTypeName,
    pub milli_cores: u64,
    pub memory_bytes: u64,
    pub disk_bytes: Option<u64>,
    pub address: Option<std::net::IpAddr>,
    pub labels: Labels,
    pub annotations: Labels,
    pub taints: Vec<Taint>,
    pub template_digest: Digest,
    /// Digest of the host-selection policy that chose the hypervisor.
    pub policy_digest: Digest,
    /// It was made for a machine that was there before it: an orphan.
    #[serde(default)]
    pub adopts: Option<Adopts>,
}

/// Whose machine a claim has taken over, and so what the machine's marker says.
///
/// The proof of ownership does not become weaker by it. The marker's signature still covers our cluster, the claim that the machine was made for,
/// this very VMID and the nonce, and only our key makes it; the claim merely says which of the markers that we have signed it expects. It says so in its
/// specification, which is there from its first moment and never changes. So it can name nothing but a machine that we made: what it says of a VM that
/// carries no such marker (a copy, another number, another cluster's) proves nothing, and that VM is left alone as ever. A machine whose own
/// claim still exists is not touched for another claim: such a claim is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopts {
    /// UID of the claim that the machine was made for.
    pub claim_uid: Uid,
    /// Random text of its marker.
    pub nonce: Arc<str>,
    /// It is taken over to be removed.
    pub condemned: bool,
}

impl ClaimSpec {
    /// It was made for a machine that had no claim and cannot serve, so that it is removed as any other.
    pub fn is_condemned(&self) -> bool {
        self.adopts.as_ref().is_some_and(|adopts| adopts.condemned)
    }

    pub fn hypervisor_id(&self) -> HypervisorId {
        HypervisorId {
            cluster: self.cluster.clone(),
            name: self.hypervisor.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimStatus {
    pub phase: Phase,
    pub intent: Option<Intent>,
    /// The Proxmox task under way, if its number is known.
    pub upid: Option<Arc<str>>,
    /// Random text of the ownership marker, recorded with the first intent.
    pub nonce: Option<Arc<str>>,
    pub smbios_uuid: Option<Uid>,
    /// Volumes of the VM as read back after the clone and the configuration.
    pub disks: Vec<Arc<str>>,
    pub node_name: Option<NodeName>,
    pub node_uid: Option<Uid>,
    pub hypervisor: Option<Arc<str>>,
    /// When the VM was started.
    pub started_at: Option<Timestamp>,
    /// When the present drain began.
    pub draining_since: Option<Timestamp>,
    pub conditions: Vec<ClaimCondition>,
}

impl ClaimFacts {
    /// Where its VM was last known to stand.
    pub fn hypervisor(&self) -> &Arc<str> {
        let followed = self.status.hypervisor.as_ref();
        followed.unwrap_or(&self.spec.hypervisor)
    }
}

impl ClaimStatus {
    /// The condition is present and true; since when.
    pub fn since(&self, condition: Condition) -> Option<Timestamp> {
        self.conditions
            .iter()
            .find(|c| c.kind == condition && c.status)
            .map(|c| c.since)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimCondition {
    pub kind: Condition,
    pub status: bool,
    pub since: Timestamp,
    pub reason: String,
    pub message: String,
}

/// The singleton Ledger: what is promised, what is out of use. Every limit is computed from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LedgerFacts {
    pub resource_version: Arc<str>,
    pub entries: Vec<LedgerEntry>,
    pub policy_state: Vec<PolicyState>,
    pub backoff: Vec<Backoff>,
    /// What the breaker counts.
    #[serde(default)]
    pub removals: Vec<Removal>,
    /// Too many machines are bad at once.
    #[serde(default)]
    pub freeze: Option<Freeze>,
    /// A person's word that a freeze is meant: the annotation `kproxide.dev/acknowledge-removal`.
    #[serde(default)]
    pub acknowledged: Option<Arc<str>>,
    /// Machines of ours without a claim that wait: for their Nodes, or for the end of their grace.
    #[serde(default)]
    pub orphans: Vec<OrphanSeen>,
    /// What tells this Kubernetes cluster from its copies, one for each Proxmox cluster.
    #[serde(default)]
    pub anchors: Vec<Anchor>,
    /// A person's word on a mark that is not ours: the annotation `kproxide.dev/acknowledge-anchor`.
    #[serde(default)]
    pub anchor_acknowledged: Option<Arc<str>>,
}

/// Our record of an anchor: see [`crate::anchor`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    pub cluster: ClusterName,
    pub vmid: Vmid,
    /// What it showed before `next`. `None`: nothing of ours.
    pub mark: Option<Mark>,
    /// What it is moved on to: an intent, so that it may show either.
    pub next: Mark,
    /// When a kproxide to which nothing spoke against it last said here that it leads.
    pub at: Timestamp,
    /// Nobody did for a while: since when it is watched whether somebody else moves it.
    pub watched_since: Option<Timestamp>,
    /// It shows what we have not written.
    pub foreign: Option<ForeignMark>,
}

/// A mark on an anchor of ours that our Ledger does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignMark {
    pub vmid: Vmid,
    pub mark: Mark,
    /// When the first such mark was seen.
    pub since: Timestamp,
    /// How often another one was seen after it.
    pub moved: u32,
}

/// What an anchor shows: how often it was moved, and by which process. As text `7-x4f9`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Mark {
    pub sequence: u64,
    pub nonce: Arc<str>,
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.sequence, self.nonce)
    }
}

impl From<Mark> for String {
    fn from(mark: Mark) -> Self {
        mark.to_string()
    }
}

impl TryFrom<String> for Mark {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let parts = text.split_once('-').and_then(|(sequence, nonce)| {
            let sequence = sequence.parse().ok()?;
            (!nonce.is_empty()).then(|| Self {
                sequence,
                nonce: nonce.into(),
            })
        });
        parts.ok_or_else(|| format!("{text:?} is no mark of an anchor such as 7-x4f9"))
    }
}

/// A machine of ours without a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphanSeen {
    pub cluster: ClusterName,
    pub vmid: Vmid,
    /// UID of the claim that it was made for.
    pub claim_uid: Uid,
    /// When it was first seen so. Its grace is counted from here, whatever restarts.
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    pub claim: ClaimName,
    pub pool: PoolName,
    pub cluster: ClusterName,
    pub vmid: Vmid,
    pub hypervisor: Arc<str>,
    pub storage: Option<StorageName>,
    pub milli_cores: u64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub address: Option<std::net::IpAddr>,
    pub state: EntryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryState {
    /// Promised; its claim may not exist yet.
    Reserved { since: Timestamp },
    /// Its claim exists.
    Live,
    /// Its number and address are not used again before then. Counts for no limit.
    Quarantined { until: Timestamp },
}

impl LedgerEntry {
    /// Of a claim on the hypervisor that it was placed on. Without a size of its own its disk counts nothing: how large the template's is, only a placement knows.
    pub fn of(claim: &ClaimName, spec: &ClaimSpec, state: EntryState) -> Self {
        Self {
            claim: claim.clone(),
            pool: spec.pool.clone(),
            cluster: spec.cluster.clone(),
            vmid: spec.vmid,
            hypervisor: spec.hypervisor.clone(),
            storage: spec.storage.clone(),
            milli_cores: spec.milli_cores,
            memory_bytes: spec.memory_bytes,
            disk_bytes: spec.disk_bytes.unwrap_or(0),
            address: spec.address,
            state,
        }
    }

    pub fn counts(&self) -> bool {
        match self.state {
            EntryState::Reserved { .. } | EntryState::Live => true,
            EntryState::Quarantined { .. } => false,
        }
    }
}

/// What a policy keeps between decisions for one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyState {
    pub pool: PoolName,
    pub kind: PolicyKind,
    /// The state is dropped when the pool uses another policy.
    pub policy: Arc<str>,
    /// Placements ever made for this pool.
    pub sequence: u64,
    pub previous: Option<HypervisorId>,
    pub state: Vec<u8>,
}

/// A combination that failed and is left alone for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backoff {
    pub hypervisor: HypervisorId,
    pub storage: Option<StorageName>,
    /// Stable word for the class of error.
    pub class: Arc<str>,
    /// What the last failure was, for people; empty if it was not written down.
    #[serde(default)]
    pub message: String,
    pub failures: u32,
    pub until: Timestamp,
}

/// A machine in service that was begun to be removed: see [`crate::breaker`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    pub claim: ClaimName,
    /// When it began; the last time, if it was given up in between.
    pub at: Timestamp,
    pub reason: RemovalReason,
}

/// Nothing is removed: see [`crate::freeze`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// When it began, or last grew.
    pub since: Timestamp,
    /// So many machines were bad then.
    pub machines: u32,
}

/// Why a launch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFailure {
    /// As in [`Backoff`].
    pub class: Arc<str>,
    pub message: String,
}
