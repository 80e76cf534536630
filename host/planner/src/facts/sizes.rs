//! The sizes on offer in a NodeClass.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::InstanceTypeName;

/// One size on offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InstanceType {
    /// Name of the size. The Nodes carry it as the label `node.kubernetes.io/instance-type`.
    #[cfg_attr(
        feature = "schema",
        schemars(
            regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
            length(max = 63)
        )
    )]
    pub name: InstanceTypeName,
    /// A word for sizes of one kind. The Nodes carry it as the label `kproxide.dev/instance-family`. Not given: no label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
            length(max = 40)
        )
    )]
    pub family: Option<Arc<str>>,
    /// Virtual cores, in one socket. 1 to 512.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 512)))]
    pub cores: u32,
    /// Memory in MiB, at least 128.
    #[serde(rename = "memoryMiB")]
    #[cfg_attr(feature = "schema", schemars(range(min = 128, max = 16777216)))]
    pub memory_mib: u32,
    /// Size of the boot disk in GiB. It cannot be smaller than the template's. Not given: the template's size.
    #[serde(default, rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 131072)))]
    pub disk_gib: Option<u32>,
    /// How many pods the kubelet takes (its setting maxPods). 1 to 1000.
    #[serde(default = "default_max_pods")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub max_pods: u32,
    /// Devices and other extended resources that the Nodes will offer, such as `nvidia.com/gpu: 1`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extended_resources: BTreeMap<Arc<str>, u64>,
}

impl InstanceType {
    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.memory_mib) << 20
    }

    pub fn disk_bytes(&self) -> Option<u64> {
        self.disk_gib.map(|gib| u64::from(gib) << 30)
    }

    /// Devices and other extended resources of which it has any.
    pub fn extended(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        let there = self
            .extended_resources
            .iter()
            .filter(|(_, count)| **count > 0);
        there.map(|(name, count)| (name, i64::try_from(*count).unwrap_or(i64::MAX)))
    }
}

/// Sizes of one family, such as `general-4x16`: 4 cores and 16 GiB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GeneratedTypes {
    /// The first part of the names, and the label `kproxide.dev/instance-family` of the Nodes.
    #[cfg_attr(
        feature = "schema",
        schemars(
            regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
            length(max = 40)
        )
    )]
    pub family: Arc<str>,
    /// Virtual cores, in one socket, such as `[2, 4, 8]`. 1 to 512 each.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 32), inner(range(min = 1, max = 512)))
    )]
    pub cores: Vec<u32>,
    /// Memory for each core in MiB, such as `[2048, 4096]`. 128 to 1048576 each; with all cores at most 16777216.
    #[serde(rename = "memoryPerCoreMiB")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 32), inner(range(min = 128, max = 1048576)))
    )]
    pub memory_per_core_mib: Vec<u32>,
    /// Size of the boot disk in GiB. It cannot be smaller than the template's. Not given: the template's size.
    #[serde(default, rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 131072)))]
    pub disk_gib: Option<u32>,
    /// How many pods the kubelet takes (its setting maxPods). 1 to 1000.
    #[serde(default = "default_max_pods")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub max_pods: u32,
    /// Devices and other extended resources that the Nodes will offer, such as `nvidia.com/gpu: 1`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extended_resources: BTreeMap<Arc<str>, u64>,
}

impl GeneratedTypes {
    /// Each number of cores with each amount of memory, in the order in which they are written.
    pub fn sizes(&self) -> impl Iterator<Item = InstanceType> {
        let pairs = self.cores.iter().flat_map(|cores| {
            let memory = self.memory_per_core_mib.iter();
            memory.map(move |memory| (*cores, cores.saturating_mul(*memory)))
        });
        pairs.map(|(cores, memory_mib)| InstanceType {
            name: format!("{}-{cores}x{}", self.family, f64::from(memory_mib) / 1024.0)
                .as_str()
                .into(),
            family: Some(self.family.clone()),
            cores,
            memory_mib,
            disk_gib: self.disk_gib,
            max_pods: self.max_pods,
            extended_resources: self.extended_resources.clone(),
        })
    }
}

fn default_max_pods() -> u32 {
    110
}
