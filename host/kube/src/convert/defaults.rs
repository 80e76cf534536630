//! Specifications that leave out everything that they may: what the defaults of the API make of them.

use std::sync::LazyLock;

use kproxide_planner::facts::{ClassFacts, PoolFacts};
use kube::api::ObjectMeta;
use serde_json::{Map, Value, json};

use super::{class_facts, pool_facts};

/// For machines whose class is gone.
pub static CLASS: LazyLock<ClassFacts> = LazyLock::new(|| class_facts(&least_class()));

/// For machines whose pool is gone.
pub static POOL: LazyLock<PoolFacts> =
    LazyLock::new(|| pool_facts(&ObjectMeta::default(), &least_pool()));

pub fn least_cluster() -> Map<String, Value> {
    fields(json!({"endpoints": [], "credentials": "", "vmidRange": {"first": 100, "last": 100}}))
}

pub fn least_class() -> Map<String, Value> {
    fields(json!({"template": {"name": ""}, "instanceTypes": []}))
}

pub fn least_pool() -> Map<String, Value> {
    fields(json!({"nodeClass": ""}))
}

fn fields(least: Value) -> Map<String, Value> {
    let Value::Object(fields) = least else {
        unreachable!("a specification has fields: {least}");
    };
    fields
}

#[cfg(test)]
mod tests {
    use kproxide_planner::facts::{Join, ProviderId};

    use super::*;

    /// A machine is not given up, and its Node not emptied, faster because somebody deleted its pool or class.
    #[test]
    fn a_machine_without_its_class_and_pool_keeps_the_times_of_the_api() {
        assert_eq!(POOL.drain_timeout.as_secs(), 15 * 60);
        assert_eq!(POOL.repair_after.as_secs(), 10 * 60);
        assert!(POOL.scale_down.blocked_by.bare_pods && POOL.startup_taints.is_empty());
        let timeouts = CLASS.timeouts;
        let seconds =
            [timeouts.provision, timeouts.agent, timeouts.join].map(|time| time.as_secs());
        assert_eq!(
            (seconds, CLASS.join.way()),
            ([300, 180, 600], Join::Template)
        );
        assert_eq!(CLASS.provider_id, ProviderId::Auto);
    }
}
