//! NodeClass: what a machine is made from and how it becomes a Node.

use kproxide_planner::facts::{ClassSpec, LearnedNode};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::StatusCondition;

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
#[serde(transparent)]
pub struct NodeClassSpec(ClassSpec);

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
