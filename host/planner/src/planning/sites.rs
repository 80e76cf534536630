//! Hypervisors and the room that is left on them.
//!
//! [`Hypervisors`] is what stands when the tick begins; a [`Site`] is one hypervisor seen by one class and type (which template, which storage);
//! [`Room`] is what can still be given, in whole numbers that can be copied and tried out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Planning;
use super::machines::signed;
use crate::facts::{
    Backoff, ClassFacts, ClusterFacts, GuestFacts, GuestStatus, HypervisorFacts, InstanceType,
    InventoryFacts, LedgerEntry, LedgerFacts, StorageFacts, TemplateFacts,
};
use crate::ids::{ClassName, ClusterName, HypervisorId, PoolName, StorageName, Vmid};
use crate::ledger::{FORBIDDEN_VMID, MOST_ENTRIES};
use crate::question::{Candidate, HypervisorDescription, Size};
use crate::resources::amount_text;
use crate::world::World;

#[derive(Default)]
pub(super) struct Hypervisors<'w> {
    /// By cluster and name.
    pub(super) all: Vec<Hypervisor<'w>>,
    clusters: Vec<&'w ClusterName>,
    /// Storages by index: a shared one once per cluster, a local one once per hypervisor.
    storages: BTreeMap<StorageKey, usize>,
    classes: Vec<&'w ClassName>,
}

/// The hypervisor is named for a storage of its own.
type StorageKey = (ClusterName, Option<Arc<str>>, StorageName);

pub(super) struct Hypervisor<'w> {
    pub(super) id: HypervisorId,
    pub(super) cluster: &'w ClusterFacts,
    pub(super) facts: &'w HypervisorFacts,
    inventory: &'w InventoryFacts,
    /// Index of its cluster.
    cluster_index: usize,
    /// Why no machine at all may be made here.
    closed: Option<String>,
    /// Guests that run, or that are not ours.
    committed: Size,
    /// Ours that do not run yet.
    in_flight: Size,
    machines: u32,
    machines_by_pool: BTreeMap<PoolName, u32>,
}

/// Where and from what a machine of one class and type would be made.
#[derive(Clone, Debug)]
pub(super) struct Site<'w> {
    /// Index into [`Hypervisors::all`].
    pub(super) hypervisor: usize,
    cluster: usize,
    class: usize,
    storage: usize,
    pub(super) storage_name: StorageName,
    /// Bytes that the new disk takes at once; 0 for a linked clone.
    pub(super) disk_bytes: u64,
    pub(super) template: &'w TemplateFacts,
}

/// What can still be given.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    hypervisors: Vec<HypervisorRoom>,
    storages: Vec<u64>,
    /// Free VMIDs per cluster.
    numbers: Vec<u32>,
    /// Free addresses per class; `None`: DHCP.
    addresses: Vec<Option<u64>>,
    entries: usize,
}

#[derive(Clone, Copy, Debug)]
struct HypervisorRoom {
    milli_cores: i64,
    memory_bytes: i64,
    machines: Option<u32>,
}

/// Why a site cannot take one more machine now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    LedgerFull,
    NoNumber {
        cluster: ClusterName,
        first: Vmid,
        last: Vmid,
    },
    NoAddress(ClassName),
    TooManyMachines(u32),
    Lacks {
        resource: &'static str,
        asked: i64,
        left: i64,
    },
    StorageFull {
        storage: StorageName,
        asked: i64,
        left: i64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LedgerFull => write!(f, "the Ledger holds its most of {MOST_ENTRIES} entries"),
            Self::NoNumber {
                cluster,
                first,
                last,
            } => {
                write!(
                    f,
                    "cluster {cluster} has no free VMID in {first} to {last} (vmidRange)"
                )
            }
            Self::NoAddress(class) => write!(
                f,
                "the address pool of NodeClass {class} has no free address"
            ),
            Self::TooManyMachines(most) => write!(
                f,
                "it holds {most} machines already (maxMachinesPerHypervisor)"
            ),
            Self::Lacks {
                resource,
                asked,
                left,
            } => write!(
                f,
                "no room: the machine needs {} of {resource}, {} left",
                amount_text(resource, *asked),
                amount_text(resource, (*left).max(0))
            ),
            Self::StorageFull {
                storage,
                asked,
                left,
            } => write!(
                f,
                "storage {storage} has no space: the disk needs {}, {} left",
                amount_text("memory", *asked),
                amount_text("memory", *left)
            ),
        }
    }
}

impl Planning<'_> {
    /// The hypervisors of this tick, with what the Ledger's machines take of them.
    pub(super) fn survey(&mut self) -> Room {
        self.hypervisors = Hypervisors::survey(self.tick.world, &self.ledger);
        self.hypervisors.room(self.tick.world, &self.ledger)
    }
}

impl<'w> Hypervisors<'w> {
    fn survey(world: &'w World, ledger: &LedgerFacts) -> Self {
        let mut survey = Self {
            classes: world.classes().keys().collect(),
            ..Self::default()
        };
        for (cluster_name, cluster) in world.clusters() {
            let Some(inventory) = world.inventories().get(cluster_name) else {
                continue;
            };
            let cluster_index = survey.clusters.len();
            survey.clusters.push(cluster_name);
            for (name, facts) in &inventory.hypervisors {
                survey.add_storages(cluster_name, name, facts);
                survey.all.push(Hypervisor {
                    id: HypervisorId {
                        cluster: cluster_name.clone(),
                        name: name.clone(),
                    },
                    cluster,
                    facts,
                    inventory,
                    cluster_index,
                    closed: closed(cluster_name, cluster, inventory, name, facts),
                    committed: Size {
                        milli_cores: facts.committed_threads.saturating_mul(1000),
                        memory_bytes: facts.committed_memory_bytes,
                    },
                    in_flight: Size::default(),
                    machines: 0,
                    machines_by_pool: BTreeMap::new(),
                });
            }
        }
        for entry in ledger.entries.iter().filter(|entry| entry.counts()) {
            survey.count(entry);
        }
        survey
    }

    fn add_storages(
        &mut self,
        cluster: &ClusterName,
        hypervisor: &Arc<str>,
        facts: &HypervisorFacts,
    ) {
        for (name, storage) in &facts.storages {
            let next = self.storages.len();
            let key = storage_key(cluster, hypervisor, name, storage);
            self.storages.entry(key).or_insert(next);
        }
    }

    /// Counts a machine of the Ledger where it stands, and as in flight as long as it does not run.
    fn count(&mut self, entry: &LedgerEntry) {
        let guest = self.guest_of(entry).cloned();
        let at = guest
            .as_ref()
            .map_or(&entry.hypervisor, |guest| &guest.hypervisor);
        let id = HypervisorId {
            cluster: entry.cluster.clone(),
            name: at.clone(),
        };
        let Some(hypervisor) = self.find_mut(&id) else {
            return;
        };
        hypervisor.machines += 1;
        *hypervisor
            .machines_by_pool
            .entry(entry.pool.clone())
            .or_default() += 1;
        let has_run = |guest: &GuestFacts| match guest.status {
            GuestStatus::Running | GuestStatus::Unknown => true,
            GuestStatus::Stopped => false,
        };
        if guest.as_ref().is_some_and(has_run) {
            return;
        }
        if let Some(guest) = guest {
            // The inventory counts a stopped guest as committed; here it is in flight, with the size that it will have.
            let committed = &mut hypervisor.committed;
            committed.milli_cores = committed
                .milli_cores
                .saturating_sub(u64::from(guest.max_threads) * 1000);
            committed.memory_bytes = committed
                .memory_bytes
                .saturating_sub(guest.max_memory_bytes);
        }
        let in_flight = &mut hypervisor.in_flight;
        in_flight.milli_cores = in_flight.milli_cores.saturating_add(entry.milli_cores);
        in_flight.memory_bytes = in_flight.memory_bytes.saturating_add(entry.memory_bytes);
    }

    fn guest_of(&self, entry: &LedgerEntry) -> Option<&'w GuestFacts> {
        let of_cluster = |hypervisor: &&Hypervisor<'w>| hypervisor.id.cluster == entry.cluster;
        let inventory = self.all.iter().find(of_cluster)?.inventory;
        inventory.guests.get(&entry.vmid)
    }

    fn find_mut(&mut self, id: &HypervisorId) -> Option<&mut Hypervisor<'w>> {
        let index = self.index_of(id)?;
        self.all.get_mut(index)
    }

    pub(super) fn index_of(&self, id: &HypervisorId) -> Option<usize> {
        self.all
            .binary_search_by(|hypervisor| hypervisor.id.cmp(id))
            .ok()
    }

    fn room(&self, world: &World, ledger: &LedgerFacts) -> Room {
        let hypervisors = self.all.iter().map(|hypervisor| {
            let available = hypervisor.available();
            HypervisorRoom {
                milli_cores: signed(available.milli_cores),
                memory_bytes: signed(available.memory_bytes),
                machines: hypervisor
                    .cluster
                    .max_machines_per_hypervisor
                    .map(|most| most.saturating_sub(hypervisor.machines)),
            }
        });
        let mut storages = vec![0u64; self.storages.len()];
        for hypervisor in &self.all {
            for (name, storage) in &hypervisor.facts.storages {
                if let Some(index) = self.storage_index(hypervisor, name, storage) {
                    storages[index] = storage.available_bytes;
                }
            }
        }
        for entry in ledger.entries.iter().filter(|entry| entry.counts()) {
            self.reserve_disk(entry, &mut storages);
        }
        let numbers = self
            .clusters
            .iter()
            .map(|name| free_numbers(world, ledger, name));
        let addresses = self
            .classes
            .iter()
            .map(|name| free_addresses(world, ledger, name));
        Room {
            hypervisors: hypervisors.collect(),
            storages,
            numbers: numbers.collect(),
            addresses: addresses.collect(),
            entries: MOST_ENTRIES.saturating_sub(ledger.entries.len()),
        }
    }

    /// A disk that is promised and does not exist yet.
    fn reserve_disk(&self, entry: &LedgerEntry, storages: &mut [u64]) {
        if self.guest_of(entry).is_some() {
            return;
        }
        let id = HypervisorId {
            cluster: entry.cluster.clone(),
            name: entry.hypervisor.clone(),
        };
        let storage = entry.storage.as_ref().and_then(|name| {
            let hypervisor = &self.all[self.index_of(&id)?];
            let storage = hypervisor.facts.storages.get(name)?;
            self.storage_index(hypervisor, name, storage)
        });
        if let Some(index) = storage {
            storages[index] = storages[index].saturating_sub(entry.disk_bytes);
        }
    }

    fn storage_index(
        &self,
        hypervisor: &Hypervisor<'w>,
        name: &StorageName,
        storage: &StorageFacts,
    ) -> Option<usize> {
        let key = storage_key(&hypervisor.id.cluster, &hypervisor.id.name, name, storage);
        self.storages.get(&key).copied()
    }

    /// What a class's machine of this size would be made from on a hypervisor, or why none may be made there.
    pub(super) fn site(
        &self,
        index: usize,
        class_name: &ClassName,
        class: &ClassFacts,
        size: &InstanceType,
        backoff: &[Backoff],
        now: jiff::Timestamp,
    ) -> Result<Site<'w>, String> {
        let hypervisor = &self.all[index];
        if let Some(reason) = &hypervisor.closed {
            return Err(reason.clone());
        }
        let template = hypervisor.template(class)?;
        let linked = class
            .linked
            .unwrap_or_else(|| class.storage.is_none() && hypervisor.links(template));
        let storage_name = match (&class.storage, &template.storage) {
            (Some(storage), _) if !linked => storage,
            (_, Some(storage)) => storage,
            (_, None) => return Err(format!("template {} has no disk", class.template)),
        };
        let storage = hypervisor
            .facts
            .storages
            .get(storage_name)
            .ok_or_else(|| format!("storage {storage_name} does not exist there"))?;
        if !storage.active {
            return Err(format!("storage {storage_name} is not active there"));
        }
        let is_paused = |row: &&Backoff| {
            row.hypervisor == hypervisor.id
                && row.storage.as_ref().is_none_or(|name| name == storage_name)
                && now < row.until
        };
        if let Some(row) = backoff.iter().find(is_paused) {
            return Err(format!(
                "left alone until {} after {} failed launches ({})",
                row.until, row.failures, row.class
            ));
        }
        let storage_index = self.storage_index(hypervisor, storage_name, storage);
        Ok(Site {
            hypervisor: index,
            cluster: hypervisor.cluster_index,
            class: self
                .classes
                .binary_search(&class_name)
                .map_err(|_| "its class is gone".to_owned())?,
            storage: storage_index.ok_or_else(|| format!("storage {storage_name} is not known"))?,
            storage_name: storage_name.clone(),
            disk_bytes: match linked {
                true => 0,
                false => size.disk_bytes.unwrap_or(0).max(template.disk_bytes),
            },
            template,
        })
    }

    /// Takes note of a machine placed in this tick: the next question shows it.
    pub(super) fn add_machine(&mut self, index: usize, pool: &PoolName, size: Size) {
        let hypervisor = &mut self.all[index];
        hypervisor.machines += 1;
        *hypervisor.machines_by_pool.entry(pool.clone()).or_default() += 1;
        hypervisor.in_flight.milli_cores += size.milli_cores;
        hypervisor.in_flight.memory_bytes += size.memory_bytes;
    }

    /// The hypervisor as policies see it.
    pub(super) fn candidate(
        &self,
        index: usize,
        pool: &PoolName,
        ineligible: Option<String>,
        storage_free: u64,
    ) -> Candidate {
        let hypervisor = &self.all[index];
        Candidate {
            hypervisor: hypervisor.description(),
            ineligible,
            used: Size {
                milli_cores: (hypervisor.cpu_usage() * f64::from(hypervisor.facts.threads) * 1000.0)
                    as u64,
                memory_bytes: hypervisor.facts.memory_used_bytes,
            },
            committed: hypervisor.committed,
            system_reserved: Size {
                milli_cores: hypervisor.cluster.system_reserved_milli_cores,
                memory_bytes: hypervisor.cluster.system_reserved_memory_bytes,
            },
            in_flight: hypervisor.in_flight,
            available: hypervisor.available(),
            cpu_usage: hypervisor.cpu_usage(),
            machines: hypervisor.machines,
            machines_of_pool: hypervisor.machines_by_pool.get(pool).copied().unwrap_or(0),
            storage_free,
        }
    }
}

impl<'w> Hypervisor<'w> {
    pub(super) fn description(&self) -> HypervisorDescription {
        HypervisorDescription {
            id: self.id.clone(),
            zone: self.id.name.clone(),
            capacity: Size {
                milli_cores: u64::from(self.facts.threads) * 1000,
                memory_bytes: self.facts.memory_bytes,
            },
            attributes: Vec::new(),
        }
    }

    fn cpu_usage(&self) -> f64 {
        cpu_usage(self.facts)
    }

    /// Capacity times overcommit, less what is reserved, committed (of memory the larger of used and committed) and in flight; never below 0.
    fn available(&self) -> Size {
        let Size {
            milli_cores,
            memory_bytes,
        } = self.in_flight;
        let cpu = times(
            u64::from(self.facts.threads) * 1000,
            self.cluster.overcommit_cpu,
        );
        let memory = times(self.facts.memory_bytes, self.cluster.overcommit_memory);
        Size {
            milli_cores: cpu
                .saturating_sub(self.cluster.system_reserved_milli_cores)
                .saturating_sub(self.committed.milli_cores)
                .saturating_sub(milli_cores),
            memory_bytes: memory
                .saturating_sub(self.cluster.system_reserved_memory_bytes)
                .saturating_sub(
                    self.committed
                        .memory_bytes
                        .max(self.facts.memory_used_bytes),
                )
                .saturating_sub(memory_bytes),
        }
    }

    /// The template that a clone for this hypervisor is made from: one that stands here, else one on shared storage.
    fn template(&self, class: &ClassFacts) -> Result<&'w TemplateFacts, String> {
        let name = &class.template;
        let templates = self
            .inventory
            .templates
            .get(name)
            .map_or(&[][..], Vec::as_slice);
        let here = templates
            .iter()
            .filter(|template| template.hypervisor == self.id.name);
        let elsewhere = templates.iter().filter(|template| {
            !class.local_template && template.shared && template.hypervisor != self.id.name
        });
        let mut found: Vec<&TemplateFacts> = here.chain(elsewhere).collect();
        found.sort_by_key(|template| {
            (
                template.problem.is_some(),
                template.hypervisor != self.id.name,
                template.vmid,
            )
        });
        match found.first() {
            Some(TemplateFacts {
                problem: Some(problem),
                ..
            }) => Err(problem.clone()),
            Some(template) => Ok(template),
            None if templates.is_empty() => Err(format!(
                "there is no template {name} in cluster {}",
                self.id.cluster
            )),
            None if class.local_template => Err(format!("there is no template {name} on it")),
            None => Err(format!(
                "template {name} is on another hypervisor's local storage"
            )),
        }
    }

    /// Whether the template's storage makes linked clones. Thick LVM and plain devices cannot.
    fn links(&self, template: &TemplateFacts) -> bool {
        let storage = template
            .storage
            .as_ref()
            .and_then(|name| self.facts.storages.get(name));
        storage.is_some_and(|storage| !matches!(&*storage.kind, "lvm" | "iscsi" | "iscsidirect"))
    }
}

/// Reasons that hold for every machine: the cluster's state, the operator's exclusions and minimums.
fn closed(
    cluster_name: &ClusterName,
    cluster: &ClusterFacts,
    inventory: &InventoryFacts,
    name: &Arc<str>,
    facts: &HypervisorFacts,
) -> Option<String> {
    let free_cores = (f64::from(facts.threads) * (1.0 - cpu_usage(facts))).floor() as u64;
    let free_memory = facts.memory_bytes.saturating_sub(facts.memory_used_bytes);
    if let Some(problem) = &cluster.problem {
        Some(problem.clone())
    } else if !inventory.reachable {
        let problem = inventory.problem.as_deref().unwrap_or("no answer");
        Some(format!(
            "Proxmox cluster {cluster_name} cannot be reached: {problem}"
        ))
    } else if !inventory.quorate {
        Some(format!("Proxmox cluster {cluster_name} has no quorum"))
    } else if cluster.exclude.contains(name)
        || (!cluster.include.is_empty() && !cluster.include.contains(name))
    {
        Some("excluded by the operator".to_owned())
    } else if !facts.online {
        Some("offline".to_owned())
    } else if facts.maintenance {
        Some("in maintenance".to_owned())
    } else if free_cores < cluster.min_available_cpu_cores {
        Some(format!(
            "{free_cores} cores are idle, at least {} must be (minAvailableCpuCores)",
            cluster.min_available_cpu_cores
        ))
    } else if free_memory < cluster.min_available_memory_bytes {
        Some(format!(
            "{} of memory is free, at least {} must be (minAvailableMemoryMB)",
            amount_text("memory", signed(free_memory)),
            amount_text("memory", signed(cluster.min_available_memory_bytes))
        ))
    } else {
        None
    }
}

/// Within 0..=1; an odd measurement counts as a busy CPU.
fn cpu_usage(facts: &HypervisorFacts) -> f64 {
    match facts.cpu_usage.is_finite() {
        true => facts.cpu_usage.clamp(0.0, 1.0),
        false => 1.0,
    }
}

fn times(amount: u64, factor: f64) -> u64 {
    match factor.is_finite() && factor > 0.0 {
        // Exact for a factor of 1, which is the usual one for memory.
        true if factor == 1.0 => amount,
        true => (amount as f64 * factor) as u64,
        false => 0,
    }
}

fn storage_key(
    cluster: &ClusterName,
    hypervisor: &Arc<str>,
    name: &StorageName,
    storage: &StorageFacts,
) -> StorageKey {
    let own = (!storage.shared).then(|| hypervisor.clone());
    (cluster.clone(), own, name.clone())
}

/// VMIDs that nothing uses: no Ledger entry, no claim, no guest.
pub(crate) fn used_numbers(
    world: &World,
    ledger: &LedgerFacts,
    cluster: &ClusterName,
) -> std::collections::BTreeSet<u32> {
    let entries = ledger
        .entries
        .iter()
        .filter(|entry| entry.cluster == *cluster)
        .map(|entry| entry.vmid.0);
    let claims = world
        .claims()
        .values()
        .filter(|claim| claim.spec.cluster == *cluster)
        .map(|claim| claim.spec.vmid.0);
    let guests = world
        .inventories()
        .get(cluster)
        .into_iter()
        .flat_map(|inventory| inventory.guests.keys());
    let templates = world
        .inventories()
        .get(cluster)
        .into_iter()
        .flat_map(|inventory| inventory.templates.values().flatten());
    entries
        .chain(claims)
        .chain(guests.map(|vmid| vmid.0))
        .chain(templates.map(|template| template.vmid.0))
        .chain([FORBIDDEN_VMID])
        .collect()
}

fn free_numbers(world: &World, ledger: &LedgerFacts, name: &ClusterName) -> u32 {
    let Some(cluster) = world.clusters().get(name) else {
        return 0;
    };
    let (first, last) = (cluster.vmid_first.0, cluster.vmid_last.0);
    let all = (u64::from(last) + 1).saturating_sub(u64::from(first));
    let used = used_numbers(world, ledger, name);
    let taken = used
        .iter()
        .filter(|number| (first..=last).contains(number))
        .count() as u64;
    u32::try_from(all.saturating_sub(taken)).unwrap_or(u32::MAX)
}

fn free_addresses(world: &World, ledger: &LedgerFacts, class: &ClassName) -> Option<u64> {
    let ranges = world.classes().get(class)?.addresses.as_ref()?;
    let used = super::placement::used_addresses(world, ledger);
    let mut free = 0u64;
    for range in ranges {
        let (first, last) = (
            super::placement::number(range.first),
            super::placement::number(range.last),
        );
        let all = last
            .checked_sub(first)
            .map_or(0, |count| count.saturating_add(1));
        let taken = used.iter().filter(|address| {
            address.is_ipv4() == range.first.is_ipv4()
                && (first..=last).contains(&super::placement::number(**address))
        });
        free = free.saturating_add(
            u64::try_from(all)
                .unwrap_or(u64::MAX)
                .saturating_sub(taken.count() as u64),
        );
    }
    Some(free)
}

impl Room {
    /// Why this site cannot take one more machine of this size now; `None` if it can.
    pub(super) fn refusal(
        &self,
        hypervisors: &Hypervisors<'_>,
        site: &Site<'_>,
        size: Size,
    ) -> Option<Refusal> {
        let room = &self.hypervisors[site.hypervisor];
        let (cores, memory) = (signed(size.milli_cores), signed(size.memory_bytes));
        if self.entries == 0 {
            Some(Refusal::LedgerFull)
        } else if self.numbers[site.cluster] == 0 {
            let cluster = &hypervisors.all[site.hypervisor].cluster;
            Some(Refusal::NoNumber {
                cluster: hypervisors.clusters[site.cluster].clone(),
                first: cluster.vmid_first,
                last: cluster.vmid_last,
            })
        } else if self.addresses[site.class] == Some(0) {
            Some(Refusal::NoAddress(hypervisors.classes[site.class].clone()))
        } else if room.machines == Some(0) {
            let most = hypervisors.all[site.hypervisor]
                .cluster
                .max_machines_per_hypervisor;
            Some(Refusal::TooManyMachines(most.unwrap_or(0)))
        } else if cores > room.milli_cores {
            Some(Refusal::Lacks {
                resource: "cpu",
                asked: cores,
                left: room.milli_cores,
            })
        } else if memory > room.memory_bytes {
            Some(Refusal::Lacks {
                resource: "memory",
                asked: memory,
                left: room.memory_bytes,
            })
        } else if site.disk_bytes > self.storages[site.storage] {
            Some(Refusal::StorageFull {
                storage: site.storage_name.clone(),
                asked: signed(site.disk_bytes),
                left: signed(self.storages[site.storage]),
            })
        } else {
            None
        }
    }

    pub(super) fn has_room(&self, site: &Site<'_>, size: Size) -> bool {
        let room = &self.hypervisors[site.hypervisor];
        self.entries > 0
            && self.numbers[site.cluster] > 0
            && self.addresses[site.class] != Some(0)
            && room.machines != Some(0)
            && signed(size.milli_cores) <= room.milli_cores
            && signed(size.memory_bytes) <= room.memory_bytes
            && site.disk_bytes <= self.storages[site.storage]
    }

    pub(super) fn take(&mut self, site: &Site<'_>, size: Size) {
        self.change(site, size, -1);
    }

    pub(super) fn give_back(&mut self, site: &Site<'_>, size: Size) {
        self.change(site, size, 1);
    }

    fn change(&mut self, site: &Site<'_>, size: Size, sign: i64) {
        let room = &mut self.hypervisors[site.hypervisor];
        room.milli_cores += sign * signed(size.milli_cores);
        room.memory_bytes += sign * signed(size.memory_bytes);
        let step = |count: u32| {
            if sign < 0 {
                count.saturating_sub(1)
            } else {
                count + 1
            }
        };
        room.machines = room.machines.map(step);
        self.numbers[site.cluster] = step(self.numbers[site.cluster]);
        let storage = &mut self.storages[site.storage];
        *storage = if sign < 0 {
            storage.saturating_sub(site.disk_bytes)
        } else {
            *storage + site.disk_bytes
        };
        if let Some(addresses) = &mut self.addresses[site.class] {
            *addresses = if sign < 0 {
                addresses.saturating_sub(1)
            } else {
                *addresses + 1
            };
        }
        self.entries = if sign < 0 {
            self.entries.saturating_sub(1)
        } else {
            self.entries + 1
        };
    }

    pub(super) fn storage_free(&self, site: &Site<'_>) -> u64 {
        self.storages[site.storage]
    }
}
