//! One seed again, for the person who wants to know what happened in it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::check::{Checked, checked_by_seed};
use crate::log;
use crate::plan::FaultPlan;
use crate::scenario::Scenario;
use crate::scenes::Scene;

/// Runs a seed and prints its world, its plan, the last `lines` of its log and what it came to.
pub(crate) fn replay(seed: u64, lines: usize, directory: Option<&Path>) -> io::Result<ExitCode> {
    let scenario = Scenario::of(seed);
    let mut out = io::stdout().lock();
    write!(out, "{scenario}{}", FaultPlan::of(&scenario))?;
    out.flush()?;
    told(
        &mut out,
        &format!("seed {seed}"),
        &seed.to_string(),
        checked_by_seed(seed),
        lines,
        directory,
    )
}

/// Runs a scene without any mistake and prints the last `lines` of its log and what it came to.
pub(crate) fn scene(name: &str, lines: usize, directory: Option<&Path>) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    told(
        &mut out,
        &format!("scene {name}"),
        name,
        Scene::named(name).run(),
        lines,
        directory,
    )
}

fn told(
    out: &mut impl Write,
    what: &str,
    file: &str,
    checked: Checked,
    lines: usize,
    directory: Option<&Path>,
) -> io::Result<ExitCode> {
    if let Some(directory) = directory {
        fs::write(directory.join(format!("{file}.log")), &checked.log)?;
    }
    writeln!(
        out,
        "\nthe last {lines} lines of its log, with virtual time\n{}\n",
        log::tail(&checked.log, lines)
    )?;
    match checked.came {
        Ok(outcome) => {
            writeln!(out, "{what} passes: {}", outcome.report())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            writeln!(out, "{what} FAILS: {error}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}
