//! Mistakes that are built in on purpose ([`kproxide_planner::mutants`]), one at a time: the simulation must catch each of them.
//!
//! ```text
//! Mutant ─► switch ─► seeds 1, 2, … and the scenes ─► the first world that fails ─► what caught it
//! ```

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use kproxide_planner::mutants::{Mutant, switch};

use crate::check::{Checked, checked_by_seed};
use crate::scenes::Scene;
use crate::summary::Wall;
use crate::sweep;

/// A mistake must show in so many worlds, unless it is asked otherwise.
pub(crate) const WORLDS: usize = 200;
/// So many seeds are tried before the scenes, which are made for what chance meets too seldom.
const SEEDS_FIRST: usize = 10;
/// Characters of what caught a mistake that the table shows.
const SHOWN: usize = 110;

/// A world to look for the mistake in, by its place in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    place: usize,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Seed(u64),
    Scene(usize),
}

impl fmt::Display for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Seed(seed) => write!(out, "seed {seed}"),
            What::Scene(index) => write!(out, "scene {}", Scene::NAMES[index]),
        }
    }
}

impl World {
    fn run(self) -> Checked {
        match self.what {
            What::Seed(seed) => checked_by_seed(seed),
            What::Scene(index) => Scene::of(index).run(),
        }
    }
}

fn worlds(most: usize) -> impl Iterator<Item = World> {
    let seeds = |range: std::ops::Range<usize>| range.map(|seed| What::Seed(seed as u64));
    let scenes = Scene::NAMES.len();
    seeds(1..SEEDS_FIRST + 1)
        .chain((0..scenes).map(What::Scene))
        .chain(seeds(SEEDS_FIRST + 1..WORLDS + 1))
        .take(most)
        .zip(1..)
        .map(|(what, place)| World { place, what })
}

/// Runs every mistake, or the one of this name, and prints for each what caught it and how many worlds that took.
pub(crate) fn broken(name: Option<&str>, most: usize, threads: usize) -> io::Result<ExitCode> {
    if !switch(None) {
        return Err(io::Error::other(
            "no mistake is in this build: `cargo broken` builds them in",
        ));
    }
    let mut out = io::stdout().lock();
    let mutants: Vec<Mutant> = match name {
        None => Mutant::ALL.to_vec(),
        Some(name) => match Mutant::named(name) {
            Some(mutant) => vec![mutant],
            None => {
                let names: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
                let names = names.join(", ");
                return Err(io::Error::other(format!(
                    "there is no mistake {name:?}; there are {names}"
                )));
            }
        },
    };
    let started = Wall::now();
    // A scene that fails without a mistake shows none.
    let mut unsound = Vec::new();
    let scenes = worlds(most).filter(|world| matches!(world.what, What::Scene(_)));
    sweep::each(scenes, threads, World::run, |world, checked| {
        unsound.extend(checked.came.err().map(|error| (world, error)));
    });
    for (world, error) in &unsound {
        writeln!(out, "{world} fails without any mistake: {}", shown(error))?;
    }
    let sound = || worlds(most).filter(|world| unsound.iter().all(|(other, _)| other != world));
    let mut survivors = 0;
    for mutant in &mutants {
        switch(Some(*mutant));
        let caught = find(sound(), threads);
        switch(None);
        let name = mutant.name();
        match caught {
            Some((world, error)) => {
                let place = world.place;
                writeln!(
                    out,
                    "{name:21} {:9} {place:3}  {world:24} {}",
                    law(&error),
                    shown(&error)
                )?;
            }
            None => {
                survivors += 1;
                writeln!(out, "{name:21} SURVIVES {most} worlds:{}", mutant.what())?;
            }
        }
        out.flush()?;
    }
    writeln!(
        out,
        "broken: {} mistakes, {survivors} not caught in {most} worlds, in {:.1} s",
        mutants.len(),
        started.elapsed().as_secs_f64()
    )?;
    Ok(if survivors == 0 && unsound.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The first world that fails, and how.
fn find(worlds: impl Iterator<Item = World>, threads: usize) -> Option<(World, String)> {
    let worlds: Vec<World> = worlds.collect();
    for some in worlds.chunks(threads.max(1)) {
        let mut failed = Vec::new();
        sweep::each(
            some.iter().copied(),
            threads,
            World::run,
            |world, checked| {
                failed.extend(checked.came.err().map(|error| (world, error)));
            },
        );
        failed.sort();
        if let Some(first) = failed.into_iter().next() {
            return Some(first);
        }
    }
    None
}

/// The invariant that a failure is about; it says so itself, or its words tell.
fn law(error: &str) -> &'static str {
    const NAMED: [&str; 8] = ["S1", "S2", "S3", "S8", "S9", "S10", "S11", "S20"];
    const WORDS: [(&str, &str); 21] = [
        ("is not ours, it was made by", "S18"),
        ("something of other people changed", "S18"),
        ("was gone before its VM", "S8"),
        ("was not deleted by then", "S8"),
        ("without a claim", "S2"),
        (": VM", "S2"),
        ("two machines at once", "S3"),
        ("both have VMID", "S3"),
        ("its limit is", "S4"),
        ("delete pods", "S6"),
        ("machines, expected at most", "L5"),
        ("a host logged errors", "S12"),
        ("panic", "panic"),
        ("a host ended by itself", "panic"),
        ("effects", "S15"),
        ("the plan at rest is not empty", "S15"),
        ("has no claim", "L3"),
        ("has no machine", "L3"),
        ("in the Ledger", "L3"),
        ("pods run", "L1"),
        ("no rest", "L4"),
    ];
    let mut lines = error
        .lines()
        .filter_map(|line| Some(line.split_once(": ")?.0));
    let named = lines.find_map(|line| NAMED.into_iter().find(|name| *name == line));
    let told = WORDS.into_iter().find(|(words, _)| error.contains(words));
    named.or(told.map(|(_, name)| name)).unwrap_or("L6")
}

/// The line that says most, without what comes after it.
fn shown(error: &str) -> String {
    let mut lines = error.lines().map(str::trim).filter(|line| line.len() > 2);
    let first = lines.next().unwrap_or_default();
    let text = match lines.next() {
        Some(second) if first.ends_with('[') || first.ends_with(':') => format!("{first} {second}"),
        Some(_) | None => first.to_owned(),
    };
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
