//! NodeClaim: the durable record of one wanted machine, written before anything is created.

use kproxide_planner::facts::{ClaimSpec, ClaimStatus};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kproxide.dev",
    version = "v1alpha1",
    kind = "NodeClaim",
    plural = "nodeclaims",
    category = "kproxide",
    status = "ClaimStatus",
    doc = "One machine. kproxide creates it. If you delete it, kproxide drains the Node (PodDisruptionBudgets hold until the pool's drainTimeout is over), destroys the VM and deletes the Node.",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(
        name = "Hypervisor",
        type_ = "string",
        json_path = ".status.hypervisor"
    ),
    printcolumn(name = "VMID", type_ = "integer", json_path = ".spec.vmid"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.instanceType"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
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
        name = "Template",
        type_ = "string",
        json_path = ".spec.templateDigest",
        priority = 1
    ),
    printcolumn(
        name = "Policy",
        type_ = "string",
        json_path = ".spec.policy",
        priority = 1
    )
)]
#[serde(transparent)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "spec is immutable: delete the NodeClaim instead. kproxide makes a new one if the pool still needs the machine"
}]))]
pub struct NodeClaimSpec(ClaimSpec);
