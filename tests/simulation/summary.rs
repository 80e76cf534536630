//! What many seeds came to: how large they were, how fast they ran, which effect met which fault, and what they should have met and did not.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::mishaps::Mishap;
use crate::plan::CutOff;
use crate::run::Outcome;
use crate::wire::EFFECTS;

type Measure = fn(&Size) -> f64;

/// What a seed must have in the median.
const SIZE: [(&str, Measure, f64); 5] = [
    ("virtual hours", |size| size.hours, 2.0),
    ("hypervisors", |size| size.hypervisors, 4.0),
    ("pods", |size| size.pods, 40.0),
    ("effects", |size| size.effects, 30.0),
    ("faults", |size| size.faults, 10.0),
];
/// Of all pairs of effects and faults of requests, so many at least.
const PAIRS: usize = 92;
/// The least that a hundred seeds must have met, about half of what they do: a simulation in which nothing goes wrong any more must not pass.
const FLOORS: [(&str, &str, u64); 8] = [
    ("clone", "answer lost", 20),
    ("start", "answer lost", 20),
    ("destroy", "answer lost", 16),
    ("evict", "answer lost", 18),
    ("write ledger", "answer lost", 11),
    (ANY, "died before", 35),
    (ANY, "died before the answer", 35),
    (ANY, "died after the answer", 32),
];
const ANY: &str = "";
/// Of a hundred seeds, those in which two replicas changed something, and machines of ours that people copied.
const BOTH_ACTED: u64 = 19;
const COPIES: u64 = 20;
const KEPT: u64 = 15;
/// Of these, onto a VMID that was promised to a claim.
const PROMISED: u64 = 8;
/// Seeds of a hundred.
const WANTED_TOO_MUCH: u64 = 5;
const END_WITH_MACHINE: u64 = 90;
/// Of each kind that can be drawn, in a hundred seeds.
const SPLITS: [((CutOff, bool), u64); 6] = [
    ((CutOff::Lease, false), 12),
    ((CutOff::Lease, true), 19),
    ((CutOff::Kubernetes, false), 5),
    ((CutOff::Kubernetes, true), 8),
    ((CutOff::Proxmox, false), 6),
    ((CutOff::Proxmox, true), 10),
];
/// Of each mishap, in a hundred seeds; fewer of those that make the Ledger forget.
const MISHAPS: u64 = 4;
const FORGETS: u64 = 1;

/// What a request can meet, in the order in which it is printed, with a short word for it.
const FAULTS: [(&str, &str); 10] = [
    ("delayed", "late"),
    ("refused", "refused"),
    ("failed", "failed"),
    ("answer lost", "lost"),
    ("hung", "hung"),
    ("answered after the deadline", "overdue"),
    ("cut off", "cut off"),
    ("died before", "† before"),
    ("died before the answer", "† unsure"),
    ("died after the answer", "† after"),
];

pub(crate) struct Summary {
    started: Wall,
    seeds: u64,
    failures: Vec<(u64, String)>,
    sizes: Vec<Size>,
    machines_made: usize,
    crashes: u64,
    by_chance: u64,
    met: BTreeMap<(&'static str, &'static str), u64>,
    both_acted: u64,
    splits: BTreeMap<(CutOff, bool), u64>,
    copies: u64,
    kept: u64,
    promised: u64,
    acknowledged: usize,
    cleared: usize,
    wanted_too_much: u64,
    end_with_machine: u64,
    mishaps: BTreeMap<Mishap, u64>,
    /// The longest way to rest, in thousandths of what it might have been: with the seed, the time and its bound.
    slowest: Option<(u128, u64, Duration, Duration)>,
}

/// Of one seed's run with faults.
struct Size {
    hours: f64,
    hypervisors: f64,
    pods: f64,
    effects: f64,
    faults: f64,
}

#[expect(
    clippy::disallowed_types,
    reason = "how long it takes for the person who waits for it"
)]
pub(crate) type Wall = std::time::Instant;

impl Summary {
    pub(crate) fn new() -> Self {
        Self {
            started: Wall::now(),
            seeds: 0,
            failures: Vec::new(),
            sizes: Vec::new(),
            machines_made: 0,
            crashes: 0,
            by_chance: 0,
            met: BTreeMap::new(),
            both_acted: 0,
            splits: BTreeMap::new(),
            copies: 0,
            kept: 0,
            promised: 0,
            acknowledged: 0,
            cleared: 0,
            wanted_too_much: 0,
            end_with_machine: 0,
            mishaps: BTreeMap::new(),
            slowest: None,
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
        let mut effects = 0;
        let mut faults = faulty.splits.len() + faulty.mishaps.len();
        let acted = faulty.traffic.iter().filter(|traffic| traffic.effects > 0);
        self.both_acted += u64::from(acted.count() > 1);
        for traffic in faulty.traffic {
            let by_chance: u64 = traffic.by_chance.values().sum();
            effects += traffic.effects;
            faults += (traffic.crashes + by_chance) as usize;
            self.crashes += traffic.crashes;
            self.by_chance += by_chance;
            for (pair, count) in traffic.met {
                *self.met.entry(pair).or_default() += count;
            }
        }
        for split in faulty.splits {
            *self.splits.entry(split).or_default() += 1;
        }
        for mishap in faulty.mishaps {
            *self.mishaps.entry(mishap).or_default() += 1;
        }
        let share = faulty.rest.as_millis() * 1000 / faulty.bound.as_millis().max(1);
        let rest = (share, seed, faulty.rest, faulty.bound);
        self.slowest = self.slowest.max(Some(rest));
        self.copies += faulty.copies;
        self.kept += faulty.kept;
        self.promised += faulty.promised;
        self.acknowledged += faulty.acknowledged;
        self.cleared += faulty.cleared;
        self.wanted_too_much += u64::from(faulty.wanted_too_much);
        self.end_with_machine += u64::from(faulty.ends_with_machine);
        self.machines_made += faulty.machines_made;
        self.sizes.push(Size {
            hours: faulty.virtual_time.as_secs_f64() / 3600.0,
            hypervisors: f64::from(faulty.hypervisors),
            pods: f64::from(faulty.pods),
            effects: effects as f64,
            faults: faults as f64,
        });
    }

    /// What the seeds should have met and did not.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (what, of, floor) in SIZE {
            let median = self.median(of);
            if median < floor {
                missing.push(format!(
                    "a seed has {median:.1} {what} in the median, expected at least {floor}"
                ));
            }
        }
        let pairs = self.pairs();
        if pairs < PAIRS {
            missing.push(format!(
                "{pairs} pairs of effect and fault were met, expected at least {PAIRS}"
            ));
        }
        let mut least = |what: String, count: u64, of_a_hundred: u64| {
            let floor = of_a_hundred * self.seeds / 100;
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
        for mishap in Mishap::ALL {
            let count = self.mishaps.get(&mishap).copied().unwrap_or(0);
            let floor = if mishap.makes_forget() {
                FORGETS
            } else {
                MISHAPS
            };
            least(mishap.name().to_owned(), count, floor);
        }
        for (what, count, floor) in [
            ("copies", self.copies, COPIES),
            ("Nodes to be kept", self.kept, KEPT),
            ("copies onto promised VMIDs", self.promised, PROMISED),
            (
                "seeds that wanted more than a pool may have",
                self.wanted_too_much,
                WANTED_TOO_MUCH,
            ),
            (
                "seeds that end with a machine",
                self.end_with_machine,
                END_WITH_MACHINE,
            ),
        ] {
            least(what.to_owned(), count, floor);
        }
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

    fn median(&self, of: fn(&Size) -> f64) -> f64 {
        let mut values: Vec<f64> = self.sizes.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    }

    /// How many pairs of effect and fault of a request were met.
    fn pairs(&self) -> usize {
        let known = |(effect, fault): &&(&str, &str)| {
            EFFECTS.contains(effect) && FAULTS.iter().any(|(name, _)| name == fault)
        };
        self.met.keys().filter(known).count()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wall = self.started.elapsed().as_secs_f64();
        let hours: f64 = self.sizes.iter().map(|size| size.hours).sum();
        let effects: f64 = self.sizes.iter().map(|size| size.effects).sum();
        writeln!(
            out,
            "simulation: {} seeds, {} failed, in {wall:.1} s: {hours:.1} virtual hours, {:.0} times as fast as time; {effects} effects, {:.0} a second",
            self.seeds,
            self.failures.len(),
            hours * 3600.0 / wall,
            effects / wall,
        )?;
        let medians = SIZE.map(|(what, of, _)| format!("{:.1} {what}", self.median(of)));
        writeln!(out, "a seed has in the median {}", medians.join(", "))?;
        writeln!(
            out,
            "in all {} machines, {} crashes, {} requests that went wrong by chance, splits {:?}, {} copies, {} of them onto promised VMIDs, {} Nodes to be kept; both replicas acted in {} seeds; {} wanted more than a pool may have, {} end with a machine",
            self.machines_made,
            self.crashes,
            self.by_chance,
            self.splits,
            self.copies,
            self.promised,
            self.kept,
            self.both_acted,
            self.wanted_too_much,
            self.end_with_machine,
        )?;
        let mishaps: Vec<String> = self
            .mishaps
            .iter()
            .map(|(mishap, count)| format!("{count} {}", mishap.name()))
            .collect();
        writeln!(
            out,
            "mishaps: {}; people said of {} freezes that they are meant, and removed {} interrupted clones",
            mishaps.join(", "),
            self.acknowledged,
            self.cleared
        )?;
        if let Some((_, seed, rest, bound)) = self.slowest {
            writeln!(
                out,
                "the slowest to come to rest after its last fault is seed {seed}: {} minutes, of {} that its world allows",
                rest.as_secs() / 60,
                bound.as_secs() / 60
            )?;
        }
        writeln!(
            out,
            "pairs of effect and fault: {} of {}",
            self.pairs(),
            EFFECTS.len() * FAULTS.len()
        )?;
        write!(out, "{:>18}", "")?;
        for (_, word) in FAULTS {
            write!(out, " {word:>8}")?;
        }
        writeln!(out)?;
        for effect in EFFECTS {
            write!(out, "{effect:>18}")?;
            for (fault, _) in FAULTS {
                match self.met.get(&(effect, fault)) {
                    Some(count) => write!(out, " {count:>8}")?,
                    None => write!(out, " {:>8}", "-")?,
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}
