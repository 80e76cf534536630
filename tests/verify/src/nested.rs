//! Cargo, called by a program that Cargo has started.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What Cargo tells a program about the program's own package.
const ABOUT_A_PACKAGE: [&str; 5] = [
    "CARGO_BIN_",
    "CARGO_CRATE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PRIMARY_",
];

/// Builds the program of `cargo sim`, with the mistakes that `--broken` switches on, from what the tests are built from: the whole workspace asks for its features.
/// What a run computes most in is optimized; with the crates above it that costs a fifth of what it saves in a slice.
pub const SIMULATION: [&str; 6] = [
    "build",
    "--workspace",
    "--bin=sim",
    "--features=kproxide-simulation/mutants",
    "--config=profile.dev.package.kproxide.opt-level=1",
    "--config=profile.dev.package.kproxide-simulation.opt-level=1",
];

/// Gives a call of Cargo the environment that it has when a person calls it. Some build scripts read what Cargo said about the program's own package: their
/// crates, and all above them, would be built again.
pub fn forget_the_package(cargo: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if ABOUT_A_PACKAGE.iter().any(|about| told.starts_with(about)) {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// The executable that a call of Cargo builds. The call gets one more argument, which `arguments` follow: `--` is among them, if anything is.
///
/// # Errors
///
/// If it builds none: Cargo has said why.
pub fn executable(cargo: &mut Command, arguments: &[&str]) -> io::Result<PathBuf> {
    cargo.arg("--message-format=json-render-diagnostics");
    let built = cargo.args(arguments).stderr(Stdio::inherit()).output()?;
    let messages = String::from_utf8_lossy(&built.stdout);
    let mut executables = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    let last = executables.next_back().filter(|_| built.status.success());
    last.ok_or_else(|| io::Error::other(format!("{cargo:?}: {}", built.status)))
}
