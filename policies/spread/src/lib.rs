//! `spread`: hypervisors without a machine first, then those with most memory. The default.

use kproxide_policy_sdk::{
    About, Candidate, Context, HostSelection, NoSettings, Policy, PolicyError, Ranking, Request,
    percent,
};

/// Losing one hypervisor shall cost as few machines as possible.
pub struct Spread;

impl Policy for Spread {
    const ABOUT: About = About {
        name: "spread",
        version: env!("CARGO_PKG_VERSION"),
        description: "hypervisors without a machine first, the others by the share of their memory that is available",
        settings_schema: NoSettings::SCHEMA,
    };
    type Settings = NoSettings;
}

impl HostSelection for Spread {
    fn rank(
        _: &Context,
        _: &NoSettings,
        _: &Request,
        candidates: &[Candidate],
    ) -> Result<Ranking, PolicyError> {
        Ok(Ranking::by_score(candidates, score))
    }
}

/// Both groups are ordered by memory share; the upper half of the scores is for the empty ones.
fn score(candidate: &Candidate) -> (f64, String) {
    let share = candidate.memory_share();
    let memory = format!("{} % of its memory is available", percent(share));
    match candidate.machines {
        0 => (0.5 + share / 2.0, format!("no machine yet, {memory}")),
        1 => (share / 2.0, format!("1 machine already, {memory}")),
        machines => (
            share / 2.0,
            format!("{machines} machines already, {memory}"),
        ),
    }
}

kproxide_policy_sdk::export_host_selection!(Spread);

#[cfg(test)]
mod tests {
    use kproxide_policy_sdk::testkit::{
        assert_ranking_ignores_order, assert_valid_ranking, candidate_with, ineligible,
        tried_in_order,
    };

    use super::*;

    fn rank(candidates: &[Candidate]) -> Ranking {
        Ranking::by_score(candidates, score)
    }

    fn with_machines(name: &str, committed_gib: u64, machines: u32) -> Candidate {
        Candidate {
            machines,
            ..candidate_with(name, committed_gib)
        }
    }

    #[test]
    fn a_fuller_hypervisor_without_a_machine_beats_an_emptier_one_with_a_machine() {
        let candidates = [
            with_machines("a", 0, 1),
            with_machines("b", 60, 0),
            with_machines("c", 16, 0),
        ];
        assert_eq!(
            tried_in_order(&rank(&candidates), &candidates),
            ["c", "b", "a"]
        );
    }

    #[test]
    fn the_number_of_machines_beyond_the_first_does_not_matter() {
        let candidates = [with_machines("a", 32, 1), with_machines("b", 16, 7)];
        assert_eq!(tried_in_order(&rank(&candidates), &candidates), ["b", "a"]);
    }

    #[test]
    fn scores_and_reasons_are_as_defined() {
        let ranking = rank(&[
            with_machines("a", 32, 0),
            with_machines("b", 32, 1),
            with_machines("c", 64, 3),
        ]);
        let said: Vec<_> = ranking
            .placements
            .iter()
            .map(|p| (p.score, p.reason.as_str()))
            .collect();
        assert_eq!(
            said,
            [
                (0.75, "no machine yet, 50 % of its memory is available"),
                (0.25, "1 machine already, 50 % of its memory is available"),
                (0.0, "3 machines already, 0 % of its memory is available"),
            ]
        );
    }

    #[test]
    fn equals_go_by_name() {
        let candidates = [with_machines("b", 8, 0), with_machines("a", 8, 0)];
        assert_eq!(tried_in_order(&rank(&candidates), &candidates), ["a", "b"]);
    }

    #[test]
    fn an_offline_hypervisor_is_rejected_with_the_reason_given() {
        let candidates = [ineligible("a", "offline"), with_machines("b", 60, 5)];
        let ranking = rank(&candidates);
        assert_valid_ranking(&ranking, &candidates);
        assert_eq!(tried_in_order(&ranking, &candidates), ["b"]);
        assert_eq!(ranking.rejected[0].reason, "offline");
    }

    #[test]
    fn the_order_given_does_not_matter() {
        let candidates = [
            with_machines("a", 8, 0),
            with_machines("b", 8, 1),
            ineligible("c", "offline"),
            with_machines("d", 9, 1),
        ];
        assert_ranking_ignores_order(&candidates, |candidates| Ok(rank(candidates)));
    }
}
