use kproxide_policy_sdk::testkit::{
    assert_ranking_ignores_order, assert_valid_ranking, candidate, ineligible, tried_in_order,
};

use super::*;

fn id(name: &str) -> HypervisorId {
    candidate(name).hypervisor.id
}

fn in_cluster(cluster: &str, name: &str) -> Candidate {
    let mut candidate = candidate(name);
    candidate.hypervisor.id.cluster = cluster.to_owned();
    candidate
}

/// The names that `turns` placements in a row go to.
fn turns(
    turns: usize,
    mut previous: Option<HypervisorId>,
    candidates: &[Candidate],
) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..turns {
        let name = tried_in_order(&rank(previous.as_ref(), candidates), candidates)[0].to_owned();
        previous = Some(id(&name));
        names.push(name);
    }
    names
}

#[test]
fn each_has_its_turn_and_then_the_first_again() {
    let candidates = [candidate("c"), candidate("a"), candidate("b")];
    assert_eq!(
        turns(7, None, &candidates),
        ["a", "b", "c", "a", "b", "c", "a"]
    );
}

#[test]
fn the_rotation_goes_on_after_a_restart() {
    let candidates = [candidate("a"), candidate("b"), candidate("c")];
    assert_eq!(turns(3, Some(id("b")), &candidates), ["c", "a", "b"]);
}

#[test]
fn one_that_went_away_or_became_ineligible_is_passed_over() {
    let candidates = [
        candidate("a"),
        ineligible("b", "maintenance"),
        candidate("d"),
    ];
    assert_eq!(turns(4, Some(id("a")), &candidates), ["d", "a", "d", "a"]);
    assert_eq!(turns(1, Some(id("c")), &candidates), ["d"]);
    assert_eq!(turns(1, Some(id("z")), &candidates), ["a"]);
}

#[test]
fn the_score_falls_with_the_distance() {
    let candidates = [
        candidate("a"),
        candidate("b"),
        candidate("c"),
        candidate("d"),
    ];
    let ranking = rank(Some(&id("b")), &candidates);
    let said: Vec<_> = ranking
        .placements
        .iter()
        .map(|p| (p.score, p.reason.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            (0.5, "its turn comes 2 later"),
            (0.25, "its turn comes 3 later"),
            (1.0, "next in turn after b"),
            (0.75, "its turn comes 1 later"),
        ]
    );
    assert_eq!(tried_in_order(&ranking, &candidates), ["c", "d", "a", "b"]);
}

#[test]
fn the_cluster_comes_before_the_name() {
    let candidates = [
        in_cluster("x", "b"),
        in_cluster("y", "a"),
        in_cluster("x", "c"),
    ];
    let previous = HypervisorId {
        cluster: "x".to_owned(),
        name: "c".to_owned(),
    };
    let ranking = rank(Some(&previous), &candidates);
    assert_eq!(tried_in_order(&ranking, &candidates), ["a", "b", "c"]);
}

#[test]
fn none_or_only_ineligible_ones_get_an_empty_ranking() {
    assert_eq!(rank(None, &[]).placements, []);
    let candidates = [ineligible("a", "offline")];
    let ranking = rank(Some(&id("a")), &candidates);
    assert_valid_ranking(&ranking, &candidates);
    assert_eq!((ranking.placements.len(), ranking.rejected.len()), (0, 1));
}

#[test]
fn the_order_given_does_not_matter() {
    let candidates = [
        candidate("a"),
        candidate("b"),
        ineligible("c", "offline"),
        candidate("d"),
    ];
    for previous in [None, Some(id("b")), Some(id("c"))] {
        assert_ranking_ignores_order(&candidates, |candidates| {
            Ok(rank(previous.as_ref(), candidates))
        });
    }
}
