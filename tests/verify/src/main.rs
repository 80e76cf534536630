//! `cargo verify`, `cargo verify-all`, `cargo slice`: builds the tests, runs each executable as a part of its own, and says at the end how
//! many tests there are, what failed, and how long each part took.
//!
//! ```text
//! cargo verify       every test that has no #[ignore]: what each change must pass
//! cargo verify-all   these too
//! cargo slice        a part of these: one in four, one in eight, 60 new seeds; the hash of the tree says which
//! cargo sim          the simulation alone, with arguments of its own
//! ```

mod executable;
mod report;
mod sliced;

use std::io::{self, Write as _};
use std::process::{Command, ExitCode};

use kproxide_verify::nested::{SIMULATION, executable};
use kproxide_verify::{changes, slice};

use crate::executable::{Executable, Variables, build, cargo, told};
use crate::report::Report;
use crate::sliced::{Asked, Slice, held};

const USAGE: &str = "usage: cargo verify | cargo verify-all | cargo slice [NUMBER] [--base COMMIT] | cargo sim [ARGUMENTS]
  NUMBER         which slice; without it the hash of the tree says it
  --base COMMIT  what has changed since then runs in whole [environment: KPROXIDE_BASE]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Cases on real servers mostly wait: with one for each of two cores, half of both would idle. The fifth is the simulation.
    let few = std::thread::available_parallelism().map_or(1, usize::from) < THREADS;
    let mut variables = Variables::new();
    if few && std::env::var_os(THREADS_VARIABLE).is_none() {
        variables.push((THREADS_VARIABLE, THREADS.to_string()));
    }
    let ran = match arguments[..] {
        ["change"] => verify(&[], variables),
        ["all"] => {
            // tests/src/release.rs
            variables.push(("KPROXIDE_E2E", "shipped".to_owned()));
            // host/kube/src/tests/oracle
            variables.push(("KPROXIDE_ORACLE_WORLDS", "5000".to_owned()));
            verify(&["--include-ignored"], variables)
        }
        ["slice", ref rest @ ..] => slice(rest, variables),
        ["sim", ref rest @ ..] => simulate(rest),
        _ => Err(io::Error::other(USAGE)),
    };
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

const THREADS: usize = 5;
const THREADS_VARIABLE: &str = "RUST_TEST_THREADS";

/// Runs every executable with these arguments of Rust's test runner.
fn verify(arguments: &[&str], variables: Variables) -> io::Result<bool> {
    let mut report = Report::new()?;
    let executables = report.part("build", build)?;
    for one in &executables {
        let arguments = if one.is_bench { &[] } else { arguments };
        report.tests(one, arguments, &variables)?;
    }
    let mut doc = cargo();
    doc.args(["test", "--workspace", "--doc", "--quiet"]);
    let documented = report.part("doc-tests", || told(&mut doc))?;
    report.take_in("doc-tests", &documented, &Variables::new());
    report.say_tiers()?;
    report.try_again(&executables)?;
    report.finish()
}

/// Builds `cargo sim`, and runs it with these arguments.
fn simulate(arguments: &[&str]) -> io::Result<bool> {
    let built = executable(cargo().args(SIMULATION), &[])?;
    Ok(Command::new(built).args(arguments).status()?.success())
}

/// Runs what a slice holds of the tests that `cargo verify` leaves out.
fn slice(arguments: &[&str], whole: Variables) -> io::Result<bool> {
    let base = std::env::var("KPROXIDE_BASE").ok();
    let asked = Asked::parse(arguments, base.filter(|base| !base.is_empty()));
    let asked = asked.ok_or_else(|| io::Error::other(USAGE))?;
    let number = match asked.number {
        Some(number) => number,
        None => changes::number(&changes::tree()?),
    };
    let base = changes::base(asked.base.as_deref());
    let changed = match &base {
        Some(base) => changes::since(base)?,
        None => Vec::new(),
    };
    let again = Asked {
        number: Some(number),
        base,
    };

    let mut report = Report::new()?;
    let executables = report.part("build", build)?;
    let mut cut = whole.clone();
    cut.push((slice::VARIABLE, number.to_string()));
    let mut slices: Vec<(&Executable, Slice)> = Vec::new();
    for one in &executables {
        let slice = held(&one.ignored()?, number, &changed)?;
        slices.push((one, slice));
    }
    report.say(&format!("slice {number}; the same one again: {again}"))?;
    for (one, slice) in &slices {
        for test in &slice.whole {
            report.say(&format!("in whole: {}: {test}", one.name))?;
        }
        for test in &slice.cut {
            report.say(&format!("in the slice: {}: {test}", one.name))?;
        }
    }
    for (one, slice) in &slices {
        for (tests, variables) in [(&slice.whole, &whole), (&slice.cut, &cut)] {
            if !tests.is_empty() {
                let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
                let arguments = [&["--ignored", "--exact"], &tests[..]].concat();
                report.tests(one, &arguments, variables)?;
            }
        }
    }
    report.try_again(&executables)?;
    report.say(&format!("slice {number}; the same one again: {again}"))?;
    report.finish()
}
