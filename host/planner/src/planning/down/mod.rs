//! Which machines go, and which are replaced first.

pub(in crate::planning) mod idle_nodes;
pub(in crate::planning) mod replacing;
pub(in crate::planning) mod scale_down;
