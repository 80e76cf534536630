//! What Nodes have shown of what machines like them bring. The status of the NodeClass keeps it, so it is known when none
//! of them is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{Digest, InstanceTypeName, NodeName};
use crate::kubernetes::resources::Resources;

/// Amounts as Kubernetes writes them, such as `cpu: 3900m`.
pub type Amounts = BTreeMap<Arc<str>, String>;

/// One Node of a class, as it was in service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LearnedNode {
    /// Its name.
    pub node: NodeName,
    /// When it came into service.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub since: Timestamp,
    /// Name of its instance type.
    pub instance_type: InstanceTypeName,
    /// Virtual cores of its VM.
    pub cores: u32,
    /// Bytes of memory of its VM.
    pub memory_bytes: u64,
    /// Digest of the template that it was cloned from. The row counts as long as the template is the same.
    pub template: Digest,
    /// Digest of the NodeClass's settings at that time. The row counts as long as they are the same.
    pub settings: Digest,
    /// What the Node offers to pods.
    pub allocatable: Amounts,
    /// What its static pods ask, by their names without the Node's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub static_pods: BTreeMap<Arc<str>, Amounts>,
    /// Labels that DaemonSets select by and that others have given it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Arc<str>, String>,
    /// What its CSI drivers said of it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub csi: BTreeMap<Arc<str>, LearnedDriver>,
}

/// What a CSI driver said of the Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LearnedDriver {
    /// How many of its volumes the Node holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Labels of the driver, in the words of `spec.csi[].topology`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topology: BTreeMap<Arc<str>, String>,
}

impl LearnedNode {
    /// `None`: somebody has written something else there.
    pub(crate) fn allocatable(&self) -> Option<Resources> {
        read(&self.allocatable)
    }

    /// As [`Self::allocatable`].
    pub(crate) fn static_pod(&self, name: &str) -> Option<Resources> {
        read(self.static_pods.get(name)?)
    }
}

fn read(amounts: &Amounts) -> Option<Resources> {
    let amounts = amounts
        .iter()
        .map(|(name, amount)| (&**name, amount.as_str()));
    Resources::offered(amounts).ok()
}
