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
    doc = "kproxide's books: reserved, used and quarantined VM numbers and addresses. Not for editing, unless an Event says so.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(transparent)]
pub struct LedgerSpec(LedgerFacts);
