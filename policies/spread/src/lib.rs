//! `spread`: hypervisors without a machine first, then those with most memory left, unless their CPU is promised. The default.

use kproxide_policy_sdk::{
    About, Candidate, Context, HostSelection, NoSettings, Policy, PolicyError, Ranking, Request,
    Resources, percent,
};

/// Losing one hypervisor shall cost as few machines as possible.
pub struct Spread;

impl Policy for Spread {
    const ABOUT: About = About {
        name: "spread",
        version: env!("CARGO_PKG_VERSION"),
        description: "hypervisors without a machine first, the others by the share of memory that can still be given, and of several alike the one with the fewest cores promised per thread",
        settings_schema: NoSettings::SCHEMA,
    };
    type Settings = NoSettings;
}

impl HostSelection for Spread {
    fn rank(
        _: &Context,
        _: &NoSettings,
        request: &Request,
        candidates: &[Candidate],
    ) -> Result<Ranking, PolicyError> {
        Ok(rank(&request.machine.size, candidates))
    }
}

fn rank(machine: &Resources, candidates: &[Candidate]) -> Ranking {
    Ranking::by_score(candidates, |candidate| score(machine, candidate))
}

/// Both groups are ordered by what can still be given; the upper half of the scores is for the empty ones.
///
/// The product keeps the order by memory among servers whose CPU is promised alike, and the order by CPU among servers
/// with as much memory.
fn score(machine: &Resources, candidate: &Candidate) -> (f64, String) {
    let memory = candidate.memory_share();
    let share = memory * candidate.unpromised_cpu_share(machine);
    let left = format!(
        "{} % of its memory is available, {} % of its threads are promised",
        percent(memory),
        percent(candidate.promised_per_thread(machine))
    );
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

    /// For a machine of 4 cores, on servers of 16 threads.
    fn rank(candidates: &[Candidate]) -> Ranking {
        super::rank(&resources(4, 8), candidates)
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
                // 4 of 16 threads are promised: 0.8.
                (
                    0.7,
                    "no machine yet, 50 % of its memory is available, 25 % of its threads are promised"
                ),
                (
                    0.2,
                    "1 machine already, 50 % of its memory is available, 25 % of its threads are promised"
                ),
                (
                    0.0,
                    "3 machines already, 0 % of its memory is available, 25 % of its threads are promised"
                ),
            ]
        );
    }

    /// A server of 64 GiB on which there are so many machines of 2 cores and 4 GiB.
    fn loaded(name: &str, machines: u64, threads: u64) -> Candidate {
        let mut candidate = Candidate {
            committed: resources(2 * machines, 4 * machines),
            available: resources(threads * 4 - 2 * machines, 64 - 4 * machines),
            machines: machines as u32,
            ..candidate_with(name, 0)
        };
        candidate.hypervisor.capacity = resources(threads, 64);
        candidate
    }

    #[test]
    fn r30_of_servers_of_4_and_of_64_threads_the_one_with_fewer_cores_promised_per_thread_gets_the_machines()
     {
        let (mut small, mut big) = (0, 0);
        for _ in 0..8 {
            let candidates = [loaded("big", big, 64), loaded("small", small, 4)];
            let ranking = super::rank(&resources(2, 4), &candidates);
            match tried_in_order(&ranking, &candidates)[0] {
                "big" => big += 1,
                _ => small += 1,
            }
        }
        assert_eq!(
            (small, big),
            (1, 7),
            "one, because it was without a machine"
        );
    }

    #[test]
    fn of_servers_whose_threads_are_promised_alike_the_one_with_more_memory_left_goes_first() {
        let candidates = [loaded("a", 3, 16), loaded("b", 3, 16), loaded("c", 3, 16)];
        let with = |mut candidate: Candidate, gib| {
            candidate.available.memory_bytes = resources(0, gib).memory_bytes;
            candidate
        };
        let [a, b, c] = candidates;
        let candidates = [with(a, 20), with(b, 22), with(c, 21)];
        assert_eq!(
            tried_in_order(&rank(&candidates), &candidates),
            ["b", "c", "a"]
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
