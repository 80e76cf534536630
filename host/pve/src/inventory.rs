//! The whole Proxmox cluster in two calls: hypervisors, storages, guests, quorum.
//!
//! Proxmox: which guests exist, where, and their locks, tags and pools are current; names, states and all numbers are
//! broadcast every ten seconds, so a new VM has no name at first, and a dead hypervisor's guests stay "running" for five
//! minutes. Therefore a guest's state counts only while its hypervisor is online.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Duration, timeout};

use super::client::Client;
use super::error::{Error, Meaning};
use super::request::Call;
use super::types;

/// How long a hypervisor may take to answer a question that costs it nothing.
pub(super) const HYPERVISOR_DEADLINE: Duration = Duration::from_secs(5);
/// The same for one that did not answer when it was last asked: it must not hold up every look.
const SILENT_DEADLINE: Duration = Duration::from_secs(2);

/// What a cluster looks like.
#[derive(Debug, Clone)]
pub struct Inventory {
    /// Writes are possible. Without quorum, no write may be sent, least of all a removal.
    pub quorate: bool,
    /// By name.
    pub hypervisors: Vec<Hypervisor>,
    /// By VMID.
    pub guests: Vec<Guest>,
    /// The resource pools that the credentials may see.
    pub pools: BTreeSet<String>,
    /// By a server that belongs to no cluster, or does not know that it does.
    pub alone: bool,
    /// False if something in the answer could not be read: absence then proves nothing.
    pub complete: bool,
}

/// One Proxmox VE server.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypervisor {
    /// As in paths and certificates.
    pub name: String,
    /// A member of the cluster's majority whose own numbers are current.
    pub online: bool,
    /// Why it does not count as online although Proxmox says that it is.
    pub problem: Option<String>,
    /// In maintenance mode: it runs, but wants nothing new.
    pub maintenance: bool,
    /// What the HA manager says of it, if it says anything.
    pub ha_state: Option<String>,
    /// Seconds since its start.
    pub uptime: Option<u64>,
    /// CPU threads; 0 if unknown.
    pub threads: u64,
    /// Share of all threads in use, 0 to 1.
    pub cpu_usage: f64,
    /// Bytes in use; says nothing of what its guests may still claim.
    pub memory_used: u64,
    /// Bytes; 0 if unknown (no `Sys.Audit` on it).
    pub memory_total: u64,
    /// By name.
    pub storages: Vec<Storage>,
}

/// A storage as one hypervisor sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Proxmox's storage ID.
    pub name: String,
    /// The same everywhere, or a different one on each hypervisor.
    pub shared: bool,
    /// `dir`, `lvmthin`, `zfspool`, `rbd`, ….
    pub kind: String,
    /// `images`, `iso`, `snippets`, ….
    pub content: Vec<String>,
    /// Bytes free; 0 if unknown.
    pub available: u64,
    /// Bytes; 0 if unknown.
    pub total: u64,
    /// Mounted and answering.
    pub active: bool,
}

/// Virtual machine or container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKind {
    /// A VM.
    Qemu,
    /// A container.
    Lxc,
}

/// Whether a guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestStatus {
    /// It runs (paused ones too).
    Running,
    /// It does not run.
    Stopped,
    /// Just made, or its hypervisor is silent. Not gone.
    Unknown,
}

/// A guest of any owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Unique in the cluster.
    pub vmid: u32,
    /// Where it is.
    pub hypervisor: String,
    /// VM or container.
    pub kind: GuestKind,
    /// Missing for the first seconds of its life.
    pub name: Option<String>,
    /// A template.
    pub template: bool,
    /// Whether it runs.
    pub status: GuestStatus,
    /// The resource pool.
    pub pool: Option<String>,
    /// Lower case and sorted, by Proxmox's default.
    pub tags: Vec<String>,
    /// `clone`, `backup`, ….
    pub lock: Option<String>,
    /// CPU threads it may use.
    pub max_cpu: u64,
    /// Bytes of memory it may use.
    pub max_mem: u64,
}

impl Inventory {
    /// A hypervisor by name.
    pub fn hypervisor(&self, name: &str) -> Option<&Hypervisor> {
        self.hypervisors
            .iter()
            .find(|hypervisor| hypervisor.name == name)
    }

    /// Quorum, with regard to the VMs of one hypervisor. A server that answers as a single server knows only its own
    /// VMs, even if it was in a cluster before.
    pub fn quorate_for(&self, hypervisor: &str) -> bool {
        self.quorate && (!self.alone || self.hypervisor(hypervisor).is_some())
    }

    /// A guest by number.
    pub fn guest(&self, vmid: u32) -> Option<&Guest> {
        self.guests.iter().find(|guest| guest.vmid == vmid)
    }

    /// The guests of a hypervisor.
    pub fn guests_on(&self, hypervisor: &str) -> impl Iterator<Item = &Guest> {
        self.guests
            .iter()
            .filter(move |guest| guest.hypervisor == hypervisor)
    }
}

impl Hypervisor {
    /// One of its storages.
    pub fn storage(&self, name: &str) -> Option<&Storage> {
        self.storages.iter().find(|storage| storage.name == name)
    }
}

impl Storage {
    /// True if disks of VMs may be made on it while it is active.
    pub fn takes_disks(&self) -> bool {
        self.content.iter().any(|content| content == "images")
    }
}

impl Client {
    /// Reads the cluster.
    ///
    /// # Errors
    /// No endpoint answered, or the token lacks `Sys.Audit` on `/`, without which quorum cannot be known.
    pub async fn inventory(&self) -> Result<Inventory, Error> {
        let client = self.at_one_endpoint();
        match client.read_inventory().await {
            // It went silent in between: the others are asked for the whole of it, unless more has to come from this one.
            Err(error) if error.is_of_endpoint() && !self.is_pinned() && client.is_pinned() => {
                self.at_one_endpoint().read_inventory().await
            }
            read => read,
        }
    }

    /// Asks each hypervisor whether it answers, all at once. One that is silent counts as not online: Proxmox lists it
    /// as online while its status daemon works, even if its API has hung. `silent`: those that did not answer last time.
    pub async fn probe(&self, inventory: &mut Inventory, silent: &BTreeSet<String>) {
        let online = inventory.hypervisors.iter_mut().filter(|it| it.online);
        let asked = online.map(|hypervisor| async {
            let within = match silent.contains(&hypervisor.name) {
                true => SILENT_DEADLINE,
                false => HYPERVISOR_DEADLINE,
            };
            hypervisor.problem = self.silence(&hypervisor.name, within).await;
            hypervisor.online = hypervisor.problem.is_none();
        });
        join_all(asked).await;
        inventory.forget_states();
    }

    /// Proxmox: this call needs no privilege, is passed on to the hypervisor, and needs none of its three workers.
    async fn silence(&self, hypervisor: &str, within: Duration) -> Option<String> {
        let call = Call::get(&["nodes", hypervisor, "version"]);
        match timeout(within, self.fetch::<IgnoredAny>(call)).await {
            // Without a number: the two deadlines must not make two texts.
            Err(_) => Some("no answer within seconds".to_owned()),
            Ok(Err(error))
                if matches!(
                    error.meaning,
                    Meaning::AnswerLost | Meaning::HypervisorOffline
                ) =>
            {
                Some(error.chain())
            }
            // A refusal is an answer.
            Ok(_) => None,
        }
    }

    async fn read_inventory(&self) -> Result<Inventory, Error> {
        let members: Vec<Member> = self
            .fetch(Call::get(&["cluster", "status"]).protected())
            .await?;
        let resources: Vec<Resource> = self.fetch(Call::get(&["cluster", "resources"])).await?;
        let mut inventory = Inventory::of(members, resources);
        // Proxmox: a member of a cluster that does not know its fellows answers as a lone server does, from what it last knew.
        if self.is_or_was_clustered(!inventory.alone) && inventory.alone {
            inventory.quorate = false;
        }
        Ok(inventory)
    }
}

/// An element of `cluster/status`.
#[derive(Debug, Deserialize)]
struct Member {
    #[serde(rename = "type", default, deserialize_with = "types::text")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    name: Option<String>,
    #[serde(default, deserialize_with = "types::flag")]
    quorate: bool,
    #[serde(default, deserialize_with = "types::flag")]
    online: bool,
}

/// An element of `cluster/resources`, of any type.
#[derive(Debug, Deserialize)]
struct Resource {
    #[serde(rename = "type", default, deserialize_with = "types::text")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    node: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    status: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    name: Option<String>,
    #[serde(default, deserialize_with = "types::count")]
    vmid: Option<u64>,
    #[serde(default, deserialize_with = "types::flag")]
    template: bool,
    #[serde(default, deserialize_with = "types::text")]
    pool: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    tags: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    lock: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    hastate: Option<String>,
    #[serde(default, deserialize_with = "types::count")]
    uptime: Option<u64>,
    #[serde(default, deserialize_with = "types::number")]
    cpu: Option<f64>,
    #[serde(default, deserialize_with = "types::count")]
    maxcpu: Option<u64>,
    #[serde(default, deserialize_with = "types::count")]
    mem: Option<u64>,
    #[serde(default, deserialize_with = "types::count")]
    maxmem: Option<u64>,
    #[serde(default, deserialize_with = "types::count")]
    disk: Option<u64>,
    #[serde(default, deserialize_with = "types::count")]
    maxdisk: Option<u64>,
    #[serde(default, deserialize_with = "types::text")]
    storage: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    plugintype: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    content: Option<String>,
    #[serde(default, deserialize_with = "types::flag")]
    shared: bool,
}

impl Inventory {
    fn of(members: Vec<Member>, resources: Vec<Resource>) -> Inventory {
        let cluster = members
            .iter()
            .find(|member| member.kind.as_deref() == Some("cluster"));
        // Proxmox: a server that never joined a cluster has no such element, and always has quorum. It is alone then: with anything else beside it the
        // element was not understood.
        let quorate = cluster.map_or(members.len() == 1, |cluster| cluster.quorate);
        let alone = cluster.is_none();
        let online: BTreeMap<&str, bool> = members
            .iter()
            .filter(|member| member.kind.as_deref() == Some("node"))
            .filter_map(|member| Some((member.name.as_deref()?, member.online)))
            .collect();

        let mut complete = true;
        let mut hypervisors: BTreeMap<String, Hypervisor> = BTreeMap::new();
        let mut storages: Vec<(String, Storage)> = Vec::new();
        let mut guests: BTreeMap<u32, Guest> = BTreeMap::new();
        let mut pools = BTreeSet::new();
        for resource in resources {
            let read = match resource.kind.as_deref() {
                Some("node") => resource.hypervisor(&online).map(|hypervisor| {
                    hypervisors.insert(hypervisor.name.clone(), hypervisor);
                }),
                Some("storage") => resource.storage().map(|storage| storages.push(storage)),
                Some("qemu") => resource.guest(GuestKind::Qemu).map(|guest| {
                    guests.insert(guest.vmid, guest);
                }),
                Some("lxc") => resource.guest(GuestKind::Lxc).map(|guest| {
                    guests.insert(guest.vmid, guest);
                }),
                Some("pool") => {
                    pools.extend(resource.pool);
                    Some(())
                }
                // Networks, and what later versions add.
                Some(_) => Some(()),
                None => None,
            };
            complete &= read.is_some();
        }
        for (hypervisor, storage) in storages {
            match hypervisors.get_mut(&hypervisor) {
                Some(hypervisor) => hypervisor.storages.push(storage),
                None => complete = false,
            }
        }
        for hypervisor in hypervisors.values_mut() {
            hypervisor.storages.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let mut inventory = Inventory {
            quorate,
            alone,
            hypervisors: hypervisors.into_values().collect(),
            guests: guests.into_values().collect(),
            pools,
            complete,
        };
        inventory.forget_states();
        inventory
    }

    /// What a silent hypervisor said of its guests last may be minutes old.
    fn forget_states(&mut self) {
        let online = self.hypervisors.iter().filter(|it| it.online);
        let online: BTreeSet<&str> = online.map(|it| it.name.as_str()).collect();
        for guest in &mut self.guests {
            if !online.contains(guest.hypervisor.as_str()) {
                guest.status = GuestStatus::Unknown;
            }
        }
    }
}

impl Resource {
    fn hypervisor(self, online: &BTreeMap<&str, bool>) -> Option<Hypervisor> {
        let name = self.node?;
        // Both must agree: membership is seconds fresh, and "unknown" means that its status daemon hangs (a dead NFS server).
        let member = online.get(name.as_str()).copied().unwrap_or(true);
        Some(Hypervisor {
            online: member && self.status.as_deref() == Some("online"),
            problem: None,
            maintenance: self.hastate.as_deref() == Some("maintenance"),
            ha_state: self.hastate.filter(|state| !state.is_empty()),
            uptime: self.uptime,
            threads: self.maxcpu.unwrap_or(0),
            cpu_usage: self.cpu.unwrap_or(0.0).clamp(0.0, 1.0),
            memory_used: self.mem.unwrap_or(0),
            memory_total: self.maxmem.unwrap_or(0),
            storages: Vec::new(),
            name,
        })
    }

    fn storage(self) -> Option<(String, Storage)> {
        let total = self.maxdisk.unwrap_or(0);
        let storage = Storage {
            name: self.storage?,
            shared: self.shared,
            kind: self.plugintype.unwrap_or_default(),
            content: types::list(&self.content.unwrap_or_default()),
            available: total.saturating_sub(self.disk.unwrap_or(0)),
            total,
            active: self.status.as_deref() == Some("available"),
        };
        Some((self.node?, storage))
    }

    fn guest(self, kind: GuestKind) -> Option<Guest> {
        Some(Guest {
            vmid: u32::try_from(self.vmid?).ok()?,
            hypervisor: self.node?,
            kind,
            name: self.name,
            template: self.template,
            status: match self.status.as_deref() {
                Some("running" | "paused" | "suspended" | "prelaunch") => GuestStatus::Running,
                Some("stopped") => GuestStatus::Stopped,
                Some(_) | None => GuestStatus::Unknown,
            },
            pool: self.pool.filter(|pool| !pool.is_empty()),
            tags: types::list(&self.tags.unwrap_or_default()),
            lock: self.lock.filter(|lock| !lock.is_empty()),
            max_cpu: self.maxcpu.unwrap_or(0),
            max_mem: self.maxmem.unwrap_or(0),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn inventory(status: serde_json::Value, resources: serde_json::Value) -> Inventory {
        Inventory::of(
            serde_json::from_value(status).unwrap(),
            serde_json::from_value(resources).unwrap(),
        )
    }

    #[test]
    fn quorum_that_was_not_understood_is_none() {
        let node = |name| json!({"type": "node", "name": name, "online": 1});
        let cluster = json!({"kind": "cluster", "name": "lab", "quorate": 0});
        for members in [
            json!([cluster, node("pve1")]),
            json!([node("pve1"), node("pve2")]),
            json!([]),
        ] {
            assert!(!inventory(members, json!([])).quorate);
        }
    }

    #[test]
    fn a_single_server_has_quorum() {
        let read = inventory(
            json!([{"type":"node","name":"pve1","online":1}]),
            json!([{"type":"node","node":"pve1","status":"online","maxcpu":"8","cpu":"0.25","mem":1.5e9,"maxmem":8000000000_u64,"hastate":"maintenance"}]),
        );
        assert!(read.quorate && read.complete);
        let hypervisor = read.hypervisor("pve1").unwrap();
        assert!(hypervisor.online && hypervisor.maintenance);
        assert_eq!((hypervisor.threads, hypervisor.cpu_usage), (8, 0.25));
        assert_eq!(
            (hypervisor.memory_used, hypervisor.memory_total),
            (1_500_000_000, 8_000_000_000)
        );
    }

    #[test]
    fn f40_guests_of_a_silent_hypervisor_are_unknown_not_gone() {
        let read = inventory(
            json!([{"type":"cluster","quorate":0},{"type":"node","name":"pve1","online":1},{"type":"node","name":"pve2","online":0}]),
            json!([
                {"type":"node","node":"pve1","status":"online"},
                {"type":"node","node":"pve2","status":"online"},
                {"type":"qemu","vmid":"101","node":"pve1","status":"running","tags":"a;b"},
                {"type":"qemu","vmid":102,"node":"pve2","status":"running","name":"b","pool":"k8s"},
            ]),
        );
        assert!(!read.quorate);
        assert!(!read.hypervisor("pve2").unwrap().online);
        assert_eq!(read.guest(101).unwrap().status, GuestStatus::Running);
        assert_eq!(read.guest(101).unwrap().tags, ["a", "b"]);
        assert_eq!(read.guest(102).unwrap().status, GuestStatus::Unknown);
    }

    #[test]
    fn a_new_guest_has_no_name() {
        let read = inventory(
            json!([]),
            json!([{"type":"node","node":"pve1","status":"online"},{"id":"qemu/101","vmid":101,"node":"pve1","type":"qemu","status":"unknown","lock":"clone"}]),
        );
        let guest = read.guest(101).unwrap();
        assert_eq!(
            (guest.name.as_deref(), guest.lock.as_deref()),
            (None, Some("clone"))
        );
    }

    #[test]
    fn f50_f55_an_odd_entry_makes_the_picture_incomplete() {
        let read = inventory(
            json!([]),
            json!([{"type":"node","node":"pve1","status":"online"},{"type":"qemu","node":"pve1"},{"type":"sdn","sdn":"x"}]),
        );
        assert!(!read.complete);
        assert_eq!(read.guests, []);
    }

    #[test]
    fn storages_belong_to_their_hypervisor() {
        let read = inventory(
            json!([]),
            json!([
                {"type":"storage","storage":"local","node":"pve1","plugintype":"dir","content":"iso,images","shared":0,"status":"available","disk":"10","maxdisk":100},
                {"type":"node","node":"pve1","status":"online"},
            ]),
        );
        let storage = read.hypervisor("pve1").unwrap().storage("local").unwrap();
        assert!(storage.takes_disks() && !storage.shared);
        assert_eq!((storage.available, storage.total), (90, 100));
    }
}
