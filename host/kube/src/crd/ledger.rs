//! Ledger: what is promised and what is out of use. One object, replaced as a whole by compare-and-set.

use kproxide_planner::facts::LedgerFacts;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kproxide.dev",
    version = "v1alpha1",
    kind = "Ledger",
    plural = "ledgers",
    category = "kproxide",
    doc = "kproxide's own records: which VMIDs and addresses are promised, in use or in quarantine. Do not edit it, unless an Event tells you to.",
    printcolumn(
        name = "Frozen for",
        type_ = "date",
        json_path = ".spec.freeze.since",
        description = "kproxide removes nothing: too many machines went bad at once"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(transparent)]
pub struct LedgerSpec(LedgerFacts);
