//! What goes wrong in one seed: which faults happen how often, where each process dies, who loses the Lease. Plain data, drawn before the run, so
//! that a plan can be shortened and replayed.

use std::time::Duration;

use kproxide_simulator::faults::{Moment, Rates};
use kproxide_simulator::rng::Seed;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::scenario::Scenario;

pub(crate) struct FaultPlan {
    /// Chance faults happen from the beginning until then; so do crashes.
    pub(crate) until: Duration,
    /// One for each replica that runs.
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) splits: Vec<Split>,
}

#[derive(Default)]
pub(crate) struct HostPlan {
    pub(crate) rates: Rates,
    /// Requests of which the first takes effect and loses its answer: too rare for chance to find them in every class of worlds.
    pub(crate) lost: Vec<&'static str>,
    /// The processes of this replica that die, one after the other. The next one lives.
    pub(crate) lives: Vec<Life>,
}

/// A process that dies at one of its effects.
#[derive(Clone, Copy)]
pub(crate) struct Life {
    /// Counts from 1 what this process asks to be changed; reads, Lease and Events are not counted: a crash there is one between effects.
    pub(crate) effect: u64,
    pub(crate) moment: Moment,
    /// Until the next process starts.
    pub(crate) down: Duration,
}

/// The leader is cut off and goes on, as long as it believes that it leads.
#[derive(Clone, Copy)]
pub(crate) struct Split {
    pub(crate) at: Duration,
    pub(crate) length: Duration,
    pub(crate) from: CutOff,
    /// Somebody takes the Lease away in the same moment, so that the other replica leads at once and both act.
    pub(crate) lease_moves: bool,
}

/// What the old leader does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CutOff {
    /// The Lease alone: it goes on in every other way.
    Lease,
    /// The whole API server, except for watches that are open.
    Kubernetes,
    Proxmox,
}

impl FaultPlan {
    /// One host, and nothing goes wrong.
    pub(crate) fn none() -> Self {
        Self {
            until: Duration::ZERO,
            hosts: vec![HostPlan::default()],
            splits: Vec::new(),
        }
    }

    pub(crate) fn of(scenario: &Scenario) -> Self {
        let mut rng = Seed(scenario.seed).stream("simulation", "plan");
        // A swarm: every seed has some classes of faults often and others not at all.
        let until = scenario.end() + Duration::from_secs(rng.random_range(0..=300));
        let replicas = if rng.random_bool(0.7) { 2 } else { 1 };
        let rates = rates(&mut rng);
        let mut losses = Seed(scenario.seed).stream("simulation", "losses");
        let hosts = (0..replicas)
            .map(|_| HostPlan {
                rates,
                lost: lost(&mut losses),
                lives: lives(&mut rng),
            })
            .collect();
        let mut splits = Vec::new();
        if replicas > 1 {
            let mut at = Duration::from_secs(rng.random_range(60..=240));
            while at < until && splits.len() < 4 {
                let length = Duration::from_secs(rng.random_range(8..=60));
                let from = [
                    CutOff::Lease,
                    CutOff::Lease,
                    CutOff::Kubernetes,
                    CutOff::Proxmox,
                ][rng.random_range(0..4)];
                splits.push(Split {
                    at,
                    length,
                    from,
                    lease_moves: rng.random_bool(0.6),
                });
                at += length + Duration::from_secs(rng.random_range(30..=400));
            }
        }
        Self {
            until,
            hosts,
            splits,
        }
    }
}

fn rates(rng: &mut SmallRng) -> Rates {
    let mut rate = |most: f64| {
        if rng.random_bool(0.5) {
            rng.random_range(0.0..most)
        } else {
            0.0
        }
    };
    Rates {
        delay: rate(0.1),
        refuse: rate(0.03),
        fail: rate(0.03),
        lose_answer: rate(0.05),
        hang: rate(0.01),
    }
}

fn lost(rng: &mut SmallRng) -> Vec<&'static str> {
    let mut lost = vec!["clone", "start", "evict", "destroy"];
    lost.retain(|_| rng.random_bool(0.3));
    lost
}

fn lives(rng: &mut SmallRng) -> Vec<Life> {
    let count = rng.random_range(1..=6);
    let lives = (0..count).map(|_| Life {
        // A machine's whole life is about fifty effects: most processes get into one, few to its end.
        effect: rng.random_range(1..=60),
        moment: [Moment::Before, Moment::Applied, Moment::Answered][rng.random_range(0..3)],
        down: Duration::from_secs(if rng.random_bool(0.8) {
            rng.random_range(1..=15)
        } else {
            rng.random_range(30..=180)
        }),
    });
    lives.collect()
}
