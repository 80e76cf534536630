//! The commands. Each builds what it needs and runs it to its end.

mod cage;
#[cfg(feature = "init")]
mod completions;
mod crds;
#[cfg(feature = "simulator")]
mod demo;
mod doctor;
mod exit;
#[cfg(test)]
mod held;
#[cfg(feature = "init")]
mod init;
mod plan;
mod policy;
#[cfg(test)]
mod program;
mod run;
#[cfg(feature = "simulator")]
mod simulate;
mod status;
#[cfg(test)]
mod tests;
mod version;

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write as _};

#[cfg(feature = "simulator")]
use crate::args::Simulate;
use crate::args::{Cli, Command, LogFormat, PolicyWorker};
use crate::foreign::Out;
use crate::telemetry;
use clap::CommandFactory as _;
pub use exit::Exit;
use exit::Mistake;
use tracing_subscriber::filter::LevelFilter;

/// The command line, with what only this module can tell.
pub fn command() -> clap::Command {
    Cli::command().after_help(exit::help())
}

/// Runs one command.
///
/// # Errors
/// What went wrong, with its causes as sources; to be printed once.
pub fn main(cli: Cli) -> Result<Exit, Box<dyn Error>> {
    let mut out = Out::new(io::stdout().lock());
    match cli.command {
        Command::Run(args) => {
            drop(out);
            return run::run(&args);
        }
        #[cfg(feature = "simulator")]
        Command::Demo(args) => return demo::run(&args, &mut out),
        #[cfg(feature = "simulator")]
        Command::Simulate(Simulate::Serve(args)) => return simulate::serve(&args, &mut out),
        #[cfg(feature = "init")]
        Command::Init(args) => return init::run(&args, &mut out),
        Command::Plan(args) => return plan::run(&args, &mut out),
        Command::Explain(args) => return plan::explain(&args, &mut out),
        Command::Status(args) => return status::run(&args, &mut out),
        Command::Doctor(args) => return doctor::run(&args, &mut out),
        Command::Crds(args) => return crds::run(&args, &mut out),
        Command::Policy(args) => return policy::run(&args, &mut out),
        #[cfg(feature = "init")]
        Command::Completions { shell } => completions::print(shell, out.raw())?,
        Command::Version { licenses: true, .. } => version::print_licenses(out.raw())?,
        Command::Version { output, .. } => version::print(output, &mut out)?,
    }
    Ok(Exit::Success)
}

/// Says something to the person who called a command. What cannot be said is nothing to end for.
pub fn tell(text: impl Display) {
    let _ = writeln!(Out::new(io::stderr()), "kproxide: {text}");
}

/// A process has Proxmox's token and the ownership key in its memory. Where `core_pattern` is a pipe, the kernel asks no limit, so the process is not
/// dumpable either; its user can then neither trace it nor read its environment. (The children that run policies have no secret, and a limit of their
/// own: `policy::worker`.)
pub fn make_no_core_dumps() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{
            DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit,
        };
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        // A process may always ask for less. A filter of system calls could refuse it, and is no reason not to work.
        let _ = setrlimit(Resource::Core, none);
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Serves another command as one of its children.
///
/// # Errors
/// wasmtime does not run here, or the pipes to the parent break.
pub fn policy_worker(args: &PolicyWorker) -> Result<Exit, Box<dyn Error>> {
    crate::policy::serve_worker(args.memory_bytes, args.escape)?;
    Ok(Exit::Success)
}

/// # Errors
/// The filter has a part that is neither a level nor a directive. It would turn every log line off.
fn start_log(format: LogFormat, filter: &str) -> Result<(), Mistake> {
    let mistake = |problem: String| {
        Mistake(format!(
            "--log {filter:?} (KPROXIDE_LOG): {problem}: give a level, or directives such as info,kproxide::act=debug"
        ))
    };
    let is_wrong = |part: &&str| {
        let is_level = part.parse::<LevelFilter>().is_ok();
        !part.is_empty() && !is_level && !part.contains(['=', ':', '['])
    };
    if let Some(part) = filter.split(',').map(str::trim).find(is_wrong) {
        return Err(mistake(format!("{part} is no level")));
    }
    telemetry::start(format, filter).map_err(|error| mistake(error.to_string()))
}
