//! Days on end: a load that follows the clock, and faults at the rate of real life. Short runs show that nothing breaks; these show that nothing wears out.
//!
//! ```text
//! seed ─► curve (world, load of each pool over the day, faults) ─► run ─► counts of each pool and day ([`turns`])
//!                                                                  └────► resident memory, every virtual hour
//! ```
//!
//! Everything that holds for other runs holds here: the checkers over all that was ever asked, the world at rest after the last change, the end as the last load
//! says. After that it must stay at rest for as long as VMIDs rest, hours, until the Ledger holds nothing but machines in service.
//!
//! Memory is that of the process, which is one world and its two hosts: each seed has a process of its own. What a simulated server would keep for its checkers it
//! is made to forget after an hour, so that what is left to grow is kproxide's own, and a line for each machine and claim.

mod curve;
mod turns;

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Duration;

use kproxide_lab::Lab;
use tokio::time::{Instant, sleep_until};

use crate::check::{Checked, ends_as_it_says, simulate_beside};
use crate::log::{self, Log};
use crate::plan::FaultPlan;
use crate::scenario::Scenario;
use crate::summary::Wall;
use crate::sweep;
use turns::Turns;

const HOUR: Duration = Duration::from_secs(60 * 60);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Of the log, in bytes; the rest goes to a file, if it goes anywhere.
const LOG_KEPT: usize = 1 << 20;
/// Of real time, for one run: what a day may take at most, on a machine that is busy with other things too, and a minute to begin.
const REAL_DAY: Duration = Duration::from_secs(10 * 60);
const REAL_START: Duration = Duration::from_secs(60);
/// Memory at the end may be so much more than after the first day, in MiB: an allocator holds four times what is allocated (about 20 MiB), and on some day takes
/// 8 MiB more at once, which it then keeps.
const SEGMENT: f64 = 8.0;
/// And with each day so much more: what is allocated grows by a tenth of a MiB, for the notes that checkers take, and an allocator holds four times that.
const DAILY: f64 = 0.4;

/// Runs so many seeds, each in a process of its own, prints what each came to, and says whether all passed.
pub(crate) fn many(
    seeds: impl Iterator<Item = u64>,
    days: u32,
    threads: usize,
    lines: usize,
    directory: Option<&Path>,
) -> io::Result<ExitCode> {
    let started = Wall::now();
    let program = env::current_exe()?;
    let child = |seed: u64| {
        let mut child = Command::new(&program);
        child.args(["--days", &days.to_string(), "--seed", &seed.to_string()]);
        child.args(["--lines", &lines.to_string()]);
        if let Some(directory) = directory {
            child.arg("--log").arg(directory);
        }
        child.stderr(Stdio::inherit()).output()
    };
    let (mut count, mut failed) = (0, 0);
    let mut printed = Ok(());
    // The process of the seed gives up first, and says more.
    let deadline = longest(days) + REAL_START;
    sweep::each_within(
        deadline,
        seeds,
        threads,
        child,
        |seed, came: io::Result<Output>| {
            count += 1;
            let (told, passed) = match came {
                Ok(output) => (output.stdout, output.status.success()),
                Err(error) => (format!("seed {seed}: {error}\n").into_bytes(), false),
            };
            failed += u64::from(!passed);
            if printed.is_ok() {
                printed = io::stdout().write_all(&told);
            }
        },
    );
    printed?;
    writeln!(
        io::stdout(),
        "days: {count} seeds of {days} days, {failed} failed, in {:.1} s",
        started.elapsed().as_secs_f64()
    )?;
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs one seed in this process and prints what it came to; if it failed, its faults and the last `lines` of its log too.
pub(crate) fn one(
    seed: u64,
    days: u32,
    lines: usize,
    directory: Option<&Path>,
) -> io::Result<ExitCode> {
    let file = match directory {
        Some(directory) => {
            let path = directory.join(format!("{seed}.log"));
            fs::write(&path, "")?;
            Some(OpenOptions::new().append(true).open(path)?)
        }
        None => None,
    };
    let mut report = None;
    sweep::each_within(
        longest(days),
        std::iter::once(seed),
        1,
        |seed| lived(seed, days, file.as_ref()),
        |_, lived| report = Some(lived),
    );
    let (checked, told) = report.ok_or_else(|| io::Error::other("the run ended without a word"))?;
    let mut out = io::stdout().lock();
    write!(out, "{told}")?;
    if let Some(mut file) = file {
        file.write_all(&checked.log)?;
    }
    let Err(error) = checked.came else {
        return Ok(ExitCode::SUCCESS);
    };
    let scenario = curve::world(seed, days);
    writeln!(
        out,
        "\n{}\nthe last {lines} lines of its log, with virtual time\n{}\n\nseed {seed} FAILS: {error}\nsee what happened: cargo sim --days {days} --seed {seed} --log DIR",
        curve::faults(&scenario),
        log::tail(&checked.log, lines)
    )?;
    Ok(ExitCode::FAILURE)
}

fn longest(days: u32) -> Duration {
    REAL_START + REAL_DAY * (days + 1)
}

/// One seed, and its days as text.
fn lived(seed: u64, days: u32, file: Option<&fs::File>) -> (Checked, String) {
    let started = Wall::now();
    let scenario = curve::world(seed, days);
    let plan = curve::faults(&scenario);
    let mut days = Days::new(&scenario, &plan, file);
    let beside = async |lab: &Lab, log: &Log| days.look_on(lab, log).await;
    let mut checked = ends_as_it_says(&scenario, simulate_beside(&scenario, &plan, beside));
    let wall = started.elapsed().as_secs_f64();
    let told = days.told(checked.came.as_ref().map(|outcome| outcome.report()), wall);
    checked.came = checked.came.and_then(|outcome| {
        let missed = days.missed();
        if missed.is_empty() {
            Ok(outcome)
        } else {
            Err(missed.join("\n"))
        }
    });
    (checked, told)
}

/// What is noted while a run goes on.
struct Days<'a> {
    seed: u64,
    turns: Turns<'a>,
    /// After each virtual hour, in MiB.
    memory: Vec<f64>,
    file: Option<&'a fs::File>,
}

impl<'a> Days<'a> {
    fn new(scenario: &'a Scenario, plan: &FaultPlan, file: Option<&'a fs::File>) -> Self {
        Self {
            seed: scenario.seed,
            turns: Turns::new(scenario, plan),
            memory: Vec::new(),
            file,
        }
    }

    /// Takes notes for as long as it is polled. Returns only if that cannot go on.
    async fn look_on(&mut self, lab: &Lab, log: &Log) -> String {
        for pool in self.turns.pools() {
            // What the CRD says by itself: what people have who say nothing. A short run has no time for it.
            let patch = serde_json::json!({"spec": {"scaleDown": {"stabilization": null, "minNodeAge": null, "unneededTime": null}}});
            let set = lab
                .kube
                .patch("nodepools.kproxide.dev", "", "", pool, patch);
            set.expect("the pool was made at the beginning");
        }
        let mut changes = turns::changes(lab);
        let mut hour = Instant::now() + HOUR;
        self.turns.begin();
        loop {
            tokio::select! {
                biased;
                change = changes.recv() => match change {
                    Some(change) => self.turns.note(lab, log, &change),
                    None => return "the API server stopped".to_owned(),
                },
                () = sleep_until(hour) => {
                    hour += HOUR;
                    if let Err(error) = self.tidy(lab, log) {
                        return error.to_string();
                    }
                }
            }
        }
    }

    /// The world lets go of what is older than an hour, and what is left is measured.
    fn tidy(&mut self, lab: &Lab, log: &Log) -> io::Result<()> {
        let hour = jiff::SignedDuration::from_hours(1);
        // Before it is forgotten.
        self.turns.look_for_people(lab);
        let moment = lab.clock.now().checked_sub(hour).unwrap_or_default();
        lab.kube.forget_before(moment);
        lab.pve.forget_before(moment);
        let old = log.shorten(LOG_KEPT);
        if let Some(mut file) = self.file {
            file.write_all(&old)?;
        }
        self.memory.push(resident()?);
        Ok(())
    }

    /// After the first day, and at the end.
    fn memory(&self) -> (f64, f64) {
        let first = self.memory.iter().take(24).next_back();
        let last = self.memory.last();
        (
            first.copied().unwrap_or_default(),
            last.copied().unwrap_or_default(),
        )
    }

    fn missed(&self) -> Vec<String> {
        let mut missed = self.turns.missed();
        let (first, last) = self.memory();
        let days = self.memory.len() as f64 / 24.0;
        let most = first + SEGMENT + DAILY * days;
        if last > most {
            missed.push(format!(
                "memory grew from {first:.1} MiB after the first day to {last:.1} MiB at the end, at most {most:.1} is flat"
            ));
        }
        missed
    }

    /// The days, one line each, then the whole.
    fn told(&self, came: Result<String, &String>, wall: f64) -> String {
        let mut told = format!("seed {}: {}\n", self.seed, self.turns.world());
        for (day, line) in (1..).zip(self.turns.days()) {
            let memory = self.memory.iter().take(day * 24).next_back();
            let memory = memory.copied().unwrap_or_default();
            told.push_str(&format!("  day {day}: {line}; {memory:.1} MiB\n"));
        }
        let hours = self.memory.len() as f64;
        let (first, last) = self.memory();
        told.push_str(&format!(
            "  in all: {}\n  memory: {first:.1} MiB after the first day, {last:.1} MiB after {hours} hours\n",
            self.turns.sum()
        ));
        let came = came.unwrap_or_else(|_| "it failed".to_owned());
        told.push_str(&format!(
            "  {came}; in {wall:.1} s, {:.0} times as fast as time\n",
            hours * 3600.0 / wall
        ));
        told
    }
}

/// What this process has in memory, in MiB.
fn resident() -> io::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.split_whitespace().next());
    let kib = line.and_then(|kib| kib.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0)
        .ok_or_else(|| io::Error::other("the system does not say how much memory is resident"))
}
