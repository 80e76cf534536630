//! `kproxide policy`: tools for the authors of policies. Each verb has a file.

mod export;
mod list;
#[cfg(feature = "init")]
mod new;

use std::error::Error;
use std::io::Write;

use super::Exit;
use crate::args::Policy;

/// # Errors
/// Those of the verb.
pub(super) fn run(args: &Policy, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    match args {
        Policy::List => list::list(out)?,
        Policy::Export { dir } => export::export(dir, out)?,
        #[cfg(feature = "init")]
        Policy::New(args) => new::new(args, out)?,
    }
    Ok(Exit::Success)
}
