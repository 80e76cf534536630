//! One seed again, for the person who wants to know what happened in it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::check::checked_by_seed;
use crate::log;
use crate::plan::FaultPlan;
use crate::scenario::Scenario;

/// Runs a seed and prints its world, its plan, the last `lines` of its log and what it came to.
pub(crate) fn replay(seed: u64, lines: usize, directory: Option<&Path>) -> io::Result<ExitCode> {
    let scenario = Scenario::of(seed);
    let mut out = io::stdout().lock();
    write!(out, "{scenario}{}", FaultPlan::of(&scenario))?;
    out.flush()?;
    let checked = checked_by_seed(seed);
    if let Some(directory) = directory {
        fs::write(directory.join(format!("{seed}.log")), &checked.log)?;
    }
    writeln!(
        out,
        "\nthe last {lines} lines of its log, with virtual time\n{}\n",
        log::tail(&checked.log, lines)
    )?;
    match checked.came {
        Ok(faulty) => {
            writeln!(out, "seed {seed} passes: {}", faulty.report())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            writeln!(out, "seed {seed} FAILS: {error}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}
