//! Parses, runs, maps the result to an exit code. What comes from the operating system comes in here.

use std::process::ExitCode;

use clap::Parser;

use kproxide::args::Cli;
use kproxide::cli;

#[cfg(feature = "mutants")]
compile_error!(
    "the feature `mutants` builds mistakes in: it is for `cargo sim` and `cargo broken`, never for this binary"
);

fn main() -> ExitCode {
    // One TLS provider for kube and reqwest. A second installation would fail, but this is the first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match cli::main(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("kproxide: {}", kproxide::chain::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
