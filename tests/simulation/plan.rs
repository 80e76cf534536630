//! What goes wrong in one seed: which faults happen how often, where each process dies, who loses the Lease. Plain data, drawn before the run, so
//! that a plan can be shortened and replayed.

use std::fmt;
use std::time::Duration;

use kproxide_simulator::faults::{Fault, Moment, Rates};
use kproxide_simulator::rng::Seed;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::mishaps::{self, Event};
use crate::run::PRELUDE;
use crate::scenario::Scenario;
use crate::shown::Blind;

/// See [`FaultPlan::quiet`].
pub(crate) const QUIET: Duration = Duration::from_secs(5 * 60);

#[derive(Clone)]
pub(crate) struct FaultPlan {
    /// Chance faults happen from the beginning until then; so do crashes.
    pub(crate) until: Duration,
    /// One for each replica that runs.
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) splits: Vec<Split>,
    /// The world has been at rest for so long when it counts as settled; a host must not ask for any change in it.
    pub(crate) quiet: Duration,
    pub(crate) mishaps: Vec<Event>,
    /// The first replica dies, as one of its lives says, in the moment from which the second one sees nothing new.
    pub(crate) dies_when_other_is_blind: bool,
}

#[derive(Clone, Default)]
pub(crate) struct HostPlan {
    pub(crate) rates: Rates,
    /// Requests of which the first takes effect and loses its answer: too rare for chance to find them in every class of worlds.
    pub(crate) lost: Vec<&'static str>,
    /// The processes of this replica that die, one after the other. The next one lives.
    pub(crate) lives: Vec<Life>,
    pub(crate) blows: Vec<Blow>,
    /// What its watches do not show it.
    pub(crate) blind: Option<Blind>,
    /// What its watches show it is noted.
    pub(crate) takes_notes: bool,
    /// When its first process starts.
    pub(crate) starts: Duration,
}

/// Something that goes wrong with one effect, and that its process lives through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blow {
    /// Which process of the replica, counted from 1.
    pub(crate) process: u32,
    /// Which of its effects, counted from 1 as in [`Life::effect`].
    pub(crate) effect: u64,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The request has this fault.
    Fault(Fault),
    /// The Lease is taken away in the moment in which the request leaves, and the host does not reach it for a while: it goes on for as long as it
    /// believes that it leads, and the other replica leads at once.
    LoseLease,
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

impl Life {
    /// A process that dies by something else than one of its effects, if at all.
    pub(crate) fn ended_by_something_else(down: Duration) -> Self {
        Self {
            effect: u64::MAX,
            moment: Moment::Before,
            down,
        }
    }
}

impl FaultPlan {
    /// One host, and nothing goes wrong.
    pub(crate) fn none() -> Self {
        Self {
            until: Duration::ZERO,
            hosts: vec![HostPlan::default()],
            splits: Vec::new(),
            quiet: QUIET,
            mishaps: Vec::new(),
            dies_when_other_is_blind: false,
        }
    }

    pub(crate) fn of(scenario: &Scenario) -> Self {
        let mut rng = Seed(scenario.seed).stream("simulation", "plan");
        // A swarm: every seed has some classes of faults often and others not at all.
        let until = scenario.end() + Duration::from_secs(rng.random_range(0..=300));
        let replicas = if rng.random_ratio(2, 5) { 2 } else { 1 };
        let rates = rates(&mut rng);
        let mut losses = Seed(scenario.seed).stream("simulation", "losses");
        let hosts = (0..replicas)
            .map(|_| HostPlan {
                rates,
                lost: lost(&mut losses),
                lives: lives(&mut rng),
                ..HostPlan::default()
            })
            .collect();
        let mut splits = Vec::new();
        if replicas > 1 {
            let mut at = Duration::from_secs(rng.random_range(60..=240));
            while at < until && splits.len() < 4 {
                // From half of what a Lease lasts to four times as long: some lapse, others do not.
                let length = scenario.flags.lease.duration * rng.random_range(8..=60) / 15;
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
                at += length + Duration::from_secs(rng.random_range(30..=2000));
            }
        }
        Self {
            until,
            hosts,
            splits,
            quiet: QUIET,
            mishaps: mishaps::draw(scenario.seed, until, scenario.flags.anchor),
            dies_when_other_is_blind: false,
        }
    }

    /// Plans with something less, each with what it lacks: whole classes of faults first, single ones last.
    pub(crate) fn smaller(&self) -> Vec<(String, Self)> {
        let mut smaller = Vec::new();
        let mut without = |what: String, is_there: bool, drop: &dyn Fn(&mut Self)| {
            if is_there {
                let mut plan = self.clone();
                drop(&mut plan);
                smaller.push((what, plan));
            }
        };
        without("any fault".to_owned(), !self.is_empty(), &|plan| {
            for host in &mut plan.hosts {
                *host = HostPlan::default();
            }
            plan.splits.clear();
            plan.mishaps.clear();
        });
        without(
            "the second replica".to_owned(),
            self.hosts.len() > 1,
            &|plan| {
                plan.hosts.truncate(1);
                plan.splits.clear();
            },
        );
        without("mishaps".to_owned(), self.mishaps.len() > 1, &|plan| {
            plan.mishaps.clear();
        });
        let any = |has: fn(&HostPlan) -> bool| self.hosts.iter().any(has);
        without("splits".to_owned(), self.splits.len() > 1, &|plan| {
            plan.splits.clear();
        });
        without(
            "crashes".to_owned(),
            any(|host| host.lives.len() > 1),
            &|plan| {
                for host in &mut plan.hosts {
                    host.lives.clear();
                }
            },
        );
        without(
            "lost answers".to_owned(),
            any(|host| host.lost.len() > 1),
            &|plan| {
                for host in &mut plan.hosts {
                    host.lost.clear();
                }
            },
        );
        for (name, of) in RATES {
            let has = self.hosts.iter().any(|host| {
                let mut rates = host.rates;
                *of(&mut rates) > 0.0
            });
            without(format!("requests {name} by chance"), has, &|plan| {
                for host in &mut plan.hosts {
                    *of(&mut host.rates) = 0.0;
                }
            });
        }
        for (index, split) in self.splits.iter().enumerate() {
            without(format!("the split at {}", Clock(split.at)), true, &|plan| {
                plan.splits.remove(index);
            });
        }
        for (index, event) in self.mishaps.iter().enumerate() {
            let what = format!("the {} at {}", event.mishap.name(), Clock(event.at));
            without(what, true, &|plan| {
                plan.mishaps.remove(index);
            });
        }
        for (replica, host) in self.hosts.iter().enumerate() {
            for (index, life) in host.lives.iter().enumerate() {
                let what = format!("the death of replica {replica} at effect {}", life.effect);
                without(what, true, &|plan| {
                    plan.hosts[replica].lives.remove(index);
                });
            }
            for (index, lost) in host.lost.iter().enumerate() {
                let what = format!("the lost answer of replica {replica}'s {lost}");
                without(what, true, &|plan| {
                    plan.hosts[replica].lost.remove(index);
                });
            }
        }
        smaller
    }

    fn is_empty(&self) -> bool {
        self.splits.is_empty()
            && self.mishaps.is_empty()
            && self.hosts.iter().all(|host| {
                host.rates == Rates::default()
                    && host.lost.is_empty()
                    && host.lives.is_empty()
                    && host.blows.is_empty()
                    && host.blind.is_none()
            })
    }
}

/// One of the rates.
type Rate = fn(&mut Rates) -> &mut f64;

/// The shares of a plan, each with the name of what happens.
const RATES: [(&str, Rate); 5] = [
    ("delayed", |rates| &mut rates.delay),
    ("refused", |rates| &mut rates.refuse),
    ("failed", |rates| &mut rates.fail),
    ("without answer", |rates| &mut rates.lose_answer),
    ("hung", |rates| &mut rates.hang),
];

impl fmt::Display for FaultPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "faults until {}", Clock(self.until))?;
        for (index, host) in self.hosts.iter().enumerate() {
            let mut rates = host.rates;
            let shares = RATES.map(|(what, of)| (what, *of(&mut rates)));
            let shares: Vec<String> = shares
                .iter()
                .filter(|(_, share)| *share > 0.0)
                .map(|(what, share)| format!("{:.1} % {what}", share * 100.0))
                .collect();
            writeln!(
                out,
                "  replica {index}: of requests {}; of one each of {:?} the answer is lost",
                if shares.is_empty() {
                    "none by chance".to_owned()
                } else {
                    shares.join(", ")
                },
                host.lost
            )?;
            for life in &host.lives {
                writeln!(
                    out,
                    "    dies at effect {} of a process ({:?}), down for {} s",
                    life.effect,
                    life.moment,
                    life.down.as_secs()
                )?;
            }
        }
        for event in &self.mishaps {
            writeln!(
                out,
                "  {} {}, for {} s",
                Clock(event.at),
                event.mishap.name(),
                event.length.as_secs()
            )?;
        }
        for split in &self.splits {
            writeln!(
                out,
                "  {} the leader is cut off from {:?} for {} s{}",
                Clock(split.at),
                split.from,
                split.length.as_secs(),
                if split.lease_moves {
                    ", and loses its Lease"
                } else {
                    ""
                }
            )?;
        }
        Ok(())
    }
}

/// A time after the start of the hosts, as the log writes it.
pub(crate) struct Clock(pub(crate) Duration);

impl fmt::Display for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = (self.0 + PRELUDE).as_secs();
        write!(
            out,
            "{:02}:{:02}:{:02}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )
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
        effect: rng.random_range(1..=100),
        moment: [Moment::Before, Moment::Applied, Moment::Answered][rng.random_range(0..3)],
        down: Duration::from_secs(if rng.random_bool(0.8) {
            rng.random_range(1..=15)
        } else {
            rng.random_range(30..=180)
        }),
    });
    lives.collect()
}
