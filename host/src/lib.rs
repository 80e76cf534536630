//! The imperative shell of kproxide: everything that touches Proxmox, Kubernetes, files, time and wasm.
//!
//! What is decided, and why, is in `kproxide-planner`. In reading order: the command line and what it means, the loop that observes, plans and
//! acts, and around it the adapters that alone know Kubernetes' types, Proxmox's JSON and wasmtime.

#![cfg_attr(
    test,
    allow(
        clippy::wildcard_enum_match_arm,
        reason = "a test names the variant that it expects and shows any other"
    )
)]

// In reading order: rustfmt sorts within a group only.
pub mod args;
pub mod config;

pub mod app;

pub mod autoscaler;

pub mod observe;

pub mod act;

pub mod judge;
pub mod reporter;

pub mod kube;
pub mod pve;

pub mod policy;

pub mod whatif;

pub mod doctor;

pub mod status;

pub mod admin;
pub mod clock;
pub mod decisions;
pub mod metrics;
pub mod telemetry;

pub mod chain;
pub mod foreign;
pub mod hex;
mod labels;
pub mod period;

#[cfg(feature = "lab")]
pub mod lab;

pub mod cli;

#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
