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
//! All seeds together must have met what is worth meeting ([`summary`]), and another process must write the same log of each.
//!
//! A failure prints the command that replays it. With `KPROXIDE_SEED=17` only that seed runs; with `KPROXIDE_SIMULATION_LOG=DIR` beside it only its
//! run with faults is made, and its log is written to `DIR/17.log`.

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

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::env;
use std::fs;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;

use log::Log;
use plan::FaultPlan;
use run::Outcome;
use scenario::Scenario;
use summary::{Summary, Wall};

const SEEDS: u64 = 50;
/// Seeds beyond those that have shown a defect once.
const REGRESSIONS: [u64; 0] = [];
const THREADS: usize = 2;
const SEED: &str = "KPROXIDE_SEED";
const LOG: &str = "KPROXIDE_SIMULATION_LOG";
/// Of virtual time, for one run: a load of an hour, two to come to rest, and what stops and starts around them.
const RUN_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);
/// Of real time, for both runs of a seed, which take seconds: a loop within one instant never meets a virtual deadline.
const SEED_DEADLINE: Duration = Duration::from_secs(10 * 60);

/// What all seeds came to.
struct Checked {
    summary: Summary,
    /// The logs of the runs with faults.
    logs: BTreeMap<u64, Vec<u8>>,
}

/// Runs all seeds, once for both tests.
fn checked() -> &'static Checked {
    static CHECKED: OnceLock<Checked> = OnceLock::new();
    CHECKED.get_or_init(|| {
        let seeds: VecDeque<u64> = match env::var(SEED) {
            Ok(seed) => seed
                .split(',')
                .map(|seed| seed.parse().expect("KPROXIDE_SEED holds numbers"))
                .collect(),
            Err(_) => all_seeds().collect(),
        };
        let checked = Mutex::new(Checked {
            summary: Summary::new(),
            logs: BTreeMap::new(),
        });
        let seeds = Mutex::new(seeds);
        let running = Mutex::new(BTreeMap::new());
        let (all_done, done) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| watch(&running, done));
            for _ in 0..THREADS {
                let done = all_done.clone();
                let (seeds, running, checked) = (&seeds, &running, &checked);
                scope.spawn(move || {
                    while let Some(seed) = next(seeds) {
                        lock(running).insert(seed, Wall::now());
                        let mut came = check(seed);
                        lock(running).remove(&seed);
                        let mut checked = lock(checked);
                        if let Ok(Outcome { log, .. }) = &mut came {
                            checked.logs.insert(seed, std::mem::take(log));
                        }
                        checked.summary.add(seed, came);
                    }
                    drop(done);
                });
            }
            drop(all_done);
        });
        checked.into_inner().unwrap()
    })
}

fn all_seeds() -> impl Iterator<Item = u64> {
    (1..=SEEDS).chain(REGRESSIONS)
}

#[test]
fn every_seed_ends_as_it_would_without_faults() {
    let summary = &checked().summary;
    // Straight to standard error: the test runner shows what is printed otherwise only when the test fails.
    write!(std::io::stderr().lock(), "{summary}").expect("standard error takes text");
    let mut failures = summary.failures();
    if env::var(SEED).is_err() {
        failures.extend(summary.missing());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// The seeds are free again for the other thread once one is taken.
fn next(seeds: &Mutex<VecDeque<u64>>) -> Option<u64> {
    lock(seeds).pop_front()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process, with the name of the seed, when one does not end; returns when all are done.
fn watch(running: &Mutex<BTreeMap<u64, Wall>>, done: mpsc::Receiver<()>) {
    while done.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
        let overdue = lock(running)
            .iter()
            .find(|(_, since)| since.elapsed() > SEED_DEADLINE)
            .map(|(seed, _)| *seed);
        if let Some(seed) = overdue {
            let text =
                format!("simulation: seed {seed} does not end: it takes {SEED_DEADLINE:?}\n");
            let _ = std::io::stderr().write_all(text.as_bytes());
            std::process::abort();
        }
    }
}

thread_local! {
    /// Panics on this thread, also those that somebody caught: tasks of the world and of hosts run here too.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

fn count_panics() {
    static COUNTING: Once = Once::new();
    COUNTING.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            told(info);
        }));
    });
}

/// Runs a seed without and with its faults. Returns the run with faults, with the time of both.
fn check(seed: u64) -> Result<Outcome, String> {
    let scenario = Scenario::of(seed);
    let plan = FaultPlan::of(&scenario);
    if let (Ok(_), Ok(directory)) = (env::var(SEED), env::var(LOG)) {
        return simulate(&scenario, &plan, Some(&directory));
    }
    let sound = simulate(&scenario, &FaultPlan::none(), None)
        .map_err(|error| format!("without faults: {error}"))?;
    let mut faulty = simulate(&scenario, &plan, None)?;
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
    faulty.virtual_time += sound.virtual_time;
    Ok(faulty)
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
    count_panics();
    PANICS.set(0);
    let came = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let log = written.insert(Log::new());
            let _listening = log.listen();
            let run = timeout(RUN_DEADLINE, run::run(scenario, plan, log));
            run.await
                .unwrap_or_else(|_| Err(format!("no end after {RUN_DEADLINE:?}")))
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
    let came = came.and_then(|came| match (PANICS.get(), log.errors()) {
        (0, errors) if errors.is_empty() => Ok(came),
        (0, errors) => Err(format!("a host logged errors:\n{}", errors.join("\n"))),
        (panics, _) => Err(format!("{panics} panics in tasks")),
    });
    came.map_err(|error| format!("{error}\n--- the end of its log ---\n{}", log.tail(60)))
}

fn panic_text(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

#[test]
fn two_processes_write_the_same_log() {
    // In a replay the other test is meant; it is also what runs in the process below.
    if env::var(SEED).is_ok() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let seeds: Vec<String> = all_seeds().map(|seed| seed.to_string()).collect();
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--exact", "every_seed_ends_as_it_would_without_faults"])
        .env(SEED, seeds.join(","))
        .env(LOG, directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let here = &checked().logs;
    // Whether its seeds pass is the other test's question.
    process.wait().unwrap();
    for (seed, log) in here {
        let there = fs::read(directory.path().join(format!("{seed}.log"))).unwrap();
        assert!(
            log.len() > 10_000,
            "the log of seed {seed} has {} bytes",
            log.len()
        );
        let differs = log
            .split(|byte| *byte == b'\n')
            .zip(there.split(|byte| *byte == b'\n'))
            .position(|(a, b)| a != b);
        assert!(
            *log == there,
            "the logs of seed {seed} differ from line {differs:?} on"
        );
    }
    let different: BTreeSet<&[u8]> = here.values().map(Vec::as_slice).collect();
    assert_eq!(different.len(), here.len(), "two seeds run alike");
}

/// What would keep a host busy for ever must not keep the test so.
#[test]
fn a_world_that_never_comes_to_rest_is_an_error() {
    let mut scenario = Scenario::of(1);
    scenario.want_too_much();
    let error = simulate(&scenario, &FaultPlan::none(), None).unwrap_err();
    assert!(error.contains("no rest after 120 minutes"), "{error}");
}

#[test]
fn a_panic_in_a_task_is_an_error() {
    count_panics();
    PANICS.set(0);
    let _ = catch_unwind(|| panic!("caught by somebody"));
    assert_eq!(PANICS.get(), 1);
}
