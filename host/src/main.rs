//! Parses, runs, maps the result to an exit code. What comes from the operating system comes in here.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{FromArgMatches, Parser as _};

use kproxide::cli::{self, Cli};
use kproxide_policy::PolicyWorker;
use kproxide_tools::commands::{Exit, tell};

#[cfg(feature = "mutants")]
compile_error!(
    "the feature `mutants` builds mistakes in: it is for `cargo sim` and `cargo broken`, never for this binary"
);

fn main() -> ExitCode {
    // One TLS provider for kube and reqwest. A second installation would fail, but this is the first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exit = run().unwrap_or_else(|error| {
        tell(kproxide_common::chain::chain(error.as_ref()));
        Exit::of(error.as_ref())
    });
    exit.into()
}

fn run() -> Result<Exit, Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments
        .peek()
        .is_some_and(|first| first == "policy-worker")
    {
        return cli::policy_worker(&PolicyWorker::parse_from(arguments));
    }
    cli::make_no_core_dumps();
    let cli = Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    cli::main(cli)
}

/// kubectl finds programs named kubectl-NAME, and people call them as `kubectl NAME`.
fn command() -> clap::Command {
    let program = std::env::args_os().next().map(PathBuf::from);
    let name = program.as_deref().and_then(Path::file_stem);
    match name.is_some_and(|name| name == "kubectl-kproxide") {
        true => cli::command().bin_name("kubectl kproxide"),
        false => cli::command(),
    }
}
