//! The Kubernetes adapter: the only module that knows Kubernetes' types, and the owner of our own ([`crd`]).
//!
//! ```text
//! API server ─► watch ─► view, convert ─► planner::Delta
//! files ─► manifest ─► view, convert ─► planner::Delta
//! act ─► claims, ledger, nodes, pods, evict, identity ─► client ─► API server
//! ```
//!
//! In go the planner's facts and names; out come facts, and errors and outcomes that say what a caller would do about them.

pub mod crd;

pub mod convert;

pub(crate) mod view;

pub mod error;

pub mod access;

pub mod client;

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

pub mod manifest;

pub mod lease;

#[cfg(test)]
mod cases;
pub mod events;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod real;
#[cfg(test)]
#[cfg(feature = "lab")]
mod simulated;
