//! NodeClass: what a machine is made from and how it becomes a Node.

use std::collections::BTreeMap;

use kproxide_planner::facts::{ProviderId, VmOptions};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{CpuAndMemory, Period, StatusCondition};

/// What machines are made from.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kproxide.dev",
    version = "v1alpha1",
    kind = "NodeClass",
    plural = "nodeclasses",
    category = "kproxide",
    status = "NodeClassStatus",
    derive = "PartialEq",
    doc = "What machines are made from: a VM template, the sizes on offer, and how a started VM becomes a Node.",
    printcolumn(name = "Template", type_ = "string", json_path = ".spec.template.name"),
    printcolumn(
        name = "Types",
        type_ = "string",
        json_path = ".spec.instanceTypes[*].name"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassSpec {
    /// The VM template to clone.
    pub template: Template,
    /// The sizes on offer.
    #[schemars(length(min = 1, max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub instance_types: Vec<InstanceType>,
    /// Architecture that the Nodes will report (`kubernetes.io/arch`).
    #[serde(default)]
    pub arch: Arch,
    /// Operating system that the Nodes will report (`kubernetes.io/os`).
    #[serde(default)]
    pub os: Os,
    /// What a Node of this class offers less than its VM has (kernel, kubelet, eviction thresholds). Used until a real Node has shown its own.
    #[serde(default = "default_overhead")]
    pub overhead: CpuAndMemory,
    /// Settings for cloud-init in the VM. Not given: those of the template stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// Options of the VM. Not given: those of the template stay.
    #[serde(default, skip_serializing_if = "VmOptions::is_template")]
    pub vm_options: VmOptions,
    /// How a started VM joins the Kubernetes cluster.
    #[serde(default)]
    pub join: Join,
    /// Proxmox tags for people to find the VMs by; kproxide itself never trusts tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(regex(pattern = "^[a-z0-9_][a-z0-9_+.-]*$"), length(max = 64))
    )]
    pub tags: Vec<String>,
    /// Who writes the Nodes' `spec.providerID`, which can be written only once.
    #[serde(default, rename = "providerID")]
    pub provider_id: ProviderId,
    /// How long the steps of a launch may take.
    #[serde(default)]
    pub timeouts: Timeouts,
}

fn default_overhead() -> CpuAndMemory {
    CpuAndMemory {
        cpu: "0".into(),
        memory: "512Mi".into(),
    }
}

/// The VM template to clone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.clone == 'linked' && has(self.storage))",
    "message": "template.storage cannot be used with clone: linked, which stays on the template's storage. Use clone: full, or leave storage out"
}]))]
pub struct Template {
    /// Name of the template in Proxmox.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `shared`: one template that can be cloned to every hypervisor, because its disks are on shared storage. `local`: a template of this
    /// name on each hypervisor; machines are made where it is.
    #[serde(default)]
    pub placement: TemplatePlacement,
    /// `linked` clones share the template's disk; `full` ones copy it. `auto`: linked where storage and template allow.
    #[serde(default)]
    pub clone: CloneMode,
    /// Storage for the disks of full clones. Not given: where the template's are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub storage: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TemplatePlacement {
    #[default]
    Shared,
    Local,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CloneMode {
    #[default]
    Auto,
    Linked,
    Full,
}

/// One size on offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Name of the size; the Nodes carry it as `node.kubernetes.io/instance-type`.
    #[schemars(
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
        length(max = 63)
    )]
    pub name: String,
    /// Virtual cores, in one socket.
    #[schemars(range(min = 1, max = 512))]
    pub cores: u32,
    /// Memory in MiB.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 128, max = 16777216))]
    pub memory_mib: u32,
    /// Size of the boot disk in GiB; it can only grow. Not given: the template's.
    #[serde(default, rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 131072))]
    pub disk_gib: Option<u32>,
    /// How many pods the kubelet takes.
    #[serde(default = "default_max_pods")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_pods: u32,
    /// Devices and other extended resources that the Nodes will offer, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extended_resources: BTreeMap<String, u32>,
}

fn default_max_pods() -> u32 {
    110
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    #[default]
    Amd64,
    Arm64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Os {
    #[default]
    Linux,
}

/// Settings for cloud-init, through Proxmox's cloud-init drive.
///
/// There is no field for a fixed address: every VM of the class would get it. Use `ipPool`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.dhcp) && self.dhcp && has(self.ipPool))",
    "message": "cloudInit.dhcp: true and cloudInit.ipPool exclude each other"
}]))]
pub struct CloudInit {
    /// Name of the user that cloud-init makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub user: Option<String>,
    /// Public SSH keys for that user, one per entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 8192)))]
    pub ssh_keys: Vec<String>,
    /// Take the first interface's address from DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<bool>,
    /// Give each VM an address of its own from these ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_pool: Option<IpPool>,
    /// DNS servers, separated by spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub nameserver: Option<String>,
    /// DNS search domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub search_domain: Option<String>,
}

/// Addresses that are handed out, one per machine; an address comes back when its machine is proven gone and its quarantine is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpPool {
    /// The network, such as `10.0.0.0/24`; its length is the VMs' prefix length.
    #[schemars(regex(pattern = "^[0-9A-Fa-f.:]+/[0-9]{1,3}$"), length(max = 64))]
    pub cidr: String,
    /// The router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 45))]
    pub gateway: Option<String>,
    /// The addresses to hand out, in this order.
    #[schemars(length(min = 1, max = 64))]
    pub ranges: Vec<IpRange>,
}

/// Addresses from first to last, both included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpRange {
    /// The first address.
    #[schemars(length(min = 2, max = 45))]
    pub first: String,
    /// The last address.
    #[schemars(length(min = 2, max = 45))]
    pub last: String,
}

/// How a started VM joins the Kubernetes cluster: exactly one of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.template) ? 1 : 0) + (has(self.guestExec) ? 1 : 0) == 1",
    "message": "set exactly one of join.template and join.guestExec"
}]))]
pub struct Join {
    /// The template joins by itself at first boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<JoinByTemplate>,
    /// A script runs in the VM through the QEMU guest agent, once per machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_exec: Option<JoinByGuestExec>,
}

impl Default for Join {
    fn default() -> Self {
        Self {
            template: Some(JoinByTemplate {}),
            guest_exec: None,
        }
    }
}

/// Nothing to set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JoinByTemplate {}

/// A script runs in the VM through the QEMU guest agent, once per machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinByGuestExec {
    /// Path of the mounted file that holds the script, in the folder of `--join-dir`; it usually holds a join token, hence a file from a Secret.
    #[schemars(length(min = 1, max = 4096))]
    pub command_secret_file: String,
}

/// How long the steps of a launch may take. A machine that takes longer is given up and replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// From the clone request to a started VM.
    pub provision: Period,
    /// From its start to the guest agent's first answer, where the agent is needed.
    pub agent: Period,
    /// From its start to a Ready Node.
    pub join: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            provision: "5m".into(),
            agent: "3m".into(),
            join: "10m".into(),
        }
    }
}

/// Whether the class can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassStatus {
    /// Ready, with the reason if not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
}
