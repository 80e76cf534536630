//! The claims that are there: whether each is coming, in service or leaving, and whether it may be removed.

pub(in crate::planning) mod breaking;
pub(in crate::planning) mod finalizers;
pub(in crate::planning) mod kept;
pub(in crate::planning) mod orphans;
pub(in crate::planning) mod removable;
pub(in crate::planning) mod resting;
pub(in crate::planning) mod safety;
pub(in crate::planning) mod stages;
pub(in crate::planning) mod states;
