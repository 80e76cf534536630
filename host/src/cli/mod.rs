//! The commands. Each builds what it needs and runs it to its end.

mod crds;
#[cfg(feature = "simulator")]
mod demo;
mod doctor;
mod plan;
pub mod policy;
#[cfg(test)]
mod program;
mod run;
#[cfg(feature = "simulator")]
mod simulate;
mod version;

use std::error::Error;
use std::io;
use std::process::ExitCode;

#[cfg(feature = "simulator")]
use crate::args::Simulate;
use crate::args::{Cli, Command, LogFormat, Policy};
use crate::telemetry;

/// Bad flags, in the words of sysexits(3).
const EX_USAGE: u8 = 64;

/// Runs one command.
///
/// # Errors
/// What went wrong, with its causes as sources; to be printed once.
pub fn main(cli: Cli) -> Result<ExitCode, Box<dyn Error>> {
    let mut out = io::stdout().lock();
    match cli.command {
        Command::Run(args) => {
            drop(out);
            return run::run(&args);
        }
        #[cfg(feature = "simulator")]
        Command::Demo(args) => return demo::run(&args, &mut out),
        #[cfg(feature = "simulator")]
        Command::Simulate(Simulate::Serve(args)) => return simulate::serve(&args, &mut out),
        Command::Plan(args) => return plan::run(&args, &mut out),
        Command::Explain(args) => return plan::explain(&args, &mut out),
        Command::Doctor(args) => return doctor::run(&args, &mut out),
        Command::Crds(args) => return crds::run(&args, &mut out),
        Command::Policy(Policy::List) => policy::list(&mut out)?,
        Command::Policy(Policy::Export { dir }) => policy::export(&dir, &mut out)?,
        Command::Version { output } => version::print(output, &mut out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with the filter comes back as text for the terminal.
fn start_log(format: LogFormat, filter: &str) -> Result<(), String> {
    telemetry::start(format, filter).map_err(|error| {
        format!(
            "--log {filter:?} (KPROXIDE_LOG): {error}: give a level, or directives such as info,kproxide::act=debug"
        )
    })
}
