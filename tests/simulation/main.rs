//! Deterministic simulation: the whole host, on both simulators and on virtual time, while everything around it fails.
//!
//! ```text
//! seed ─► Scenario (world, load, people) ─► run ─► EndState ◄── the same? ──► EndState ◄─ run ◄─ the same Scenario
//!    └──► FaultPlan (crashes, lost answers, splits) ─┘                                   without faults
//! ```
//!
//! Each seed is run twice, without and with its faults. Both runs must come to rest: every pod runs, on exactly as many machines as its load
//! needs; claims, machines, Nodes and the Ledger agree; nothing is left over ([`settled`]). Both must end alike ([`settled::EndState`] says what is
//! compared, and why the rest is not). At no moment may a machine have been without its claim, a claim with two machines, anything of
//! other people's touched, a limit exceeded ([`history`]). At rest nothing may be asked for, after a restart neither.
//!
//! A failure prints the command that replays it. With `KPROXIDE_SEED=17` only that seed runs; with `KPROXIDE_LOG=DIR` only its run with faults is
//! made, and its log is written to `DIR/17.log`.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it should be"
)]

mod scenario;

mod plan;

mod wire;

mod run;

mod settled;

mod history;

mod log;

mod summary;

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::Builder;

use log::Log;
use plan::FaultPlan;
use run::Outcome;
use scenario::Scenario;
use summary::Summary;

const SEEDS: u64 = 50;
/// Seeds beyond those that have shown a defect once.
const REGRESSIONS: [u64; 0] = [];
/// Seeds whose log is compared between processes.
const COMPARED: u64 = 6;
const THREADS: usize = 2;
const SEED: &str = "KPROXIDE_SEED";
const LOG: &str = "KPROXIDE_LOG";

#[test]
fn every_seed_ends_as_it_would_without_faults() {
    let seeds: VecDeque<u64> = match env::var(SEED) {
        Ok(seed) => seed
            .split(',')
            .map(|seed| seed.parse().expect("KPROXIDE_SEED holds numbers"))
            .collect(),
        Err(_) => (1..=SEEDS).chain(REGRESSIONS).collect(),
    };
    let summary = Mutex::new(Summary::new());
    let seeds = Mutex::new(seeds);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(seed) = next(&seeds) {
                    let came = check(seed);
                    summary
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .add(seed, came);
                }
            });
        }
    });
    let summary = summary.into_inner().unwrap();
    // Straight to standard error: the test runner shows what is printed otherwise only when the test fails.
    write!(std::io::stderr().lock(), "{summary}").expect("standard error takes text");
    assert!(
        summary.failures().is_empty(),
        "{}",
        summary.failures().join("\n\n")
    );
}

fn next(seeds: &Mutex<VecDeque<u64>>) -> Option<u64> {
    seeds
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop_front()
}

/// Runs a seed without and with its faults. Returns both runs, the one with faults last.
fn check(seed: u64) -> Result<Vec<Outcome>, String> {
    let scenario = Scenario::of(seed);
    let plan = FaultPlan::of(&scenario);
    if let Ok(directory) = env::var(LOG) {
        let faulty = simulate(&scenario, &plan, Some(&directory))?;
        return Ok(vec![faulty]);
    }
    let sound = simulate(&scenario, &FaultPlan::none(), None)
        .map_err(|error| format!("without faults: {error}"))?;
    let faulty = simulate(&scenario, &plan, None)?;
    if sound.end != faulty.end {
        return Err(format!(
            "ends differ\n  without faults: {:?}\n  with faults: {:?}",
            sound.end, faulty.end
        ));
    }
    if faulty
        .traffic
        .iter()
        .all(|traffic| traffic.crashes + traffic.refused == 0 && traffic.by_chance.is_empty())
    {
        return Err("none of its faults happened".to_owned());
    }
    Ok(vec![sound, faulty])
}

/// One run in a runtime of its own; writes its log to `directory`.
fn simulate(
    scenario: &Scenario,
    plan: &FaultPlan,
    directory: Option<&str>,
) -> Result<Outcome, String> {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let mut written = None;
    let came = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let log = written.insert(Log::new());
            let _listening = log.listen();
            run::run(scenario, plan, log).await
        })
    }));
    let log = written.expect("the log is made first");
    if let Some(directory) = directory {
        fs::write(
            Path::new(directory).join(format!("{}.log", scenario.seed)),
            log.bytes(),
        )
        .unwrap();
    }
    let came = came.unwrap_or_else(|panic| Err(format!("panicked: {}", panic_text(&panic))));
    came.map_err(|error| format!("{error}\n--- the end of its log ---\n{}", log.tail(60)))
}

fn panic_text(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

#[test]
fn two_processes_write_the_same_log() {
    // In a replay the other test is meant; it is also what runs in the processes below.
    if env::var(SEED).is_ok() {
        return;
    }
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let seeds: Vec<String> = (1..=COMPARED).map(|seed| seed.to_string()).collect();
    let started = directories.each_ref().map(|directory| {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "every_seed_ends_as_it_would_without_faults"])
            .env(SEED, seeds.join(","))
            .env(LOG, directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    });
    for mut process in started {
        // Whether its seeds pass is the other test's question.
        process.wait().unwrap();
    }
    let mut logs = Vec::new();
    for seed in &seeds {
        let [first, second] = directories
            .each_ref()
            .map(|directory| fs::read(directory.path().join(format!("{seed}.log"))).unwrap());
        assert!(
            first.len() > 10_000,
            "the log of seed {seed} has {} bytes",
            first.len()
        );
        let differs = first
            .split(|byte| *byte == b'\n')
            .zip(second.split(|byte| *byte == b'\n'))
            .position(|(a, b)| a != b);
        assert!(
            first == second,
            "the logs of seed {seed} differ from line {differs:?} on"
        );
        assert!(!logs.contains(&first), "seed {seed} runs like another one");
        logs.push(first);
    }
}
