//! `spread`: hypervisors without a machine first, then those with most left of what they have least of. The default.

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
        description: "hypervisors without a machine first, the others by the share of memory or CPU that can still be given, whichever is less",
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

/// Both groups are ordered by what can still be given; the upper half of the scores is for the empty ones.
fn score(candidate: &Candidate) -> (f64, String) {
    let (memory, cpu) = (candidate.memory_share(), candidate.unpromised_cpu_share());
    let share = memory.min(cpu);
    let left = if memory <= cpu {
        format!("{} % of its memory is available", percent(memory))
    } else {
        format!("{} % of its CPU is not promised yet", percent(cpu))
    };
    match candidate.machines {
        0 => (0.5 + share / 2.0, format!("no machine yet, {left}")),
        1 => (share / 2.0, format!("1 machine already, {left}")),
        machines => (share / 2.0, format!("{machines} machines already, {left}")),
    }
}

kproxide_policy_sdk::export_host_selection!(Spread);

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
    fn r30_servers_of_4_and_of_64_threads_get_machines_by_what_they_have_left() {
        // Machines of 2 cores and 4 GiB on servers of 64 GiB whose threads count four times.
        let loaded = |name, machines: u64, threads: u64| Candidate {
            committed: resources(2 * machines, 4 * machines),
            available: resources(threads * 4 - 2 * machines, 64 - 4 * machines),
            machines: machines as u32,
            ..candidate_with(name, 0)
        };
        let (mut small, mut big) = (0, 0);
        for _ in 0..12 {
            let candidates = [loaded("big", big, 64), loaded("small", small, 4)];
            match tried_in_order(&rank(&candidates), &candidates)[0] {
                "big" => big += 1,
                _ => small += 1,
            }
        }
        assert_eq!((small, big), (4, 8));
        let said = rank(&[loaded("small", 4, 4), loaded("big", 8, 64)]);
        assert_eq!(
            [&*said.placements[0].reason, &*said.placements[1].reason],
            [
                "4 machines already, 50 % of its CPU is not promised yet",
                "8 machines already, 50 % of its memory is available"
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
