//! `round-robin`: each hypervisor in turn.

use std::collections::BinaryHeap;

use kproxide_policy_sdk::{
    About, Candidate, Context, HostSelection, HypervisorId, NoSettings, Policy, PolicyError,
    Ranking, Request,
};

/// The next after the previous, by cluster and name. The previous one is a fact of the request, so that the rotation
/// needs no state and goes on within a batch, across batches, across restarts and past hypervisors that come and go.
pub struct RoundRobin;

impl Policy for RoundRobin {
    const ABOUT: About = About {
        name: "round-robin",
        version: env!("CARGO_PKG_VERSION"),
        description: "each hypervisor in turn, by cluster and name",
        settings_schema: NoSettings::SCHEMA,
    };
    type Settings = NoSettings;
}

impl HostSelection for RoundRobin {
    fn rank(
        _: &Context,
        _: &NoSettings,
        request: &Request,
        candidates: &[Candidate],
    ) -> Result<Ranking, PolicyError> {
        Ok(rank(request.previous.as_ref(), candidates))
    }
}

/// With n eligible candidates, the one `distance` places behind the next in turn gets (n − distance) / n.
fn rank(previous: Option<&HypervisorId>, candidates: &[Candidate]) -> Ranking {
    // Sorting with a heap makes for a component smaller by 10 KiB.
    let ring: BinaryHeap<_> = candidates
        .iter()
        .filter(|c| c.is_eligible())
        .map(key)
        .collect();
    let ring = ring.into_sorted_vec();
    // The first that comes after the previous; past the last, and without a previous one, the ring starts anew.
    let after_previous = previous.map_or(0, |id| {
        ring.partition_point(|key| *key <= (id.cluster.as_str(), id.name.as_str()))
    });
    let next = if after_previous == ring.len() {
        0
    } else {
        after_previous
    };

    Ranking::by_score(candidates, |candidate| {
        let position = ring.partition_point(|other| *other < key(candidate));
        let distance = (position + ring.len() - next) % ring.len();
        let score = (ring.len() - distance) as f64 / ring.len() as f64;
        let reason = match (distance, previous) {
            (0, None) => "first in turn".to_owned(),
            (0, Some(previous)) => format!("next in turn after {}", previous.name),
            (distance, _) => format!("its turn comes {distance} later"),
        };
        (score, reason)
    })
}

fn key(candidate: &Candidate) -> (&str, &str) {
    (
        &candidate.hypervisor.id.cluster,
        &candidate.hypervisor.id.name,
    )
}

kproxide_policy_sdk::export_host_selection!(RoundRobin);

#[cfg(test)]
mod tests;
