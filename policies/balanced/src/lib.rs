//! `balanced`: CPU and memory count alike.

use kproxide_policy_sdk::{
    About, Candidate, Context, HostSelection, NoSettings, Policy, PolicyError, Ranking, Request,
    Resources, percent,
};

/// Neither a busy CPU nor a full memory shall be overlooked.
pub struct Balanced;

impl Policy for Balanced {
    const ABOUT: About = About {
        name: "balanced",
        version: env!("CARGO_PKG_VERSION"),
        description: "the mean of the share of the CPU that is idle, weighed by the cores promised per thread, and the share of the memory that is available",
        settings_schema: NoSettings::SCHEMA,
    };
    type Settings = NoSettings;
}

impl HostSelection for Balanced {
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

fn score(machine: &Resources, candidate: &Candidate) -> (f64, String) {
    let memory = candidate.memory_share();
    // What is idle may be promised already, and what is not promised may be busy.
    let idle = candidate.cpu_share();
    let cpu = idle * candidate.unpromised_cpu_share(machine);
    let reason = format!(
        "{} % of its CPU is idle, {} % of its threads are promised, {} % of its memory is available",
        percent(idle),
        percent(candidate.promised_per_thread(machine)),
        percent(memory)
    );
    (f64::midpoint(cpu, memory), reason)
}

kproxide_policy_sdk::export_host_selection!(Balanced);

#[cfg(test)]
mod tests {
    use kproxide_policy_sdk::testkit::{
        assert_ranking_ignores_order, assert_valid_ranking, candidate_with, ineligible, resources,
        tried_in_order,
    };

    use super::*;

    /// For a machine of 16 cores, on servers of 16 threads: of the CPU half is left to a promise more.
    fn rank(candidates: &[Candidate]) -> Ranking {
        super::rank(&resources(16, 8), candidates)
    }

    fn loaded(name: &str, cpu_usage: f64, committed_gib: u64) -> Candidate {
        Candidate {
            cpu_usage,
            ..candidate_with(name, committed_gib)
        }
    }

    #[test]
    fn the_mean_decides() {
        // Means: 0.25, 0.5, 0.53125.
        let candidates = [
            loaded("a", 0.0, 64),
            loaded("b", 0.5, 16),
            loaded("c", 0.875, 0),
        ];
        let ranking = rank(&candidates);
        assert_eq!(tried_in_order(&ranking, &candidates), ["c", "b", "a"]);
        assert_eq!(ranking.placements[1].score, 0.5);
        assert_eq!(
            ranking.placements[1].reason,
            "50 % of its CPU is idle, 100 % of its threads are promised, 75 % of its memory is available"
        );
    }

    #[test]
    fn r30_an_idle_cpu_that_is_promised_to_machines_is_not_free() {
        // 8 cores are promised on each.
        let [few, many] = [("few", 8), ("many", 64)].map(|(name, threads)| {
            let mut it = Candidate {
                committed: resources(8, 0),
                ..loaded(name, 0.0, 0)
            };
            it.hypervisor.capacity = resources(threads, 64);
            it
        });
        let busy = Candidate {
            cpu_usage: 0.75,
            ..many.clone()
        };
        let candidates = [few, busy, many];
        let ranking = rank(&candidates);
        assert_eq!(
            tried_in_order(&ranking, &candidates),
            ["many", "few", "many"]
        );
        assert_eq!(
            ranking.placements[0].reason,
            "100 % of its CPU is idle, 300 % of its threads are promised, 100 % of its memory is available"
        );
    }

    #[test]
    fn equals_go_by_name() {
        let candidates = [loaded("b", 0.5, 16), loaded("a", 0.5, 16)];
        assert_eq!(tried_in_order(&rank(&candidates), &candidates), ["a", "b"]);
    }

    #[test]
    fn a_hypervisor_that_reports_nothing_comes_last() {
        let nothing = resources(0, 0);
        let silent = Candidate {
            cpu_usage: f64::NAN,
            available: nothing,
            ..candidate_with("a", 0)
        };
        let candidates = [silent, loaded("b", 0.99, 63), ineligible("c", "offline")];
        let ranking = rank(&candidates);
        assert_valid_ranking(&ranking, &candidates);
        assert_eq!(tried_in_order(&ranking, &candidates), ["b", "a"]);
        assert_eq!(ranking.rejected[0].reason, "offline");
    }

    #[test]
    fn the_order_given_does_not_matter() {
        let candidates = [
            loaded("a", 0.3, 3),
            loaded("b", 0.3, 3),
            ineligible("c", "offline"),
            loaded("d", 0.9, 1),
        ];
        assert_ranking_ignores_order(&candidates, |candidates| Ok(rank(candidates)));
    }
}
