//! Which machines are made, and where: the simulated cluster, the pending pods, the pools with what they could make.

pub(in crate::planning) mod awaited;
pub(in crate::planning) mod coming_room;
pub(in crate::planning) mod decorate;
pub(in crate::planning) mod explain;
pub(in crate::planning) mod launch_backoff;
pub(in crate::planning) mod lookahead;
pub(in crate::planning) mod outdated;
pub(in crate::planning) mod packing;
pub(in crate::planning) mod placement;
pub(in crate::planning) mod pools;
pub(in crate::planning) mod scale_up;
pub(in crate::planning) mod schedule;
pub(in crate::planning) mod snapshot;
pub(in crate::planning) mod soft_affinity;
pub(in crate::planning) mod unexpected_taints;
