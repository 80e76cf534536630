//! Pods and the Nodes that are there: which fit where and why not, which stand together, and which keep their Node.

pub(in crate::planning) mod blockers;
pub(in crate::planning) mod filters;
pub(in crate::planning) mod fit;
pub(in crate::planning) mod moved;
pub(in crate::planning) mod registering;
pub(in crate::planning) mod returning_pods;
pub(in crate::planning) mod topology;
pub(in crate::planning) mod volumes;
