//! `cargo image`: the container image of this state of the sources, and how to bring it to a cluster.

use std::path::Path;
use std::process::ExitCode;

use kproxide_testkit::{require_packager, shipped_binary};

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people"
)]
fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        eprintln!(
            "usage: cargo image\nIt writes an archive for this computer's architecture to target."
        );
        return ExitCode::from(2);
    }
    let executable = std::env::current_exe().expect("a process has an executable");
    // <target>/<profile>/image
    let target = executable.ancestors().nth(2).unwrap_or(Path::new("target"));
    let Some(packager) = require_packager() else {
        return ExitCode::FAILURE;
    };
    let binary = shipped_binary(target);
    match packager.image(&binary, target) {
        Ok(image) => {
            println!("{image}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{}", reason.trim_end());
            ExitCode::FAILURE
        }
    }
}
