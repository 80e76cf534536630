//! Amounts of what pods ask and Nodes offer: exact integers, one vector.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A vector of amounts: CPU in thousandths of a core, the rest in whole units (bytes, pods, devices), rounded up when asked and down when offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resources {
    pub milli_cores: i64,
    pub memory_bytes: i64,
    pub ephemeral_bytes: i64,
    pub pods: i64,
    /// Extended resources by name, such as `nvidia.com/gpu`; never 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extended: BTreeMap<Arc<str>, i64>,
}
