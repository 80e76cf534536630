//! Which machines were of use to the pods that they were made for. The Ledger keeps it, so a restart forgets nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{ClaimName, ClassName, Digest, InstanceTypeName, NodeName, PoolName};

/// Before the name of a namespace, where all of its pods are meant.
pub(crate) const OF_NAMESPACE: &str = "all pods in ";

/// So many machines may come for nobody in an hour: of a workload, or of a namespace.
pub(crate) fn most_given_up(workload: &str) -> usize {
    match workload.starts_with(OF_NAMESPACE) {
        true => 40,
        false => 20,
    }
}

/// Machines of one instance type that a NodePool made for one workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tries {
    /// The workload, such as `CronJob default/report`. `NodePool`: minNodes or headroom of the pool. `all pods in` and a name: the whole namespace.
    #[cfg_attr(feature = "schema", schemars(length(max = 600)))]
    pub workload: Arc<str>,
    /// Name of the NodePool.
    pub pool: PoolName,
    /// Name of the instance type.
    pub instance_type: InstanceTypeName,
    /// Digest of what the scheduler reads of the pods. Other pods begin a new row. Empty: whatever its pods ask for.
    pub pods: Digest,
    /// Digest of NodePool, NodeClass and template. Other settings begin a new row.
    pub settings: Digest,
    /// Its machines on which no pod has run yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 5000)))]
    pub machines: Vec<Tried>,
    /// When machines came for nobody, in the last hour: their pods were gone before they could serve. The last 40.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 40)))]
    pub given_up: Vec<Timestamp>,
    /// Rounds of machines in a row that no pod used. Each one doubles the rest.
    #[serde(default)]
    pub rounds: u32,
    /// Machines in a row that came into service when their pods were gone.
    #[serde(default)]
    pub late: u32,
    /// When the last machine turned out to be of no use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Its Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
}

/// A machine on which no pod has run yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tried {
    /// Name of the NodeClaim.
    pub claim: ClaimName,
    /// It was in service for 3 minutes, and its pods stayed pending.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_vain: bool,
}

/// A machine that no pod used. More than 10 of them in an hour pause the launches of their pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InVain {
    /// Name of the NodePool.
    pub pool: PoolName,
    /// As in `tries`.
    pub settings: Digest,
    /// Name of the NodeClaim.
    pub claim: ClaimName,
    /// When it turned out to be of no use.
    pub at: Timestamp,
}

/// What Nodes of one NodeClass offer to pods. kproxide keeps it while machines of the class are made in vain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offered {
    /// Name of the NodeClass.
    pub node_class: ClassName,
    /// Of each Node a digest of its labels, taints, resources and CSI drivers. A change ends the rests in `tries`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("maxProperties" = 16)))]
    pub nodes: BTreeMap<NodeName, Digest>,
    /// When it last ended them. It does so once in 6 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Timestamp>,
}
