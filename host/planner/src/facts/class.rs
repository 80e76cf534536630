//! NodeClass. What an operator writes is [`ClassSpec`], which is also the custom resource's `spec`: the schema, the defaults and what the
//! planner reads come from this one type. What is read from it and joined stands beside it in [`ClassFacts`].

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::existence::Existence;
use super::interface::Interface;
use super::learned::LearnedNode;
use super::machine::{MachineSpec, ProviderId, VmOptions};
use super::sizes::{GeneratedTypes, InstanceType};
use super::template::{ClassInCluster, Template, TemplateChoice, TemplateInCluster};
use super::written::{Amount, CpuAndMemory, Period};
use crate::ids::{ClusterName, Digest};

/// NodeClass: what a machine is made from. It reads as its specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassFacts {
    /// As far as it could be read.
    pub spec: ClassSpec,
    /// What its VMs get, from `cloudInit` and `vmOptions`: each claim records a copy.
    #[serde(default)]
    pub machine: MachineSpec,
    /// Addresses that kproxide hands out, in this order: the ranges of `cloudInit.ipPool`, all in its network. `None`: it hands
    /// out none.
    pub addresses: Option<Vec<AddressRange>>,
    /// What its last Nodes have shown, the newest first. It counts when none of them is left.
    #[serde(default)]
    pub learned: Vec<LearnedNode>,
    /// Changes when the class changes so that new machines would differ. With the template's digest it will tell drift.
    pub digest: Digest,
    pub problem: Option<String>,
    #[serde(default)]
    pub existence: Existence,
}

impl ClassFacts {
    /// A machine of the class is in service after so long, or is given up.
    pub fn comes_within(&self) -> SignedDuration {
        let Timeouts {
            clone,
            provision,
            agent,
            join,
        } = self.timeouts;
        let agent = match self.join.way() {
            Join::Template => SignedDuration::ZERO,
            Join::GuestExec => agent.0,
        };
        let parts = [provision.0, agent, join.0].into_iter();
        parts.fold(clone.0, SignedDuration::saturating_add)
    }

    /// `cloudInit.ipPool` has this address.
    pub fn hands_out(&self, address: std::net::IpAddr) -> bool {
        let mut ranges = self.addresses.iter().flatten();
        ranges.any(|range| (range.first..=range.last).contains(&address))
    }
}

impl Deref for ClassFacts {
    type Target = ClassSpec;

    fn deref(&self) -> &ClassSpec {
        &self.spec
    }
}

impl DerefMut for ClassFacts {
    fn deref_mut(&mut self) -> &mut ClassSpec {
        &mut self.spec
    }
}

/// What machines are made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.instanceTypes) && size(self.instanceTypes) > 0) || (has(self.generatedTypes) && size(self.generatedTypes) > 0)",
    "message": "give at least one size, in instanceTypes or generatedTypes"
}])))]
pub struct ClassSpec {
    /// The VM template to clone.
    pub template: Template,
    /// The sizes on offer, with those of `generatedTypes` at least 1 and at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 100)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub instance_types: Vec<InstanceType>,
    /// Sizes by the rule: each number of cores with each amount of memory per core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["family"])))]
    pub generated_types: Vec<GeneratedTypes>,
    /// Architecture that the Nodes will report (`kubernetes.io/arch`).
    #[serde(default)]
    pub arch: Arch,
    /// Operating system that the Nodes will report (`kubernetes.io/os`).
    #[serde(default)]
    pub os: Os,
    /// What a Node of this class offers less than its VM has: kernel, kubelet, eviction thresholds. kproxide uses this
    /// until a first Node of the size has shown its own.
    #[serde(default = "default_overhead")]
    pub overhead: CpuAndMemory,
    /// Settings for cloud-init in the VM. Not given: the template's stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInitSpec>,
    /// Options of the VM. Not given: the template's stay.
    #[serde(default, skip_serializing_if = "VmOptions::is_template")]
    pub vm_options: VmOptions,
    /// The VM's network interfaces: these and no others. Not given: those of the template. `net0` must be among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 8)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub network: Vec<Interface>,
    /// What CSI drivers will say of a Node of this class. kproxide uses this until a first Node has shown it. Most
    /// classes need no entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 32)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["driver"])))]
    pub csi: Vec<CsiSetting>,
    /// How a started VM joins the Kubernetes cluster.
    #[serde(default)]
    pub join: ClassJoin,
    /// Proxmox tags, such as `kubernetes`, for people to find the VMs by. kproxide itself does not look at tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(max = 32),
            inner(regex(pattern = "^[a-z0-9_][a-z0-9_+.-]*$"), length(max = 64))
        )
    )]
    pub tags: Vec<String>,
    /// Who writes the Nodes' `spec.providerID`. Kubernetes lets it be written only once.
    #[serde(default, rename = "providerID")]
    pub provider_id: ProviderId,
    /// How long the steps of a launch may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// What is otherwise in single Proxmox clusters, by the name of the ProxmoxCluster, such as
    /// `lab: {template: {vmid: 9001}}`. At most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "BTreeMap<String, ClassInCluster>", extend("maxProperties" = 64))
    )]
    pub clusters: BTreeMap<ClusterName, ClassInCluster>,
}

impl ClassSpec {
    /// From which template its machines in this Proxmox cluster are cloned.
    pub fn template_in(&self, cluster: &ClusterName) -> TemplateChoice {
        let own = self.clusters.get(cluster);
        let own = own.and_then(|it| it.template.as_ref());
        own.map_or_else(|| self.template.choice(), TemplateInCluster::choice)
    }
}

fn default_overhead() -> CpuAndMemory {
    CpuAndMemory {
        memory: Amount::mib(512),
        ..CpuAndMemory::default()
    }
}

/// What a CSI driver will say of a Node.
// It counts until a Node of the class has shown it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CsiSetting {
    /// Name of the driver, such as `topolvm.io`.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub driver: Arc<str>,
    /// How many of its volumes a Node holds. Not given: 24 for `csi.proxmox.sinextra.dev`, no limit for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1024)))]
    pub limit: Option<u32>,
    /// The largest volume that can be made on a new Node, such as `100Gi`. Not given: kproxide tries a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amount>,
    /// Labels that the driver gives to the Node. The value is `node` (the Node's name), `hypervisor`, `cluster` (the
    /// Proxmox cluster), or `=` and a text that is the same on all Nodes, such as `=rack1`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "BTreeMap<String, String>", extend("maxProperties" = 16))
    )]
    pub topology: BTreeMap<Arc<str>, TopologyValue>,
}

impl CsiSetting {
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.capacity.as_ref().map(Amount::bytes)
    }
}

/// The value of such a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
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

impl From<TopologyValue> for String {
    fn from(value: TopologyValue) -> Self {
        value.to_string()
    }
}

impl TryFrom<String> for TopologyValue {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is none of node, hypervisor, cluster and =TEXT");
        Self::read(&text).ok_or_else(wrong)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Arch {
    #[default]
    Amd64,
    Arm64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Os {
    #[default]
    Linux,
}

impl Arch {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl Os {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Linux => "linux",
        }
    }
}

/// Settings for cloud-init, through Proxmox's cloud-init drive.
///
/// There is no field for a fixed address, because every VM of the class would get it. Use `ipPool`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.dhcp) && self.dhcp && has(self.ipPool))",
    "message": "cloudInit.dhcp: true and cloudInit.ipPool exclude each other"
}])))]
pub struct CloudInitSpec {
    /// Name of the user that cloud-init creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 32)))]
    pub user: Option<String>,
    /// Public SSH keys for that user, one per entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 64), inner(length(min = 1, max = 8192)))
    )]
    pub ssh_keys: Vec<String>,
    /// true: the first interface gets its address from DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<bool>,
    /// kproxide gives each VM an address of its own from these ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_pool: Option<IpPool>,
    /// Addresses of DNS servers, separated by spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 255)))]
    pub nameserver: Option<String>,
    /// DNS search domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub search_domain: Option<String>,
}

/// Addresses for machines, one for each. kproxide uses an address again once its machine is proven gone and the time of
/// `--quarantine` is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IpPool {
    /// The network with its prefix length, such as `10.0.20.0/24`.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^[0-9A-Fa-f.:]+/[0-9]{1,3}$"), length(max = 64))
    )]
    pub cidr: String,
    /// Address of the router, such as `10.0.20.1`. A link-local one, such as `fe80::1`, is taken
    /// for an IPv6 network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 2, max = 45)))]
    pub gateway: Option<String>,
    /// The addresses that kproxide hands out, in this order.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub ranges: Vec<IpRange>,
}

/// Addresses from first to last, both included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IpRange {
    /// The first address.
    #[cfg_attr(feature = "schema", schemars(length(min = 2, max = 45)))]
    pub first: String,
    /// The last address.
    #[cfg_attr(feature = "schema", schemars(length(min = 2, max = 45)))]
    pub last: String,
}

/// How a started VM joins the Kubernetes cluster: exactly one of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.template) ? 1 : 0) + (has(self.guestExec) ? 1 : 0) == 1",
    "message": "set exactly one of join.template and join.guestExec"
}])))]
pub struct ClassJoin {
    /// The VM joins by itself at first boot: its template holds what it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<JoinByTemplate>,
    /// kproxide runs a script in the VM, once, through the QEMU guest agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_exec: Option<JoinByGuestExec>,
    /// For how long kproxide keeps the last machine whose launch failed, stopped, so that you can look at it: at most 7
    /// days. It goes earlier if a new machine needs its room, or if another one fails. Not given: 0s, so kproxide
    /// destroys it at once. The kept machine counts in all limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_failed: Option<Period>,
}

impl Default for ClassJoin {
    fn default() -> Self {
        Self {
            template: Some(JoinByTemplate {}),
            guest_exec: None,
            keep_failed: None,
        }
    }
}

impl ClassJoin {
    /// Path of the script that kproxide runs in the VM.
    pub fn script(&self) -> Option<&Arc<str>> {
        match (&self.template, &self.guest_exec) {
            (None, Some(exec)) => Some(&exec.command_secret_file),
            (None | Some(_), None) | (Some(_), Some(_)) => None,
        }
    }

    pub fn way(&self) -> Join {
        match self.script() {
            None => Join::Template,
            Some(_) => Join::GuestExec,
        }
    }

    /// For how long the last machine whose launch failed is kept, stopped. Zero: not at all.
    pub fn keeps_failed(&self) -> SignedDuration {
        self.keep_failed.unwrap_or_default().0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Join {
    /// The template joins by itself at first boot.
    Template,
    /// kproxide runs a script through the QEMU guest agent, once per claim.
    GuestExec,
}

/// Nothing to set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JoinByTemplate {}

/// kproxide runs a script in the VM, once, through the QEMU guest agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JoinByGuestExec {
    /// Path of the file with the script, in the folder of `--join-dir`, such as `/etc/kproxide/join/command`. Mount it
    /// from a Secret, because it usually holds a join token.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 4096)))]
    pub command_secret_file: Arc<str>,
}

/// How long the steps of a launch may take. kproxide removes a machine that takes longer, and makes another one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timeouts {
    /// From the clone request to the end of the clone, while its task runs. A full clone of a large disk takes minutes.
    pub clone: Period,
    /// From the end of the clone to a started VM, and from the clone request to the start of its task.
    pub provision: Period,
    /// From the VM's start to the guest agent's first answer. It counts only with `join.guestExec`.
    pub agent: Period,
    /// From the VM's start to a Ready Node.
    pub join: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            clone: Period::minutes(60),
            provision: Period::minutes(5),
            agent: Period::minutes(3),
            join: Period::minutes(10),
        }
    }
}

/// Inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    pub first: std::net::IpAddr,
    pub last: std::net::IpAddr,
}
