//! The two kinds of lock that guard Proxmox's files, with their timeouts and their texts.
//!
//! A file lock (`flock`) is local to a server and fair, and goes with the process. A lock of the cluster file system is a
//! directory there: it is tried once a second, so whoever asks at the right moment gets it, and if its holder is killed it
//! stays for two minutes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::{Instant, sleep, timeout};

/// How long a storage lock is waited for.
const STORAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// So long after it was taken, a lock of the cluster file system is free for others though nobody gave it back.
const CLUSTER_LOCK_LASTS: Duration = Duration::from_secs(120);

#[derive(Default)]
pub(crate) struct Locks {
    files: Mutex<BTreeMap<String, Arc<RwLock<()>>>>,
    /// Of the cluster file system: until when each is held.
    directories: Arc<Mutex<BTreeMap<String, Instant>>>,
}

/// A lock that is held until this is dropped. A file lock is given back whatever ends its holder: so does the kernel.
pub(crate) enum Held {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Exclusive { _guard: OwnedRwLockWriteGuard<()> },
    Directory { _directory: Directory },
}

/// Whether a task was killed. Those who hold its locks ask when they are dropped.
pub(crate) type Killed = Arc<AtomicBool>;

pub(crate) struct Directory {
    all: Arc<Mutex<BTreeMap<String, Instant>>>,
    name: String,
    until: Instant,
    killed: Killed,
}

impl Drop for Directory {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = all.get(&self.name) == Some(&self.until);
        if is_ours && !self.killed.load(Ordering::Relaxed) {
            all.remove(&self.name);
        }
    }
}

impl Locks {
    fn lock(&self, name: String) -> Arc<RwLock<()>> {
        let mut locks = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        locks.entry(name).or_default().clone()
    }

    fn directory(&self, name: &str, killed: &Killed) -> Option<Directory> {
        let all = self.directories.clone();
        let now = Instant::now();
        let until = now + CLUSTER_LOCK_LASTS;
        let mut held = all.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(name).is_some_and(|until| now < *until) {
            return None;
        }
        held.insert(name.to_owned(), until);
        drop(held);
        Some(Directory {
            all,
            name: name.to_owned(),
            until,
            killed: killed.clone(),
        })
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

    /// The lock of a shared storage, of a task that dies at once.
    pub(crate) fn lose(&self, storage: &str) {
        drop(self.directory(&format!("storage-{storage}"), &Killed::new(true.into())));
    }

    /// The lock of a storage that the whole cluster shares. Without quorum it cannot be had. `killed`: of the task that
    /// asks.
    pub(crate) async fn shared_storage(
        &self,
        storage: &str,
        killed: &Killed,
        quorate: impl Fn() -> bool,
        mut log: impl FnMut(&str),
    ) -> Result<Held, String> {
        let name = format!("storage-{storage}");
        let started = Instant::now();
        loop {
            if quorate()
                && let Some(directory) = self.directory(&name, killed)
            {
                return Ok(Held::Directory {
                    _directory: directory,
                });
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
        let alive = Killed::default();
        let _held = locks
            .shared_storage("ceph", &alive, || true, |_| ())
            .await
            .ok();
        let mut tries = 0;
        let failed = locks
            .shared_storage("ceph", &alive, || true, |_| tries += 1)
            .await;
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
