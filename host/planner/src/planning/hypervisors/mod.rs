//! Hypervisors: their room, their numbers and addresses, and how a machine is cloned there.

pub(in crate::planning) mod addresses;
pub(in crate::planning) mod attributes;
pub(in crate::planning) mod clone;
pub(in crate::planning) mod room;
pub(in crate::planning) mod sites;
