//! The targets as property tests. Under libFuzzer they run longer: see `tests/README.md`.

use proptest::prelude::*;

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_clocks_and_delays_leave_one_leader(data in bytes(400)) {
        super::fence(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_record_comes_back_as_it_was(data in bytes(60)) {
        super::objects(&data);
    }

    #[test]
    fn any_watches_that_end_anywhere_tell_what_the_server_has(data in bytes(160)) {
        super::reflector(&data);
    }
}
