//! `max-memory`: the hypervisor with most available memory.

use kproxide_policy_sdk::{
    About, Candidate, Context, HostSelection, NoSettings, Policy, PolicyError, Ranking, Request,
};

/// Memory is what runs out first in most clusters.
pub struct MaxMemory;

impl Policy for MaxMemory {
    const ABOUT: About = About {
        name: "max-memory",
        version: env!("CARGO_PKG_VERSION"),
        description: "the hypervisor with most available memory, in bytes",
        settings_schema: NoSettings::SCHEMA,
    };
    type Settings = NoSettings;
}

impl HostSelection for MaxMemory {
    fn rank(
        _: &Context,
        _: &NoSettings,
        _: &Request,
        candidates: &[Candidate],
    ) -> Result<Ranking, PolicyError> {
        Ok(rank(candidates))
    }
}

/// Scores are relative to the eligible candidate with most available memory.
fn rank(candidates: &[Candidate]) -> Ranking {
    let available = |candidate: &Candidate| candidate.available.memory_bytes;
    let most = candidates
        .iter()
        .filter(|c| c.is_eligible())
        .map(available)
        .max()
        .unwrap_or(0);
    Ranking::by_score(candidates, |candidate| {
        let memory = available(candidate);
        let score = if most == 0 {
            0.0
        } else {
            memory as f64 / most as f64
        };
        (score, reason(memory))
    })
}

fn reason(memory: u64) -> String {
    let tenths_of_gib = (u128::from(memory) * 10) >> 30;
    format!(
        "{}.{} GiB of memory are available",
        tenths_of_gib / 10,
        tenths_of_gib % 10
    )
}

kproxide_policy_sdk::export_host_selection!(MaxMemory);

#[cfg(test)]
mod tests {
    use kproxide_policy_sdk::testkit::{
        assert_ranking_ignores_order, assert_valid_ranking, candidate, ineligible, resources,
        tried_in_order,
    };

    use super::*;

    fn with_available(name: &str, gib: u64) -> Candidate {
        Candidate {
            available: resources(64, gib),
            ..candidate(name)
        }
    }

    #[test]
    fn bytes_count_and_not_the_share() {
        let full = Candidate {
            committed: resources(0, 900),
            ..with_available("a", 100)
        };
        let candidates = [full, with_available("b", 60)];
        assert_eq!(tried_in_order(&rank(&candidates), &candidates), ["a", "b"]);
    }

    #[test]
    fn scores_are_relative_to_the_largest() {
        let ranking = rank(&[with_available("a", 10), with_available("b", 40)]);
        let said: Vec<_> = ranking
            .placements
            .iter()
            .map(|p| (p.score, p.reason.as_str()))
            .collect();
        assert_eq!(
            said,
            [
                (0.25, "10.0 GiB of memory are available"),
                (1.0, "40.0 GiB of memory are available")
            ]
        );
    }

    #[test]
    fn an_ineligible_hypervisor_does_not_set_the_scale() {
        let idle = Candidate {
            available: resources(64, 800),
            ..ineligible("a", "offline")
        };
        let candidates = [idle, with_available("b", 40)];
        let ranking = rank(&candidates);
        assert_valid_ranking(&ranking, &candidates);
        assert_eq!(ranking.placements.len(), 1);
        assert_eq!(ranking.placements[0].score, 1.0);
        assert_eq!(ranking.rejected[0].reason, "offline");
    }

    #[test]
    fn nothing_available_anywhere_is_no_division_by_zero() {
        let candidates = [with_available("b", 0), with_available("a", 0)];
        let ranking = rank(&candidates);
        assert_valid_ranking(&ranking, &candidates);
        assert_eq!(tried_in_order(&ranking, &candidates), ["a", "b"]);
    }

    #[test]
    fn the_order_given_does_not_matter() {
        let candidates = [
            with_available("a", 3),
            with_available("b", 3),
            ineligible("c", "offline"),
            with_available("d", 7),
        ];
        assert_ranking_ignores_order(&candidates, |candidates| Ok(rank(candidates)));
    }
}
