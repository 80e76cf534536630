//! ProxmoxCluster: one Proxmox VE cluster, a region.

use std::collections::BTreeMap;

use kproxide_planner::facts::ClusterSpec;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::common::StatusCondition;

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
    #[serde(flatten)]
    pub(crate) cluster: ClusterSpec,
    #[serde(flatten)]
    pub(crate) settings: ClusterSettings,
}

/// What the planner's [`ClusterSpec`] lacks: how to reach the cluster, and what is JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSettings {
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
    /// Of a hypervisor that is to be emptied: none of kproxide's machines is there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<bool>,
    /// What still holds it: its machines, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<Holding>,
}

/// A machine that is still on a hypervisor that is to be emptied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holding {
    /// Its NodeClaim.
    pub claim: String,
    /// Why it is still there, in one word: that of condition Removable of the NodeClaim, whose message says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
