//! Ledger: what is promised and what is out of use. One object, replaced as a whole by compare-and-set.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Every limit is computed from this, so that it holds with any number of kproxides running.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kproxide.dev",
    version = "v1alpha1",
    kind = "Ledger",
    plural = "ledgers",
    category = "kproxide",
    derive = "PartialEq",
    doc = "kproxide's books: reserved, used and quarantined VM numbers and addresses. Not for editing, unless an Event says so.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct LedgerSpec {
    /// VM numbers that are promised, in use or in quarantine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5000), extend("x-kubernetes-list-type" = "atomic"))]
    pub entries: Vec<LedgerEntry>,
    /// What policies keep between decisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub policy_state: Vec<LedgerPolicyState>,
    /// Combinations that failed and are left alone for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub backoff: Vec<LedgerBackoff>,
    /// Removals that began a short time ago, as the breaker counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5000), extend("x-kubernetes-list-type" = "atomic"))]
    pub removals: Vec<LedgerRemoval>,
    /// Nothing is removed, because too many machines went bad at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<LedgerFreeze>,
    /// Machines of ours without a claim, and since when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub orphans: Vec<LedgerOrphan>,
    /// The VMs by which this Kubernetes cluster is told from its copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub anchors: Vec<LedgerAnchor>,
}

/// A VM by which this Kubernetes cluster is told from its copies: it must show `mark` or `next`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerAnchor {
    /// Name of the ProxmoxCluster.
    pub cluster: String,
    /// Number of the VM.
    pub vmid: u32,
    /// What it showed before `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// What it is moved on to.
    pub next: String,
    /// When a leader last found nothing amiss.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// Nobody looked after it for a while; watched since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub watched_since: Option<String>,
    /// What it shows instead. The annotation `kproxide.dev/acknowledge-anchor` takes it for ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<LedgerForeignMark>,
}

/// What an anchor shows that was not written from this Ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerForeignMark {
    /// Number of the VM that shows it.
    pub vmid: u32,
    /// What it shows.
    pub mark: String,
    /// When the first such mark was seen.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// How often another one was seen after it.
    pub moved: u32,
}

/// A machine of ours without a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerOrphan {
    /// Name of the ProxmoxCluster.
    pub cluster: String,
    /// Number of the VM.
    pub vmid: u32,
    /// UID of the claim that it was made for.
    #[serde(rename = "claimUID")]
    pub claim_uid: String,
    /// First seen without it.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

/// One VM number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// Name of the claim.
    pub claim: String,
    /// Name of its pool.
    pub pool: String,
    /// Name of the ProxmoxCluster.
    pub cluster: String,
    /// The number.
    pub vmid: u32,
    /// The hypervisor that it is made on.
    pub hypervisor: String,
    /// Storage for its disks, if not the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Thousandths of a core.
    pub milli_cores: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of disk.
    #[serde(default)]
    pub disk_bytes: u64,
    /// Its address, if it got one from an `ipPool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether it is promised, in use or in quarantine.
    pub state: LedgerEntryState,
    /// Reserved since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<String>,
    /// In quarantine until.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub until: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LedgerEntryState {
    /// Promised; its claim may not exist yet.
    Reserved,
    /// Its claim exists.
    Live,
    /// Not used again for a while.
    Quarantined,
}

/// What a policy keeps for a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerPolicyState {
    /// Name of the pool.
    pub pool: String,
    /// Kind of policy.
    pub kind: LedgerPolicyKind,
    /// Name of the policy.
    pub policy: String,
    /// Placements ever made for this pool.
    pub sequence: u64,
    /// The last placement, as `cluster/hypervisor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The policy's own bytes, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 5464))]
    pub state: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerPolicyKind {
    HostSelection,
    ScaleDown,
    Labels,
}

/// A machine in service that was begun to be removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerRemoval {
    /// Name of the claim.
    pub claim: String,
    /// When it began.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// Why, in the word that the claim's condition carries.
    pub reason: String,
}

/// What the annotation `kproxide.dev/acknowledge-removal` ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerFreeze {
    /// When it began, or last grew.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// So many machines were bad then.
    pub machines: u32,
}

/// A combination that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerBackoff {
    /// The hypervisor, as `cluster/hypervisor`.
    pub hypervisor: String,
    /// The storage, if it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// The class of error.
    pub class: String,
    /// What the last failure was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 200))]
    pub message: String,
    /// Failures in a row.
    pub failures: u32,
    /// Left alone until then.
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
}
