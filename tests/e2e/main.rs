//! The program ([`mod@binary`]), end to end: installed by Helm with its own chart, on a real Kubernetes
//! control plane, against a simulated Proxmox VE whose machines join that cluster.
//!
//! ```text
//! Bench: control plane, binary (shared by the cases that run at one time)
//!   └─ Stage: simulated Proxmox ◀──HTTPS── kproxide's pod ──(Front)──▶ API server ◀── the machines' kubelets
//! ```
//!
//! The simulation is the first of the cases by its name, so that it computes while the others wait.
//!
//! A case takes the whole cluster for itself. Nothing sleeps; every wait is a condition with a deadline.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

#[path = "../simulation.rs"]
mod a_simulation;
mod bench;
mod binary;
mod front;
mod install;
mod stage;
mod witness;

mod chaos;
mod charts;
mod crashes;
mod dead;
mod definitions;
mod deletion;
mod foreign;
mod from_zero;
mod image;
mod labels;
mod languages;
mod neighbours;
mod placement;
mod policies;
mod refusals;
mod repair;
mod replacing;
mod scale_down;
mod secrets;
mod upgrades;
mod volumes;
mod worlds;
