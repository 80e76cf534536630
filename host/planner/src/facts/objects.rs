//! The user's objects and kproxide's own records, as the planner reads them. NodePool, NodeClass and ProxmoxCluster are
//! converted into these (`host/src/kube/convert`). Of NodeClaim and Ledger, these types are the API's `spec` and
//! `status`.

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
    /// Why kproxide cannot use the object as it stands. It then launches nothing there.
    pub problem: Option<String>,
}

/// NodeClass: what a machine is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassFacts {
    pub template: Arc<str>,
    /// Each hypervisor has a template of this name, and a clone stays where its template is.
    pub local_template: bool,
    /// Storage for the disks of a full clone. `None`: each disk goes where the template's is.
    pub storage: Option<StorageName>,
    /// Whether to make linked clones, which at first take no space. `None`: where storage and template allow it.
    pub linked: Option<bool>,
    pub instance_types: Vec<InstanceType>,
    pub arch: Arc<str>,
    pub os: Arc<str>,
    /// Allocatable is the capacity less this, until a Node of the type has shown its own.
    pub overhead_milli_cores: u64,
    pub overhead_memory_bytes: u64,
    /// Addresses that kproxide hands out, in this order. `None`: it hands out none.
    pub addresses: Option<Vec<AddressRange>>,
    pub timeouts: Timeouts,
    /// How a started machine becomes a Node.
    pub join: Join,
    /// Path of the script for [`Join::GuestExec`].
    pub join_script: Option<Arc<str>>,
    /// Settings of its VMs.
    #[serde(default)]
    pub machine: MachineSpec,
    /// Proxmox tags, for people.
    pub tags: Vec<String>,
    pub provider_id: ProviderId,
    /// Changes when the class changes so that new machines would differ. With the template's digest it will tell drift.
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
    /// kproxide runs a script through the QEMU guest agent, once per claim.
    GuestExec,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeouts {
    /// From the clone's intent to a started VM.
    pub provision: SignedDuration,
    /// From start to the guest agent's first answer. Counts only with [`Join::GuestExec`].
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
    /// Something else (a CNI, say) removes them. The Node counts as Initialized only after that.
    pub startup_taints: Vec<Taint>,
    pub policies: PoolPolicies,
    pub paused: bool,
    pub scale_up_stabilization: SignedDuration,
    pub scale_down: ScaleDown,
    pub drain_timeout: SignedDuration,
    /// kproxide replaces a Node that has not been Ready for this long.
    pub repair_after: SignedDuration,
    /// kproxide replaces a machine whose claim is older than this.
    pub expire_after: Option<SignedDuration>,
    /// Room that kproxide keeps free in the pool for pods to come.
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

/// Which version of a policy answers now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFacts {
    pub digest: Digest,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleDown {
    pub enabled: bool,
    /// H in `A × (1 + H) < T − K`: A is the load, T what all Nodes have, K what the removed Node has.
    pub load_headroom: f64,
    pub stabilization: SignedDuration,
    pub min_node_age: SignedDuration,
    pub unneeded_time: SignedDuration,
    /// At most this many removals of the pool at once.
    pub budget: u32,
    pub blocked_by: BlockedBy,
}

/// Which pods keep their Node.
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
    /// A user or kproxide has deleted the claim: kproxide drains the Node and destroys the machine.
    pub deleting_since: Option<Timestamp>,
    pub has_finalizer: bool,
    pub spec: ClaimSpec,
    pub status: ClaimStatus,
    /// The annotation `kproxide.dev/replace: "true"`: kproxide replaces the machine as soon as the budget allows.
    pub replace: bool,
    pub do_not_disrupt: bool,
    pub paused: bool,
}

/// One wanted machine. It never changes. When a launch fails, kproxide closes the claim and makes a new one.
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
    /// VMID of the machine.
    #[cfg_attr(feature = "schema", schemars(range(min = 100, max = 999999999)))]
    pub vmid: Vmid,
    /// Name of the VM.
    pub vm_name: Arc<str>,
    /// The hypervisor on which kproxide makes it. If Proxmox migrates it later, the status says where to.
    pub hypervisor: Arc<str>,
    /// Storage for its disks. Not given: each disk goes where the template's is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
    /// How kproxide clones it. Not given: the VM existed before the NodeClaim, or an earlier version made the
    /// NodeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone: Option<CloneSpec>,
    /// Name of its instance type.
    pub instance_type: InstanceTypeName,
    /// Its size.
    pub resources: ClaimResources,
    /// Its address, if it got one from the class's `ipPool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub address: Option<std::net::IpAddr>,
    /// Settings of its VM, as the class had them when kproxide planned it. Not given: for the same reasons as `clone`.
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
    /// Digest of the template and the NodeClass that it is made from.
    pub template_digest: Digest,
    /// Digest of the host-selection policy that chose the hypervisor.
    pub policy_digest: Digest,
    /// Set if kproxide made it for a machine whose own NodeClaim was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<Adopts>,
}

/// The clone that kproxide asks Proxmox for. The planner decides it together with the machine's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CloneSpec {
    /// The hypervisor that the template is on.
    pub hypervisor: Arc<str>,
    /// VMID of the template.
    pub vmid: Vmid,
    /// true: a full clone, with a copy of each disk. false: a linked clone, which builds on the template's disks.
    #[serde(default)]
    pub full: bool,
    /// Storage for the copies. Not given: each goes where the template's disk is.
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

/// What kproxide expects in the ownership marker of a machine that existed before this NodeClaim.
//
// This does not weaken the proof of ownership. The marker's signature still covers our cluster, the machine's first
// claim, its VMID and the nonce, and only our key can make it. The new claim only says which of our signed markers it
// expects, in its specification, which never changes. If the VM carries another marker or none (a copy, another VMID,
// another cluster's), nothing is proven and the VM is left alone. While a machine's first claim still exists, a second
// claim for it is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Adopts {
    /// UID of the NodeClaim that the machine was made for.
    #[serde(rename = "claimUID")]
    pub claim_uid: Uid,
    /// Random part of its ownership marker.
    pub nonce: Arc<str>,
    /// The machine's Node was not Ready for too long: kproxide takes the machine over in order to remove it.
    #[serde(default)]
    pub condemned: bool,
}

impl ClaimSpec {
    /// It was made for a machine without a claim whose Node is not Ready, in order to remove it as any other machine.
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
    /// How far the launch or the removal is.
    pub phase: Phase,
    /// The operation that kproxide was about to do when it wrote this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The Proxmox task that runs (its UPID).
    // Not set while the UPID is unknown: the answer to the request was lost, say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upid: Option<Arc<str>>,
    /// Random part of the ownership marker.
    // Recorded with the first intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Arc<str>>,
    /// SMBIOS UUID of the VM. kproxide recognizes the Node by it.
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
    /// The hypervisor that the VM is on now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<Arc<str>>,
    /// When the VM was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the present drain began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining_since: Option<Timestamp>,
    /// What is true of the machine, and since when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))
    )]
    pub conditions: Vec<ClaimCondition>,
}

impl ClaimFacts {
    /// The hypervisor on which its VM was last seen.
    pub fn hypervisor(&self) -> &Arc<str> {
        let followed = self.status.hypervisor.as_ref();
        followed.unwrap_or(&self.spec.hypervisor)
    }
}

impl ClaimStatus {
    /// Since when the condition is true. `None`: it is not.
    pub fn since(&self, condition: Condition) -> Option<Timestamp> {
        self.conditions
            .iter()
            .find(|c| c.kind == condition && c.status)
            .map(|c| c.since)
    }
}

/// One condition of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimCondition {
    /// Type of the condition, such as `Initialized`.
    // The schema lists no types, as it lists no reasons of removals (see there).
    #[serde(rename = "type")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", length(min = 1, max = 63))
    )]
    pub kind: Condition,
    /// True, False or Unknown.
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

/// All limits are computed from this one object, so that they hold even if several copies of kproxide run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerFacts {
    // The first three fields come from the object's metadata. They are never written into its spec.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub resource_version: Arc<str>,
    /// The annotation `kproxide.dev/acknowledge-removal`: a person confirms that the removals in a freeze are intended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub acknowledged: Option<Arc<str>>,
    /// The annotation `kproxide.dev/acknowledge-anchor`: a person lets kproxide take a foreign mark as its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub anchor_acknowledged: Option<Arc<str>>,
    /// VMIDs that are promised, in use or in quarantine. At most 5,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 5000)))]
    pub entries: Vec<LedgerEntry>,
    /// State that policies keep between their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub policy_state: Vec<PolicyState>,
    /// Hypervisors and storages where launches failed, and how long kproxide makes no machine there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub backoff: Vec<Backoff>,
    /// Removals of the last minutes. kproxide computes its rate limit from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 5000)))]
    pub removals: Vec<Removal>,
    /// Set while kproxide removes nothing because too many machines went bad at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<Freeze>,
    /// kproxide's machines without a NodeClaim, and since when.
    // kproxide waits until their Nodes are Ready, or until `--orphan-grace` is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub orphans: Vec<OrphanSeen>,
    /// The VMs `kproxide-anchor-NUMBER`, one in each Proxmox cluster. They tell this Kubernetes cluster from a copy of
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub anchors: Vec<Anchor>,
}

/// The VM `kproxide-anchor-NUMBER` of one Proxmox cluster. It must show `mark` or `next`: if not, a copy has written to
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Anchor {
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// Number of the VM.
    pub vmid: Vmid,
    /// The mark before `next`.
    // `None`: it has not carried a mark of ours yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// The mark that kproxide is writing to it.
    // This is an intent: the VM may show `mark` or `next`.
    pub next: Mark,
    /// When kproxide last found the mark to be right.
    pub at: Timestamp,
    /// Since when kproxide watches the VM, because it did not look at it for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched_since: Option<Timestamp>,
    /// The mark that it shows instead. With the annotation `kproxide.dev/acknowledge-anchor` kproxide accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<ForeignMark>,
}

/// A mark that was not written from this Ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForeignMark {
    /// VMID of the VM that shows it.
    pub vmid: Vmid,
    /// The mark.
    pub mark: Mark,
    /// When kproxide first saw such a mark.
    pub since: Timestamp,
    /// How often it changed since then.
    pub moved: u32,
}

/// What an anchor shows: how often it was written, and a random word of the process that wrote it. As text: `7-x4f9`.
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

/// One of kproxide's machines, without a NodeClaim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OrphanSeen {
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// Number of the VM.
    pub vmid: Vmid,
    /// UID of the NodeClaim that it was made for.
    #[serde(rename = "claimUID")]
    pub claim_uid: Uid,
    /// When kproxide first saw it without a NodeClaim.
    // `--orphan-grace` counts from here, also after a restart.
    pub since: Timestamp,
}

/// One VMID.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerEntry {
    /// Name of the NodeClaim.
    pub claim: ClaimName,
    /// Name of its NodePool.
    pub pool: PoolName,
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// The VMID.
    pub vmid: Vmid,
    /// The hypervisor on which kproxide makes it.
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
    /// kproxide does not use the VMID and the address again before this time. Counts for no limit.
    Quarantined { until: Timestamp },
}

/// [`EntryState`] for the API server. Its schemas cannot say which state goes with which time.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is asked for")]
struct EntryStateSchema {
    /// reserved: promised. live: in use. quarantined: not to be used again before `until`.
    #[schemars(extend("enum" = ["reserved", "live", "quarantined"]))]
    state: String,
    /// When it was reserved.
    since: Option<Timestamp>,
    /// When the quarantine ends.
    until: Option<Timestamp>,
}

impl LedgerEntry {
    /// The entry of a claim. A disk without a size of its own counts as 0: only the placement knows how large the
    /// template's is.
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

/// State that a policy keeps for a NodePool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyState {
    /// Name of the NodePool.
    pub pool: PoolName,
    /// Kind of policy.
    pub kind: PolicyKind,
    /// Name of the policy.
    // kproxide drops the state when the pool uses another policy.
    pub policy: Arc<str>,
    /// How many machines were placed for this pool so far.
    pub sequence: u64,
    /// The last placement, as `cluster/hypervisor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<HypervisorId>,
    /// The policy's own state, in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "base64")]
    #[cfg_attr(feature = "schema", schemars(with = "String", length(max = 5464)))]
    pub state: Vec<u8>,
}

/// A hypervisor, or a storage of it, where launches failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Backoff {
    /// The hypervisor, as `cluster/hypervisor`.
    pub hypervisor: HypervisorId,
    /// The storage, if it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
    /// Kind of error, in one word.
    pub class: Arc<str>,
    /// Text of the last failure.
    // Empty if an earlier version of kproxide wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 200)))]
    pub message: String,
    /// Failures in a row.
    pub failures: u32,
    /// kproxide makes no machine there until then.
    pub until: Timestamp,
}

/// The removal of a machine that was in service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Removal {
    /// Name of the NodeClaim.
    pub claim: ClaimName,
    /// When it began. If it began several times, the last time.
    pub at: Timestamp,
    /// Reason of the removal, in one word.
    // The schema does not list the words. Helm does not upgrade CRDs, and a later version must be able to write new
    // words.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub reason: RemovalReason,
}

/// kproxide removes nothing because too many machines went bad at once. `kproxide.dev/acknowledge-removal` ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Freeze {
    /// When it began or last grew.
    pub since: Timestamp,
    /// How many machines were bad then.
    pub machines: u32,
}

/// Why a launch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFailure {
    /// As in [`Backoff`].
    pub class: Arc<str>,
    pub message: String,
}
