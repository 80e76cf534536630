//! The user's objects, as the planner reads them. The API's types are converted into these (`host/kube/src/convert`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use super::attributes::Attribute;
use super::kubernetes::{Labels, Taint};
use super::learned::LearnedNode;
use super::machine::{MachineSpec, ProviderId};
use crate::ids::{ClassName, ClusterName, Digest, InstanceTypeName, StorageName, Uid, Vmid};
use crate::kubernetes::resources::Resources;

/// How one of the user's objects stands in the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existence {
    pub uid: Uid,
    /// How often its spec has changed: conditions name the one that they are about.
    #[serde(default)]
    pub generation: i64,
    /// It carries kproxide's finalizer [`crate::keys::IN_USE`], so that it stays while machines need it.
    pub in_use: bool,
    /// Somebody deletes it: since when.
    pub deleting_since: Option<Timestamp>,
}

impl Default for Existence {
    fn default() -> Self {
        Self {
            uid: Uid::from(""),
            generation: 0,
            in_use: false,
            deleting_since: None,
        }
    }
}

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

/// NodePool: how many machines of which classes, with which labels, under which policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolFacts {
    #[serde(default)]
    pub existence: Existence,
    /// If it is deleted, its machines stay, without a pool.
    #[serde(default)]
    pub keep_machines: bool,
    pub class: ClassName,
    /// Empty: every cluster.
    pub clusters: Vec<ClusterName>,
    pub min_nodes: u32,
    pub max_nodes: u32,
    pub max_milli_cores: Option<u64>,
    pub max_memory_bytes: Option<u64>,
    /// Pools of higher weight are tried first.
    pub weight: i32,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Something else (a CNI, say) removes them. The Node counts as Initialized only after that.
    pub startup_taints: Vec<Taint>,
    pub policies: PoolPolicies,
    pub paused: bool,
    /// The annotation `kproxide.dev/retry`. A new value ends what the pool has learnt of machines made in vain.
    #[serde(default)]
    pub retry: Option<Arc<str>>,
    pub scale_up_stabilization: SignedDuration,
    pub scale_down: ScaleDown,
    pub drain_timeout: SignedDuration,
    /// kproxide replaces a Node that has not been Ready for this long.
    pub repair_after: SignedDuration,
    /// kproxide replaces a machine whose claim is older than this.
    pub expire_after: Option<SignedDuration>,
    /// If its replacement has no room beside it, an expired machine goes first.
    #[serde(default)]
    pub old_first: bool,
    /// Room that kproxide keeps free in the pool for pods to come.
    pub headroom: Resources,
    pub problem: Option<String>,
}

impl PoolFacts {
    /// It is being deleted, and its machines with it: since when.
    pub fn going_since(&self) -> Option<Timestamp> {
        let since = self.existence.deleting_since;
        since.filter(|_| !self.keep_machines)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolPolicies {
    pub host_selection: PolicyUse,
    pub scale_down: PolicyUse,
    pub labels: PolicyUse,
}

impl PoolPolicies {
    /// With their fields in `spec.policies` of the NodePool.
    pub fn by_field(&self) -> [(&'static str, &PolicyUse); 3] {
        let Self {
            host_selection,
            scale_down,
            labels,
        } = self;
        [
            ("hostSelection", host_selection),
            ("scaleDown", scale_down),
            ("labels", labels),
        ]
    }

    /// Those that decide together one by one.
    pub fn each(&self) -> Vec<(String, PolicyUse)> {
        let fields = self.by_field().into_iter();
        let each = fields.flat_map(|(field, used)| {
            let members = used.members.iter().map(Some).chain([None]);
            members.zip(used.each()).map(move |(member, used)| {
                let field = match member {
                    None => field.to_owned(),
                    Some(member) => {
                        let list = if member.weight == 0 {
                            "filters"
                        } else {
                            "scores"
                        };
                        format!("{field}.{list}[{}]", member.policy.name)
                    }
                };
                (field, used)
            })
        });
        each.collect()
    }
}

/// What decides: a policy by name, with the operator's settings as JSON text (`labelTemplates` already merged in), or several policies together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct PolicyUse {
    /// Of several: the names of all, with `+` between them.
    pub policy: PolicyRef,
    pub settings: Arc<str>,
    /// Those that decide together, in the order in which they are asked. Empty: the policy decides alone.
    #[serde(default)]
    pub members: Vec<PolicyMember>,
}

/// One of several policies that decide together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyMember {
    pub policy: PolicyRef,
    pub settings: Arc<str>,
    /// How much its score counts. 0: it only refuses.
    pub weight: u32,
    /// In a question: what it returned last, at most 4096 bytes.
    #[serde(default)]
    pub state: Vec<u8>,
}

impl PolicyUse {
    pub fn alone(policy: PolicyRef, settings: Arc<str>) -> Self {
        Self {
            policy,
            settings,
            members: Vec::new(),
        }
    }

    pub fn together(kind: PolicyKind, members: Vec<PolicyMember>) -> Self {
        let names: Vec<&str> = members.iter().map(|it| &*it.policy.name).collect();
        let name = names.join("+").into();
        Self {
            members,
            ..Self::alone(PolicyRef { kind, name }, "".into())
        }
    }

    /// Each policy that is asked: in the ordinary case itself alone.
    pub fn each(&self) -> Vec<Self> {
        let alone = |it: &PolicyMember| Self::alone(it.policy.clone(), it.settings.clone());
        match &self.members[..] {
            [] => vec![self.clone()],
            members => members.iter().map(alone).collect(),
        }
    }
}

/// People do not see the empty list of one that decides alone. A format without names of fields needs it.
impl Serialize for PolicyUse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            policy,
            settings,
            members,
        } = self;
        let is_shown = !members.is_empty() || !serializer.is_human_readable();
        let mut fields = serializer.serialize_struct("PolicyUse", 2 + usize::from(is_shown))?;
        fields.serialize_field("policy", policy)?;
        fields.serialize_field("settings", settings)?;
        if is_shown {
            fields.serialize_field("members", members)?;
        }
        fields.end()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PolicyRef {
    pub kind: PolicyKind,
    pub name: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PolicyKind {
    HostSelection,
    ScaleDown,
    Labels,
}

impl PolicyKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostSelection => "host-selection",
            Self::ScaleDown => "scale-down",
            Self::Labels => "labels",
        }
    }
}

impl From<PolicyRef> for String {
    fn from(policy: PolicyRef) -> Self {
        format!("{}/{}", policy.kind.as_str(), policy.name)
    }
}

impl TryFrom<String> for PolicyRef {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (kind, name) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} is not kind/name"))?;
        let kind = match kind {
            "host-selection" => PolicyKind::HostSelection,
            "scale-down" => PolicyKind::ScaleDown,
            "labels" => PolicyKind::Labels,
            other => return Err(format!("{other:?} is not a kind of policy")),
        };
        Ok(Self {
            kind,
            name: name.into(),
        })
    }
}

/// Which version of a policy answers now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFacts {
    pub digest: Digest,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleDown {
    pub enabled: bool,
    /// H in `A × (1 + H) < T − K`: A is the load, T what all Nodes have, K what the removed Node has.
    pub load_headroom: f64,
    pub stabilization: SignedDuration,
    pub min_node_age: SignedDuration,
    pub unneeded_time: SignedDuration,
    /// At most this many removals of the pool at once.
    pub budget: u32,
    pub blocked_by: BlockedBy,
}

/// Which pods keep their Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedBy {
    pub local_volumes: bool,
    pub bare_pods: bool,
    pub unfinished_jobs: bool,
    pub empty_dir: bool,
    pub kube_system: bool,
}
