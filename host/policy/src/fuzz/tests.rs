//! The targets as property tests. Under libFuzzer they run longer: see `tests/README.md`.

use proptest::prelude::*;

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_component_is_refused_or_a_policy(data in bytes(120)) {
        super::component(&data);
    }
}
