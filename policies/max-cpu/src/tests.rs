use kproxide_policy_sdk::call;
use kproxide_policy_sdk::testkit::{
    assert_ranking_ignores_order, assert_valid_ranking, candidate, context, ineligible, request,
    resources, tried_in_order,
};

use super::*;

fn with_cpu(name: &str, usage: f64, available_cores: u64) -> Candidate {
    Candidate {
        cpu_usage: usage,
        available: resources(available_cores, 64),
        ..candidate(name)
    }
}

#[test]
fn by_default_the_idle_share_counts_and_not_the_cores() {
    let candidates = [
        with_cpu("a", 0.01, 256),
        with_cpu("b", 0.0, 4),
        with_cpu("c", 0.5, 8),
    ];
    let ranking = rank(Measure::default(), &candidates);
    assert_eq!(tried_in_order(&ranking, &candidates), ["b", "a", "c"]);
    assert_eq!(ranking.placements[2].reason, "50 % of its CPU is idle");
}

#[test]
fn with_measure_cores_the_available_cores_count() {
    let candidates = [with_cpu("a", 0.9, 256), with_cpu("b", 0.0, 4)];
    let ranking =
        call::rank::<MaxCpu>(&context(r#"{"measure": "cores"}"#), &request(), &candidates).unwrap();
    assert_eq!(tried_in_order(&ranking, &candidates), ["a", "b"]);
    assert_eq!(ranking.placements[0].score, 1.0);
    assert_eq!(ranking.placements[1].reason, "4.0 cores are available");
}

#[test]
fn an_unknown_measure_is_refused_with_those_there_are() {
    let error = call::check_settings::<MaxCpu>(r#"{"measure": "threads"}"#)
        .unwrap_err()
        .to_string();
    assert!(error.contains("measure"), "{error}");
    assert!(
        error.contains("unknown variant `threads`, expected `share` or `cores`"),
        "{error}"
    );
}

#[test]
fn odd_measurements_stay_within_the_scores() {
    for measure in [Measure::Share, Measure::Cores] {
        let candidates = [
            with_cpu("a", f64::NAN, 0),
            with_cpu("b", 1.7, 0),
            with_cpu("c", -3.0, 0),
            ineligible("d", "offline"),
        ];
        assert_valid_ranking(&rank(measure, &candidates), &candidates);
    }
    let candidates = [with_cpu("a", f64::NAN, 4), with_cpu("b", 0.99, 4)];
    assert_eq!(
        tried_in_order(&rank(Measure::Share, &candidates), &candidates),
        ["b", "a"]
    );
}

#[test]
fn the_order_given_does_not_matter() {
    let candidates = [
        with_cpu("a", 0.5, 3),
        with_cpu("b", 0.5, 3),
        ineligible("c", "offline"),
        with_cpu("d", 0.1, 1),
    ];
    for measure in [Measure::Share, Measure::Cores] {
        assert_ranking_ignores_order(&candidates, |candidates| Ok(rank(measure, candidates)));
    }
}
