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
    /// Name of the NodeClass that its machines are made from.
    #[schemars(length(min = 1, max = 253))]
    pub node_class: String,
    /// Names of the ProxmoxClusters in which kproxide may make its machines. Empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub clusters: Vec<String>,
    /// How small and how large the pool may be.
    #[serde(default)]
    pub limits: Limits,
    /// kproxide tries pools of higher weight first, and pools of one weight by name. 0 to 1000.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: i32,
    /// Labels of its Nodes, such as `example.com/tier: burst`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints of its Nodes. Only pods that tolerate them get machines of this pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub taints: Vec<Taint>,
    /// Taints that something else sets and removes while a Node starts. kproxide does not set them, and counts the Node as
    /// initialized when they are gone. These it knows by itself: Kubernetes' own, `*/agent-not-ready`,
    /// `cni.istio.io/not-ready`, `startup-taint.*`, `readiness.k8s.io/*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub startup_taints: Vec<Taint>,
    /// Labels whose values are Go templates, such as `topology.kubernetes.io/zone: "{{ .TargetHost }}"`. The label
    /// policy gets them as its setting `labels`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub label_templates: BTreeMap<String, String>,
    /// Which policies decide.
    #[serde(default)]
    pub policies: Policies,
    /// While true, kproxide starts no launch and no removal in this pool. It finishes what it has begun. But a Node
    /// that it drains because it is unneeded, or to replace it, goes back into service.
    #[serde(default)]
    pub paused: bool,
    /// When machines are added.
    #[serde(default)]
    pub scale_up: ScaleUp,
    /// When Nodes are removed.
    #[serde(default)]
    pub scale_down: ScaleDown,
    /// How long the drain of a Node may take, such as `30m`. After that kproxide gives the drain up and puts the Node
    /// back into service. But if you deleted the NodeClaim, kproxide then destroys the machine with the pods left on
    /// it.
    #[serde(default = "default_drain_timeout")]
    pub drain_timeout: Period,
    /// kproxide replaces a Node that has not been Ready for this long, such as `20m`.
    #[serde(default = "default_repair_after")]
    pub repair_after: Period,
    /// kproxide replaces a machine whose NodeClaim is older than this, such as `30d`, within `scaleDown.budget`. At least
    /// 1h. Not given: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<Period>,
    /// How machines are replaced.
    #[serde(default)]
    pub disruption: Disruption,
    /// Room that kproxide keeps free in the pool for pods to come.
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
    /// kproxide keeps at least this many machines, even if no pod needs them. `kubectl scale nodepool` sets it.
    #[schemars(range(max = 5000))]
    pub min_nodes: u32,
    /// The pool has at most this many machines. Machines that are still being launched count.
    #[schemars(range(max = 5000))]
    pub max_nodes: u32,
    /// All machines of the pool together have at most this many cores. Not given: no limit. 0 is a limit too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10000000))]
    pub cpu_cores: Option<u32>,
    /// All machines of the pool together have at most this much memory, in MiB. Not given: no limit.
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

/// When machines are added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleUp {
    /// A pod must have been unschedulable for this long before kproxide launches a machine for it, such as `30s`.
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
    /// Whether kproxide removes Nodes that are unneeded.
    pub enabled: bool,
    /// Share of the cluster's load that must stay free. After a removal, load × (1 + loadHeadroom) must be less than
    /// what the remaining Nodes have. 0.2 is 20 %.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub load_headroom: f64,
    /// kproxide removes no unneeded Node until this long after the pool's newest Node came into service, such as `10m`.
    pub stabilization: Period,
    /// kproxide keeps a Node that is younger than this, such as `1h`, even if it is unneeded.
    pub min_node_age: Period,
    /// kproxide removes a Node only after it has been unneeded for this long without a break, such as `5m`.
    pub unneeded_time: Period,
    /// At most this many removals of this pool run at once: of unneeded Nodes, replacements and repairs together.
    #[schemars(range(max = 100))]
    pub budget: u32,
    /// Pods that keep their Node.
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

/// How machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    /// kproxide makes the new machine before it drains the old one, if pods need it. true: where there is no room for both,
    /// a machine older than `expireAfter` goes first. false: it stays until there is room. Repairs, and replacements that
    /// you ask for (`kproxide.dev/replace`), go first in any case.
    pub old_first: bool,
}

/// Pods that keep their Node. Each field names a kind of pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockedBy {
    /// Pods with hostPath or local volumes.
    pub local_volumes: bool,
    /// Pods without a controller: nothing would make them again.
    pub bare_pods: bool,
    /// Pods of Jobs that have not finished.
    pub unfinished_jobs: bool,
    /// Pods with emptyDir volumes.
    pub empty_dir: bool,
    /// Pods in kube-system that do not belong to a DaemonSet.
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

/// Room that kproxide keeps free for pods to come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Headroom {
    /// CPU, such as `500m` or `2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Amount>,
    /// Memory, such as `2Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// Room for this many more pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100000))]
    pub pods: Option<u32>,
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
