//! The targets as property tests. Under libFuzzer they run longer: see `tests/README.md`.

use proptest::prelude::*;

use super::*;

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_setting_is_refused_or_holds_together(data in bytes(80)) {
        super::settings(&data);
    }
}

/// Else the target would fuzz nothing.
#[test]
fn the_seeds_are_without_a_problem() {
    let [cluster, class, pool] = seeds().clone();
    let (cluster, _) = cluster_facts(&serde_json::from_value(cluster).unwrap());
    let class = class_facts(&serde_json::from_value(class).unwrap());
    let pool = pool_facts(
        &ObjectMeta::default(),
        &serde_json::from_value(pool).unwrap(),
    );
    assert_eq!((cluster.problem, class.problem), (None, None));
    assert_eq!(pool.problem, None);
}
