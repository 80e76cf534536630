//! The targets as property tests. Under libFuzzer they run longer: see `tests/README.md`.

use proptest::prelude::*;

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_answer_of_proxmox_is_read_or_refused(data in bytes(60)) {
        super::answer(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_task_is_done_only_if_it_says_so(data in bytes(60)) {
        super::task(&data);
    }

    #[test]
    fn any_vm_configuration_is_read(data in bytes(120)) {
        super::vm_config(&data);
    }

    #[test]
    fn any_description_proves_nothing_without_the_key(data in bytes(120)) {
        super::marker(&data);
    }

    #[test]
    fn any_error_means_something(data in bytes(80)) {
        super::classify(&data);
    }
}
