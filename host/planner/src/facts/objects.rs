//! The user's objects, as the planner reads them. The API's types are converted into these (`host/kube/src/convert`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::attributes::Attribute;
use super::existence::Existence;
use super::learned::LearnedNode;
use super::machine::{MachineSpec, ProviderId};
use crate::ids::{Digest, InstanceTypeName, StorageName, Vmid};
use crate::kubernetes::resources::Resources;

/// ProxmoxCluster: where machines may be made, and what must stay free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterFacts {
    pub vmid_first: Vmid,
    /// Inclusive.
    pub vmid_last: Vmid,
    /// The Proxmox pool that our VMs are put into.
    pub pool: Arc<str>,
    /// Empty: every hypervisor.
    pub include: Vec<Arc<str>>,
    pub exclude: Vec<Arc<str>>,
    pub min_available_cpu_cores: u64,
    pub min_available_memory_bytes: u64,
    pub overcommit_cpu: f64,
    pub overcommit_memory: f64,
    pub system_reserved_milli_cores: u64,
    pub system_reserved_memory_bytes: u64,
    pub max_machines_per_hypervisor: Option<u32>,
    pub clones_per_storage: u32,
    pub clones_per_hypervisor: u32,
    /// What the operator says of each hypervisor to policies, each list by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hypervisor_attributes: BTreeMap<Arc<str>, Vec<Attribute>>,
    /// Hypervisors that are off, says a person.
    #[serde(default)]
    pub off: Vec<Arc<str>>,
    /// Why kproxide cannot use the object as it stands. It then launches nothing there.
    pub problem: Option<String>,
    #[serde(default)]
    pub existence: Existence,
}

impl ClusterFacts {
    /// No machine is made on this hypervisor, by `spec.hypervisors`.
    pub fn excludes(&self, hypervisor: &str) -> bool {
        let is_in = |list: &[Arc<str>]| list.iter().any(|name| **name == *hypervisor);
        is_in(&self.exclude) || (!self.include.is_empty() && !is_in(&self.include))
    }

    /// `spec.vmidRange` has this number.
    pub fn has_in_range(&self, vmid: Vmid) -> bool {
        (self.vmid_first..=self.vmid_last).contains(&vmid)
    }
}

/// NodeClass: what a machine is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassFacts {
    pub template: Arc<str>,
    /// Each hypervisor has a template of this name, and a clone stays where its template is.
    pub local_template: bool,
    /// Storage for the disks of a full clone. `None`: each disk goes where the template's is.
    pub storage: Option<StorageName>,
    /// Whether to make linked clones, which at first take no space. `None`: where storage and template allow it.
    pub linked: Option<bool>,
    pub instance_types: Vec<InstanceType>,
    pub arch: Arc<str>,
    pub os: Arc<str>,
    /// Allocatable is the capacity less this, until a Node of the type has shown its own.
    pub overhead_milli_cores: u64,
    pub overhead_memory_bytes: u64,
    /// Addresses that kproxide hands out, in this order. `None`: it hands out none.
    pub addresses: Option<Vec<AddressRange>>,
    pub timeouts: Timeouts,
    /// How a started machine becomes a Node.
    pub join: Join,
    /// Path of the script for [`Join::GuestExec`].
    pub join_script: Option<Arc<str>>,
    /// For how long the last machine whose launch failed is kept, stopped. Zero: not at all.
    #[serde(default)]
    pub keep_failed: SignedDuration,
    /// Settings of its VMs.
    #[serde(default)]
    pub machine: MachineSpec,
    /// What CSI drivers will say of its Nodes.
    #[serde(default)]
    pub csi: Vec<CsiSetting>,
    /// Proxmox tags, for people.
    pub tags: Vec<String>,
    pub provider_id: ProviderId,
    /// What its last Nodes have shown, the newest first. It counts when none of them is left.
    #[serde(default)]
    pub learned: Vec<LearnedNode>,
    /// Changes when the class changes so that new machines would differ. With the template's digest it will tell drift.
    pub digest: Digest,
    pub problem: Option<String>,
    #[serde(default)]
    pub existence: Existence,
}

/// What a CSI driver will say of a Node of the class. It counts until a Node of the class has shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiSetting {
    pub driver: Arc<str>,
    /// Labels that the driver gives to the Node.
    pub topology: BTreeMap<Arc<str>, TopologyValue>,
    /// How many of its volumes a Node holds.
    pub limit: Option<u32>,
    /// The largest volume that can be made on a new Node.
    pub capacity_bytes: Option<u64>,
}

/// The value of such a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopologyValue {
    NodeName,
    Hypervisor,
    /// The Proxmox cluster.
    Cluster,
    Same(Arc<str>),
}

impl TopologyValue {
    /// As people and records write it: `node`, `hypervisor`, `cluster` or `=TEXT`.
    pub fn read(text: &str) -> Option<Self> {
        Some(match (text, text.strip_prefix('=')) {
            ("node", _) => Self::NodeName,
            ("hypervisor", _) => Self::Hypervisor,
            ("cluster", _) => Self::Cluster,
            (_, Some(same)) => Self::Same(same.into()),
            (_, None) => return None,
        })
    }
}

impl fmt::Display for TopologyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeName => f.write_str("node"),
            Self::Hypervisor => f.write_str("hypervisor"),
            Self::Cluster => f.write_str("cluster"),
            Self::Same(text) => write!(f, "={text}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceType {
    pub name: InstanceTypeName,
    pub cores: u32,
    pub memory_bytes: u64,
    pub disk_bytes: Option<u64>,
    /// Default 110, as the kubelet's.
    pub max_pods: u32,
    /// Devices and other extended resources that its Nodes will offer.
    pub extended: Resources,
}

impl ClassFacts {
    /// `cloudInit.ipPool` has this address.
    pub fn hands_out(&self, address: std::net::IpAddr) -> bool {
        let mut ranges = self.addresses.iter().flatten();
        ranges.any(|range| (range.first..=range.last).contains(&address))
    }
}

/// Inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    pub first: std::net::IpAddr,
    pub last: std::net::IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Join {
    /// The template joins by itself at first boot.
    Template,
    /// kproxide runs a script through the QEMU guest agent, once per claim.
    GuestExec,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeouts {
    /// From the clone's intent to the end of its task, while it runs.
    pub clone: SignedDuration,
    /// From the end of the clone to a started VM; from its intent, as long as no task runs.
    pub provision: SignedDuration,
    /// From start to the guest agent's first answer. Counts only with [`Join::GuestExec`].
    pub agent: SignedDuration,
    /// From start to a Ready Node.
    pub join: SignedDuration,
}
