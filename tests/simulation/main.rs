//! Deterministic simulation: the whole host, on both simulators and on virtual time, while everything around it fails.
//!
//! ```text
//! seed ─► Scenario (world, load, people) ─► run ─► EndState ── as the Scenario's last load says?
//!    └──► FaultPlan (crashes, lost answers, splits, mishaps) ─┘
//! ```
//!
//! Each seed is run with its faults, and every fiftieth without as well ([`check`]). A run must come to rest: every pod runs, on exactly as many machines as
//! its load needs; claims, machines, Nodes and the Ledger agree; nothing is left over ([`settled`]). It must end as its scenario says, whatever happened
//! ([`settled::EndState`] says what is compared, and why the rest is not). At no moment may a machine have been without its claim, a claim with
//! two machines, anything of other people's touched, a limit exceeded ([`history`]). At rest nothing may be asked for, after a restart neither.
//!
//! `--days` lets a world live for days or weeks, with fewer faults, and looks at what wears out ([`mod@days`]).
//!
//! All seeds together must have met what is worth meeting ([`mod@summary`]), and another process must write the same log of each: `tests/simulation.rs`
//! holds this program to that.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        reason = "a test panics where something is not as it should be"
    )
)]

mod nodes;
mod object;
mod pace;

mod scenario;

mod plan;

mod mishaps;

mod wire;

mod shown;

mod run;

mod bound;

mod settings;
mod settled;

mod invariants;

mod history;

mod effects;

mod log;

mod check;
mod conditions;

mod sweep;

mod replay;

mod minimize;

mod stories;

mod incidents;

mod scenes;

mod broken;

mod systematic;

mod days;

mod summary;
mod vain;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::{ArgGroup, Parser};
use sha2::{Digest, Sha256};

use crate::check::{checked_by_seed, quiet_by_seed};
use crate::scenes::Scene;
use crate::summary::Summary;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seeds that have shown a defect once, of kproxide or of the simulated world: `--regressions` runs them.
const REGRESSIONS: &[u64] = &[1066, 1612, 1718, 1805, 3795, 4199, 6342, 8333, 9830, 15925];

/// Runs kproxide itself on simulated Kubernetes and Proxmox and on virtual time, while everything around it fails.
///
/// Each seed is a world, a load and a plan of faults. Under all of them the world must come to rest and end as the load says, and nothing may
/// have been lost, leaked or touched that belongs to somebody else. The exit code is 0 if all seeds pass.
#[derive(Parser)]
#[command(
    name = "cargo sim",
    bin_name = "cargo sim",
    max_term_width = 110,
    arg_required_else_help = true,
    group = ArgGroup::new("what").required(true).args(["seeds", "regressions", "seed", "systematic", "broken", "scene"])
)]
struct Arguments {
    /// Run so many seeds and print a summary
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Run the seeds that have shown a defect once, of kproxide or of the simulated world
    #[arg(long)]
    regressions: bool,
    /// The seeds together must also have met each kind of event so often as half of the seeds 1 to 100 do
    #[arg(long, requires = "seeds", conflicts_with = "days")]
    floors: bool,
    /// Run the seeds without faults
    #[arg(long, requires = "seeds", conflicts_with = "days")]
    quiet: bool,
    /// Run one part of so many of the plans (`--systematic`), or of the mistakes (`--broken`): 3/4 is that of slice 3, 7, 11 …
    #[arg(long, value_name = "NUMBER/PARTS", value_parser = part, conflicts_with = "plan")]
    slice: Option<(u64, u64)>,
    /// The first of the seeds
    #[arg(long, value_name = "S", default_value_t = 1, conflicts_with = "seed")]
    first: u64,
    /// Replay one seed: print its world, its faults and the end of its log
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Find out what of a failing seed is needed for it to fail: drop faults, classes of them first, while it still does
    #[arg(long, requires = "seed")]
    minimize: bool,
    /// Strike every effect of a story (scale-up, removal, repair, fallback, adoption, condemnation, loss, impostor; all of them without a name) by every blow, and keep every event
    /// of its watches from who would see it; print a line for each story
    #[arg(long, value_name = "STORY")]
    systematic: Option<Option<String>>,
    /// Run so many days instead of two hours, with a load that follows the clock and faults at the rate of real life, and print what each pool did on each day
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=366),
        conflicts_with_all = ["systematic", "minimize", "digests", "broken", "scene"]
    )]
    days: Option<u32>,
    /// Run only this plan of the story, as failures and their lines name it
    #[arg(long, value_name = "EFFECT/BLOW|EVENT/UNSEEN", requires = "systematic")]
    plan: Option<String>,
    /// Switch a mistake on (one, by its name, or each) and print what catches it, and the place of that world among those that are tried
    #[arg(long, value_name = "NAME", conflicts_with_all = ["digests", "log", "lines"])]
    broken: Option<Option<String>>,
    /// In how many worlds, seeds and scenes, a mistake must show
    #[arg(long, value_name = "N", default_value_t = broken::WORLDS, requires = "broken")]
    worlds: usize,
    /// Replay one of the small worlds that are made for mistakes, with none of them: print the end of its log
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(Scene::NAMES), conflicts_with = "digests")]
    scene: Option<String>,
    /// How many lines of its log a replay prints
    #[arg(long, value_name = "N", default_value_t = 60, conflicts_with = "seeds")]
    lines: usize,
    /// Print one line for each seed, with the SHA-256 of the log of its run with faults, which is the same in every process; the summary goes to standard error
    #[arg(long, conflicts_with = "seed")]
    digests: bool,
    /// Write the whole log of each run with faults to DIR/SEED.log
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// How many seeds run at one time [default: as many as there are processors]
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "cargo sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let directory = arguments.log.as_deref();
    if let Some(directory) = directory {
        fs::create_dir_all(directory)?;
    }
    if let Some(seed) = arguments.seed.filter(|_| arguments.minimize) {
        return minimize::minimize(seed, arguments.lines);
    }
    if let (Some(seed), Some(days)) = (arguments.seed, arguments.days) {
        return days::one(seed, days, arguments.lines, directory);
    }
    if let Some(seed) = arguments.seed {
        return replay::replay(seed, arguments.lines, directory);
    }
    if let Some(scene) = &arguments.scene {
        return replay::scene(scene, arguments.lines, directory);
    }
    let threads = arguments
        .threads
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    if let Some(story) = &arguments.systematic {
        let plan = arguments.plan.as_deref();
        let slice = arguments.slice;
        return systematic::systematic(
            story.as_deref(),
            plan,
            slice,
            threads,
            arguments.lines,
            directory,
        );
    }
    if let Some(name) = &arguments.broken {
        return broken::broken(name.as_deref(), arguments.slice, arguments.worlds, threads);
    }
    if arguments.regressions {
        return summary(REGRESSIONS.iter().copied(), threads, arguments, directory);
    }
    let count = arguments.seeds.unwrap_or(1);
    let seeds = arguments.first..arguments.first.saturating_add(count);
    if let Some(days) = arguments.days {
        return days::many(seeds, days, threads, arguments.lines, directory);
    }
    summary(seeds, threads, arguments, directory)
}

/// `3/4`
fn part(text: &str) -> Result<(u64, u64), String> {
    let read = |text: &str| {
        text.parse::<u64>()
            .map_err(|error| format!("{text:?}: {error}"))
    };
    match text.split_once('/') {
        Some((number, parts)) if parts != "0" => Ok((read(number)?, read(parts)?)),
        Some(_) | None => Err("expected NUMBER/PARTS, such as 3/4".to_owned()),
    }
}

/// Runs seeds and prints what they came to; with `--digests` those of their logs, and the rest on standard error.
fn summary(
    seeds: impl Iterator<Item = u64>,
    threads: usize,
    arguments: &Arguments,
    directory: Option<&Path>,
) -> io::Result<ExitCode> {
    let (digests, quiet) = (arguments.digests, arguments.quiet);
    let mut summary = Summary::new();
    let mut by_seed = BTreeMap::new();
    let mut written = Ok(());
    let run = |seed| {
        if quiet {
            quiet_by_seed(seed)
        } else {
            checked_by_seed(seed)
        }
    };
    sweep::each(seeds, threads, run, |seed, checked| {
        if let Some(directory) = directory.filter(|_| written.is_ok()) {
            written = fs::write(directory.join(format!("{seed}.log")), &checked.log);
        }
        if digests {
            by_seed.insert(seed, hex(&Sha256::digest(&checked.log)));
        }
        summary.add(seed, checked.came);
    });
    written?;
    for (seed, digest) in by_seed {
        writeln!(io::stdout(), "{seed} {digest}")?;
    }
    let mut out: Box<dyn Write> = if digests {
        Box::new(io::stderr())
    } else {
        Box::new(io::stdout())
    };
    write!(out, "{summary}")?;
    let mut failures = summary.failures();
    if arguments.floors {
        failures.extend(summary.missing());
    }
    for failure in &failures {
        writeln!(out, "\n{failure}")?;
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
