//! How the parent process starts one of its children.

use clap::{Parser, ValueEnum};

/// Answer for one policy of a file. `kproxide run` and the tools for authors start this for each of them; it is no command for people, and no list shows it
#[derive(Debug, Parser)]
#[command(name = "kproxide policy-worker")]
pub struct PolicyWorker {
    /// Use at most so much memory
    #[arg(long, value_name = "BYTES")]
    pub memory_bytes: u64,
    /// Try this from within the cage, to show that it holds
    #[arg(long = "try", value_enum, value_name = "WHAT")]
    pub escape: Option<Escape>,
}

/// What a worker tries once its cage is shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Escape {
    OpenFile,
    ParentEnvironment,
    Socket,
    Thread,
    Process,
}
