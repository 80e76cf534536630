//! Looks for volumes that a destroyed machine left behind, as long as its VMID is in quarantine. kproxide reports them
//! and never deletes them: on shared storage a volume with that VMID can belong to another cluster, which only a person
//! can know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kproxide_planner::facts::EntryState;
use kproxide_planner::ids::{ClusterName, PoolName, StorageName, Vmid};
use kproxide_planner::ledger::is_absent;
use kproxide_planner::world::World;
use tokio::time::{Instant, timeout};

use super::Actor;

/// Storages that are asked in one tick, at most.
const STORAGES_MAX: usize = 8;
/// Between two looks at one storage.
const LOOK_AGAIN: Duration = Duration::from_secs(10 * 60);
/// A storage that does not answer must not hold the loop up.
const DEADLINE: Duration = Duration::from_secs(5);

/// Volumes on one storage with the VMID of a machine of kproxide that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub cluster: ClusterName,
    pub vmid: Vmid,
    /// The server on which to run the command that removes them.
    pub hypervisor: Arc<str>,
    /// Of the machine.
    pub pool: PoolName,
    pub volumes: Vec<String>,
}

/// A storage as a hypervisor sees it; a shared one is asked for once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shelf {
    cluster: ClusterName,
    storage: StorageName,
    hypervisor: Arc<str>,
}

/// When each storage was asked last. Forgetting it costs the same looks again.
#[derive(Default)]
pub(super) struct Asked(BTreeMap<Shelf, Instant>);

impl Actor {
    /// Looks at the storages that are due, for volumes with VMIDs in quarantine.
    pub async fn look_for_leftovers(&mut self, world: &World) -> Vec<Leftover> {
        let resting = resting(world);
        let clusters = resting.keys().map(|(cluster, _)| cluster);
        let shelves = shelves(world, clusters.collect());
        let Asked(asked) = &mut self.asked;
        asked.retain(|shelf, _| shelves.contains(shelf));
        let mut due: Vec<_> = shelves
            .into_iter()
            .map(|shelf| (asked.get(&shelf).copied(), shelf))
            .filter(|(at, _)| at.is_none_or(|at| at.elapsed() >= LOOK_AGAIN))
            .collect();
        due.sort();
        due.truncate(STORAGES_MAX);
        let context = &self.context;
        let read = join_all(due.into_iter().map(|(_, shelf)| async move {
            let read = match context.clusters.client(&shelf.cluster) {
                Some(client) => {
                    let volumes = client.volumes(&shelf.hypervisor, shelf.storage.as_str());
                    timeout(DEADLINE, volumes).await.ok()
                }
                None => None,
            };
            let volumes = match read {
                Some(Ok(volumes)) => volumes,
                Some(Err(error)) => {
                    tracing::debug!(storage = %shelf.storage, error = error.chain(), "leftover volumes could not be looked for");
                    Vec::new()
                }
                None => Vec::new(),
            };
            (shelf, volumes)
        }))
        .await;
        let mut found: BTreeMap<(ClusterName, Vmid, Arc<str>), Vec<String>> = BTreeMap::new();
        for (shelf, volumes) in read {
            for volume in volumes {
                let key = (shelf.cluster.clone(), Vmid(volume.vmid));
                if resting.contains_key(&key) {
                    let key = (key.0, key.1, shelf.hypervisor.clone());
                    found.entry(key).or_default().push(volume.volid);
                }
            }
            asked.insert(shelf, Instant::now());
        }
        found
            .into_iter()
            .filter_map(|((cluster, vmid, hypervisor), volumes)| {
                let pool = resting.get(&(cluster.clone(), vmid))?.clone();
                Some(Leftover {
                    cluster,
                    vmid,
                    hypervisor,
                    pool,
                    volumes,
                })
            })
            .collect()
    }
}

/// VMIDs in quarantine that no guest has, with the pools of their machines. Only of clusters whose list of guests is
/// complete.
fn resting(world: &World) -> BTreeMap<(ClusterName, Vmid), PoolName> {
    let entries = world.ledger().map_or(&[][..], |ledger| &ledger.entries);
    let rests = entries.iter().filter(|entry| match entry.state {
        EntryState::Quarantined { .. } => true,
        EntryState::Reserved { .. } | EntryState::Live => false,
    });
    rests
        .filter(|entry| is_absent(world, entry))
        .map(|entry| ((entry.cluster.clone(), entry.vmid), entry.pool.clone()))
        .collect()
}

/// The storages for disks of these clusters: shared ones once, by the first hypervisor that answers.
fn shelves(world: &World, clusters: BTreeSet<&ClusterName>) -> BTreeSet<Shelf> {
    let mut shelves = BTreeSet::new();
    for cluster in clusters {
        let Some(inventory) = world.inventories().get(cluster) else {
            continue;
        };
        let mut shared = BTreeSet::new();
        for (name, hypervisor) in &inventory.hypervisors {
            if !hypervisor.online {
                continue;
            }
            for (storage, facts) in &hypervisor.storages {
                if facts.active && (!facts.shared || shared.insert(storage)) {
                    shelves.insert(Shelf {
                        cluster: cluster.clone(),
                        storage: storage.clone(),
                        hypervisor: name.clone(),
                    });
                }
            }
        }
    }
    shelves
}
