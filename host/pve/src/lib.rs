//! The Proxmox VE adapter: the only module that knows Proxmox's API, its JSON and its error texts.
//!
//! ```text
//! act, observe ─► machine, inventory, template, task ─► client ─► [tower service] ─► pveproxy
//!                  │ what to call, what it means          │ deadlines, login, failover, limits
//!                  └ cloudinit, ownership (pure)          └ request, auth, transport, tls, error
//! ```
//!
//! In go wishes in our own words ([`machine::CloneRequest`], [`cloudinit::MachineConfig`]); out come Hypervisors, guests,
//! configurations and errors that say what they mean and whether the request took effect ([`error::Error`]).
//! Nothing in here decides; nothing in here repeats a write whose outcome is unknown.
//!
//! Facts about the API that no schema states are marked `Proxmox:` where they are used.

#![cfg_attr(
    test,
    allow(
        clippy::wildcard_enum_match_arm,
        reason = "a test names the variant that it expects and shows any other"
    )
)]

pub mod request;

pub mod types;

pub mod error;

pub mod classify;

pub mod transport;

pub mod tls;

pub mod auth;
pub mod endpoints;

pub mod limits;

mod answer;

pub mod client;

pub mod task;

pub mod inventory;

mod details;

pub mod members;

pub mod vm_config;
pub mod volumes;

pub mod template;

pub mod machine;

pub mod cloudinit;

mod interfaces;

pub mod ownership;

pub mod preflight;

pub mod convert;

#[cfg(any(test, feature = "fuzz"))]
mod fixtures;

#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;

#[cfg(test)]
mod tests;
