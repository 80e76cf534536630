//! The commands. Each is one call of what it names.

mod args;
#[cfg(feature = "init")]
mod completions;
#[cfg(test)]
mod program;
mod run;
mod version;

use std::error::Error;
use std::io;

use clap::CommandFactory as _;
use kproxide_common::foreign::Out;
use kproxide_controller::args::LogFormat;
use kproxide_policy::PolicyWorker;
#[cfg(feature = "simulator")]
use kproxide_tools::args::Simulate;
use kproxide_tools::commands::{self, Exit, Mistake};
use tracing_subscriber::filter::LevelFilter;

pub use args::{Cli, Command};

use crate::telemetry;

/// The command line, with what only this module can tell.
pub fn command() -> clap::Command {
    Cli::command().after_help(commands::help())
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
        Command::Demo(args) => return commands::demo(&args, &mut out),
        #[cfg(feature = "simulator")]
        Command::Simulate(Simulate::Serve(args)) => {
            start_log(LogFormat::Text, &args.log)?;
            return commands::simulate(&args, &mut out);
        }
        #[cfg(feature = "init")]
        Command::Init(args) => return commands::init(&args, &mut out),
        Command::Plan(args) => return commands::plan(&args, &mut out),
        Command::Explain(args) => return commands::explain(&args, &mut out),
        Command::Status(args) => return commands::status(&args, &mut out),
        Command::Doctor(args) => return commands::doctor(&args, &mut out),
        Command::Crds(args) => return commands::crds(&args, &mut out),
        Command::Policy(args) => return commands::policy(&args, &mut out),
        #[cfg(feature = "init")]
        Command::Completions { shell } => completions::print(shell, out.raw())?,
        Command::Version { licenses: true, .. } => version::print_licenses(out.raw())?,
        Command::Version { output, .. } => version::print(output, &mut out)?,
    }
    Ok(Exit::Success)
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
    kproxide_policy::serve_worker(args.memory_bytes, args.escape)?;
    Ok(Exit::Success)
}

/// # Errors
/// The filter has a part that is neither a level nor a directive. It would turn every log line off.
fn start_log(format: LogFormat, filter: &str) -> Result<(), Mistake> {
    let mistake = |problem: String| {
        Mistake(format!(
            "--log {filter:?} (KPROXIDE_LOG): {problem}: give a level, or directives such as info,kproxide_controller::act=debug"
        ))
    };
    let is_wrong = |part: &&str| {
        let is_level = part.parse::<LevelFilter>().is_ok();
        !part.is_empty() && !is_level && !part.contains(['=', ':', '['])
    };
    if let Some(part) = filter.split(',').map(str::trim).find(is_wrong) {
        return Err(mistake(format!("{part} is no level")));
    }
    if let Some(part) = filter
        .split(',')
        .find(|part| part.trim().starts_with("kproxide::"))
    {
        return Err(mistake(format!(
            "there is no {part}: the parts are kproxide_controller (such as kproxide_controller::act), kproxide_kube, kproxide_pve and kproxide_policy, and kproxide is all of them"
        )));
    }
    telemetry::start(format, filter).map_err(|error| mistake(error.to_string()))
}
