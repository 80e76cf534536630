//! The commands. Each builds what it needs and runs it to its end.

mod cage;
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
#[cfg(feature = "simulator")]
mod simulate;
mod status;
#[cfg(test)]
mod tests;

pub use crds::run as crds;
#[cfg(feature = "simulator")]
pub use demo::run as demo;
pub use doctor::run as doctor;
pub use exit::{Exit, Mistake, help};
#[cfg(feature = "init")]
pub use init::run as init;
pub use plan::{explain, print, run as plan};
pub use policy::run as policy;
#[cfg(feature = "simulator")]
pub use simulate::serve as simulate;
pub use status::run as status;

use std::fmt::Display;
use std::io::{self, Write as _};

use kproxide_common::foreign::Out;

/// Says something to the person who called a command. What cannot be said is nothing to end for.
pub fn tell(text: impl Display) {
    let _ = writeln!(Out::new(io::stderr()), "kproxide: {text}");
}
