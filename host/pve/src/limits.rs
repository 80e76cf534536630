//! How much we ask of Proxmox at once.
//!
//! Proxmox: every hypervisor has three workers for protected calls, so three slow ones (agents that do not answer, busy
//! locks) stop its API; a storage's allocations are serialized by a lock that waits ten seconds and then fails the clone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// One of the three workers always stays free for others.
const PROTECTED_PER_HYPERVISOR: usize = 2;

/// Proxmox: so long after it was taken, the lock of a shared storage is free again though its task died.
const JAM_LASTS: Duration = Duration::from_secs(120);

/// ProxmoxCluster's `concurrency`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// Clones in flight on one storage: cluster-wide for a shared one, per hypervisor for a local one.
    pub per_storage: usize,
    /// Clones in flight on one hypervisor.
    pub per_hypervisor: usize,
}

impl Default for Concurrency {
    /// Measured against Proxmox's own locks: six parallel clones lose most of their number, three lose none.
    fn default() -> Self {
        Concurrency {
            per_storage: 3,
            per_hypervisor: 3,
        }
    }
}

/// The storage that a clone allocates on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StorageSlot {
    /// Proxmox's storage ID.
    pub storage: String,
    /// The hypervisor of a local storage; a shared one has one lock for the whole cluster.
    pub hypervisor: Option<String>,
}

/// The semaphores of one Proxmox cluster.
#[derive(Debug)]
pub struct Limits {
    concurrency: Concurrency,
    storages: Slots<StorageSlot>,
    hypervisors: Slots<String>,
    jams: Mutex<BTreeMap<StorageSlot, Jam>>,
    protected: Slots<String>,
    /// Reads wait here first, so that a write never has more of them before it than there are workers.
    protected_reads: Slots<String>,
}

/// A storage whose lock a task could not get.
#[derive(Debug, Clone)]
struct Jam {
    until: Instant,
    /// One clone at a time. Closed when the jam is over.
    turn: Arc<Semaphore>,
}

/// A worker of a hypervisor; given back by dropping it.
#[derive(Debug)]
pub(super) struct Worker {
    _worker: OwnedSemaphorePermit,
    _read: Option<OwnedSemaphorePermit>,
}

/// The right to have one clone in flight; given back by dropping it after the clone's task has ended, or is left to itself.
#[derive(Debug)]
pub struct CloneSlot {
    _hypervisor: OwnedSemaphorePermit,
    _storage: OwnedSemaphorePermit,
    _alone: Option<OwnedSemaphorePermit>,
}

impl Limits {
    /// No more in flight than `concurrency` says (at least one each).
    pub fn new(concurrency: Concurrency) -> Limits {
        Limits {
            concurrency,
            storages: Slots::default(),
            hypervisors: Slots::default(),
            jams: Mutex::default(),
            protected: Slots::default(),
            protected_reads: Slots::default(),
        }
    }

    /// Waits, in order of arrival, for the right to clone onto `storage` from `hypervisor`.
    pub async fn clone_slot(&self, storage: StorageSlot, hypervisor: &str) -> CloneSlot {
        // Always the storage first: two clones can then never wait for each other, and those that wait for a jam hold up
        // no other storage.
        let permit = self
            .storages
            .take(storage.clone(), self.concurrency.per_storage)
            .await;
        let alone = self.alone(&storage).await;
        let hypervisor = self
            .hypervisors
            .take(hypervisor.to_owned(), self.concurrency.per_hypervisor)
            .await;
        CloneSlot {
            _hypervisor: hypervisor,
            _storage: permit,
            _alone: alone,
        }
    }

    /// A task could not get the lock of this storage (`true`), or got it.
    pub fn note_jam(&self, storage: StorageSlot, is_jammed: bool) {
        let mut jams = self.jams();
        if is_jammed {
            let until = Instant::now() + JAM_LASTS;
            let jam = jams.entry(storage).or_insert_with(|| Jam {
                until,
                turn: Arc::new(Semaphore::new(1)),
            });
            jam.until = until;
        } else if let Some(over) = jams.remove(&storage) {
            over.turn.close();
        }
    }

    /// A task could not get the lock of this storage, and none has got it since.
    pub fn is_jammed(&self, storage: &StorageSlot) -> bool {
        self.jam(storage).is_some()
    }

    /// While the storage is jammed, the right to be the only one that tries.
    async fn alone(&self, storage: &StorageSlot) -> Option<OwnedSemaphorePermit> {
        loop {
            let jam = self.jam(storage)?;
            // Otherwise the jam is over, or another try has failed meanwhile.
            if let Ok(Ok(turn)) = timeout_at(jam.until, jam.turn.acquire_owned()).await {
                return Some(turn);
            }
        }
    }

    fn jam(&self, storage: &StorageSlot) -> Option<Jam> {
        let mut jams = self.jams();
        let now = Instant::now();
        jams.retain(|_, jam| now < jam.until);
        jams.get(storage).cloned()
    }

    fn jams(&self) -> MutexGuard<'_, BTreeMap<StorageSlot, Jam>> {
        self.jams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one of the workers that kproxide may use on `hypervisor`, for a write. At most as many reads as there
    /// are workers go before it.
    pub(super) async fn to_write(&self, hypervisor: &str) -> Worker {
        let worker = self
            .protected
            .take(hypervisor.to_owned(), PROTECTED_PER_HYPERVISOR)
            .await;
        Worker {
            _worker: worker,
            _read: None,
        }
    }

    /// Waits for one of the workers that kproxide may use on `hypervisor`, for a read.
    pub(super) async fn to_read(&self, hypervisor: &str) -> Worker {
        let read = self
            .protected_reads
            .take(hypervisor.to_owned(), PROTECTED_PER_HYPERVISOR)
            .await;
        let worker = self.to_write(hypervisor).await;
        Worker {
            _read: Some(read),
            ..worker
        }
    }
}

#[derive(Debug)]
struct Slots<K>(Mutex<BTreeMap<K, Arc<Semaphore>>>);

impl<K> Default for Slots<K> {
    fn default() -> Self {
        Slots(Mutex::new(BTreeMap::new()))
    }
}

impl<K: Ord> Slots<K> {
    async fn take(&self, key: K, permits: usize) -> OwnedSemaphorePermit {
        let semaphore = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key)
            .or_insert_with(|| Arc::new(Semaphore::new(permits.max(1))))
            .clone();
        semaphore
            .acquire_owned()
            .await
            .expect("these semaphores are never closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn shared(storage: &str) -> StorageSlot {
        StorageSlot {
            storage: storage.to_owned(),
            hypervisor: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn n6_a_jam_lets_one_clone_try_and_is_over_with_it_or_with_time() {
        let brief = Duration::from_millis(1);
        let free = async |limits: &Limits, storage: &str| {
            let mut slots = Vec::new();
            while let Ok(slot) = timeout(brief, limits.clone_slot(shared(storage), "pve1")).await {
                slots.push(slot);
            }
            slots.len()
        };
        let limits = Limits::new(Concurrency {
            per_storage: 3,
            per_hypervisor: 9,
        });
        limits.note_jam(shared("ceph"), true);
        assert_eq!(
            (free(&limits, "ceph").await, free(&limits, "nfs").await),
            (1, 3)
        );
        // Those that wait go on at once when it is over, whatever the one that tries still does.
        let _alone = limits.clone_slot(shared("ceph"), "pve1").await;
        let waits = limits.clone_slot(shared("ceph"), "pve1");
        let over = async {
            tokio::time::sleep(brief).await;
            limits.note_jam(shared("ceph"), false);
        };
        let (second, ()) = tokio::join!(timeout(2 * brief, waits), over);
        assert!(second.is_ok() && !limits.is_jammed(&shared("ceph")));

        limits.note_jam(shared("nfs"), true);
        tokio::time::sleep(JAM_LASTS / 2).await;
        limits.note_jam(shared("nfs"), true);
        tokio::time::sleep(JAM_LASTS / 2 + brief).await;
        assert_eq!(free(&limits, "nfs").await, 1, "each failure counts anew");
        tokio::time::sleep(JAM_LASTS / 2).await;
        assert_eq!(free(&limits, "nfs").await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn f36_a_busy_storage_delays_only_its_own_clones() {
        let limits = Limits::new(Concurrency {
            per_storage: 1,
            per_hypervisor: 9,
        });
        let brief = Duration::from_millis(1);
        let held = limits.clone_slot(shared("ceph"), "pve1").await;
        assert!(
            timeout(brief, limits.clone_slot(shared("ceph"), "pve2"))
                .await
                .is_err()
        );
        assert!(
            timeout(brief, limits.clone_slot(shared("nfs"), "pve2"))
                .await
                .is_ok()
        );
        drop(held);
        assert!(
            timeout(brief, limits.clone_slot(shared("ceph"), "pve2"))
                .await
                .is_ok()
        );
    }
}
