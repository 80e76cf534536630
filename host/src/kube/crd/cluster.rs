//! ProxmoxCluster: one Proxmox VE cluster, a region.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{CpuAndMemory, StatusCondition};

/// Where machines may be made, how to get there, and what must stay free.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kproxide.dev",
    version = "v1alpha1",
    kind = "ProxmoxCluster",
    plural = "proxmoxclusters",
    shortname = "pvec",
    category = "kproxide",
    status = "ProxmoxClusterStatus",
    derive = "PartialEq",
    doc = "A Proxmox VE cluster that kproxide may make machines in. Its name is the region (`topology.kubernetes.io/region`).",
    printcolumn(name = "Reachable", type_ = "boolean", json_path = ".status.reachable"),
    printcolumn(name = "Quorate", type_ = "boolean", json_path = ".status.quorate"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".spec.pool",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterSpec {
    /// Base URLs of the API, such as `https://pve1.example:8006`. Any of them may serve; the next one is tried when one fails.
    #[schemars(
        length(min = 1, max = 16),
        inner(regex(pattern = "^https://[^/?#]+/?$"), length(max = 255))
    )]
    pub endpoints: Vec<String>,
    /// Which certificates are trusted. Not given: those that the system's CA certificates vouch for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Name of the mounted folder that holds `token-id` and `token-secret`, or `username` and `password`. Changes are picked up.
    #[schemars(
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
        length(max = 253)
    )]
    pub credentials: String,
    /// The Proxmox pool that our VMs are put into. It must exist, and should hold nothing else but the templates.
    #[serde(default = "default_pool")]
    #[schemars(
        regex(pattern = "^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}$"),
        length(max = 128)
    )]
    pub pool: String,
    /// Numbers that our VMs may take. Nothing else should use them.
    pub vmid_range: VmidRange,
    /// Which hypervisors may be used.
    #[serde(default)]
    pub hypervisors: Hypervisors,
    /// A hypervisor with fewer idle cores than this, before the new machine, takes none.
    #[serde(default)]
    pub min_available_cpu_cores: u32,
    /// A hypervisor with less free memory (in MiB) than this, before the new machine, takes none.
    #[serde(default, rename = "minAvailableMemoryMB")]
    #[schemars(range(max = 1073741824))]
    pub min_available_memory_mb: u32,
    /// How much more may be promised to VMs than a hypervisor has.
    #[serde(default)]
    pub overcommit: Overcommit,
    /// Kept on each hypervisor for Proxmox itself.
    #[serde(default)]
    pub system_reserved: CpuAndMemory,
    /// At most so many of our machines on one hypervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_machines_per_hypervisor: Option<u32>,
    /// How many clones may run at once.
    #[serde(default)]
    pub concurrency: Concurrency,
}

fn default_pool() -> String {
    "kproxide".to_owned()
}

/// Which certificates are trusted: exactly one of the three.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.caFile) ? 1 : 0) + (has(self.fingerprints) ? 1 : 0) + (has(self.insecureSkipVerify) && self.insecureSkipVerify ? 1 : 0) == 1",
    "message": "set exactly one of tls.caFile, tls.fingerprints and tls.insecureSkipVerify: true"
}]))]
pub struct Tls {
    /// Path of a PEM file with CA certificates, such as a copy of `/etc/pve/pve-root-ca.pem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub ca_file: Option<String>,
    /// SHA-256 fingerprints of the endpoints' certificates, as Proxmox shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        inner(regex(pattern = "^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$"))
    )]
    pub fingerprints: Option<Vec<String>>,
    /// Trust anybody. Whoever is in between then owns the cluster; for trying things out only.
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// A range of VM numbers, both ends included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.first <= self.last", "message": "vmidRange.first must not be larger than vmidRange.last" },
    { "rule": "self.last < 9999 || self.first > 9999",
      "message": "vmidRange must not hold 9999: the volumes of proxmox-csi carry that number. End it at 9998 or begin it at 10000" }
]))]
pub struct VmidRange {
    /// The first number.
    #[schemars(range(min = 100, max = 999999999))]
    pub first: u32,
    /// The last number.
    #[schemars(range(min = 100, max = 999999999))]
    pub last: u32,
}

/// Which hypervisors may be used, by the name that Proxmox shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Hypervisors {
    /// Only these; empty: all.
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub include: Vec<String>,
    /// Not these, even if included.
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub exclude: Vec<String>,
}

/// Factors on a hypervisor's capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Overcommit {
    /// For CPU threads.
    #[schemars(range(min = 0.1, max = 100.0))]
    pub cpu: f64,
    /// For memory.
    #[schemars(range(min = 0.1, max = 10.0))]
    pub memory: f64,
}

impl Default for Overcommit {
    fn default() -> Self {
        Self {
            cpu: 4.0,
            memory: 1.0,
        }
    }
}

/// How many clones may run at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Concurrency {
    /// Per storage: clones of one storage wait for each other's locks.
    #[schemars(range(min = 1, max = 64))]
    pub per_storage: u32,
    /// Per hypervisor.
    #[schemars(range(min = 1, max = 64))]
    pub per_hypervisor: u32,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            per_storage: 2,
            per_hypervisor: 3,
        }
    }
}

/// What was last seen of the cluster; written when something changes, not on every look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterStatus {
    /// An endpoint answers and the credentials work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reachable: Option<bool>,
    /// The cluster has quorum. Without it nothing is launched or destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorate: Option<bool>,
    /// Proxmox VE's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The hypervisors, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub hypervisors: Vec<HypervisorStatus>,
    /// Tells the key for ownership proofs from others. Machines marked with another key are foreign: a kproxide whose key differs changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_fingerprint: Option<String>,
    /// Ready, with the reason if not; TokenFits, false if the credentials may do more than kproxide needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HypervisorStatus {
    /// Its name.
    pub name: String,
    /// It answers its cluster.
    pub online: bool,
    /// It is in the HA manager's maintenance mode.
    #[serde(default)]
    pub maintenance: bool,
}
