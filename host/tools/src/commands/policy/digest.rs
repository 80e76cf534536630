//! `kproxide policy show digest`: the name that a policy's bytes have everywhere.

use std::error::Error;
use std::io::Write;

use super::given::Given;
use crate::args::policy::Digest;
use crate::commands::Exit;

/// # Errors
/// There is no such file, or the output is closed.
pub(super) fn digest(args: &Digest, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let given = Given::read(&args.policy)?;
    writeln!(out, "sha256:{}  {}", given.digest(), given.place)?;
    Ok(Exit::Success)
}
