//! `cargo image`: the container image of this state of the sources, and how to bring it to a cluster.

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use kproxide_testkit::licenses::Shipped;
use kproxide_testkit::{Image, Packager, require_packager, shipped_binary};

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
    match image(&packager, target) {
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

fn image(packager: &Packager, target: &Path) -> Result<Image, String> {
    let licenses = target.join("THIRD-PARTY.txt");
    let text = Shipped::Image.third_party(ARCH)?;
    fs::write(&licenses, text).map_err(|error| format!("{}: {error}", licenses.display()))?;
    packager.image(&shipped_binary(target), &licenses, target)
}
