//! The operator's objects and our own records, as the planner reads them. The API's types (`host/src/kube/crd.rs`) are converted into these.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::kubernetes::{Labels, Taint};
use super::machine::{MachineSpec, ProviderId};
use super::record::{Condition, Intent, Phase, RemovalReason};
use crate::base64;
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
    /// Path of the script for [`Join::GuestExec`].
    pub join_script: Option<Arc<str>>,
    /// What its VMs are made to be.
    #[serde(default)]
    pub machine: MachineSpec,
    /// Proxmox tags, for people.
    pub tags: Vec<String>,
    pub provider_id: ProviderId,
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
    /// A machine whose claim is older is replaced.
    pub expire_after: Option<SignedDuration>,
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// One wanted machine. Never changes: a launch that fails closes its claim, and a new claim is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimSpec {
    /// Name of the NodePool.
    pub pool: PoolName,
    /// Name of the NodeClass.
    pub class: ClassName,
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// Number of the VM.
    #[cfg_attr(feature = "schema", schemars(range(min = 100, max = 999999999)))]
    pub vmid: Vmid,
    /// Name of the VM.
    pub vm_name: Arc<str>,
    /// The hypervisor that it is made on. A later migration shows in the status.
    pub hypervisor: Arc<str>,
    /// Storage for its disks; not given: where the template's are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
    /// Which clone makes it. Not given: its VM was there before it, or an earlier version of kproxide made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone: Option<CloneSpec>,
    /// Name of its size.
    pub instance_type: InstanceTypeName,
    /// Its size.
    pub resources: ClaimResources,
    /// Its address, if it got one from the class's `ipPool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub address: Option<std::net::IpAddr>,
    /// What its VM is made to be, as its class had it when it was planned. Not given: as `clone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Box<MachineSpec>>,
    /// Labels that its Node gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Annotations that its Node gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Labels,
    /// Taints that its Node gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub taints: Vec<Taint>,
    /// Digest of the template and the class that it is made from.
    pub template_digest: Digest,
    /// Digest of the host-selection policy that chose the hypervisor.
    pub policy_digest: Digest,
    /// Set if it was made for a machine of ours whose own claim was gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<Adopts>,
}

/// The clone that is asked for. Decided with the machine's place: what is asked of Proxmox is what was planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CloneSpec {
    /// The hypervisor that the template is on.
    pub hypervisor: Arc<str>,
    /// Number of the template.
    pub vmid: Vmid,
    /// Every disk is copied. If not, the clone is linked: it builds on the template's disks.
    #[serde(default)]
    pub full: bool,
    /// Storage for the copies. Not given: each beside the template's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
}

/// Size of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimResources {
    /// Thousandths of a core.
    pub milli_cores: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of the boot disk, if it is resized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// What the ownership marker of a machine says that was there before its claim.
//
// The proof of ownership does not become weaker by it. The marker's signature still covers our cluster, the claim that the machine was made for,
// this very VMID and the nonce, and only our key makes it; the claim merely says which of the markers that we have signed it expects. It says so in its
// specification, which is there from its first moment and never changes. So it can name nothing but a machine that we made: what it says of a VM that
// carries no such marker (a copy, another number, another cluster's) proves nothing, and that VM is left alone as ever. A machine whose own
// claim still exists is not touched for another claim: such a claim is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Adopts {
    /// UID of the claim that the machine was made for.
    #[serde(rename = "claimUID")]
    pub claim_uid: Uid,
    /// Random part of its marker.
    pub nonce: Arc<str>,
    /// It could not serve any more, and is taken over to be removed.
    #[serde(default)]
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

/// How far the machine is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimStatus {
    /// Where it stands.
    pub phase: Phase,
    /// What was about to be done when this was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The Proxmox task under way.
    // If its number is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upid: Option<Arc<str>>,
    /// Random part of the ownership marker.
    // Recorded with the first intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Arc<str>>,
    /// SMBIOS UUID of the VM, by which its Node is recognized.
    #[serde(rename = "smbiosUUID", skip_serializing_if = "Option::is_none")]
    pub smbios_uuid: Option<Uid>,
    /// Volumes of the VM.
    // As read back after the clone and the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub disks: Vec<Arc<str>>,
    /// Name of its Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<NodeName>,
    /// UID of its Node.
    #[serde(rename = "nodeUID", skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<Uid>,
    /// The hypervisor that it stands on now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<Arc<str>>,
    /// When the VM was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the present drain began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining_since: Option<Timestamp>,
    /// What holds and since when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))
    )]
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

/// One condition of an object; only changes of its status move the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimCondition {
    /// What is true or not.
    // As with a removal's reason, the schema lists no words.
    #[serde(rename = "type")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", length(min = 1, max = 63))
    )]
    pub kind: Condition,
    /// Whether it holds.
    #[serde(with = "truth")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", extend("enum" = ["True", "False", "Unknown"]))
    )]
    pub status: bool,
    /// When the status last changed.
    #[serde(rename = "lastTransitionTime")]
    pub since: Timestamp,
    /// One word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 63)))]
    pub reason: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub message: String,
}

/// The status of a condition in Kubernetes' words.
mod truth {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(holds: &bool, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(if *holds { "True" } else { "False" })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
        #[derive(Deserialize)]
        enum Word {
            True,
            False,
            Unknown,
        }
        Ok(match Word::deserialize(from)? {
            Word::True => true,
            Word::False | Word::Unknown => false,
        })
    }
}

/// Every limit is computed from this, so that it holds with any number of kproxides running.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerFacts {
    // These three stand in the object's metadata, and are empty in what is written as its specification.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub resource_version: Arc<str>,
    /// A person's word that a freeze is meant: the annotation `kproxide.dev/acknowledge-removal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub acknowledged: Option<Arc<str>>,
    /// A person's word on a mark that is not ours: the annotation `kproxide.dev/acknowledge-anchor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub anchor_acknowledged: Option<Arc<str>>,
    /// VM numbers that are promised, in use or in quarantine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 5000)))]
    pub entries: Vec<LedgerEntry>,
    /// What policies keep between decisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub policy_state: Vec<PolicyState>,
    /// Combinations that failed and are left alone for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub backoff: Vec<Backoff>,
    /// Removals that began a short time ago, as the breaker counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 5000)))]
    pub removals: Vec<Removal>,
    /// Nothing is removed, because too many machines went bad at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<Freeze>,
    /// Machines of ours without a claim, and since when.
    // They wait for their Nodes, or for the end of their grace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub orphans: Vec<OrphanSeen>,
    /// The VMs by which this Kubernetes cluster is told from its copies.
    // One for each Proxmox cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub anchors: Vec<Anchor>,
}

/// A VM by which this Kubernetes cluster is told from its copies: it must show `mark` or `next`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Anchor {
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// Number of the VM.
    pub vmid: Vmid,
    /// What it showed before `next`.
    // `None`: nothing of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// What it is moved on to.
    // An intent, so that it may show either.
    pub next: Mark,
    /// When a leader last found nothing amiss.
    pub at: Timestamp,
    /// Nobody looked after it for a while; watched since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched_since: Option<Timestamp>,
    /// What it shows instead. The annotation `kproxide.dev/acknowledge-anchor` takes it for ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<ForeignMark>,
}

/// What an anchor shows that was not written from this Ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForeignMark {
    /// Number of the VM that shows it.
    pub vmid: Vmid,
    /// What it shows.
    pub mark: Mark,
    /// When the first such mark was seen.
    pub since: Timestamp,
    /// How often another one was seen after it.
    pub moved: u32,
}

/// What an anchor shows: how often it was moved, and by which process. As text `7-x4f9`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OrphanSeen {
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// Number of the VM.
    pub vmid: Vmid,
    /// UID of the claim that it was made for.
    #[serde(rename = "claimUID")]
    pub claim_uid: Uid,
    /// First seen without it.
    // Its grace is counted from here, whatever restarts.
    pub since: Timestamp,
}

/// One VM number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerEntry {
    /// Name of the claim.
    pub claim: ClaimName,
    /// Name of its pool.
    pub pool: PoolName,
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// The number.
    pub vmid: Vmid,
    /// The hypervisor that it is made on.
    pub hypervisor: Arc<str>,
    /// Storage for its disks, if not the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
    /// Thousandths of a core.
    pub milli_cores: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of disk.
    #[serde(default)]
    pub disk_bytes: u64,
    /// Its address, if it got one from an `ipPool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub address: Option<std::net::IpAddr>,
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(with = "EntryStateSchema"))]
    pub state: EntryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum EntryState {
    /// Promised; its claim may not exist yet.
    Reserved { since: Timestamp },
    /// Its claim exists.
    Live,
    /// Its number and address are not used again before then. Counts for no limit.
    Quarantined { until: Timestamp },
}

/// [`EntryState`] for the API server, whose schemas cannot say which state has which moment.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is asked for")]
struct EntryStateSchema {
    /// Whether it is promised, in use or in quarantine.
    #[schemars(extend("enum" = ["reserved", "live", "quarantined"]))]
    state: String,
    /// Reserved since.
    since: Option<Timestamp>,
    /// In quarantine until.
    until: Option<Timestamp>,
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
            milli_cores: spec.resources.milli_cores,
            memory_bytes: spec.resources.memory_bytes,
            disk_bytes: spec.resources.disk_bytes.unwrap_or(0),
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

/// What a policy keeps for a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyState {
    /// Name of the pool.
    pub pool: PoolName,
    /// Kind of policy.
    pub kind: PolicyKind,
    /// Name of the policy.
    // The state is dropped when the pool uses another one.
    pub policy: Arc<str>,
    /// Placements ever made for this pool.
    pub sequence: u64,
    /// The last placement, as `cluster/hypervisor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<HypervisorId>,
    /// The policy's own bytes, in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "base64")]
    #[cfg_attr(feature = "schema", schemars(with = "String", length(max = 5464)))]
    pub state: Vec<u8>,
}

/// A combination that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Backoff {
    /// The hypervisor, as `cluster/hypervisor`.
    pub hypervisor: HypervisorId,
    /// The storage, if it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
    /// The class of error.
    // A stable word.
    pub class: Arc<str>,
    /// What the last failure was.
    // Empty if it was not written down.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 200)))]
    pub message: String,
    /// Failures in a row.
    pub failures: u32,
    /// Left alone until then.
    pub until: Timestamp,
}

/// A machine in service that was begun to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Removal {
    /// Name of the claim.
    pub claim: ClaimName,
    /// When it began.
    // The last time, if it was given up in between.
    pub at: Timestamp,
    /// Why, in the word that the claim's condition carries.
    // No list of words in the schema: Helm does not bring definitions up to date, and a version with a new reason must be able to write it.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub reason: RemovalReason,
}

/// What the annotation `kproxide.dev/acknowledge-removal` ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
