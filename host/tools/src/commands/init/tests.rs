//! What the tests of all parts use.

use clap::Parser as _;

use crate::args::Init;
use crate::args::tests::{Cli, Command};

/// The command line of a run.
pub(super) fn parsed(flags: &[&str]) -> Init {
    let words = ["kproxide", "init"].iter().chain(flags);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Init(args) => *args,
        other => panic!("{other:?}"),
    }
}
