//! Mistakes that are made on purpose ([`kproxide_planner::mutants`]), one at a time: the simulation must catch each of them. Most are made between the program and
//! its servers ([`edge`]), the others in the program.
//!
//! ```text
//! Mutant ─► switch ─► seeds 1, 2, … and the scenes ─► the first world that breaks a law that the mistake is about
//! ```

pub(crate) mod edge;
mod laws;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use kproxide_planner::mutants::{Mutant, switch};
use kproxide_verify::slice::holds;

use self::laws::{Broken, caught, laws};
use crate::check::{Checked, checked_by_seed};
use crate::scenes::Scene;
use crate::summary::Wall;
use crate::sweep;

/// A mistake must show in so many worlds, unless it is asked otherwise.
pub(crate) const WORLDS: usize = 200;
/// So many seeds are tried before the scenes, which are made for what chance meets too seldom.
const SEEDS_FIRST: usize = 10;
/// With it the slices of mistakes are about as large as each other.
const SALT: &str = "1691";
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
    Scene(&'static str),
}

impl fmt::Display for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Seed(seed) => write!(out, "seed {seed}"),
            What::Scene(name) => write!(out, "scene {name}"),
        }
    }
}

impl World {
    fn run(self) -> Checked {
        match self.what {
            What::Seed(seed) => checked_by_seed(seed),
            What::Scene(name) => Scene::named(name).run(),
        }
    }
}

fn worlds(most: usize) -> impl Iterator<Item = World> {
    let seeds = |range: std::ops::Range<usize>| range.map(|seed| What::Seed(seed as u64));
    seeds(1..SEEDS_FIRST + 1)
        .chain(Scene::NAMES.map(What::Scene))
        .chain(seeds(SEEDS_FIRST + 1..WORLDS + 1))
        .take(most)
        .zip(1..)
        .map(|(what, place)| World { place, what })
}

/// Where mistakes are caught, but for those that the first seed catches. Each is looked for there first.
const CAUGHT_IN: &[(Mutant, What)] = &[
    (Mutant::DestroyByVmid, What::Scene("swapped-machine")),
    (Mutant::StaleProof, What::Scene("swapped-machine")),
    (Mutant::TrustTags, What::Seed(23)),
    (Mutant::EexistCleanedUp, What::Seed(34)),
    (Mutant::CloneOnOldIntent, What::Scene("cleared-clone")),
    (Mutant::WarningsAreErrors, What::Scene("leftover-volumes")),
    (Mutant::WarningsAreOk, What::Scene("leftover-volumes")),
    (Mutant::OwnCloneDisowned, What::Scene("slow-clone")),
    (Mutant::UnreachableIsGone, What::Scene("hypervisor-down")),
    (Mutant::QuorumIgnored, What::Scene("no-quorum")),
    (Mutant::NoFence, What::Scene("two-silent-nodes")),
    (Mutant::LeaseStolen, What::Scene("two-silent-nodes")),
    (Mutant::BreakerInMemory, What::Scene("two-silent-nodes")),
    (Mutant::RepairsUnlimited, What::Scene("two-silent-nodes")),
    (Mutant::NoFreeze, What::Scene("all-silent")),
    (Mutant::NoJoinDeadline, What::Seed(2)),
    (Mutant::FinalizerEarly, What::Seed(2)),
    (Mutant::NodeLeft, What::Seed(2)),
    (Mutant::LostIsUndone, What::Seed(2)),
    (Mutant::CountsInMemory, What::Scene("all-silent")),
    (Mutant::NoColdStart, What::Seed(2)),
    (Mutant::NoBarrier, What::Seed(3)),
    (Mutant::PodsNotAwaited, What::Seed(2)),
    (Mutant::RefusalIsSuccess, What::Seed(39)),
    (Mutant::EmptyNotTainted, What::Seed(4)),
    (Mutant::PodsFitNowhere, What::Scene("leftover-volumes")),
    (Mutant::BudgetIgnored, What::Seed(13)),
    (Mutant::LimitIgnored, What::Scene("all-silent")),
    (Mutant::RoomIgnored, What::Scene("misplaced")),
    (Mutant::LoopsWithoutEnd, What::Scene("refused")),
    (Mutant::SilentIsOff, What::Scene("two-silent-nodes")),
    (Mutant::KeepIgnored, What::Scene("kept")),
    (Mutant::TaintLeft, What::Scene("drain-given-up")),
    (Mutant::PolicyUnchecked, What::Scene("misplaced")),
    (Mutant::GcWithoutGrace, What::Scene("vanished-off")),
    (Mutant::GcPartialList, What::Scene("vanished-dying")),
    (Mutant::GcServing, What::Scene("vanished-in-service")),
    (Mutant::OrphansIgnored, What::Scene("vanished-in-service")),
    (Mutant::AgeIgnored, What::Scene("impostor")),
    (Mutant::WordWithoutNonce, What::Scene("impostor")),
];

/// Runs every mistake, those of a slice, or the one of this name, and prints for each what caught it, and the place of that world in the order in which they are tried but for
/// [`CAUGHT_IN`].
pub(crate) fn broken(
    name: Option<&str>,
    slice: Option<(u64, u64)>,
    most: usize,
    threads: usize,
) -> io::Result<ExitCode> {
    if !switch(None) {
        return Err(io::Error::other(
            "no mistake is in this build: `cargo broken` builds them in",
        ));
    }
    let mut out = io::stdout().lock();
    let mutants: Vec<Mutant> = match name {
        None => in_slice(Mutant::ALL, slice),
        Some(name) => match Mutant::named(name) {
            Some(mutant) => in_slice(&[mutant], slice),
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
    let (mut by_seeds, mut by_scenes, mut survivors) = (0, 0, 0);
    let mut printed = Ok(());
    let longest = sweep::RUN_DEADLINE.saturating_mul(u32::try_from(most).unwrap_or(u32::MAX));
    let mut caught_in = BTreeSet::new();
    let search = |Search(mutant): Search| find(mutant, worlds(most));
    let searches = mutants.iter().copied().map(Search);
    sweep::each_within(longest, searches, threads, search, |of, caught| {
        let name = of.0.name();
        let line = match caught {
            Ok((world, broken)) => {
                let (place, law) = (world.place, broken.law);
                match world.what {
                    What::Seed(_) => by_seeds += 1,
                    What::Scene(_) => {
                        by_scenes += 1;
                        caught_in.insert(world);
                    }
                }
                let shown = shown(&broken.line);
                format!("{name:21} {law:9} {place:3}  {world:24} {shown}")
            }
            Err(others) => {
                survivors += 1;
                let (what, laws) = (of.0.what(), laws(of.0).join(" or "));
                let others = match others.is_empty() {
                    true => "no other".to_owned(),
                    false => others.into_iter().collect::<Vec<_>>().join(", "),
                };
                format!(
                    "{name:21} SURVIVES {most} worlds: they broke {others}, and not {laws}:{what}"
                )
            }
        };
        if printed.is_ok() {
            printed = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    });
    // A scene that fails without a mistake shows none.
    let mut unsound = 0;
    sweep::each(
        caught_in.into_iter(),
        threads,
        World::run,
        |world, checked| {
            if let Err(error) = checked.came {
                unsound += 1;
                if printed.is_ok() {
                    printed = writeln!(out, "{world} fails without any mistake: {}", shown(&error));
                }
            }
        },
    );
    printed?;
    writeln!(
        out,
        "broken: {} mistakes, {by_seeds} caught by seeds, {by_scenes} by scenes, {survivors} not caught in {most} worlds, in {:.1} s",
        mutants.len(),
        started.elapsed().as_secs_f64()
    )?;
    Ok(if survivors == 0 && unsound == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Those of one slice of so many.
fn in_slice(mutants: &[Mutant], slice: Option<(u64, u64)>) -> Vec<Mutant> {
    let is_held = |mutant: &&Mutant| {
        slice.is_none_or(|(number, parts)| holds(SALT, mutant.name(), number, parts))
    };
    mutants.iter().filter(is_held).copied().collect()
}

/// The worlds of one mistake, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Search(Mutant);

impl fmt::Display for Search {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0.name())
    }
}

/// The first world that breaks a law that the mistake is about, and how; what caught it the last time is tried first. Or else the laws that worlds broke instead.
fn find(
    mutant: Mutant,
    worlds: impl Iterator<Item = World>,
) -> Result<(World, Broken), BTreeSet<&'static str>> {
    let mut worlds: Vec<World> = worlds.collect();
    let known = CAUGHT_IN.iter().find(|(other, _)| *other == mutant);
    // The order of the others stays.
    worlds.sort_by_key(|world| known.is_none_or(|(_, what)| *what != world.what));
    let mut others = BTreeSet::new();
    for world in worlds {
        switch(Some(mutant));
        let checked = world.run();
        switch(None);
        let Err(error) = checked.came else { continue };
        match caught(mutant, &error) {
            Ok(broken) => return Ok((world, broken)),
            Err(laws) => others.extend(laws),
        }
    }
    Err(others)
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
