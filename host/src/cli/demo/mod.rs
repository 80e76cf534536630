//! `kproxide demo`: the main job in front of your eyes. No cluster, no Proxmox: three simulated hypervisors, a simulated k3s, and between them the real loop with
//! the real policies, on fast-forwarded time.
//!
//! [`world`] is what there is, [`script`] what happens, [`lines`] how it is told.

mod lines;
mod script;
mod world;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use tokio::runtime::Builder;

use crate::args::Demo;

/// # Errors
/// The policy asked for cannot be used, or the run did not come to its end: the message says what was missing.
pub(super) fn run(args: &Demo, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    let policy = world::policy(&args.policy)?;
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(script::play(args.seed, policy, out))?;
    Ok(ExitCode::SUCCESS)
}
