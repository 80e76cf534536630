//! The simulated Proxmox VE API: the answers, delays, locks, tasks and quirks that the recordings of the real daemons
//! show, over a small model of hypervisors, storages and machines.
//!
//! ```text
//! request ─▶ serve (auth, route, forward, permission, parameters) ─▶ handler ─▶ answer
//!                                                            └─▶ task (UPID) ─▶ State
//! ```
//!
//! [`Pve`] owns everything. Handlers and tasks run on its own task set, so a caller that goes away does not undo what it
//! started; the state lock is never held across an await. This module and the client of the host are the only places
//! that say "node" for a hypervisor.

pub mod timings;
pub mod topology;

mod access;
mod age;
mod agent;
mod answer;
mod broadcast;
mod clone;
mod cluster;
mod config;
mod control;
mod create;
mod destroy;
mod locks;
mod network;
mod nodes;
mod observe;
mod params;
mod permission;
mod pools;
mod power;
mod qemu;
mod resize;
mod routes;
mod serve;
mod state;
mod storage;
mod tasks;
mod vm;
mod world;

use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::holds::Holds;
use crate::rng::{Seed, Spread};

pub use control::REQUESTS;
pub use observe::{
    AuditEntry, Birth, HypervisorView, MachineEvent, PveSnapshot, TaskView, VmView, VolumeView,
};
pub use serve::PveService;
pub use topology::Topology;
pub use vm::CommandResult;
pub use world::UnknownVm;

use locks::Locks;
use state::State;
use timings::Timings;

/// A simulated Proxmox VE cluster. Cheap to clone: all clones are the same cluster.
#[derive(Clone)]
pub struct Pve {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Requests and tasks under way. Apart from the state, because starting a task must not need the state.
    running: Mutex<JoinSet<()>>,
    locks: Locks,
    holds: Holds,
    timings: Timings,
    clock: Clock,
    seed: Seed,
}

impl Pve {
    /// Builds the cluster that `topology` describes. The same topology, seed and sequence of requests give the same
    /// answers at the same times.
    ///
    /// # Panics
    ///
    /// When the topology contradicts itself, for example a machine on a hypervisor that is not in it.
    pub fn new(topology: Topology, clock: Clock, seed: u64) -> Pve {
        let seed = Seed(seed);
        let timings = topology.timings.clone();
        Pve {
            inner: Arc::new(Inner {
                state: Mutex::new(State::build(topology, &clock, seed)),
                running: Mutex::new(JoinSet::new()),
                locks: Locks::default(),
                holds: Holds::default(),
                timings,
                clock,
                seed,
            }),
        }
    }

    /// The wall clock of this world.
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// The state, with all status broadcasts made that are due by now. Never hold it across an await.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self
            .inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.broadcast_until(Instant::now(), &self.inner.timings);
        state
    }

    /// The state for those who neither change it nor read what was broadcast: what is due waits for whoever does either, and is then the same.
    fn look(&self) -> impl Deref<Target = State> + '_ {
        let state = self.inner.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn locks(&self) -> &Locks {
        &self.inner.locks
    }

    fn timings(&self) -> &Timings {
        &self.inner.timings
    }

    fn rng(&self, kind: &str, id: &str) -> SmallRng {
        self.inner.seed.stream(kind, id)
    }

    /// Runs `work` to its end on this world's own task set.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut running = self
            .inner
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(work)
    }

    /// Waits as long as one draw of `spread` from the stream of (`kind`, `id`).
    async fn take(&self, spread: Spread, kind: &str, id: &str) {
        pause(spread.sample(&mut self.rng(kind, id))).await;
    }
}

/// Sleeps, but does not even yield for nothing: a zero sleep would still round up to a timer tick.
async fn pause(length: Duration) {
    if !length.is_zero() {
        tokio::time::sleep(length).await;
    }
}

#[cfg(test)]
mod tests;
