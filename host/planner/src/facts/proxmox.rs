//! What Proxmox says of its servers, in words that the planner shares with policies.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::interface::Connection;
use super::ledger::Mark;
use super::template::TemplateChoice;
use crate::ids::{StorageName, Uid, Vmid};

/// One Proxmox cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InventoryFacts {
    /// When it was read; `None` if it could never be read.
    pub taken_at: Option<Timestamp>,
    /// The cluster answers and our credentials work.
    pub reachable: bool,
    /// Why not, or why no machine can be made there, for the user.
    pub problem: Option<String>,
    /// The lines of it that a person can type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// What kind of problem, if it does not pass by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// Writes are possible. Without quorum nothing is launched or destroyed.
    pub quorate: bool,
    /// Proxmox VE's version, if it is known.
    pub version: Option<Arc<str>>,
    /// Every hypervisor's part is known: only then is "not listed" a hint of absence (never a proof).
    pub complete: bool,
    pub hypervisors: BTreeMap<Arc<str>, HypervisorFacts>,
    pub guests: BTreeMap<Vmid, GuestFacts>,
    /// The templates of each class that uses this cluster, by what tells them.
    pub templates: BTreeMap<TemplateChoice, Vec<TemplateFacts>>,
}

impl InventoryFacts {
    /// The list is whole, and no guest has that number; `hypervisor` is where it was, if that is known. A hint, good enough to let a number rest, not to use it.
    ///
    /// Proxmox: a member of a cluster that does not know its fellows answers as a lone server does, so a lone server is believed of its own guests only.
    pub fn lacks(&self, vmid: Vmid, hypervisor: Option<&str>) -> bool {
        let is_of_another = hypervisor.is_some_and(|name| !self.hypervisors.contains_key(name));
        let is_whole = self.reachable && self.quorate && self.complete;
        is_whole
            && !(is_of_another && self.hypervisors.len() == 1)
            && !self.guests.contains_key(&vmid)
    }

    /// The cluster answers with quorum, and says that this hypervisor is offline. Without it, the others are out of its sight.
    pub fn is_off(&self, hypervisor: &str) -> bool {
        let facts = self.hypervisors.get(hypervisor);
        let sees = self.reachable && self.quorate;
        sees && facts.is_some_and(|facts| !facts.online && facts.problem.is_none())
    }

    /// Since when each hypervisor is in maintenance, as earlier looks have seen it.
    pub fn count_maintenance(&mut self, last: &Self) {
        for (name, facts) in &mut self.hypervisors {
            let before = last.hypervisors.get(name);
            let since = before.and_then(|it| it.maintenance_since);
            facts.maintenance_since = since.or(self.taken_at).filter(|_| facts.maintenance);
        }
    }

    /// That hypervisor is listed and online.
    pub fn answers(&self, hypervisor: &str) -> bool {
        let facts = self.hypervisors.get(hypervisor);
        facts.is_some_and(|facts| facts.online)
    }
}

/// What a person has to mend before kproxide can work with a Proxmox cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// Proxmox refuses the credentials, or they cannot be read.
    Credentials,
    /// An endpoint is not in the list of those that may have the credentials.
    Endpoint,
    /// The certificate of an endpoint is not trusted.
    Certificate,
    /// The credentials may not see what kproxide must see.
    Privileges,
    /// The cluster answers, and the Proxmox pool for the machines is not there.
    NoPool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HypervisorFacts {
    pub online: bool,
    /// Why it does not count as online although Proxmox says that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Arc<str>>,
    /// The HA manager's maintenance mode.
    pub maintenance: bool,
    /// Since when kproxide has seen it so. `None`: nobody has counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_since: Option<Timestamp>,
    pub threads: u32,
    pub memory_bytes: u64,
    pub memory_used_bytes: u64,
    /// 0.0 to 1.0, as Proxmox measures it.
    pub cpu_usage: f64,
    /// Sum of the configured threads and memory of the guests that run, or whose state Proxmox does not tell; no templates.
    pub committed_threads: u64,
    pub committed_memory_bytes: u64,
    /// How many those guests are.
    #[serde(default)]
    pub guests: u32,
    /// Seconds since its start, if Proxmox tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<u64>,
    /// What the HA manager says of it, such as `online` or `maintenance`, if it says anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ha_state: Option<Arc<str>>,
    /// What it says of itself, if it was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Arc<HypervisorDetails>>,
    pub storages: BTreeMap<StorageName, StorageFacts>,
    /// Bridges and VNets to which the credentials may connect machines. `None`: not known, or no class asks for one by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridges: Option<Arc<BTreeMap<Arc<str>, BridgeKind>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BridgeKind {
    /// Of the server itself.
    Plain,
    /// Of an SDN zone.
    Vnet,
}

/// What a server says of itself to policies. What it did not tell is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HypervisorDetails {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Proxmox VE's, such as `9.2.11`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Arc<str>>,
    /// The release of the kernel that runs, such as `6.14.8-2-pve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Arc<str>>,
    /// Over 1, 5 and 15 minutes. `None` also if what was told is too old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<[f64; 3]>,
    /// The words of its notes that begin with `#`, without that, in lower case and sorted. `None` as for `load`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Arc<[Arc<str>]>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageFacts {
    pub kind: Arc<str>,
    /// A template's disks on it can be the base of linked clones.
    pub linked_clones: bool,
    pub shared: bool,
    pub active: bool,
    pub available_bytes: u64,
    pub total_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestFacts {
    pub hypervisor: Arc<str>,
    pub name: Option<Arc<str>>,
    pub status: GuestStatus,
    pub template: bool,
    pub lock: Option<Arc<str>>,
    pub pool: Option<Arc<str>>,
    pub max_threads: u32,
    pub max_memory_bytes: u64,
}

/// Up to 10 s old, and `Unknown` for guests of a hypervisor that is not online.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GuestStatus {
    Running,
    Stopped,
    Unknown,
}

/// One VM template that a class may be cloned from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemplateFacts {
    pub vmid: Vmid,
    /// Where it stands: the clone request goes there.
    pub hypervisor: Arc<str>,
    /// What clones get, the disk to boot from first. Without `unusedN`, which Proxmox leaves behind.
    pub disks: Vec<TemplateDisk>,
    /// Changes when the template's configuration changes: what drift is measured by.
    pub digest: String,
    /// The VM of that name is no template, or has a problem that forbids cloning; says which.
    pub problem: Option<String>,
    /// The lines of it that a person can type on that server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// It has the guest agent, by which join scripts run.
    #[serde(default = "yes")]
    pub has_agent: bool,
    /// SMBIOS UUID, so that a clone is never confused with it.
    pub smbios_uuid: Option<Uid>,
    /// Its clones have memory hotplug until kproxide switches it off, which takes a privilege of its own.
    #[serde(default)]
    pub hotplugs_memory: bool,
    /// What its network interfaces are connected to, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<Arc<str>, Connection>,
}

/// An answer of an older kproxide does not say it.
fn yes() -> bool {
    true
}

impl TemplateFacts {
    /// Size of the disk to boot from.
    pub fn boot_bytes(&self) -> u64 {
        self.disks.first().map_or(0, |disk| disk.bytes)
    }
}

/// A drive of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateDisk {
    /// Such as `scsi0`.
    pub key: Arc<str>,
    pub drive: Drive,
    pub bytes: u64,
    pub storage: StorageName,
    /// Such as `lvmthin`; `unknown` if the storage is not listed.
    pub storage_kind: Arc<str>,
    pub shared: bool,
}

/// What Proxmox makes of a drive in a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Drive {
    /// Copied, or the base of a linked clone where its storage is one that can be.
    Disk { links: bool },
    /// Made anew.
    CloudInit,
    /// Named again and not copied.
    Cd,
}

impl TemplateDisk {
    /// A linked clone builds on it, and a full one copies it.
    pub fn is_base(&self) -> bool {
        matches!(self.drive, Drive::Disk { .. })
    }

    /// It keeps no clone from being linked.
    pub fn links(&self) -> bool {
        self.drive != Drive::Disk { links: false }
    }
}

/// What the own configuration of a guest says that no claim names, though it is in our range and in our pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrphanLook {
    /// Its marker is one that we signed for this very VMID.
    Ours(Box<OrphanFacts>),
    /// It is no machine but an anchor of this Kubernetes cluster, as its signed line says.
    Anchor(AnchorLook),
    /// Nothing shows that it is ours. Says why.
    NotProven(String),
}

/// An anchor as it was read: see [`crate::guard::anchor`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnchorLook {
    pub mark: Mark,
    pub hypervisor: Arc<str>,
}

/// A machine of ours without a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphanFacts {
    /// UID of the claim that it was made for.
    pub claim_uid: Uid,
    /// Random text of its marker.
    pub nonce: Arc<str>,
    /// The name of its claim, too, unless somebody has renamed it.
    pub name: Option<Arc<str>>,
    pub hypervisor: Arc<str>,
    pub smbios_uuid: Option<Uid>,
    pub milli_cores: u64,
    pub memory_bytes: u64,
    pub lock: Option<Arc<str>>,
    pub protected: bool,
    /// As [`crate::claim::Machine::snapshot`].
    pub snapshot: Option<Arc<str>>,
    /// Its end was decided while it had a claim.
    pub tombstoned: bool,
}
