//! What many seeds came to, in a few lines.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::run::Outcome;

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
}

#[expect(
    clippy::disallowed_types,
    reason = "how long the test takes for the person who waits for it"
)]
type Wall = std::time::Instant;

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
        }
    }

    /// Takes in a seed: its runs without and with faults, or why it failed.
    pub(crate) fn add(&mut self, seed: u64, came: Result<Vec<Outcome>, String>) {
        self.seeds += 1;
        let runs = match came {
            Ok(runs) => runs,
            Err(error) => {
                self.failures.push((seed, error));
                return;
            }
        };
        self.virtual_time += runs.iter().map(|run| run.virtual_time).sum::<Duration>();
        let Some(faulty) = runs.into_iter().next_back() else {
            return;
        };
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

    /// Each with the command that replays it, in the order of seeds.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = self.failures.clone();
        failures.sort();
        let told = failures
            .into_iter()
            .map(|(seed, error)| format!("seed {seed}: KPROXIDE_SEED={seed} cargo test -p kproxide --test simulation\n{error}"));
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
        writeln!(out, "; {} pairs of effect and fault", self.met.len())
    }
}
