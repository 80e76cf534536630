//! A simulated Proxmox VE cluster and a simulated Kubernetes, for the demo, the tests and `kproxide simulate`.
//!
//! Everything here is deterministic: time is tokio's (paused in simulation), randomness comes from one seed with a
//! stream per entity, and nothing iterates in hash order. The worlds own their tasks: a client that drops its request
//! does not undo what the request already caused, exactly as with a real server.
//!
//! ```text
//! client ──http──▶ faults (seeded) ──▶ pve::Pve / kube ──▶ state behind one short lock
//!                                        │
//!                                        └──▶ MachineEvent ──▶ physics (boot, join, leave)
//! ```

pub mod clock;
pub mod rng;
mod signal;

pub mod faults;
pub mod holds;
pub mod matcher;

pub mod pve;

pub mod kube;
pub mod kubelet;
pub mod physics;

pub mod wire;

pub mod remote;
pub mod serve;
