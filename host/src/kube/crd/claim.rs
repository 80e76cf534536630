//! NodeClaim: the durable record of one wanted machine, written before anything is created.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{StatusCondition, Taint};

/// One wanted machine. Never changes: a launch that fails closes its claim, and a new claim is made.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kproxide.dev",
    version = "v1alpha1",
    kind = "NodeClaim",
    plural = "nodeclaims",
    category = "kproxide",
    status = "NodeClaimStatus",
    derive = "PartialEq",
    doc = "The record of one machine, made by kproxide. Deleting it drains the Node, under PodDisruptionBudgets and the pool's drainTimeout, and destroys the VM.",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(
        name = "Hypervisor",
        type_ = "string",
        json_path = ".status.hypervisor"
    ),
    printcolumn(name = "VMID", type_ = "integer", json_path = ".spec.vmid"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.instanceType"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Initialized\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Template",
        type_ = "string",
        json_path = ".spec.templateDigest",
        priority = 1
    ),
    printcolumn(
        name = "Policy",
        type_ = "string",
        json_path = ".spec.policyDigest",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "spec is immutable: delete the claim, and a new one is made if the machine is still needed"
}]))]
pub struct NodeClaimSpec {
    /// Name of the NodePool.
    pub pool: String,
    /// Name of the NodeClass.
    pub class: String,
    /// Name of the ProxmoxCluster.
    pub cluster: String,
    /// Number of the VM.
    #[schemars(range(min = 100, max = 999999999))]
    pub vmid: u32,
    /// Name of the VM.
    pub vm_name: String,
    /// The hypervisor that it is made on. A later migration shows in the status.
    pub hypervisor: String,
    /// Storage for its disks; not given: where the template's are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Name of its size.
    pub instance_type: String,
    /// Its size.
    pub resources: ClaimResources,
    /// Its address, if it got one from the class's `ipPool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Labels that its Node gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations that its Node gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Taints that its Node gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub taints: Vec<Taint>,
    /// Digest of the template and the class that it is made from.
    pub template_digest: String,
    /// Digest of the host-selection policy that chose the hypervisor.
    pub policy_digest: String,
    /// Set if it was made for a machine of ours whose own claim was gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<ClaimAdopts>,
}

/// What the ownership marker of a machine says that was there before its claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimAdopts {
    /// UID of the claim that the machine was made for.
    #[serde(rename = "claimUID")]
    pub claim_uid: String,
    /// Random part of its marker.
    pub nonce: String,
    /// It could not serve any more, and is taken over to be removed.
    #[serde(default)]
    pub condemned: bool,
}

/// Size of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimResources {
    /// Thousandths of a core.
    pub milli_cores: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of the boot disk, if it is resized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// How far the machine is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// Where it stands.
    #[serde(default)]
    pub phase: ClaimPhase,
    /// What was about to be done when this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<ClaimIntent>,
    /// The Proxmox task under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upid: Option<String>,
    /// Random part of the ownership marker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// SMBIOS UUID of the VM, by which its Node is recognized.
    #[serde(
        default,
        rename = "smbiosUUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub smbios_uuid: Option<String>,
    /// Volumes of the VM.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub disks: Vec<String>,
    /// Name of its Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// UID of its Node.
    #[serde(default, rename = "nodeUID", skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// The hypervisor that it stands on now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// When the VM was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub started_at: Option<String>,
    /// When the present drain began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub draining_since: Option<String>,
    /// What holds and since when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClaimPhase {
    /// Nothing was asked of Proxmox yet.
    #[default]
    Pending,
    /// Clone, configuration and start are under way.
    Launching,
    /// The VM was started; its Node is awaited.
    Launched,
    /// Its Node was recognized; startup taints or readiness are awaited.
    Registered,
    /// In service.
    Initialized,
    /// Its Node is being emptied.
    Draining,
    /// The VM is being destroyed.
    Terminating,
}

/// What was about to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimIntent {
    /// The operation.
    pub op: ClaimOp,
    /// Counts from 1 for each operation.
    pub attempt: u32,
    /// Who wrote it: the Lease's transitions and a random part.
    pub epoch: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClaimOp {
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
