//! The Kubernetes adapter: the only module that knows Kubernetes' types, and the owner of our own ([`crd`]).
//!
//! ```text
//! API server ─► watch ─► view, convert ─► planner::Delta
//! act ─► claims, ledger, nodes, pods, evict, identity ─► client ─► API server
//! ```
//!
//! In go the planner's facts and names; out come facts, and errors and outcomes that say what a caller would do about them.

#![cfg_attr(
    test,
    allow(
        clippy::wildcard_enum_match_arm,
        reason = "a test names the variant that it expects and shows any other"
    )
)]

pub mod crd;

pub mod convert;

pub mod view;

pub mod error;

pub mod access;

pub mod client;
pub mod connection;

mod freshness;

pub mod claims;

pub mod definition;

pub mod finalizers;

pub mod install;

pub mod ledger;

pub mod nodes;

pub mod pods;

pub mod evict;

pub mod identity;

pub mod status;
pub mod watch;

pub mod lease;

pub mod events;

#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;

#[cfg(test)]
mod tests;
