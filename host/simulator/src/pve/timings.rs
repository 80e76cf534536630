//! How long things take in the simulated cluster. The lengths are those that people report of real ones.

use serde::{Deserialize, Serialize};

use crate::rng::Spread;

use super::topology::StorageKind;

/// Every length of time of the simulated API. `Default` is a cluster with local NVMe and a Ceph; [`Timings::instant`]
/// takes no time anywhere but for the fixed delays that are part of the protocol (lock timeouts, 596).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Timings {
    /// One request that only reads.
    pub answer: Spread,
    /// One request that forks a task.
    pub fork: Spread,
    /// A change of a machine's configuration.
    pub config: Spread,
    pub local: StorageTimings,
    pub remote: StorageTimings,
    /// An orderly shutdown, from the signal to the end of the process.
    pub shutdown: Spread,
    /// The share of shutdowns that never end, 0 to 1.
    pub shutdown_hangs: f64,
    /// How long the answer 401 is held back, in seconds.
    pub unauthorized_s: f64,
    /// Seconds between two status broadcasts of a hypervisor; 0 = never, everything stays `unknown`.
    pub broadcast_s: f64,
    /// Seconds after which a status that was not broadcast again is forgotten.
    pub broadcast_expiry_s: f64,
    /// Seconds after a loss of quorum in which `cluster/status` and task forks do not know of it yet.
    pub quorum_lag_s: f64,
}

/// The lengths that depend on where the disks are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StorageTimings {
    /// A linked clone's work outside the storage lock.
    pub clone_linked: Spread,
    /// How long each disk's allocation holds the storage lock.
    pub lock: Spread,
    /// A full clone, per GiB of disk.
    pub copy_per_gib: Spread,
    pub resize: Spread,
    pub start: Spread,
    pub destroy: Spread,
}

impl Timings {
    /// No delays.
    pub fn instant() -> Timings {
        Timings {
            answer: Spread::ZERO,
            fork: Spread::ZERO,
            config: Spread::ZERO,
            local: StorageTimings::instant(),
            remote: StorageTimings::instant(),
            shutdown: Spread::ZERO,
            shutdown_hangs: 0.0,
            unauthorized_s: 0.0,
            ..Timings::default()
        }
    }

    /// The lengths for a storage of this kind.
    pub fn storage(&self, kind: StorageKind) -> &StorageTimings {
        match kind {
            StorageKind::Dir | StorageKind::LvmThin | StorageKind::ZfsPool | StorageKind::Lvm => {
                &self.local
            }
            StorageKind::Rbd | StorageKind::Nfs => &self.remote,
        }
    }
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            answer: Spread::new(0.01, 0.03),
            fork: Spread::new(0.045, 0.09),
            config: Spread::new(0.05, 0.3),
            local: StorageTimings {
                clone_linked: Spread::new(0.8, 2.5),
                lock: Spread::new(0.35, 0.8),
                copy_per_gib: Spread::new(3.0, 9.0),
                resize: Spread::new(0.5, 2.0),
                start: Spread::new(2.0, 5.0),
                destroy: Spread::new(1.5, 5.0),
            },
            remote: StorageTimings {
                clone_linked: Spread::new(1.5, 6.0),
                lock: Spread::new(0.7, 1.6),
                copy_per_gib: Spread::new(7.5, 24.0),
                resize: Spread::new(1.0, 4.0),
                start: Spread::new(3.0, 8.0),
                destroy: Spread::new(3.0, 15.0),
            },
            shutdown: Spread::new(8.0, 40.0),
            shutdown_hangs: 0.02,
            unauthorized_s: 3.0,
            broadcast_s: 10.0,
            broadcast_expiry_s: 300.0,
            quorum_lag_s: 8.0,
        }
    }
}

impl StorageTimings {
    fn instant() -> StorageTimings {
        StorageTimings {
            clone_linked: Spread::ZERO,
            lock: Spread::ZERO,
            copy_per_gib: Spread::ZERO,
            resize: Spread::ZERO,
            start: Spread::ZERO,
            destroy: Spread::ZERO,
        }
    }
}
