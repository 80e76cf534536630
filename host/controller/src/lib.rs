//! The loop of kproxide: it observes, plans, acts and reports.
//!
//! What is decided, and why, is in `kproxide-planner`; this crate alone joins Kubernetes, Proxmox and policies. It has the whole program but the command
//! line, and takes clock, randomness, sockets and connections from whoever builds it. The most important: [`app::App`], [`config::Config`],
//! [`autoscaler::Autoscaler`], [`act::Actor`], [`judge::Finding`].

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

pub mod connect;
pub mod observe;

pub mod act;

pub mod judge;
pub mod reporter;

pub mod admin;
pub mod metrics;

#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
