//! How much we ask of Proxmox at once.
//!
//! Proxmox: every hypervisor has three workers for protected calls, so three slow ones (agents that do not answer, busy
//! locks) stop its API; a storage's allocations are serialized by a lock that waits ten seconds and then fails the clone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One of the three workers always stays free for others.
const PROTECTED_PER_HYPERVISOR: usize = 2;

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
    protected: Slots<String>,
    /// Reads wait here first, so that a write never has more of them before it than there are workers.
    protected_reads: Slots<String>,
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
}

impl Limits {
    /// No more in flight than `concurrency` says (at least one each).
    pub fn new(concurrency: Concurrency) -> Limits {
        Limits {
            concurrency,
            storages: Slots::default(),
            hypervisors: Slots::default(),
            protected: Slots::default(),
            protected_reads: Slots::default(),
        }
    }

    /// Waits, in order of arrival, for the right to clone onto `storage` from `hypervisor`.
    pub async fn clone_slot(&self, storage: StorageSlot, hypervisor: &str) -> CloneSlot {
        // Always the storage first: two clones can then never wait for each other.
        let storage = self
            .storages
            .take(storage, self.concurrency.per_storage)
            .await;
        let hypervisor = self
            .hypervisors
            .take(hypervisor.to_owned(), self.concurrency.per_hypervisor)
            .await;
        CloneSlot {
            _hypervisor: hypervisor,
            _storage: storage,
        }
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
