//! `kproxide demo`: the main job in front of your eyes. No cluster, no Proxmox: three simulated hypervisors, a simulated k3s, and between them the real loop with
//! the real policies, on fast-forwarded time.
//!
//! [`world`] is what there is, [`script`] what happens, [`story`] what is told of it; [`plain`] and [`live`] are the two forms in which that is shown.

mod live;
mod plain;
mod script;
mod story;
mod world;

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal, Write};

use thiserror::Error;
use tokio::runtime::Builder;

use super::Exit;
use super::exit::Mistake;
use crate::args::Demo;
use kproxide_controller::app::AppError;
use live::Paint;
use plain::Plain;

/// Runs the demo in the form that the output allows.
///
/// # Errors
/// The policy asked for cannot be used, or the run did not come to its end: the message says what was missing.
pub fn run(args: &Demo, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    // For the processes of policies.
    let real_time = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let policy = real_time.block_on(world::policy(args))?;
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    if let Some(path) = &args.svg {
        let svg = runtime.block_on(live::still(args, policy))?;
        let written = fs::write(path, svg);
        written.map_err(|error| Mistake(format!("--svg {}: {error}", path.display())))?;
        return Ok(Exit::Success);
    }
    if args.plain || !io::stdout().is_terminal() || is("TERM", |term| term == "dumb") {
        runtime.block_on(script::play(args.seed, policy, &mut Plain(out)))?;
        return Ok(Exit::Success);
    }
    let paint = if is("NO_COLOR", |value| !value.is_empty()) {
        Paint::Monochrome
    } else {
        Paint::Colours
    };
    let mut live = live::open(args, paint)?;
    let played = runtime.block_on(script::play(args.seed, policy, &mut live));
    // Restore the terminal first, so that what follows goes into its scrollback.
    let end = live.close()?;
    if let Some(said) = end {
        writeln!(out, "{said}")?;
    }
    match played {
        Ok(()) => Ok(Exit::Success),
        Err(DemoError::Left(Leave::Quit)) => Ok(Exit::Success),
        Err(DemoError::Left(Leave::Interrupt)) => Ok(Exit::Interrupted),
        Err(error) => Err(error.into()),
    }
}

fn is(variable: &str, wanted: impl Fn(&OsStr) -> bool) -> bool {
    env::var_os(variable).is_some_and(|value| wanted(&value))
}

/// How the user left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Quit,
    /// Ctrl-C.
    Interrupt,
}

/// Why the demo did not come to its end.
#[derive(Debug, Error)]
pub(super) enum DemoError {
    #[error("the host ended")]
    Host(#[source] AppError),
    #[error("the host ended before the demo did")]
    HostEnded,
    #[error("waited {minutes} minutes in vain until {what}{why}", minutes = script::PATIENCE.as_secs() / 60)]
    InVain {
        what: &'static str,
        /// What kproxide said last of pods that get no machine.
        why: String,
    },
    #[error("kproxide refuses the policy: {0}")]
    Refused(String),
    #[error("no server carries a machine that could die with it")]
    NoMachine,
    #[error("{0}")]
    Incomplete(String),
    #[error("the output is closed")]
    Output(#[from] std::io::Error),
    /// The user has seen enough.
    #[error("left before the end")]
    Left(Leave),
}
