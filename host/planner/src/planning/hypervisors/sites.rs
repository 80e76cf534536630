//! Hypervisors and the room that is left on them.
//!
//! [`Hypervisors`] is the state when the tick begins; a [`Site`] is one hypervisor seen by one class and type (which
//! template, which storage); [`Room`] is what can still be given.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::attributes;
use super::clone::CloneWay;
use super::room::Room;
use crate::facts::{
    Backoff, ClassFacts, ClusterFacts, GuestFacts, GuestStatus, HypervisorFacts, InstanceType,
    InventoryFacts, LedgerEntry, LedgerFacts, StorageFacts, TemplateChoice, TemplateFacts, Trouble,
};
use crate::guard::{self, Deed};
use crate::ids::{ClassName, ClusterName, HypervisorId, PoolName, StorageName};
use crate::plan::question::{Attribute, Candidate, HypervisorDescription, Size};
use crate::planning::Planning;
use crate::planning::machines::shape::signed;
use crate::reasons::no_hypervisor::{LEAST_FREE_PERCENT, Refusal};
use crate::world::World;

#[derive(Default)]
pub(in crate::planning) struct Hypervisors<'w> {
    /// By cluster and name.
    pub(in crate::planning) all: Vec<Hypervisor<'w>>,
    pub(in crate::planning) clusters: Vec<&'w ClusterName>,
    /// Storages by index: a shared one once per cluster, a local one once per hypervisor.
    pub(in crate::planning) storages: BTreeMap<StorageKey, usize>,
    pub(in crate::planning) classes: Vec<&'w ClassName>,
}

/// The hypervisor is named for a storage of its own.
pub(in crate::planning) type StorageKey = (ClusterName, Option<Arc<str>>, StorageName);

pub(in crate::planning) struct Hypervisor<'w> {
    pub(in crate::planning) id: HypervisorId,
    pub(in crate::planning) cluster: &'w ClusterFacts,
    pub(in crate::planning) facts: &'w HypervisorFacts,
    inventory: &'w InventoryFacts,
    /// Index of its cluster.
    cluster_index: usize,
    /// Why no machine at all may be made here.
    closed: Option<Refusal>,
    /// Guests that run, and those of unknown state that are not ours.
    committed: Size,
    /// Ours that do not run yet.
    in_flight: Size,
    pub(in crate::planning) machines: u32,
    machines_by_pool: BTreeMap<PoolName, u32>,
    /// What policies are told of this hypervisor. Empty: no policy has been asked since the tick began or a machine was added.
    attributes: OnceCell<Arc<[Attribute]>>,
}

/// Where and from what a machine of one class and type would be made.
#[derive(Clone, Debug)]
pub(in crate::planning) struct Site<'w> {
    /// Index into [`Hypervisors::all`].
    pub(in crate::planning) hypervisor: usize,
    pub(in crate::planning) cluster: usize,
    pub(in crate::planning) class: usize,
    /// The one to boot from first.
    pub(in crate::planning) disks: Arc<[NewDisk<'w>]>,
    pub(in crate::planning) clone: CloneWay<'w>,
}

/// What a machine takes of a storage at once.
#[derive(Debug)]
pub(in crate::planning) struct NewDisk<'w> {
    /// Index into [`Hypervisors::storages`].
    pub(in crate::planning) storage: usize,
    pub(in crate::planning) name: &'w StorageName,
    /// 0 for a linked clone.
    pub(in crate::planning) bytes: u64,
}

/// On each hypervisor, whether a class's template can be cloned there.
pub type Clones<'w> = BTreeMap<&'w ClassName, Vec<(HypervisorId, Result<(), Refusal>)>>;

/// For each class, whether its template can be cloned on each hypervisor that was seen and is not excluded. A hypervisor
/// that has no room, is off or rests counts as one that can.
pub fn clones(world: &World) -> Clones<'_> {
    let survey = Hypervisors::survey(world, &LedgerFacts::default());
    let classes = world.classes().iter();
    classes
        .map(|(name, class)| {
            let used = survey.all.iter();
            let used = used.filter(|it| !it.cluster.excludes(&it.id.name));
            let on_each = used.map(|hypervisor| {
                let size = class.instance_types.first().ok_or(Refusal::ClassGone);
                let clone = size.and_then(|size| survey.clone_of(hypervisor, class, size));
                let clone = match clone {
                    Ok(_) | Err(Refusal::StorageNearlyFull { .. }) => Ok(()),
                    Err(other) => Err(other),
                };
                (hypervisor.id.clone(), clone)
            });
            (name, on_each.collect())
        })
        .collect()
}

/// One more machine of a class and a size on a hypervisor: whether it could be made now.
pub struct Offer<'w> {
    pub class: &'w ClassName,
    pub size: &'w InstanceType,
    pub hypervisor: HypervisorId,
    pub refusal: Option<Refusal>,
}

/// All of them, by class, size and hypervisor. Back-off after failures does not count: it passes.
pub fn offers(world: &World, now: jiff::Timestamp) -> Vec<Offer<'_>> {
    let nothing = LedgerFacts::default();
    let ledger = world.ledger().unwrap_or(&nothing);
    let survey = Hypervisors::survey(world, ledger);
    let room = survey.room(world, ledger, now);
    let mut offers = Vec::new();
    for (name, class) in world.classes() {
        for size in &class.instance_types {
            let asked = Size {
                milli_cores: u64::from(size.cores) * 1000,
                memory_bytes: size.memory_bytes(),
            };
            for (index, hypervisor) in survey.all.iter().enumerate() {
                let refusal = match survey.site(index, name, class, size, &[], now) {
                    Ok(site) => room.refusal(&survey, &site, asked),
                    Err(refusal) => Some(refusal),
                };
                offers.push(Offer {
                    class: name,
                    size,
                    hypervisor: hypervisor.id.clone(),
                    refusal,
                });
            }
        }
    }
    offers
}

/// What each hypervisor can still give to machines, with those that are on their way; no less than 0.
pub fn free(world: &World) -> BTreeMap<HypervisorId, Size> {
    let nothing = LedgerFacts::default();
    let survey = Hypervisors::survey(world, world.ledger().unwrap_or(&nothing));
    let all = survey.all.iter();
    all.map(|it| (it.id.clone(), it.available())).collect()
}

impl Planning<'_> {
    /// The hypervisors of this tick, with what the Ledger's machines take of them.
    pub(in crate::planning) fn survey(&mut self) -> Room {
        self.hypervisors = Hypervisors::survey(self.tick.world, &self.ledger);
        self.hypervisors
            .room(self.tick.world, &self.ledger, self.tick.now)
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
            let foreign = guard::hold(world, ledger, cluster_name, Deed::Launch);
            let foreign = foreign.map(Refusal::Held);
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
                    closed: foreign
                        .clone()
                        .or_else(|| closed(cluster_name, cluster, inventory, name, facts)),
                    committed: Size {
                        milli_cores: facts.committed_threads.saturating_mul(1000),
                        memory_bytes: facts.committed_memory_bytes,
                    },
                    in_flight: Size::default(),
                    machines: 0,
                    machines_by_pool: BTreeMap::new(),
                    attributes: OnceCell::new(),
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
        let guest = self.guest_of(entry);
        let at = guest.map_or(&entry.hypervisor, |guest| &guest.hypervisor);
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
        if let Some(guest) = guest {
            match guest.status {
                GuestStatus::Running => return,
                GuestStatus::Stopped => {}
                // Proxmox lists a new VM so, and without a size, for some seconds. The inventory counts it as committed; here it is in flight, with the
                // size that it will have.
                GuestStatus::Unknown => {
                    let committed = &mut hypervisor.committed;
                    committed.milli_cores = committed
                        .milli_cores
                        .saturating_sub(u64::from(guest.max_threads) * 1000);
                    committed.memory_bytes = committed
                        .memory_bytes
                        .saturating_sub(guest.max_memory_bytes);
                }
            }
        }
        let in_flight = &mut hypervisor.in_flight;
        in_flight.milli_cores = in_flight.milli_cores.saturating_add(entry.milli_cores);
        in_flight.memory_bytes = in_flight.memory_bytes.saturating_add(entry.memory_bytes);
    }

    pub(in crate::planning) fn guest_of(&self, entry: &LedgerEntry) -> Option<&'w GuestFacts> {
        let of_cluster = |hypervisor: &&Hypervisor<'w>| hypervisor.id.cluster == entry.cluster;
        let inventory = self.all.iter().find(of_cluster)?.inventory;
        inventory.guests.get(&entry.vmid)
    }

    fn find_mut(&mut self, id: &HypervisorId) -> Option<&mut Hypervisor<'w>> {
        let index = self.index_of(id)?;
        self.all.get_mut(index)
    }

    pub(in crate::planning) fn index_of(&self, id: &HypervisorId) -> Option<usize> {
        self.all
            .binary_search_by(|hypervisor| hypervisor.id.cmp(id))
            .ok()
    }

    pub(in crate::planning) fn storage_index(
        &self,
        hypervisor: &Hypervisor<'w>,
        name: &StorageName,
        storage: &StorageFacts,
    ) -> Option<usize> {
        let key = storage_key(&hypervisor.id.cluster, &hypervisor.id.name, name, storage);
        self.storages.get(&key).copied()
    }

    /// What a class's machine of this size would be made from on a hypervisor, or why none may be made there.
    pub(in crate::planning) fn site(
        &self,
        index: usize,
        class_name: &ClassName,
        class: &'w ClassFacts,
        size: &InstanceType,
        backoff: &[Backoff],
        now: jiff::Timestamp,
    ) -> Result<Site<'w>, Refusal> {
        let hypervisor = &self.all[index];
        if let Some(refusal) = &hypervisor.closed {
            return Err(refusal.clone());
        }
        let (clone, disks) = self.clone_of(hypervisor, class, size)?;
        let is_paused = |row: &&Backoff| {
            let is_on = |name: &StorageName| disks.iter().any(|disk| disk.name == name);
            let is_here = match &row.node_class {
                Some(class) => {
                    class == class_name && row.hypervisor.cluster == hypervisor.id.cluster
                }
                None => row.hypervisor == hypervisor.id && row.storage.as_ref().is_none_or(is_on),
            };
            is_here && now < row.until
        };
        if let Some(row) = backoff.iter().find(is_paused) {
            return Err(left_alone(row));
        }
        Ok(Site {
            hypervisor: index,
            cluster: hypervisor.cluster_index,
            class: self
                .classes
                .binary_search(&class_name)
                .map_err(|_| Refusal::ClassGone)?,
            disks: disks.into(),
            clone,
        })
    }

    /// How it would be cloned there, and onto which storages.
    fn clone_of(
        &self,
        hypervisor: &Hypervisor<'w>,
        class: &'w ClassFacts,
        size: &InstanceType,
    ) -> Result<(CloneWay<'w>, Vec<NewDisk<'w>>), Refusal> {
        let clone = CloneWay::of(class, hypervisor)?;
        if let Some(refusal) = unconnected(class, hypervisor.facts) {
            return Err(refusal);
        }
        let mut disks = Vec::new();
        for (name, bytes) in clone.needs(size) {
            let storage = self.storage_for(hypervisor, name, class, &clone)?;
            disks.push(NewDisk {
                storage,
                name,
                bytes,
            });
        }
        Ok((clone, disks))
    }

    /// The index of a storage that takes new disks of this clone, or why it does not.
    fn storage_for(
        &self,
        hypervisor: &Hypervisor<'w>,
        name: &StorageName,
        class: &ClassFacts,
        clone: &CloneWay<'_>,
    ) -> Result<usize, Refusal> {
        let none = || Refusal::NoStorage(name.clone());
        let storage = hypervisor.facts.storages.get(name).ok_or_else(none)?;
        if !storage.active {
            return Err(Refusal::StorageInactive(name.clone()));
        }
        if let Some(refusal) = nearly_full(name, storage) {
            return Err(refusal);
        }
        let source = &clone.template.hypervisor;
        if !storage.shared && *source != hypervisor.id.name {
            return Err(Refusal::StorageLocal {
                storage: name.clone(),
                template: class.template_in(&hypervisor.id.cluster).to_string(),
                hypervisor: source.to_string(),
            });
        }
        let index = self.storage_index(hypervisor, name, storage);
        index.ok_or_else(none)
    }

    /// Takes note of a machine placed in this tick: the next question shows it.
    pub(in crate::planning) fn add_machine(&mut self, index: usize, pool: &PoolName, size: Size) {
        let hypervisor = &mut self.all[index];
        hypervisor.machines += 1;
        *hypervisor.machines_by_pool.entry(pool.clone()).or_default() += 1;
        hypervisor.in_flight.milli_cores += size.milli_cores;
        hypervisor.in_flight.memory_bytes += size.memory_bytes;
        hypervisor.attributes.take();
    }

    /// The hypervisor as policies see it.
    pub(in crate::planning) fn candidate(
        &self,
        index: usize,
        pool: &PoolName,
        refusal: Option<&Refusal>,
        storage_free: u64,
        now: jiff::Timestamp,
    ) -> Candidate {
        let hypervisor = &self.all[index];
        let attributes = || attributes::all(hypervisor, now).into();
        let attributes = hypervisor.attributes.get_or_init(attributes);
        Candidate {
            hypervisor: hypervisor.described(attributes.clone()),
            ineligible: refusal.map(ToString::to_string),
            used: Size {
                milli_cores: (hypervisor.cpu_usage() * f64::from(hypervisor.facts.threads) * 1000.0)
                    as u64,
                memory_bytes: hypervisor.facts.memory_used_bytes,
            },
            committed: hypervisor.committed,
            system_reserved: hypervisor.reserved(),
            in_flight: hypervisor.in_flight,
            available: hypervisor.available(),
            cpu_usage: hypervisor.cpu_usage(),
            machines: hypervisor.machines,
            machines_of_pool: hypervisor.machines_by_pool.get(pool).copied().unwrap_or(0),
            storage_free,
        }
    }
}

/// Proxmox makes a VM on a bridge that its server lacks, and does not start it.
pub(crate) fn unconnected(class: &ClassFacts, facts: &HypervisorFacts) -> Option<Refusal> {
    let mut bridges = class
        .machine
        .network
        .iter()
        .filter_map(|it| it.bridge.as_ref());
    let Some(known) = &facts.bridges else {
        return bridges.next().map(|_| Refusal::BridgesUnknown);
    };
    let missing = bridges.find(|bridge| !known.contains_key(*bridge));
    missing.cloned().map(Refusal::NoBridge)
}

impl<'w> Hypervisor<'w> {
    /// What does not change from one decision to the next.
    pub(in crate::planning) fn description(&self) -> HypervisorDescription {
        self.described(attributes::lasting(self).into())
    }

    fn described(&self, attributes: Arc<[Attribute]>) -> HypervisorDescription {
        HypervisorDescription {
            id: self.id.clone(),
            zone: self.id.name.clone(),
            capacity: Size {
                milli_cores: u64::from(self.facts.threads) * 1000,
                memory_bytes: self.facts.memory_bytes,
            },
            attributes,
        }
    }

    /// Cores of the guests that run or whose state is unknown, and of machines on their way.
    pub(in crate::planning) fn promised_milli_cores(&self) -> u64 {
        let Size { milli_cores, .. } = self.committed;
        milli_cores.saturating_add(self.in_flight.milli_cores)
    }

    /// When Proxmox was last asked.
    pub(in crate::planning) fn seen_at(&self) -> Option<jiff::Timestamp> {
        self.inventory.taken_at
    }

    fn cpu_usage(&self) -> f64 {
        cpu_usage(self.facts)
    }

    /// Capacity times overcommit, less what is reserved, committed (of memory the larger of used and committed) and in flight; never below 0.
    pub(in crate::planning) fn available(&self) -> Size {
        let Size {
            milli_cores,
            memory_bytes,
        } = self.in_flight;
        let whole = self.whole();
        Size {
            milli_cores: whole
                .milli_cores
                .saturating_sub(self.committed.milli_cores)
                .saturating_sub(milli_cores),
            memory_bytes: whole
                .memory_bytes
                .saturating_sub(
                    self.committed
                        .memory_bytes
                        .max(self.facts.memory_used_bytes),
                )
                .saturating_sub(memory_bytes),
        }
    }

    /// What it would have for machines if it were empty: capacity times overcommit, less what is reserved.
    pub(in crate::planning) fn whole(&self) -> Size {
        let cpu = times(
            u64::from(self.facts.threads) * 1000,
            self.cluster.overcommit.cpu,
        );
        let memory = times(self.facts.memory_bytes, self.cluster.overcommit.memory);
        let reserved = self.reserved();
        Size {
            milli_cores: cpu.saturating_sub(reserved.milli_cores),
            memory_bytes: memory.saturating_sub(reserved.memory_bytes),
        }
    }

    fn reserved(&self) -> Size {
        let reserved = self.cluster.reserved(&self.id.name);
        Size {
            milli_cores: reserved.milli_cores(),
            memory_bytes: reserved.memory_bytes(),
        }
    }

    pub(in crate::planning) fn templates(&self, choice: &TemplateChoice) -> &'w [TemplateFacts] {
        let templates = self.inventory.templates.get(choice);
        templates.map_or(&[][..], Vec::as_slice)
    }
}

fn left_alone(row: &Backoff) -> Refusal {
    let why = match &*row.message {
        // Written before messages were kept.
        "" => &*row.class,
        message => message,
    };
    Refusal::LeftAlone {
        until: row.until,
        failures: row.failures,
        why: why.to_owned(),
    }
}

/// Reasons that hold for every machine: the cluster's state, the operator's exclusions and minimums.
fn closed(
    cluster_name: &ClusterName,
    cluster: &ClusterFacts,
    inventory: &InventoryFacts,
    name: &Arc<str>,
    facts: &HypervisorFacts,
) -> Option<Refusal> {
    let idle = (f64::from(facts.threads) * (1.0 - cpu_usage(facts))).floor() as u64;
    let free = facts.memory_bytes.saturating_sub(facts.memory_used_bytes);
    if let Some(problem) = &cluster.problem {
        Some(Refusal::Cluster(problem.clone()))
    } else if !inventory.reachable {
        let problem = inventory.problem.as_deref().unwrap_or("no answer");
        Some(Refusal::Unreachable {
            cluster: cluster_name.clone(),
            problem: problem.to_owned(),
        })
    } else if !inventory.quorate {
        Some(Refusal::NoQuorum(cluster_name.clone()))
    } else if inventory.trouble == Some(Trouble::NoPool) {
        Some(Refusal::Cluster(
            inventory.problem.clone().unwrap_or_default(),
        ))
    } else if cluster.excludes(name) {
        Some(Refusal::Excluded)
    } else if cluster.drains(name) {
        Some(Refusal::Drained)
    } else if let Some(problem) = &facts.problem {
        Some(Refusal::Silent(problem.clone()))
    } else if !facts.online {
        Some(Refusal::Offline)
    } else if facts.maintenance {
        Some(Refusal::Maintenance)
    } else if idle < u64::from(cluster.min_available_cpu_cores) {
        Some(Refusal::FewIdleCores {
            idle,
            least: cluster.min_available_cpu_cores.into(),
        })
    } else if free < cluster.min_available_memory_bytes() {
        Some(Refusal::LittleFreeMemory {
            free: signed(free),
            least: signed(cluster.min_available_memory_bytes()),
        })
    } else {
        None
    }
}

/// A linked clone takes no room at first, and then as much as it writes: on a thin pool that runs full every machine on it stops.
fn nearly_full(name: &StorageName, storage: &StorageFacts) -> Option<Refusal> {
    let StorageFacts {
        available_bytes,
        total_bytes,
        ..
    } = storage;
    // A storage that tells no size says nothing.
    let free_percent = available_bytes
        .saturating_mul(100)
        .checked_div(*total_bytes)?;
    (free_percent < LEAST_FREE_PERCENT).then(|| Refusal::StorageNearlyFull {
        storage: name.clone(),
        free_percent,
    })
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
