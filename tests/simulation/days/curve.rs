//! The world of many days: three pools whose pods follow the hour, each with a peak, a rhythm and a noise of its own, and what goes wrong in a home or a small
//! office within a day: a handful of things, not a storm.

use std::time::Duration;

use kproxide_simulator::faults::{Moment, Rates};
use kproxide_simulator::rng::Seed;
use rand::Rng;
use rand::rngs::SmallRng;

use super::DAY;
use crate::mishaps::{Event, Mishap};
use crate::plan::{CutOff, FaultPlan, HostPlan, Life, QUIET, Split};
use crate::scenario::{
    Act, App, CORES, Flags, MEMORY_GIB, Onto, Pool, Rules, Scenario, Step, foreign,
};

/// Share of its peak that a pool's load has at each full hour; in between it is interpolated.
const LEVELS: [f64; 24] = [
    0.15, 0.12, 0.10, 0.10, 0.12, 0.20, 0.35, 0.55, 0.75, 0.90, 1.00, 0.95, 0.80, 0.90, 0.95, 0.90,
    0.85, 0.80, 0.85, 0.90, 0.80, 0.60, 0.40, 0.25,
];
/// Of a Saturday or Sunday.
const WEEKEND: f64 = 0.5;
/// Up to so much more or less than the curve says, at each step.
const NOISE: f64 = 0.08;
/// The hour at which every simulated world begins.
const FIRST_HOUR: f64 = 8.0;
/// Before the end the load stays as it is, and before that nothing goes wrong any more.
const CALM: Duration = Duration::from_secs(60 * 60);
/// Of VMIDs: shorter than the default of a day, so that a run need not wait for so long until none rests any more.
const QUARANTINE: Duration = Duration::from_secs(6 * 60 * 60);
/// Pods are two at least: the budget of half of them then lets one go.
const FEWEST: u32 = 2;
/// Of one replica's processes, on one day.
const DEATHS: u32 = 2;
const MISHAPS: u32 = 6;

/// The names of pools, and by how many hours they are late: some work at night.
const POOLS: [(&str, f64); 3] = [("workers", 0.0), ("batch", 11.0), ("web", 2.0)];

pub(crate) fn world(seed: u64, days: u32) -> Scenario {
    let mut rng = Seed(seed).stream("simulation", "days");
    let hypervisors = rng.random_range(5..=6);
    let policies = ["spread", "max-memory", "balanced", "pack", "round-robin"];
    let pools: Vec<Pool> = POOLS
        .iter()
        .map(|(name, _)| Pool {
            name,
            max_nodes: rng.random_range(4..=6),
            budget: rng.random_range(1..=3),
            host_selection: policies[rng.random_range(0..policies.len())],
            selected: true,
            rules: Rules::PLAIN,
        })
        .collect();
    // Of one size in each pool, so that how many machines a load needs is a division.
    let apps: Vec<App> = POOLS
        .iter()
        .enumerate()
        .map(|(pool, (name, _))| App {
            name: (*name).to_owned(),
            pool,
            milli_cores: [500, 1000][rng.random_range(0..2)],
            budgeted: true,
            alone: None,
            volume: false,
        })
        .collect();
    let steps = steps(&pools, &apps, DAY * days - CALM, &mut rng);
    let foreign = foreign(hypervisors, &mut rng);
    Scenario {
        seed,
        hypervisors,
        memory_gib: MEMORY_GIB,
        roomy: true,
        pools,
        apps,
        steps,
        foreign,
        flags: Flags::default(),
        quarantine: Some(QUARANTINE),
        slow_clones: None,
        encore: Vec::new(),
        per_hypervisor: None,
        clones: [2, 2],
    }
}

/// How many pods of an app a machine carries.
pub(crate) fn on_a_machine(app: &App) -> u32 {
    CORES * 1000 / app.milli_cores
}

fn steps(pools: &[Pool], apps: &[App], end: Duration, rng: &mut SmallRng) -> Vec<Step> {
    // When which app has how many pods.
    let mut wanted = Vec::new();
    let weekday = rng.random_range(0..7);
    for (index, app) in apps.iter().enumerate() {
        let most = pools[app.pool].max_nodes * on_a_machine(app);
        let peak = f64::from(most) * rng.random_range(0.6..0.95);
        let minutes = [30, 40, 60][rng.random_range(0..3)];
        let mut at = Duration::from_secs(rng.random_range(20..minutes * 60));
        while at < end {
            let noise = 1.0 + rng.random_range(-NOISE..NOISE);
            let share = level(at, POOLS[index].1, weekday) * noise;
            let pods = ((peak * share).round() as u32).clamp(FEWEST, most);
            wanted.push((at, index, pods));
            // Now and then more for a few minutes.
            if rng.random_bool(0.01) {
                let more = rng.random_range(1..=2) * on_a_machine(app);
                let begins = at + Duration::from_secs(rng.random_range(300..600));
                let ends = begins + Duration::from_secs(rng.random_range(180..600));
                if ends < end {
                    wanted.push((begins, index, (pods + more).min(most)));
                    wanted.push((ends, index, pods));
                }
            }
            at += Duration::from_secs(minutes * 60);
        }
    }
    wanted.sort_by_key(|(at, index, _)| (*at, *index));
    let mut load = vec![FEWEST; apps.len()];
    let mut steps = vec![Step {
        at: Duration::from_secs(10),
        act: Act::Load(load.clone()),
    }];
    for (at, index, pods) in wanted {
        if load[index] == pods {
            continue;
        }
        load[index] = pods;
        steps.push(Step {
            at,
            act: Act::Load(load.clone()),
        });
        // Every other day or so, somebody copies a machine.
        if rng.random_bool(0.005) {
            steps.push(Step {
                at,
                act: Act::Copy(Onto::Promised),
            });
        }
    }
    steps.push(Step {
        at: end,
        act: Act::Load(load),
    });
    steps
}

/// The share of its peak that a pool's load has at some time after the beginning, which is on such a day of the week; 0 is Monday.
fn level(at: Duration, late: f64, weekday: u64) -> f64 {
    let hours = at.as_secs_f64() / 3600.0 + FIRST_HOUR + 24.0 - late;
    let (hour, between) = (hours as usize, hours.fract());
    let (one, next) = (LEVELS[hour % 24], LEVELS[(hour + 1) % 24]);
    // The first day is the second of these: who is late is still in the one before.
    let day = (weekday + 6 + hour as u64 / 24) % 7;
    let share = if day < 5 { 1.0 } else { WEEKEND };
    (one + (next - one) * between) * share
}

pub(crate) fn faults(scenario: &Scenario) -> FaultPlan {
    let mut rng = Seed(scenario.seed).stream("simulation", "faults of days");
    let until = scenario.end().saturating_sub(CALM);
    let days = (scenario.end() + CALM).as_secs() as u32 / DAY.as_secs() as u32;
    let rates = Rates {
        delay: 0.002,
        refuse: 0.0003,
        fail: 0.0003,
        lose_answer: 0.0003,
        hang: 0.0001,
    };
    let hosts = (0..2).map(|_| HostPlan {
        rates,
        lives: (0..days * DEATHS).map(|_| life(&mut rng)).collect(),
        ..HostPlan::default()
    });
    let hosts = hosts.collect();
    let times = |of_a_day: u32, rng: &mut SmallRng| {
        let mut times: Vec<Duration> = (0..days * of_a_day)
            .map(|_| Duration::from_secs(rng.random_range(60..until.as_secs())))
            .collect();
        times.sort_unstable();
        times
    };
    let splits = times(1, &mut rng).into_iter().map(|at| Split {
        at,
        length: Duration::from_secs(rng.random_range(8..=60)),
        from: [CutOff::Lease, CutOff::Kubernetes, CutOff::Proxmox][rng.random_range(0..3)],
        lease_moves: rng.random_bool(0.6),
    });
    let splits = splits.collect();
    let mishaps = times(MISHAPS, &mut rng).into_iter().map(|at| Event {
        mishap: Mishap::ALL[rng.random_range(0..Mishap::ALL.len())],
        at,
        length: Duration::from_secs(rng.random_range(20..=1200)).min(until - at),
        which: rng.random_range(0..1000),
    });
    FaultPlan {
        dies_when_other_is_blind: false,
        until,
        hosts,
        splits,
        quiet: QUIET,
        mishaps: mishaps.collect(),
    }
}

fn life(rng: &mut SmallRng) -> Life {
    Life {
        effect: rng.random_range(50..=400),
        moment: [Moment::Before, Moment::Applied, Moment::Answered][rng.random_range(0..3)],
        down: Duration::from_secs(rng.random_range(1..=180)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_follows_the_hour_and_the_week() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        // The world begins at eight.
        assert_eq!(level(hours(2), 0.0, 0), 1.0);
        assert_eq!(level(hours(18), 0.0, 0), 0.1);
        // Who is late by eleven hours is where the others were then.
        assert_eq!(level(hours(13), 11.0, 0), 1.0);
        // On the fifth day after a Monday it is Saturday.
        assert_eq!(level(hours(2 + 5 * 24), 0.0, 0), WEEKEND);
        assert_eq!(level(hours(2 + 7 * 24), 0.0, 0), 1.0);
    }

    #[test]
    fn no_pool_is_asked_for_more_than_it_may_have() {
        for seed in 1..20 {
            let world = world(seed, 7);
            for step in &world.steps {
                let Act::Load(load) = &step.act else { continue };
                for (app, pods) in world.apps.iter().zip(load) {
                    assert!(pods.div_ceil(on_a_machine(app)) <= world.pools[app.pool].max_nodes);
                }
            }
            assert!(world.end() == DAY * 7 - CALM, "seed {seed}");
            assert!(world.steps.is_sorted_by_key(|step| step.at), "seed {seed}");
        }
    }
}
