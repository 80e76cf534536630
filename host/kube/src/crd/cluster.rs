//! ProxmoxCluster: one Proxmox VE cluster, a region.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    doc = "A Proxmox VE cluster in which kproxide may make machines. Its Nodes carry its name as the label topology.kubernetes.io/region.",
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
    /// Addresses of the API, such as `https://pve1.example:8006`, of 1 to 16 servers. When one does not answer,
    /// kproxide asks the next.
    #[schemars(
        length(min = 1, max = 16),
        inner(regex(pattern = "^https://[^/?#]+(/api2/json)?/?$"), length(max = 255))
    )]
    pub endpoints: Vec<String>,
    /// Which certificates of Proxmox kproxide trusts. Not given: those that a public authority has signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Name of a folder below `--credentials-dir` with the files `token-id` and `token-secret`, or `username` and
    /// `password`. A file `endpoints` there lists, one on each line, the addresses that may have them. kproxide picks up
    /// changes.
    #[schemars(
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
        length(max = 253)
    )]
    pub credentials: String,
    /// The Proxmox pool for kproxide's VMs. It must exist. It should hold nothing but these VMs and their templates.
    #[serde(default = "default_pool")]
    #[schemars(
        regex(pattern = "^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}$"),
        length(max = 128)
    )]
    pub pool: String,
    /// VMIDs for kproxide's VMs. Nothing else should use them.
    pub vmid_range: VmidRange,
    /// Which hypervisors kproxide may use.
    #[serde(default)]
    pub hypervisors: Hypervisors,
    /// A hypervisor with fewer idle cores than this gets no new machine.
    #[serde(default)]
    pub min_available_cpu_cores: u32,
    /// A hypervisor with less free memory than this, in MiB, gets no new machine.
    #[serde(default, rename = "minAvailableMemoryMB")]
    #[schemars(range(max = 1073741824))]
    pub min_available_memory_mb: u32,
    /// How much a hypervisor may promise its VMs, as a multiple of what it has. Other people's VMs count too.
    #[serde(default)]
    pub overcommit: Overcommit,
    /// What each hypervisor keeps for Proxmox itself. VMs that the token cannot see count only with the memory that
    /// they use right now: reserve the rest here.
    #[serde(default)]
    pub system_reserved: CpuAndMemory,
    /// At most this many of kproxide's machines on one hypervisor. Not given: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_machines_per_hypervisor: Option<u32>,
    /// How many clones may run at once.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// What you say of each hypervisor to policies, such as `pve1: {rack: a, power: 300}`: by its name in Proxmox, at
    /// most 32 keys, each like the key of a label, with a text of at most 256 bytes, a number, true or false.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "hypervisor_attributes")]
    pub hypervisor_attributes: BTreeMap<String, BTreeMap<String, Value>>,
}

/// What one hypervisor may have.
pub(crate) const ATTRIBUTES_MAX: usize = 32;
/// Of an attribute that is a text.
pub(crate) const ATTRIBUTE_BYTES_MAX: usize = 256;

/// A schema cannot say "a text, a number, true or false", nor CEL look into such a value: `convert` judges the rest.
fn hypervisor_attributes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 256,
        "additionalProperties": {
            "type": "object",
            "maxProperties": ATTRIBUTES_MAX,
            "additionalProperties": {
                "x-kubernetes-preserve-unknown-fields": true,
                "maxLength": ATTRIBUTE_BYTES_MAX,
                "maxItems": 0,
                "maxProperties": 0,
            },
        },
    })
}

fn default_pool() -> String {
    "kproxide".to_owned()
}

/// Which certificates of Proxmox kproxide trusts. Set exactly one of the three.
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
    /// Do not verify the certificate. This is insecure: a server in between can take over the cluster. For tests only.
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// A range of VMIDs, both ends included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.first <= self.last", "message": "vmidRange.first must not be larger than vmidRange.last" },
    { "rule": "self.last < 9999 || self.first > 9999",
      "message": "vmidRange must not hold 9999: the volumes of proxmox-csi carry that number. End it at 9998 or begin it at 10000" }
]))]
pub struct VmidRange {
    /// The first VMID, such as 20000.
    #[schemars(range(min = 100, max = 999999999))]
    pub first: u32,
    /// The last VMID, such as 20999.
    #[schemars(range(min = 100, max = 999999999))]
    pub last: u32,
}

/// Which hypervisors kproxide may use, by the names that Proxmox shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Hypervisors {
    /// kproxide uses only these. Empty: all.
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub include: Vec<String>,
    /// kproxide does not use these, even if `include` names them.
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub exclude: Vec<String>,
}

/// How much a hypervisor may promise its VMs, as a multiple of what it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Overcommit {
    /// Of its CPU threads. 4 means: on a server with 16 threads, VMs have at most 64 cores together.
    #[schemars(range(min = 0.1, max = 100.0))]
    pub cpu: f64,
    /// Of its memory. 1 means: not more than it has.
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
    /// At most this many clones at once from one storage, 1 to 64. In Proxmox, clones of one storage wait for each
    /// other.
    #[schemars(range(min = 1, max = 64))]
    pub per_storage: u32,
    /// At most this many clones at once on one hypervisor, 1 to 64.
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

/// What kproxide last saw of the cluster. It writes this only when something has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterStatus {
    /// An endpoint answers and the credentials work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reachable: Option<bool>,
    /// The cluster has quorum. Without quorum kproxide launches and destroys nothing there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorate: Option<bool>,
    /// Proxmox VE's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The hypervisors, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub hypervisors: Vec<HypervisorStatus>,
    /// Fingerprint of the key in the Secret kproxide-ownership-key. With it kproxide signs the marker of each VM.
    /// kproxide does nothing to VMs whose marker is signed with another key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_fingerprint: Option<String>,
    /// Ready, with the reason if not. TokenFits: False if the credentials may do more than kproxide needs, or if kproxide
    /// cannot use those that the Secret has now and goes on with the ones before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HypervisorStatus {
    /// Its name.
    pub name: String,
    /// Proxmox shows it as online.
    pub online: bool,
    /// Proxmox's HA manager has it in maintenance mode.
    #[serde(default)]
    pub maintenance: bool,
}
