//! NodePool: how many machines of a class, with which labels, under which policies.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::common::{Amount, Period, StatusCondition, Taint};

/// How many machines of a class, with which labels, under which policies.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kproxide.dev",
    version = "v1alpha1",
    kind = "NodePool",
    plural = "nodepools",
    category = "kproxide",
    status = "NodePoolStatus",
    derive = "PartialEq",
    doc = "A group of Nodes that grows and shrinks with its pods. `kubectl scale --replicas=N` sets the smallest number of Nodes.",
    scale(
        spec_replicas_path = ".spec.limits.minNodes",
        status_replicas_path = ".status.nodes"
    ),
    printcolumn(name = "Class", type_ = "string", json_path = ".spec.nodeClass"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Min", type_ = "integer", json_path = ".spec.limits.minNodes"),
    printcolumn(name = "Max", type_ = "integer", json_path = ".spec.limits.maxNodes"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Paused",
        type_ = "boolean",
        json_path = ".spec.paused",
        priority = 1
    ),
    printcolumn(
        name = "Weight",
        type_ = "integer",
        json_path = ".spec.weight",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Name of the NodeClass that its machines are made from.
    #[schemars(length(min = 1, max = 253))]
    pub node_class: String,
    /// Names of the ProxmoxClusters that its machines may stand in; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub clusters: Vec<String>,
    /// How small and how large the pool may be.
    #[serde(default)]
    pub limits: Limits,
    /// Pools of higher weight are tried first; equal ones by name.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: i32,
    /// Labels of its Nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints of its Nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub taints: Vec<Taint>,
    /// Taints that its Nodes begin with and that something else removes (a CNI, say) before they count as initialized. The kubelet of the template registers
    /// with them; kproxide waits until they are gone, and puts none on a Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub startup_taints: Vec<Taint>,
    /// Labels whose values are Go templates, such as `{{ .TargetHost }}`; handed to the label policy as its setting `labels`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub label_templates: BTreeMap<String, String>,
    /// Which policies decide.
    #[serde(default)]
    pub policies: Policies,
    /// Nothing is launched or removed while this is set; what is under way is finished, except that a Node emptied only to spare it is put back into service.
    #[serde(default)]
    pub paused: bool,
    /// When machines are added.
    #[serde(default)]
    pub scale_up: ScaleUp,
    /// When Nodes are removed.
    #[serde(default)]
    pub scale_down: ScaleDown,
    /// How long emptying a Node may take before it is given up and the Node is put back into service. The machine of a NodeClaim that somebody deleted is destroyed
    /// then all the same, with the pods that are left on it.
    #[serde(default = "default_drain_timeout")]
    pub drain_timeout: Period,
    /// A Node that has not been Ready for so long is replaced.
    #[serde(default = "default_repair_after")]
    pub repair_after: Period,
    /// A machine whose NodeClaim is older is replaced, within `scaleDown.budget`. At least 1h. Left out: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<Period>,
    /// Room that is kept free in the pool, beyond what pods ask.
    #[serde(default)]
    pub headroom: Headroom,
}

fn default_drain_timeout() -> Period {
    "15m".into()
}

fn default_repair_after() -> Period {
    "10m".into()
}

/// How small and how large the pool may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.minNodes <= self.maxNodes",
    "message": "limits.minNodes must not be larger than limits.maxNodes"
}]))]
pub struct Limits {
    /// So many Nodes are there even if nothing needs them.
    #[schemars(range(max = 5000))]
    pub min_nodes: u32,
    /// No more than so many machines, those on their way included.
    #[schemars(range(max = 5000))]
    pub max_nodes: u32,
    /// No more than so many cores in all its machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10000000))]
    pub cpu_cores: Option<u32>,
    /// No more than so much memory in all its machines, in MiB.
    #[serde(rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1099511627776u64))]
    pub memory_mib: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_nodes: 0,
            max_nodes: 3,
            cpu_cores: None,
            memory_mib: None,
        }
    }
}

/// Which policies decide. Each is a WebAssembly component: a built-in, or a file of that name in a policy folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Policies {
    /// On which hypervisor a machine is made.
    pub host_selection: PolicyChoice,
    /// Which of the removable Nodes goes first.
    pub scale_down: PolicyChoice,
    /// Which labels, annotations and taints a Node gets.
    pub labels: PolicyChoice,
}

impl Default for Policies {
    fn default() -> Self {
        let choice = |name: &str| PolicyChoice {
            r#use: name.to_owned(),
            settings: Map::new(),
        };
        Self {
            host_selection: choice("spread"),
            scale_down: choice("least-loaded"),
            labels: choice("go-template"),
        }
    }
}

/// A policy and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyChoice {
    /// Name of the policy.
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63))]
    pub r#use: String,
    /// Settings; what they mean, and which are refused, is for the policy to say.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object")]
    pub settings: Map<String, Value>,
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// When machines are added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleUp {
    /// Pods that have been unschedulable for less than this launch nothing.
    pub stabilization_window: Period,
}

impl Default for ScaleUp {
    fn default() -> Self {
        Self {
            stabilization_window: "0s".into(),
        }
    }
}

/// When Nodes are removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleDown {
    /// Whether Nodes are removed at all for being unneeded.
    pub enabled: bool,
    /// The share of the load that must stay free after a removal: load × (1 + loadHeadroom) must stay below what remains.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub load_headroom: f64,
    /// Nothing is removed until so long after the newest Node came into service, in any pool.
    pub stabilization: Period,
    /// A Node younger than this stays.
    pub min_node_age: Period,
    /// A Node goes only after it was unneeded for so long.
    pub unneeded_time: Period,
    /// At most so many removals of this pool at once.
    #[schemars(range(max = 100))]
    pub budget: u32,
    /// Which pods keep their Node.
    pub blocked_by: BlockedBy,
}

impl Default for ScaleDown {
    fn default() -> Self {
        Self {
            enabled: true,
            load_headroom: 0.2,
            stabilization: "5m".into(),
            min_node_age: "10m".into(),
            unneeded_time: "1m".into(),
            budget: 1,
            blocked_by: BlockedBy::default(),
        }
    }
}

/// Which pods keep their Node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockedBy {
    /// Pods with hostPath or local volumes.
    pub local_volumes: bool,
    /// Pods that no controller would make again.
    pub bare_pods: bool,
    /// Pods of Jobs that have not finished.
    pub unfinished_jobs: bool,
    /// Pods with emptyDir volumes.
    pub empty_dir: bool,
    /// Pods in kube-system that no DaemonSet made.
    pub kube_system: bool,
}

impl Default for BlockedBy {
    fn default() -> Self {
        Self {
            local_volumes: true,
            bare_pods: true,
            unfinished_jobs: true,
            empty_dir: false,
            kube_system: false,
        }
    }
}

/// Room that is kept free.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Headroom {
    /// CPU, such as `500m` or `2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Amount>,
    /// Memory, such as `2Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// So many more pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100000))]
    pub pods: Option<u32>,
}

/// How many Nodes there are, and whether the pool can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Machines of the pool, those on their way included.
    #[serde(default)]
    pub nodes: u32,
    /// Ready, with the reason if not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
}
