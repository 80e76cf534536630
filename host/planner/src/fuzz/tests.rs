//! The targets as property tests. Under libFuzzer they run longer: see `tests/README.md`.

use proptest::prelude::*;

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn any_quantity_is_exact_or_refused(data in bytes(40)) {
        super::quantity(&data);
    }

    #[test]
    fn any_resources_add_up_as_numbers_without_end_do(data in bytes(140)) {
        super::resources(&data);
    }

    #[test]
    fn any_claim_has_a_next_step_that_the_rules_allow(data in bytes(160)) {
        super::next(&data);
    }

    #[test]
    fn any_ledger_is_kept_under_any_clock(data in bytes(240)) {
        super::ledger(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_changes_is_the_world_of_a_list(data in bytes(400)) {
        super::deltas(&data);
    }
}
