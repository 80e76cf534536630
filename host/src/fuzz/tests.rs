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

    #[test]
    fn any_component_is_refused_or_a_policy(data in bytes(120)) {
        super::component(&data);
    }

    #[test]
    fn any_clocks_and_delays_leave_one_leader(data in bytes(400)) {
        super::fence(&data);
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

    #[test]
    fn any_setting_is_refused_or_holds_together(data in bytes(80)) {
        super::settings(&data);
    }

    #[test]
    fn any_record_comes_back_as_it_was(data in bytes(60)) {
        super::objects(&data);
    }

    #[test]
    fn any_watches_that_end_anywhere_tell_what_the_server_has(data in bytes(160)) {
        super::reflector(&data);
    }
}
