//! The two kinds of lock that guard Proxmox's files, with their timeouts and their texts.
//!
//! A file lock (`flock`) is local to a server and fair. A lock of the cluster file system is tried once a second, so
//! whoever asks at the right moment gets it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::{Instant, sleep, timeout};

/// How long a storage lock is waited for.
const STORAGE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Locks {
    locks: Mutex<BTreeMap<String, Arc<RwLock<()>>>>,
}

/// A lock that is held until this is dropped, whatever ends its holder: so does the kernel.
pub(crate) enum Held {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Exclusive { _guard: OwnedRwLockWriteGuard<()> },
}

impl Locks {
    fn lock(&self, name: String) -> Arc<RwLock<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.entry(name).or_default().clone()
    }

    /// The lock of a machine's configuration on one server. `log` gets what a task log says about the wait.
    pub(crate) async fn config(
        &self,
        node: &str,
        vmid: u32,
        wait: Duration,
        log: impl FnMut(&str),
    ) -> Result<Held, String> {
        let lock = self.lock(format!("qemu-{vmid}@{node}"));
        exclusive(lock, wait, log)
            .await
            .ok_or_else(|| timed_out(vmid))
    }

    /// The lock of a clone's source, which other clones may hold at the same time.
    pub(crate) async fn config_shared(
        &self,
        node: &str,
        vmid: u32,
        wait: Duration,
        mut log: impl FnMut(&str),
    ) -> Result<Held, String> {
        let lock = self.lock(format!("qemu-{vmid}@{node}"));
        if let Ok(guard) = lock.clone().try_read_owned() {
            return Ok(Held::Shared { _guard: guard });
        }
        log("trying to acquire lock...");
        let guard = timeout(wait, lock.read_owned())
            .await
            .map_err(|_| timed_out(vmid))?;
        log(" OK");
        Ok(Held::Shared { _guard: guard })
    }

    /// The lock of a storage that only one server has.
    pub(crate) async fn local_storage(
        &self,
        node: &str,
        storage: &str,
        log: impl FnMut(&str),
    ) -> Result<Held, String> {
        let lock = self.lock(format!("storage-{storage}@{node}"));
        let failed = || {
            format!("can't lock file '/var/lock/pve-manager/pve-storage-{storage}' - got timeout")
        };
        exclusive(lock, STORAGE_TIMEOUT, log)
            .await
            .ok_or_else(failed)
    }

    /// The lock of a storage that the whole cluster shares. Without quorum it cannot be had.
    pub(crate) async fn shared_storage(
        &self,
        storage: &str,
        quorate: impl Fn() -> bool,
        mut log: impl FnMut(&str),
    ) -> Result<Held, String> {
        let lock = self.lock(format!("storage-{storage}"));
        let started = Instant::now();
        loop {
            if quorate()
                && let Ok(guard) = lock.clone().try_write_owned()
            {
                return Ok(Held::Exclusive { _guard: guard });
            }
            if started.elapsed() + Duration::from_secs(1) >= STORAGE_TIMEOUT {
                let why = if quorate() {
                    "got lock request timeout"
                } else {
                    "no quorum!"
                };
                return Err(format!("cfs-lock 'storage-{storage}' error: {why}"));
            }
            log(&format!(
                "trying to acquire cfs lock 'storage-{storage}' ..."
            ));
            sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn exclusive(
    lock: Arc<RwLock<()>>,
    wait: Duration,
    mut log: impl FnMut(&str),
) -> Option<Held> {
    if let Ok(guard) = lock.clone().try_write_owned() {
        return Some(Held::Exclusive { _guard: guard });
    }
    log("trying to acquire lock...");
    let guard = timeout(wait, lock.write_owned()).await.ok()?;
    log(" OK");
    Some(Held::Exclusive { _guard: guard })
}

fn timed_out(vmid: u32) -> String {
    format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn file_lock_times_out_with_its_text() {
        let locks = Locks::default();
        let held = locks
            .config("pve1", 101, STORAGE_TIMEOUT, |_| ())
            .await
            .ok();
        let mut log = Vec::new();
        let failed = locks
            .config("pve1", 101, STORAGE_TIMEOUT, |line| {
                log.push(line.to_owned())
            })
            .await;
        assert_eq!(
            failed.err().unwrap(),
            "can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout"
        );
        assert_eq!(log, ["trying to acquire lock..."]);
        drop(held);
        assert!(
            locks
                .config("pve1", 101, STORAGE_TIMEOUT, |_| ())
                .await
                .is_ok()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_lock_is_tried_once_a_second() {
        let locks = Locks::default();
        let _held = locks.shared_storage("ceph", || true, |_| ()).await.ok();
        let mut tries = 0;
        let failed = locks.shared_storage("ceph", || true, |_| tries += 1).await;
        assert_eq!(
            failed.err().unwrap(),
            "cfs-lock 'storage-ceph' error: got lock request timeout"
        );
        assert_eq!(tries, 9);
    }

    #[tokio::test(start_paused = true)]
    async fn clones_share_the_lock_of_their_source() {
        let locks = Locks::default();
        let second = Duration::from_secs(1);
        let _one = locks
            .config_shared("pve1", 9000, second, |_| ())
            .await
            .unwrap();
        let _two = locks
            .config_shared("pve1", 9000, second, |_| ())
            .await
            .unwrap();
        assert!(locks.config("pve1", 9000, second, |_| ()).await.is_err());
    }
}
