//! ProxmoxCluster. What an operator writes is [`ClusterSpec`], and beside it, in `host/kube/src/crd`, how to reach the cluster and what
//! policies are told of its hypervisors.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::attributes::Attribute;
use super::existence::Existence;
use super::proxmox::HypervisorFacts;
use super::written::CpuAndMemory;
use crate::ids::Vmid;
use crate::time::later;

/// With the datacenter's shutdown policy `migrate`, Proxmox shows a server that merely reboots as in maintenance. kproxide does not
/// move its machines for that.
const MAINTENANCE_LASTS: SignedDuration = SignedDuration::from_mins(2);

/// ProxmoxCluster: where machines may be made, and what must stay free. It reads as its specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// As far as it could be read; at least one clone at a time.
    pub spec: ClusterSpec,
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

impl Deref for ClusterFacts {
    type Target = ClusterSpec;

    fn deref(&self) -> &ClusterSpec {
        &self.spec
    }
}

impl DerefMut for ClusterFacts {
    fn deref_mut(&mut self) -> &mut ClusterSpec {
        &mut self.spec
    }
}

/// Where machines may be made, and what must stay free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterSpec {
    /// The Proxmox pool for kproxide's VMs. It must exist. It should hold nothing but these VMs and their templates.
    #[serde(default = "default_pool")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            regex(pattern = "^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}$"),
            length(max = 128)
        )
    )]
    pub pool: Arc<str>,
    /// VMIDs for kproxide's VMs. Nothing else should use them.
    pub vmid_range: VmidRange,
    /// Which hypervisors kproxide may use.
    #[serde(default)]
    pub hypervisors: Hypervisors,
    /// A hypervisor with fewer idle cores than this gets no new machine.
    #[serde(default)]
    pub min_available_cpu_cores: u32,
    /// A hypervisor with less free memory than this, in MiB, gets no new machine.
    #[serde(default, rename = "minAvailableMemoryMB")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1073741824)))]
    pub min_available_memory_mb: u32,
    /// How much a hypervisor may promise its VMs, as a multiple of what it has. Other people's VMs count too.
    #[serde(default)]
    pub overcommit: Overcommit,
    /// What each hypervisor keeps for Proxmox itself. VMs that the token cannot see count only with the memory that
    /// they use right now: reserve the rest here.
    #[serde(default)]
    pub system_reserved: CpuAndMemory,
    /// At most this many of kproxide's machines on one hypervisor. Not given: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10000)))]
    pub max_machines_per_hypervisor: Option<u32>,
    /// How many clones may run at once.
    #[serde(default)]
    pub concurrency: Concurrency,
}

fn default_pool() -> Arc<str> {
    "kproxide".into()
}

impl ClusterSpec {
    /// No machine is made on this hypervisor, by `spec.hypervisors`.
    pub fn excludes(&self, hypervisor: &str) -> bool {
        let Hypervisors {
            include, exclude, ..
        } = &self.hypervisors;
        let is_in = |list: &[Arc<str>]| list.iter().any(|name| **name == *hypervisor);
        is_in(exclude) || (!include.is_empty() && !is_in(include))
    }

    /// What this hypervisor keeps for itself.
    pub fn reserved(&self, hypervisor: &str) -> &CpuAndMemory {
        let own = self.hypervisors.overrides.get(hypervisor);
        let own = own.and_then(|it| it.system_reserved.as_ref());
        own.unwrap_or(&self.system_reserved)
    }

    /// A person wants this hypervisor empty (`spec.hypervisors.drain`).
    pub fn drains(&self, hypervisor: &str) -> bool {
        let mut drained = self.hypervisors.drain.iter();
        drained.any(|name| **name == *hypervisor)
    }

    /// From when on machines leave this hypervisor: a person wants it empty, or it is in maintenance and
    /// `spec.hypervisors.onMaintenance` says `replace`. `None`: they stay.
    pub fn empties_from(
        &self,
        hypervisor: &str,
        facts: Option<&HypervisorFacts>,
    ) -> Option<Timestamp> {
        if self.drains(hypervisor) {
            return Some(Timestamp::MIN);
        }
        let leaves = self.hypervisors.on_maintenance == OnMaintenance::Replace;
        let facts = facts.filter(|it| it.maintenance && leaves)?;
        let since = facts.maintenance_since;
        Some(since.map_or(Timestamp::MIN, |since| later(since, MAINTENANCE_LASTS)))
    }

    /// `spec.vmidRange` has this number.
    pub fn has_in_range(&self, vmid: Vmid) -> bool {
        (self.vmid_range.first..=self.vmid_range.last).contains(&vmid)
    }

    /// A hypervisor with less free memory gets no new machine.
    pub fn min_available_memory_bytes(&self) -> u64 {
        u64::from(self.min_available_memory_mb) << 20
    }
}

/// A range of VMIDs, both ends included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.first <= self.last", "message": "vmidRange.first must not be larger than vmidRange.last" },
    { "rule": "self.last < 9999 || self.first > 9999",
      "message": "vmidRange must not hold 9999: the volumes of proxmox-csi carry that number. End it at 9998 or begin it at 10000" }
])))]
pub struct VmidRange {
    /// The first VMID, such as 20000.
    #[cfg_attr(feature = "schema", schemars(range(min = 100, max = 999999999)))]
    pub first: Vmid,
    /// The last VMID, such as 20999.
    #[cfg_attr(feature = "schema", schemars(range(min = 100, max = 999999999)))]
    pub last: Vmid,
}

/// Which hypervisors kproxide may use, by the names that Proxmox shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hypervisors {
    /// kproxide uses only these. Empty: all.
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 256), inner(length(min = 1, max = 253)))
    )]
    pub include: Vec<Arc<str>>,
    /// kproxide does not use these, even if `include` names them.
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 256), inner(length(min = 1, max = 253)))
    )]
    pub exclude: Vec<Arc<str>>,
    /// kproxide empties these: it makes no machine there, and replaces those that are there by machines on other
    /// hypervisors, within the budget of each pool. It does so until you take the name out again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 256), inner(length(min = 1, max = 253)))
    )]
    pub drain: Vec<Arc<str>>,
    /// What happens to the machines on a hypervisor that Proxmox's HA manager has in maintenance mode for at least
    /// 2 minutes. In either case kproxide makes no machine there.
    #[serde(skip_serializing_if = "OnMaintenance::is_keep")]
    pub on_maintenance: OnMaintenance,
    /// What is otherwise on single hypervisors, such as `pve1: {systemReserved: {memory: 8Gi}}`. At most 256.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            with = "BTreeMap<String, HypervisorOverride>",
            extend("maxProperties" = 256)
        )
    )]
    pub overrides: BTreeMap<Arc<str>, HypervisorOverride>,
}

/// What is otherwise on one hypervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HypervisorOverride {
    /// What it keeps for Proxmox itself, in place of the cluster's `systemReserved`. An amount that is left out is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_reserved: Option<CpuAndMemory>,
}

/// What happens to the machines on a hypervisor in maintenance mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OnMaintenance {
    /// They stay, and are the first to go once they are not needed.
    #[default]
    Keep,
    /// kproxide replaces them by machines on other hypervisors.
    Replace,
}

impl OnMaintenance {
    fn is_keep(&self) -> bool {
        *self == Self::Keep
    }
}

/// How much a hypervisor may promise its VMs, as a multiple of what it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Overcommit {
    /// Of its CPU threads. 4 means: on a server with 16 threads, VMs have at most 64 cores together.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.1, max = 100.0)))]
    pub cpu: f64,
    /// Of its memory. 1 means: not more than it has.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.1, max = 10.0)))]
    pub memory: f64,
}

impl Default for Overcommit {
    fn default() -> Self {
        Self {
            cpu: 4.0,
            memory: 1.0,
        }
    }
}

/// How many clones may run at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Concurrency {
    /// At most this many clones at once from one storage, 1 to 64. In Proxmox, clones of one storage wait for each
    /// other.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 64)))]
    pub per_storage: u32,
    /// At most this many clones at once on one hypervisor, 1 to 64.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 64)))]
    pub per_hypervisor: u32,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            per_storage: 2,
            per_hypervisor: 3,
        }
    }
}
