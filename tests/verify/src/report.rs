//! What ran, how it went and what it took.

use std::fs;
use std::io::{self, Write as _};

use kproxide_verify::known::{Known, known};

use crate::executable::{Executable, Told, Variables};

#[expect(
    clippy::disallowed_types,
    reason = "how long it takes for the person who waits for it"
)]
type Wall = std::time::Instant;

/// Linux counts what a process computed in hundredths of a second.
const TICKS: f64 = 100.0;

pub(crate) struct Report {
    began: Wall,
    parts: Vec<Part>,
    passed: usize,
    ignored: usize,
    failed: Vec<Failed>,
    flaked: Vec<String>,
    known: Vec<Known<'static>>,
}

struct Part {
    name: String,
    seconds: f64,
    /// Of all processes of the part that have ended.
    core_seconds: f64,
}

struct Failed {
    executable: String,
    /// None: it died without a word.
    test: Option<String>,
    variables: Variables,
}

impl Report {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            began: Wall::now(),
            parts: Vec::new(),
            passed: 0,
            ignored: 0,
            failed: Vec::new(),
            flaked: Vec::new(),
            known: known().map_err(io::Error::other)?,
        })
    }

    pub(crate) fn say(&self, text: &str) -> io::Result<()> {
        writeln!(io::stdout().lock(), "=== {text}")
    }

    /// Does something, and remembers what it took.
    pub(crate) fn part<T>(
        &mut self,
        name: &str,
        run: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.say(&format!(
            "{name} ({:.0} s)",
            self.began.elapsed().as_secs_f64()
        ))?;
        let (began, computed) = (Wall::now(), computed());
        let done = run();
        self.parts.push(Part {
            name: name.to_owned(),
            seconds: began.elapsed().as_secs_f64(),
            core_seconds: self::computed() - computed,
        });
        done
    }

    /// Runs tests of an executable.
    pub(crate) fn tests(
        &mut self,
        one: &Executable,
        arguments: &[&str],
        variables: &Variables,
    ) -> io::Result<()> {
        let told = self.part(&one.name, || one.run(arguments, variables))?;
        self.take_in(&one.name, &told, variables);
        Ok(())
    }

    /// How many tests there are in this tier and in all.
    pub(crate) fn say_tiers(&self) -> io::Result<()> {
        let held = self.passed + self.failed.len();
        let all = held + self.ignored;
        self.say(&format!(
            "{held} tests ran here; `cargo verify-all` holds {all}"
        ))
    }

    /// Counts what an executable said.
    pub(crate) fn take_in(&mut self, name: &str, told: &Told, variables: &Variables) {
        self.passed += told.passed;
        self.ignored += told.ignored;
        let tests = told.failed.iter().cloned().map(Some);
        let died = told.died.then_some(None);
        self.failed.extend(tests.chain(died).map(|test| Failed {
            executable: name.to_owned(),
            test,
            variables: variables.clone(),
        }));
    }

    /// Real servers on a busy machine may be late once: an end-to-end case that failed runs once more, alone.
    pub(crate) fn try_again(&mut self, executables: &[Executable]) -> io::Result<()> {
        for failed in std::mem::take(&mut self.failed) {
            let one = executables.iter().find(|one| one.name == failed.executable);
            let (Some(one), Some(test)) = (one, &failed.test) else {
                self.failed.push(failed);
                continue;
            };
            if !one.waits_for_servers(test) {
                self.failed.push(failed);
                continue;
            }
            let name = format!("{} {test}, once more", one.name);
            let arguments = ["--include-ignored", "--exact", test];
            let told = self.part(&name, || one.run(&arguments, &failed.variables))?;
            if told.passed == 1 && told.failed.is_empty() {
                self.passed += 1;
                self.flaked.push(format!("{} {test}", one.name));
            } else {
                self.failed.push(failed);
            }
        }
        Ok(())
    }

    /// Prints it all; says whether it went well.
    pub(crate) fn finish(mut self) -> io::Result<bool> {
        let is_known = |failed: &Failed| {
            let test = failed.test.as_deref().unwrap_or_default();
            self.known.iter().any(|known| known.test == test)
        };
        let (expected, failed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.failed)
            .into_iter()
            .partition(is_known);
        let mut out = io::stdout().lock();
        let (mut seconds, mut core_seconds) = (0.0, 0.0);
        writeln!(out, "\n=== parts, in seconds and core-seconds")?;
        for part in &self.parts {
            (seconds, core_seconds) = (seconds + part.seconds, core_seconds + part.core_seconds);
            if part.seconds >= 1.0 {
                writeln!(
                    out,
                    "{:6.0} s {:6.0} core-s  {}",
                    part.seconds, part.core_seconds, part.name
                )?;
            }
        }
        writeln!(out, "{seconds:6.0} s {core_seconds:6.0} core-s  in all")?;
        for known in &self.known {
            writeln!(
                out,
                "KNOWN to fail since {}: {}: {}",
                known.since, known.test, known.why
            )?;
        }
        for flaked in &self.flaked {
            writeln!(
                out,
                "FLAKED {flaked}: it failed, and passed when it ran alone"
            )?;
        }
        for Failed {
            executable, test, ..
        } in &failed
        {
            let test = test.as_deref().unwrap_or("(it ended without a result)");
            writeln!(out, "FAILED {executable} {test}")?;
        }
        let (passed, skipped) = (self.passed, self.ignored + expected.len());
        writeln!(
            out,
            "tests: {passed} passed, {} failed, {skipped} skipped",
            failed.len()
        )?;
        Ok(failed.is_empty())
    }
}

impl Executable {
    /// Whether the test waits for real servers. The simulation has a clock of its own: what fails in it fails again, or is a defect.
    fn waits_for_servers(&self, test: &str) -> bool {
        self.name == "kproxide e2e" && !test.starts_with("a_simulation::")
    }
}

/// Seconds that processes which this one started, and which have ended, computed: fields 16 and 17 of proc_pid_stat(5). 0 where there is no such file.
fn computed() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in parentheses, which may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(13).take(2);
    ticks
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS
}
