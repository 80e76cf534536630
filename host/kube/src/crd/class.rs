//! NodeClass: what a machine is made from and how it becomes a Node.

use std::collections::BTreeMap;

use kproxide_planner::facts::{LearnedNode, ProviderId, VmOptions};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Amount, CpuAndMemory, Period, StatusCondition};

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
        name = "First type",
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
    /// What a Node of this class offers less than its VM has: kernel, kubelet, eviction thresholds. kproxide uses this
    /// until a first Node of the size has shown its own.
    #[serde(default = "default_overhead")]
    pub overhead: CpuAndMemory,
    /// Settings for cloud-init in the VM. Not given: the template's stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// Options of the VM. Not given: the template's stay.
    #[serde(default, skip_serializing_if = "VmOptions::is_template")]
    pub vm_options: VmOptions,
    /// What CSI drivers will say of a Node of this class. kproxide uses this until a first Node has shown it. Most
    /// classes need no entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["driver"]))]
    pub csi: Vec<Csi>,
    /// How a started VM joins the Kubernetes cluster.
    #[serde(default)]
    pub join: Join,
    /// Proxmox tags, such as `kubernetes`, for people to find the VMs by. kproxide itself does not look at tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(regex(pattern = "^[a-z0-9_][a-z0-9_+.-]*$"), length(max = 64))
    )]
    pub tags: Vec<String>,
    /// Who writes the Nodes' `spec.providerID`. Kubernetes lets it be written only once.
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
    /// `shared`: there is one template, on storage that all hypervisors share. `local`: each hypervisor has a template
    /// of this name, and a machine is made where its template is.
    #[serde(default)]
    pub placement: TemplatePlacement,
    /// `linked`: the clone builds on the template's disks. `full`: the clone has a copy of them. `auto`: linked where
    /// storage and template allow it.
    #[serde(default)]
    pub clone: CloneMode,
    /// Storage for the disks of full clones, such as `ceph`. Not given: each disk goes where the template's is.
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
    /// Name of the size. The Nodes carry it as the label `node.kubernetes.io/instance-type`.
    #[schemars(
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
        length(max = 63)
    )]
    pub name: String,
    /// Virtual cores, in one socket. 1 to 512.
    #[schemars(range(min = 1, max = 512))]
    pub cores: u32,
    /// Memory in MiB, at least 128.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 128, max = 16777216))]
    pub memory_mib: u32,
    /// Size of the boot disk in GiB. It cannot be smaller than the template's. Not given: the template's size.
    #[serde(default, rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 131072))]
    pub disk_gib: Option<u32>,
    /// How many pods the kubelet takes (its setting maxPods). 1 to 1000.
    #[serde(default = "default_max_pods")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_pods: u32,
    /// Devices and other extended resources that the Nodes will offer, such as `nvidia.com/gpu: 1`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extended_resources: BTreeMap<String, u64>,
}

/// What a CSI driver will say of a Node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Csi {
    /// Name of the driver, such as `topolvm.io`.
    #[schemars(length(min = 1, max = 253))]
    pub driver: String,
    /// How many of its volumes a Node holds. Not given: 24 for `csi.proxmox.sinextra.dev`, no limit for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub limit: Option<u32>,
    /// The largest volume that can be made on a new Node, such as `100Gi`. Not given: kproxide tries a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amount>,
    /// Labels that the driver gives to the Node. The value is `node` (the Node's name), `hypervisor`, `cluster` (the
    /// Proxmox cluster), or `=` and a text that is the same on all Nodes, such as `=rack1`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub topology: BTreeMap<String, String>,
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
/// There is no field for a fixed address, because every VM of the class would get it. Use `ipPool`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.dhcp) && self.dhcp && has(self.ipPool))",
    "message": "cloudInit.dhcp: true and cloudInit.ipPool exclude each other"
}]))]
pub struct CloudInit {
    /// Name of the user that cloud-init creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub user: Option<String>,
    /// Public SSH keys for that user, one per entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 8192)))]
    pub ssh_keys: Vec<String>,
    /// true: the first interface gets its address from DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<bool>,
    /// kproxide gives each VM an address of its own from these ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_pool: Option<IpPool>,
    /// Addresses of DNS servers, separated by spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub nameserver: Option<String>,
    /// DNS search domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub search_domain: Option<String>,
}

/// Addresses for machines, one for each. kproxide uses an address again once its machine is proven gone and the time of
/// `--quarantine` is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpPool {
    /// The network with its prefix length, such as `10.0.20.0/24`.
    #[schemars(regex(pattern = "^[0-9A-Fa-f.:]+/[0-9]{1,3}$"), length(max = 64))]
    pub cidr: String,
    /// Address of the router, such as `10.0.20.1`. A link-local one, such as `fe80::1`, is taken
    /// for an IPv6 network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 45))]
    pub gateway: Option<String>,
    /// The addresses that kproxide hands out, in this order.
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
    /// The VM joins by itself at first boot: its template holds what it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<JoinByTemplate>,
    /// kproxide runs a script in the VM, once, through the QEMU guest agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_exec: Option<JoinByGuestExec>,
    /// For how long kproxide keeps the last machine whose launch failed, stopped, so that you can look at it: at most 7
    /// days. It goes earlier if a new machine needs its room, or if another one fails. Not given: 0s, so kproxide
    /// destroys it at once. The kept machine counts in all limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_failed: Option<Period>,
}

impl Default for Join {
    fn default() -> Self {
        Self {
            template: Some(JoinByTemplate {}),
            guest_exec: None,
            keep_failed: None,
        }
    }
}

/// Nothing to set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JoinByTemplate {}

/// kproxide runs a script in the VM, once, through the QEMU guest agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinByGuestExec {
    /// Path of the file with the script, in the folder of `--join-dir`, such as `/etc/kproxide/join/command`. Mount it
    /// from a Secret, because it usually holds a join token.
    #[schemars(length(min = 1, max = 4096))]
    pub command_secret_file: String,
}

/// How long the steps of a launch may take. kproxide removes a machine that takes longer, and makes another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// From the clone request to the end of the clone, while its task runs. A full clone of a large disk takes minutes.
    pub clone: Period,
    /// From the end of the clone to a started VM, and from the clone request to the start of its task.
    pub provision: Period,
    /// From the VM's start to the guest agent's first answer. It counts only with `join.guestExec`.
    pub agent: Period,
    /// From the VM's start to a Ready Node.
    pub join: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            clone: "1h".into(),
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
    /// What the last five Nodes of each instance type have shown. kproxide plans with it when no Node of the type is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub learned: Vec<LearnedNode>,
}
