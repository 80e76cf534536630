use proptest::prelude::*;

use super::*;

fn amounts(text: &str) -> Resources {
    Resources::requested(
        text.split_whitespace()
            .map(|pair| pair.split_once('=').unwrap()),
    )
    .unwrap()
}

fn init(text: &str) -> InitContainer {
    InitContainer {
        requests: amounts(text),
        sidecar: false,
    }
}

fn sidecar(text: &str) -> InitContainer {
    InitContainer {
        requests: amounts(text),
        sidecar: true,
    }
}

fn check(containers: &[&str], init_containers: &[InitContainer], expected: &str) {
    let containers: Vec<_> = containers.iter().map(|text| amounts(text)).collect();
    let mut expected = amounts(expected);
    expected.pods = 1;
    assert_eq!(
        pod_requests(&containers, init_containers, None, None),
        expected
    );
}

#[test]
fn requests_round_up_and_offers_round_down() {
    assert_eq!(
        amounts("cpu=0.0001 memory=1.5 nvidia.com/gpu=2 ephemeral-storage=1Ki"),
        Resources {
            milli_cores: 1,
            memory_bytes: 2,
            ephemeral_bytes: 1024,
            pods: 0,
            extended: [(Arc::from("nvidia.com/gpu"), 2)].into(),
        }
    );
    let offered = Resources::offered([
        ("cpu", "1.9999"),
        ("memory", "1.5"),
        ("pods", "110"),
        ("a/b", "0"),
    ])
    .unwrap();
    assert_eq!(
        (offered.milli_cores, offered.memory_bytes, offered.pods),
        (1999, 1, 110)
    );
    assert!(offered.extended.is_empty(), "zero devices are no devices");
    assert_eq!(amounts("cpu=-1").milli_cores, 0);
}

#[test]
fn an_unreadable_amount_names_resource_and_value() {
    let error = Resources::requested([("memory", "4GB")]).unwrap_err();
    assert_eq!(error.to_string(), "the amount of memory cannot be read");
    assert!(error.source.to_string().contains("\"4GB\""));
}

#[test]
fn a_pods_containers_add_up() {
    check(
        &["cpu=100m memory=1Gi", "cpu=200m"],
        &[],
        "cpu=300m memory=1Gi",
    );
    check(&[], &[], "");
}

#[test]
fn init_containers_count_by_the_largest() {
    check(
        &["cpu=1 memory=1Gi"],
        &[init("cpu=2"), init("memory=3Gi"), init("cpu=1500m")],
        "cpu=2 memory=3Gi",
    );
}

#[test]
fn sidecars_run_beside_everything_after_them() {
    check(&["cpu=1"], &[sidecar("cpu=500m")], "cpu=1500m");
    // An init container after a sidecar runs together with it, one before it alone.
    check(
        &["cpu=1"],
        &[sidecar("cpu=500m"), init("cpu=2")],
        "cpu=2500m",
    );
    check(&["cpu=1"], &[init("cpu=2"), sidecar("cpu=500m")], "cpu=2");
    // kube-scheduler's documented example: restartable 1 and 2 around an init container.
    check(
        &["cpu=1"],
        &[
            sidecar("cpu=1"),
            init("cpu=5"),
            sidecar("cpu=2"),
            init("cpu=3"),
        ],
        "cpu=6",
    );
}

#[test]
fn pod_level_requests_replace_and_overhead_comes_on_top() {
    let pod_level = PodLevelRequests {
        milli_cores: Some(250),
        memory_bytes: None,
        extended: [(Arc::from("hugepages-2Mi"), 4)].into(),
    };
    let requests = pod_requests(
        &[amounts("cpu=1 memory=1Gi nvidia.com/gpu=1")],
        &[],
        Some(&amounts("cpu=10m memory=1Mi")),
        Some(&pod_level),
    );
    let mut expected = amounts("cpu=260m memory=1025Mi nvidia.com/gpu=1 hugepages-2Mi=4");
    expected.pods = 1;
    assert_eq!(requests, expected);
}

#[test]
fn what_lacks_is_named_in_kubernetes_words() {
    let lack = amounts("cpu=500m memory=2Gi a/b=1")
        .first_lacking(&amounts("cpu=1 memory=512Mi"))
        .unwrap();
    assert_eq!(lack.to_string(), "needs 2Gi of memory, 512Mi left");
    let lack = amounts("a/b=1").first_lacking(&amounts("cpu=1")).unwrap();
    assert_eq!(lack.to_string(), "needs 1 of a/b, 0 left");
    assert_eq!(amounts("cpu=1").first_lacking(&amounts("cpu=1")), None);
}

#[test]
fn amounts_read_as_people_write_them() {
    assert_eq!(amount_text("cpu", 1500), "1500m");
    assert_eq!(amount_text("cpu", 2000), "2");
    assert_eq!(amount_text("memory", 1536 << 20), "1.5Gi");
    assert_eq!(amount_text("memory", 1000), "1000");
    assert_eq!(amount_text("pods", 110), "110");
}

#[test]
fn what_is_cut_off_is_the_result_and_nothing_on_the_way_to_it() {
    let times = |free: i64, asked: i64, count: i64| {
        let of = |amount| Resources {
            memory_bytes: amount,
            ..Resources::default()
        };
        let (mut more, mut less) = (of(free), of(free));
        more.add_times(&of(asked), count);
        less.subtract_times(&of(asked), count);
        (more.memory_bytes, less.memory_bytes)
    };
    assert_eq!(times(i64::MAX, 1 << 62, 4), (i64::MAX, i64::MIN));
    assert_eq!(times(-5, 1 << 62, 2), (i64::MAX - 4, i64::MIN));
}

fn any_amount() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        1..10i64,
        any::<i64>().prop_map(|n| n.max(0)),
        Just(i64::MAX)
    ]
}

prop_compose! {
    fn any_resources()(
        amounts in prop::array::uniform4(any_amount()),
        extended in prop::collection::btree_map(
            prop_oneof![Just(Arc::from("a/x")), Just(Arc::from("b/y"))], 1..i64::MAX, 0..3,
        ),
    ) -> Resources {
        let [milli_cores, memory_bytes, ephemeral_bytes, pods] = amounts;
        Resources { milli_cores, memory_bytes, ephemeral_bytes, pods, extended }
    }
}

proptest! {
    #[test]
    fn exact_sums_give_back_what_was_added(a in any_resources(), b in any_resources(), c in any_resources()) {
        let mut sum = ExactSum::default();
        for part in [&a, &b, &c] {
            sum.add(part);
        }
        sum.subtract(&a);
        sum.subtract(&c);
        prop_assert_eq!(sum.value(), b);
    }

    #[test]
    fn nothing_overflows(a in any_resources(), b in any_resources(), count in any::<i64>()) {
        let _ = (a.plus(&b), a.minus(&b), a.times_in(&b), a.first_lacking(&b));
        let mut sum = a.clone();
        sum.add_times(&b, count);
        sum.subtract_times(&b, count);
    }

    #[test]
    fn sums_that_do_not_reach_the_limits_can_be_undone(a in any_resources(), b in any_resources()) {
        let halve = |mut r: Resources| {
            for amount in [&mut r.milli_cores, &mut r.memory_bytes, &mut r.ephemeral_bytes, &mut r.pods] {
                *amount /= 2;
            }
            r.extended.values_mut().for_each(|amount| *amount = *amount / 2 + 1);
            r
        };
        let (a, b) = (halve(a), halve(b));
        prop_assert_eq!(a.plus(&b).minus(&b), a);
    }

    #[test]
    fn fitting_is_monotone(a in any_resources(), free in any_resources(), more in any_resources()) {
        if a.fits(&free) {
            prop_assert!(a.fits(&free.plus(&more)));
        }
        prop_assert_eq!(a.fits(&free), a.first_lacking(&free).is_none());
        prop_assert_eq!(a.fits(&free), a.times_in(&free) >= 1);
    }

    #[test]
    fn as_many_fit_as_counted(a in any_resources(), free in any_resources()) {
        let times = a.times_in(&free);
        if times < 1_000_000 {
            let mut taken = Resources::default();
            taken.add_times(&a, times);
            prop_assert!(taken.fits(&free));
        }
    }
}
