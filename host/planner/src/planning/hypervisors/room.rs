//! What can still be given: numbers that can be copied, taken from and tried out.

use jiff::Timestamp;

use super::addresses;
use super::sites::{Hypervisors, NewDisk, Site};
use crate::facts::limits::MOST_ENTRIES;
use crate::facts::{LedgerEntry, LedgerFacts};
use crate::ids::{ClassName, ClusterName};
use crate::ledger::numbers::used_numbers;
use crate::ledger::rested;
use crate::plan::question::Size;
use crate::planning::machines::shape::signed;
use crate::reasons::no_hypervisor::Refusal;
use crate::world::World;

/// What can still be given.
#[derive(Clone, Debug, Default)]
pub(in crate::planning) struct Room {
    hypervisors: Vec<HypervisorRoom>,
    storages: Vec<u64>,
    /// Free VMIDs per cluster.
    numbers: Vec<u64>,
    /// Free addresses per class; `None`: DHCP.
    addresses: Vec<Option<u64>>,
    entries: u64,
}

#[derive(Clone, Copy, Debug)]
struct HypervisorRoom {
    /// Proxmox starts no VM with more virtual cores than its hypervisor has threads.
    largest_milli_cores: u64,
    /// What it would have if it were empty.
    whole: Size,
    milli_cores: i64,
    memory_bytes: i64,
    machines: Option<u64>,
}

/// What a site has too little of for one more machine.
enum Lack<'s> {
    Entry,
    Number,
    Address,
    Machine,
    Threads,
    Cpu,
    Memory,
    Storage(&'s NewDisk<'s>),
}

impl Hypervisors<'_> {
    pub(in crate::planning) fn room(
        &self,
        world: &World,
        ledger: &LedgerFacts,
        now: Timestamp,
    ) -> Room {
        let hypervisors = self.all.iter().map(|hypervisor| {
            let available = hypervisor.available();
            HypervisorRoom {
                largest_milli_cores: u64::from(hypervisor.facts.threads) * 1000,
                whole: hypervisor.whole(),
                milli_cores: signed(available.milli_cores),
                memory_bytes: signed(available.memory_bytes),
                machines: hypervisor
                    .cluster
                    .max_machines_per_hypervisor
                    .map(|most| most.saturating_sub(hypervisor.machines).into()),
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
            .map(|name| match free_numbers(world, ledger, name) {
                0 => rested_numbers(world, ledger, name, now),
                free => free,
            });
        let addresses =
            self.classes
                .iter()
                .map(|name| match free_addresses(world, ledger, name)? {
                    0 => Some(rested_addresses(world, ledger, name, now)),
                    free => Some(free),
                });
        let entries = match MOST_ENTRIES.saturating_sub(ledger.entries.len()) {
            0 => rested(world, ledger, now).len(),
            free => free,
        };
        Room {
            hypervisors: hypervisors.collect(),
            storages,
            numbers: numbers.collect(),
            addresses: addresses.collect(),
            entries: entries as u64,
        }
    }

    /// A disk that is promised and does not exist yet.
    fn reserve_disk(&self, entry: &LedgerEntry, storages: &mut [u64]) {
        if self.guest_of(entry).is_some() {
            return;
        }
        let id = entry.hypervisor_id();
        let storage = entry.storage.as_ref().and_then(|name| {
            let hypervisor = &self.all[self.index_of(&id)?];
            let storage = hypervisor.facts.storages.get(name)?;
            self.storage_index(hypervisor, name, storage)
        });
        if let Some(index) = storage {
            storages[index] = storages[index].saturating_sub(entry.disk_bytes);
        }
    }
}

impl Room {
    /// Why this site cannot take one more machine of this size now; `None` if it can.
    pub(in crate::planning) fn refusal(
        &self,
        hypervisors: &Hypervisors<'_>,
        site: &Site<'_>,
        size: Size,
    ) -> Option<Refusal> {
        let facts = &hypervisors.all[site.hypervisor].cluster;
        let room = &self.hypervisors[site.hypervisor];
        Some(match self.lack(site, size)? {
            Lack::Entry => Refusal::LedgerFull,
            Lack::Number => Refusal::NoNumber {
                cluster: hypervisors.clusters[site.cluster].clone(),
                first: facts.vmid_range.first,
                last: facts.vmid_range.last,
            },
            Lack::Address => Refusal::NoAddress(hypervisors.classes[site.class].clone()),
            Lack::Machine => {
                Refusal::TooManyMachines(facts.max_machines_per_hypervisor.unwrap_or(0))
            }
            Lack::Threads => Refusal::FewThreads {
                asked: size.milli_cores / 1000,
                threads: room.largest_milli_cores / 1000,
            },
            Lack::Cpu => Refusal::Lacks {
                resource: "cpu".to_owned(),
                asked: signed(size.milli_cores),
                left: room.milli_cores,
                whole: Some(signed(room.whole.milli_cores)),
            },
            Lack::Memory => Refusal::Lacks {
                resource: "memory".to_owned(),
                asked: signed(size.memory_bytes),
                left: room.memory_bytes,
                whole: Some(signed(room.whole.memory_bytes)),
            },
            Lack::Storage(disk) => Refusal::StorageFull {
                storage: disk.name.clone(),
                asked: signed(disk.bytes),
                left: signed(self.storages[disk.storage]),
            },
        })
    }

    fn lack<'s>(&self, site: &'s Site<'_>, size: Size) -> Option<Lack<'s>> {
        let room = &self.hypervisors[site.hypervisor];
        if self.entries == 0 {
            Some(Lack::Entry)
        } else if self.numbers[site.cluster] == 0 {
            Some(Lack::Number)
        } else if self.addresses[site.class] == Some(0) {
            Some(Lack::Address)
        } else if room.machines == Some(0) {
            Some(Lack::Machine)
        } else if size.milli_cores > room.largest_milli_cores {
            Some(Lack::Threads)
        } else if signed(size.milli_cores) > room.milli_cores {
            Some(Lack::Cpu)
        } else if signed(size.memory_bytes) > room.memory_bytes {
            Some(Lack::Memory)
        } else {
            let is_full = |disk: &&NewDisk<'_>| disk.bytes > self.storages[disk.storage];
            site.disks.iter().find(is_full).map(Lack::Storage)
        }
    }

    pub(in crate::planning) fn has_room(&self, site: &Site<'_>, size: Size) -> bool {
        self.lack(site, size).is_none()
    }

    pub(in crate::planning) fn take(&mut self, site: &Site<'_>, size: Size) {
        self.change(site, size, -1);
    }

    pub(in crate::planning) fn give_back(&mut self, site: &Site<'_>, size: Size) {
        self.change(site, size, 1);
    }

    /// What is free as soon as the machine is gone: its VMID and its address are in quarantine first.
    pub(in crate::planning) fn give_back_but_numbers(&mut self, site: &Site<'_>, size: Size) {
        let (number, address) = (self.numbers[site.cluster], self.addresses[site.class]);
        let entries = self.entries;
        self.give_back(site, size);
        self.numbers[site.cluster] = number;
        self.addresses[site.class] = address;
        self.entries = entries;
    }

    fn change(&mut self, site: &Site<'_>, size: Size, sign: i64) {
        let room = &mut self.hypervisors[site.hypervisor];
        room.milli_cores += sign * signed(size.milli_cores);
        room.memory_bytes += sign * signed(size.memory_bytes);
        let step = |left: u64, by: u64| match sign < 0 {
            true => left.saturating_sub(by),
            false => left + by,
        };
        room.machines = room.machines.map(|left| step(left, 1));
        self.numbers[site.cluster] = step(self.numbers[site.cluster], 1);
        for disk in site.disks.iter() {
            self.storages[disk.storage] = step(self.storages[disk.storage], disk.bytes);
        }
        self.addresses[site.class] = self.addresses[site.class].map(|left| step(left, 1));
        self.entries = step(self.entries, 1);
    }

    pub(in crate::planning) fn storage_free(&self, site: &Site<'_>) -> u64 {
        let first = site.disks.first();
        first.map_or(0, |disk| self.storages[disk.storage])
    }
}

/// No VMID of the Proxmox cluster's range is free.
pub fn vmids_used_up(world: &World, cluster: &ClusterName) -> bool {
    let nothing = LedgerFacts::default();
    free_numbers(world, world.ledger().unwrap_or(&nothing), cluster) == 0
}

/// The class hands out addresses, and none is free.
pub fn addresses_used_up(world: &World, class: &ClassName) -> bool {
    addresses_left(world, class) == Some(0)
}

/// Where none is free: how many VMIDs kproxide takes before their time, because they have rested for an hour.
pub fn vmids_rested(world: &World, cluster: &ClusterName, now: Timestamp) -> u64 {
    world
        .ledger()
        .map_or(0, |ledger| rested_numbers(world, ledger, cluster, now))
}

/// As [`vmids_rested`], of the addresses of a class.
pub fn addresses_rested(world: &World, class: &ClassName, now: Timestamp) -> u64 {
    world
        .ledger()
        .map_or(0, |ledger| rested_addresses(world, ledger, class, now))
}

/// How many addresses the class can still hand out: no machine has them, and they do not rest. `None`: it hands out none.
pub fn addresses_left(world: &World, class: &ClassName) -> Option<u64> {
    let nothing = LedgerFacts::default();
    free_addresses(world, world.ledger().unwrap_or(&nothing), class)
}

fn rested_numbers(world: &World, ledger: &LedgerFacts, name: &ClusterName, now: Timestamp) -> u64 {
    let Some(cluster) = world.clusters().get(name) else {
        return 0;
    };
    let rested = rested(world, ledger, now);
    let of_range = rested
        .iter()
        .filter(|it| it.cluster == *name && cluster.has_in_range(it.vmid));
    of_range.count() as u64
}

fn rested_addresses(world: &World, ledger: &LedgerFacts, class: &ClassName, now: Timestamp) -> u64 {
    let Some(class) = world.classes().get(class) else {
        return 0;
    };
    let rested = rested(world, ledger, now);
    let addresses = rested.iter().filter_map(|entry| entry.address);
    addresses.filter(|it| class.hands_out(*it)).count() as u64
}

fn free_numbers(world: &World, ledger: &LedgerFacts, name: &ClusterName) -> u64 {
    let Some(cluster) = world.clusters().get(name) else {
        return 0;
    };
    let (first, last) = (cluster.vmid_range.first.0, cluster.vmid_range.last.0);
    let all = (u64::from(last) + 1).saturating_sub(u64::from(first));
    let used = used_numbers(world, ledger, name);
    let taken = used.iter().filter(|number| (first..=last).contains(number));
    all.saturating_sub(taken.count() as u64)
}

fn free_addresses(world: &World, ledger: &LedgerFacts, class: &ClassName) -> Option<u64> {
    let ranges = world.classes().get(class)?.addresses.as_ref()?;
    let used = addresses::used_addresses(world, ledger);
    let mut free = 0u64;
    for range in ranges {
        let (first, last) = (
            addresses::number(range.first),
            addresses::number(range.last),
        );
        let all = last
            .checked_sub(first)
            .map_or(0, |count| count.saturating_add(1));
        let taken = used.iter().filter(|address| {
            address.is_ipv4() == range.first.is_ipv4()
                && (first..=last).contains(&addresses::number(**address))
        });
        free = free.saturating_add(
            u64::try_from(all)
                .unwrap_or(u64::MAX)
                .saturating_sub(taken.count() as u64),
        );
    }
    Some(free)
}
