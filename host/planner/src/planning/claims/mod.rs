//! The claims that are there: whether each is coming, in service or leaving, and whether it may be removed.

pub(in crate::planning) mod breaker;
pub(in crate::planning) mod budgets;
pub(in crate::planning) mod drain_backoff;
pub(in crate::planning) mod failed_machines;
pub(in crate::planning) mod finalizers;
pub(in crate::planning) mod may_remove;
pub(in crate::planning) mod orphans;
pub(in crate::planning) mod policy_state;
pub(in crate::planning) mod pool_times;
pub(in crate::planning) mod removable_condition;
pub(in crate::planning) mod stages;
