//! The imperative shell of kproxide: everything that touches Proxmox, Kubernetes, files, time and wasm.
//!
//! What is decided, and why, is in `kproxide-planner`. In reading order: the command line and what it means ([`args`]), the loop that observes, plans and
//! acts, and around it the adapters that alone know Kubernetes' types, Proxmox's JSON and wasmtime.

// In reading order, one group per line of thought; rustfmt sorts within a group only.
pub mod args;

pub mod admin;

pub mod metrics;

pub mod telemetry;

pub mod clock;

pub mod kube;

pub mod pve;

pub mod policy;
