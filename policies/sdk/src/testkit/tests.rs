//! The assertions must fail on what kproxide would refuse.

use std::panic::catch_unwind;

use super::*;
use crate::{Placement, Rejection};

fn ranking(placements: &[(u32, f64)]) -> Ranking {
    let placements = placements
        .iter()
        .map(|&(index, score)| Placement {
            index,
            score,
            reason: "because".to_owned(),
        })
        .collect();
    Ranking {
        placements,
        rejected: Vec::new(),
        state: None,
    }
}

fn is_valid(ranking: Ranking) -> bool {
    let candidates = [candidate("a"), candidate("b"), ineligible("c", "offline")];
    catch_unwind(|| assert_valid_ranking(&ranking, &candidates)).is_ok()
}

#[test]
fn a_good_answer_is_valid() {
    assert!(is_valid(ranking(&[])));
    assert!(is_valid(ranking(&[(0, 0.0), (1, 1.0)])));
    let rejected = vec![Rejection {
        index: 2,
        reason: "offline".to_owned(),
    }];
    assert!(is_valid(Ranking {
        rejected,
        ..ranking(&[(1, 0.5)])
    }));
}

#[test]
fn what_a_policy_rejects_is_not_tried_and_keeps_its_reason() {
    let candidates = [candidate("a"), candidate("b"), ineligible("c", "offline")];
    let ranking = Ranking::by(&candidates, |candidate| {
        match &*candidate.hypervisor.id.name {
            "a" => Err("too old".to_owned()),
            _ => Ok((0.5, "fine".to_owned())),
        }
    });
    assert_valid_ranking(&ranking, &candidates);
    assert_eq!(tried_in_order(&ranking, &candidates), ["b"]);
    let rejected = ranking.rejected.iter();
    let rejected: Vec<_> = rejected.map(|it| (it.index, &*it.reason)).collect();
    assert_eq!(rejected, [(0, "too old"), (2, "offline")]);
}

#[test]
fn bad_indices_and_scores_are_not() {
    for bad in [(3, 0.5), (2, 0.5), (0, 1.1), (0, -0.1), (0, f64::NAN)] {
        assert!(!is_valid(ranking(&[bad])), "{bad:?}");
    }
    assert!(!is_valid(ranking(&[(0, 0.5), (0, 0.5)])));
}

#[test]
fn the_order_is_score_then_name() {
    let candidates = [candidate("c"), candidate("b"), candidate("a")];
    assert_eq!(
        tried_in_order(&ranking(&[(0, 0.5), (1, 0.9), (2, 0.5)]), &candidates),
        ["b", "a", "c"]
    );
}

#[test]
fn an_answer_that_follows_the_order_given_is_found_out() {
    let candidates = [candidate("a"), candidate("b")];
    let first_wins = |_: &[Candidate]| Ok(ranking(&[(0, 1.0)]));
    assert!(catch_unwind(|| assert_ranking_ignores_order(&candidates, first_wins)).is_err());
    let equal = |candidates: &[Candidate]| {
        Ok(Ranking::by_score(candidates, |_| {
            (0.5, "all the same".to_owned())
        }))
    };
    assert_ranking_ignores_order(&candidates, equal);
}

#[test]
fn more_than_five_are_rotated_and_turned() {
    let candidates: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(candidate).into();
    let last_wins = |candidates: &[Candidate]| Ok(ranking(&[(candidates.len() as u32 - 1, 1.0)]));
    assert!(catch_unwind(|| assert_ranking_ignores_order(&candidates, last_wins)).is_err());
}
