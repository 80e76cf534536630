//! NodePool: how many machines of a class, with which labels, under which policies. A field that is no setting of a policy is one of the planner's [`PoolSpec`].

use std::collections::BTreeMap;

use kproxide_planner::facts::PoolSpec;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::common::StatusCondition;

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
        name = "Paused",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Paused\")].status"
    ),
    printcolumn(
        name = "LimitReached",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"LimitReached\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Degraded\")].status",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
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
    #[serde(flatten)]
    pub(crate) pool: PoolSpec,
    #[serde(flatten)]
    pub(crate) policies: PolicySettings,
}

/// What the planner's [`PoolSpec`] lacks: the settings of policies are JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicySettings {
    /// Labels whose values are Go templates, such as `topology.kubernetes.io/zone: "{{ .TargetHost }}"`. The label
    /// policy gets them as its setting `labels`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub label_templates: BTreeMap<String, String>,
    /// Which policies decide.
    pub policies: Policies,
}

/// Which policies decide. Each is a WebAssembly component: a built-in, or your file NAME.wasm in a policy folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Policies {
    /// Chooses the hypervisor for a new machine. Not given: spread. Built in: spread, max-memory, max-cpu, balanced, round-robin, pack.
    pub host_selection: PolicyChain,
    /// Chooses which of the Nodes that can go, goes first. Not given: least-loaded. Built in: least-loaded.
    pub scale_down: PolicyChain,
    /// Makes labels, annotations and taints of a new Node. Built in: go-template.
    pub labels: PolicyChoice,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            host_selection: PolicyChain::default(),
            scale_down: PolicyChain::default(),
            labels: PolicyChoice {
                r#use: "go-template".to_owned(),
                settings: Map::new(),
            },
        }
    }
}

/// Decide where a pool says nothing else; of several policies that decide together, where none gives scores.
pub const DEFAULT_HOST_SELECTION: &str = "spread";
pub const DEFAULT_SCALE_DOWN: &str = "least-loaded";

/// A policy and its settings, or several policies that decide together: filters, scores or both.
// The default has no name in it: beside one that the API server wrote, nobody could apply filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(has(self.use) || has(self.settings)) || !(has(self.filters) || has(self.scores))",
        "message": "use and settings cannot stand beside filters and scores: write that policy into one of the two lists"
    },
    {
        "rule": "!has(self.filters) || !has(self.scores) || self.filters.all(f, !self.scores.exists(s, s.use == f.use))",
        "message": "a policy stands in filters and in scores: leave it out of filters, since scores refuse as filters do"
    }
]))]
pub struct PolicyChain {
    /// Name of the policy: of a built-in, or of your file without `.wasm`. Not given: spread, or least-loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63))]
    pub r#use: Option<String>,
    /// Settings for the policy. The policy defines them, and refuses those that it does not know.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object")]
    pub settings: Map<String, Value>,
    /// Policies that only refuse: what one of them refuses, or does not name, is out. Their scores do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 4), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["use"]))]
    pub filters: Vec<PolicyChoice>,
    /// Policies whose scores count, each by its weight. They refuse as filters do. Not given: spread, or for scaleDown least-loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 4), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["use"]))]
    pub scores: Vec<PolicyScore>,
}

/// A policy whose scores count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyScore {
    /// Name of the policy: of a built-in, or of your file without `.wasm`.
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63))]
    pub r#use: String,
    /// How much its score counts: twice as much with 2 as with 1. 1 to 100.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: u32,
    /// Settings for the policy. The policy defines them, and refuses those that it does not know.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object")]
    pub settings: Map<String, Value>,
}

fn one() -> u32 {
    1
}

/// A policy and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyChoice {
    /// Name of the policy: of a built-in, or of your file without `.wasm`.
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63))]
    pub r#use: String,
    /// Settings for the policy. The policy defines them, and refuses those that it does not know.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object")]
    pub settings: Map<String, Value>,
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A policy of the pool, and what answers for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// hostSelection, scaleDown or labels.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its name, as in spec.policies.
    pub name: String,
    /// The version that it gives itself. None: nothing of that name answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// SHA-256 of its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Where kproxide has read it. None: it is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Since when these bytes answer under this name.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// What went wrong last with these bytes, or with the file that should have replaced them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub last_error: Option<String>,
    /// When that was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_error_time: Option<String>,
}

/// How many Nodes there are, and whether the pool can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Machines of the pool, including those that are still being launched.
    #[serde(default)]
    pub nodes: u32,
    /// The policies that answer for it, by their fields in spec.policies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind", "name"]))]
    pub policies: Vec<PolicyStatus>,
    /// Ready, with the reason if not. Paused. LimitReached: one more machine would pass a limit. Degraded: it can use only
    /// some of its ProxmoxClusters, or an older file of a policy answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
}
