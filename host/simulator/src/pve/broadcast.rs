//! The status that every server broadcasts every ten seconds, and what others read of it in between.
//!
//! Broadcasts are made when somebody looks: the state does not change between two looks, so the state just before a look
//! is also the state at the last broadcast time before it. A world at rest needs no timers.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::state::{Node, Presence, State};
use super::timings::Timings;
use super::vm::{Vm, VmStatus};

/// What a server last said of itself and its storages.
#[derive(Clone)]
pub(crate) struct NodeStatus {
    pub(crate) at: Instant,
    pub(crate) uptime_s: u64,
    pub(crate) cpu: f64,
    pub(crate) memory_used: u64,
    /// Storage name → (bytes used, bytes in all); only storages that are online there.
    pub(crate) storages: BTreeMap<String, (u64, u64)>,
}

impl State {
    /// Makes the broadcasts that were due up to `now`.
    pub(crate) fn broadcast_until(&mut self, now: Instant, timings: &Timings) {
        if timings.broadcast_s <= 0.0 || self.next_broadcast.is_some_and(|next| now < next) {
            return;
        }
        let period = Duration::from_secs_f64(timings.broadcast_s);
        let due: Vec<(String, Instant, u64)> = self
            .nodes
            .values()
            .filter_map(|node| self.due(node, now, period))
            .collect();
        for (name, at, count) in due {
            if let Some(node) = self.nodes.get_mut(&name) {
                node.broadcasts = count;
            }
            self.broadcast(&name, at);
        }
        let nexts = self.nodes.values().map(|node| {
            let rounds = u32::try_from(node.broadcasts).unwrap_or(u32::MAX);
            self.started + node.broadcast_offset + period * rounds
        });
        self.next_broadcast = nexts.min();
    }

    fn due(&self, node: &Node, now: Instant, period: Duration) -> Option<(String, Instant, u64)> {
        let first = self.started + node.broadcast_offset;
        let since_first = now.checked_duration_since(first)?;
        let rounds = (since_first.as_nanos() / period.as_nanos()) as u32;
        let count = u64::from(rounds) + 1;
        (count > node.broadcasts).then(|| (node.name.clone(), first + period * rounds, count))
    }

    /// Every online server broadcasts now.
    pub(crate) fn broadcast_all(&mut self, at: Instant) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            self.broadcast(&name, at);
        }
    }

    fn broadcast(&mut self, name: &str, at: Instant) {
        let is_up = |node: &&Node| node.presence != Presence::Offline;
        let Some(node) = self.nodes.get(name).filter(is_up) else {
            return;
        };
        let threads = f64::from(node.threads.max(1));
        let mut load = node.base_load;
        let mut memory_used = node.base_memory;
        let mut statuses = Vec::new();
        for vm in self.vms.values().filter(|vm| vm.node == name) {
            let status = status_of(vm, self, at);
            load += status.cpu * status.cpus as f64;
            memory_used += status.memory_used;
            statuses.push((vm.vmid, status));
        }
        let here = |storage: &&super::storage::Storage| storage.is_on(name) && storage.online;
        let storages = self
            .storages
            .values()
            .filter(here)
            .map(|storage| {
                (
                    storage.name.clone(),
                    (self.used_bytes(storage, name), storage.capacity),
                )
            })
            .collect();
        let status = NodeStatus {
            at,
            uptime_s: at.saturating_duration_since(node.up_since).as_secs(),
            cpu: (load / threads).min(1.0),
            memory_used: memory_used.min(node.memory),
            storages,
        };
        if let Some(node) = self.nodes.get_mut(name) {
            node.status = Some(status);
        }
        for (vmid, status) in statuses {
            if let Some(vm) = self.vms.get_mut(&vmid) {
                vm.status = Some(status);
            }
        }
    }
}

/// Whether something broadcast at `at` is still remembered.
pub(crate) fn is_fresh(at: Instant, now: Instant, timings: &Timings) -> bool {
    now.saturating_duration_since(at).as_secs_f64() < timings.broadcast_expiry_s
}

/// The status of a machine at `at`. An idle guest takes a quarter of its memory and 2 % of its processors.
pub(crate) fn status_of(vm: &Vm, state: &State, at: Instant) -> VmStatus {
    let running = vm.running.as_ref();
    let disk = vm
        .boot_disk()
        .and_then(|drive| state.volume(&vm.node, &drive.volid));
    VmStatus {
        at,
        name: vm.name(),
        running: running.is_some(),
        template: vm.is_template(),
        uptime_s: running.map_or(0, |running| {
            at.saturating_duration_since(running.since).as_secs()
        }),
        cpus: vm.cpus(),
        cpu: if running.is_some() { 0.02 } else { 0.0 },
        memory: vm.memory(),
        memory_used: if running.is_some() {
            vm.memory() / 4
        } else {
            0
        },
        disk: disk.map_or(0, |volume| volume.size),
    }
}
