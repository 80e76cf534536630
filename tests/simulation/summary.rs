//! What many seeds came to, in a few lines.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::plan::CutOff;
use crate::run::Outcome;

/// With fewer seeds the floors do not hold.
const FLOORS_FROM: u64 = 100;
/// The least that all seeds together must have met, about a quarter of what a hundred do: a test in which nothing goes wrong any more must not pass.
const FLOORS: [(&str, &str, u64); 8] = [
    ("clone", "answer lost", 8),
    ("start", "answer lost", 13),
    ("destroy", "answer lost", 8),
    ("evict", "answer lost", 8),
    ("write ledger", "answer lost", 4),
    (ANY, "died before", 30),
    (ANY, "died before the answer", 39),
    (ANY, "died after the answer", 31),
];
const ANY: &str = "";
/// Seeds in which two replicas changed something, and machines of ours that people copied.
const BOTH_ACTED: u64 = 15;
const COPIES: u64 = 21;
/// Of each kind that can be drawn.
const SPLITS: [((CutOff, bool), u64); 6] = [
    ((CutOff::Lease, false), 10),
    ((CutOff::Lease, true), 15),
    ((CutOff::Kubernetes, false), 7),
    ((CutOff::Kubernetes, true), 4),
    ((CutOff::Proxmox, false), 5),
    ((CutOff::Proxmox, true), 6),
];

pub(crate) struct Summary {
    started: Wall,
    seeds: u64,
    failures: Vec<(u64, String)>,
    virtual_time: Duration,
    effects: u64,
    machines_made: usize,
    crashes: u64,
    refused: u64,
    by_chance: BTreeMap<&'static str, u64>,
    met: BTreeMap<(&'static str, &'static str), u64>,
    both_acted: u64,
    splits: BTreeMap<(CutOff, bool), u64>,
    copies: u64,
}

#[expect(
    clippy::disallowed_types,
    reason = "how long the test takes for the person who waits for it"
)]
pub(crate) type Wall = std::time::Instant;

impl Summary {
    pub(crate) fn new() -> Self {
        Self {
            started: Wall::now(),
            seeds: 0,
            failures: Vec::new(),
            virtual_time: Duration::ZERO,
            effects: 0,
            machines_made: 0,
            crashes: 0,
            refused: 0,
            by_chance: BTreeMap::new(),
            met: BTreeMap::new(),
            both_acted: 0,
            splits: BTreeMap::new(),
            copies: 0,
        }
    }

    /// Takes in a seed: its run with faults, or why it failed.
    pub(crate) fn add(&mut self, seed: u64, came: Result<Outcome, String>) {
        self.seeds += 1;
        let faulty = match came {
            Ok(faulty) => faulty,
            Err(error) => {
                self.failures.push((seed, error));
                return;
            }
        };
        self.virtual_time += faulty.virtual_time;
        let acted = faulty.traffic.iter().filter(|traffic| traffic.effects > 0);
        self.both_acted += u64::from(acted.count() > 1);
        for split in faulty.splits {
            *self.splits.entry(split).or_default() += 1;
        }
        self.copies += faulty.copies;
        self.machines_made += faulty.machines_made;
        for traffic in faulty.traffic {
            self.effects += traffic.effects;
            self.crashes += traffic.crashes;
            self.refused += traffic.refused;
            for (kind, count) in traffic.by_chance {
                *self.by_chance.entry(kind).or_default() += count;
            }
            for (pair, count) in traffic.met {
                *self.met.entry(pair).or_default() += count;
            }
        }
    }

    /// What so many seeds should have met and did not. Few seeds need not have met anything.
    pub(crate) fn missing(&self, seeds: u64) -> Vec<String> {
        let mut missing = Vec::new();
        if seeds < FLOORS_FROM {
            return missing;
        }
        let mut least = |what: String, count: u64, floor: u64| {
            if count < floor {
                missing.push(format!("{what}: {count}, expected at least {floor}"));
            }
        };
        for (effect, fault, floor) in FLOORS {
            let met = self.met.iter();
            let count = met
                .filter(|((of, with), _)| (effect == ANY || *of == effect) && *with == fault)
                .map(|(_, count)| count)
                .sum();
            least(format!("{effect} {fault}"), count, floor);
        }
        least(
            "seeds in which both replicas acted".to_owned(),
            self.both_acted,
            BOTH_ACTED,
        );
        for (split, floor) in SPLITS {
            let count = self.splits.get(&split).copied().unwrap_or(0);
            least(format!("splits {split:?}"), count, floor);
        }
        least("copies".to_owned(), self.copies, COPIES);
        missing
    }

    /// Each with the command that replays it, in the order of seeds.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = self.failures.clone();
        failures.sort();
        let told = failures.into_iter().map(|(seed, error)| {
            format!("seed {seed} fails: {error}\nsee what happened: cargo sim --seed {seed}")
        });
        told.collect()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.virtual_time.as_secs_f64() / 3600.0;
        let wall = self.started.elapsed().as_secs_f64();
        write!(
            out,
            "simulation: {} seeds, {} failed, {hours:.1} virtual hours in {wall:.1} s; with faults {} machines, {} effects, {} crashes, {} requests cut off",
            self.seeds,
            self.failures.len(),
            self.machines_made,
            self.effects,
            self.crashes,
            self.refused,
        )?;
        for (kind, count) in &self.by_chance {
            write!(out, ", {count} {kind}")?;
        }
        writeln!(
            out,
            "; {} pairs of effect and fault; both replicas acted in {} seeds, splits {:?}, {} copies",
            self.met.len(),
            self.both_acted,
            self.splits,
            self.copies
        )
    }
}
