//! `pack`: fill one hypervisor before the next, so that as few as possible need to be awake.

use kproxide_policy_sdk::{
    About, Candidate, Context, HostSelection, NoSettings, Policy, PolicyError, Ranking, Request,
    percent,
};

/// The opposite of `spread`. Candidates that are eligible have room for the machine; the fullest of them wins.
pub struct Pack;

impl Policy for Pack {
    const ABOUT: About = About {
        name: "pack",
        version: env!("CARGO_PKG_VERSION"),
        description: "the hypervisor with the least available share of memory that still fits the machine",
        settings_schema: NoSettings::SCHEMA,
    };
    type Settings = NoSettings;
}

impl HostSelection for Pack {
    fn rank(
        _: &Context,
        _: &NoSettings,
        _: &Request,
        candidates: &[Candidate],
    ) -> Result<Ranking, PolicyError> {
        Ok(Ranking::by_score(candidates, score))
    }
}

fn score(candidate: &Candidate) -> (f64, String) {
    let share = candidate.memory_share();
    (
        1.0 - share,
        format!("fits, {} % of its memory is available", percent(share)),
    )
}

kproxide_policy_sdk::export_host_selection!(Pack);

#[cfg(test)]
mod tests {
    use kproxide_policy_sdk::testkit::{
        assert_ranking_ignores_order, assert_valid_ranking, candidate_with, ineligible, resources,
        tried_in_order,
    };

    use super::*;

    fn rank(candidates: &[Candidate]) -> Ranking {
        Ranking::by_score(candidates, score)
    }

    #[test]
    fn the_fullest_comes_first() {
        let candidates = [
            candidate_with("a", 16),
            candidate_with("b", 48),
            candidate_with("c", 0),
        ];
        let ranking = rank(&candidates);
        assert_eq!(tried_in_order(&ranking, &candidates), ["b", "a", "c"]);
        assert_eq!(
            (
                ranking.placements[1].score,
                ranking.placements[1].reason.as_str()
            ),
            (0.75, "fits, 25 % of its memory is available")
        );
    }

    #[test]
    fn equals_go_by_name() {
        let candidates = [candidate_with("b", 16), candidate_with("a", 16)];
        assert_eq!(tried_in_order(&rank(&candidates), &candidates), ["a", "b"]);
    }

    #[test]
    fn what_does_not_fit_is_not_ranked_however_full_it_is() {
        let full = Candidate {
            ineligible: Some("no room".to_owned()),
            ..candidate_with("a", 64)
        };
        let candidates = [full, candidate_with("b", 0), ineligible("c", "offline")];
        let ranking = rank(&candidates);
        assert_valid_ranking(&ranking, &candidates);
        assert_eq!(tried_in_order(&ranking, &candidates), ["b"]);
    }

    #[test]
    fn a_hypervisor_without_capacity_stays_within_the_scores() {
        let candidates = [Candidate {
            available: resources(0, 0),
            ..candidate_with("a", 0)
        }];
        assert_valid_ranking(&rank(&candidates), &candidates);
    }

    #[test]
    fn the_order_given_does_not_matter() {
        let candidates = [
            candidate_with("a", 3),
            candidate_with("b", 3),
            ineligible("c", "offline"),
            candidate_with("d", 9),
        ];
        assert_ranking_ignores_order(&candidates, |candidates| Ok(rank(candidates)));
    }
}
