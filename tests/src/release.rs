//! Optimized builds of this workspace, made once and shared: what a release build of everybody's crates costs, tests pay one time.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is shipped is built with this, besides cargo's arguments: variables of its environment.
///
/// Clippy looks at the build with all features; that this one has no warnings either, only `-D warnings` says. The alias `cargo sim` has the same flags.
pub const RELEASE_ENVIRONMENT: [(&str, &str); 1] =
    [("RUSTFLAGS", "-C target-feature=+crt-static -D warnings")];

/// What the tests run is built with this too: going over all units of a crate once more takes a fifth longer to build, and saves the tests less.
const TESTED_ENVIRONMENT: [(&str, &str); 1] = [("CARGO_PROFILE_RELEASE_LTO", "off")];

/// Names another executable than the one that the end-to-end cases and the benches would build.
const GIVEN: &str = "KPROXIDE_E2E_BINARY";

/// What is built of kproxide for the image: no simulator.
pub const KPROXIDE: [&str; 2] = ["--package=kproxide", "--no-default-features"];

/// And with these arguments, where real servers are waited for: kproxide computes little there, and is built in two thirds of the time.
const LITTLE_OPTIMIZED: [&str; 2] = [
    "--config=profile.release.package.kproxide.opt-level=1",
    "--config=profile.release.package.kproxide-planner.opt-level=1",
];

/// The release binary of kproxide for the image.
///
/// # Panics
///
/// When it cannot be built.
pub fn shipped_binary(target: &Path) -> PathBuf {
    built(target, &KPROXIDE, "kproxide", &[])
}

/// As [`shipped_binary`], but less optimized, except in a bench: what is measured is what is shipped. Or the one that `KPROXIDE_E2E_BINARY` names: see
/// [`release_binary`].
///
/// # Panics
///
/// When it cannot be built.
pub fn kproxide_binary(target: &Path) -> PathBuf {
    // What cargo says to a bench, and to no test.
    let measures = std::env::args().any(|argument| argument == "--bench");
    if measures && std::env::var_os(GIVEN).is_none() {
        return shipped_binary(target);
    }
    let arguments: Vec<&str> = KPROXIDE.into_iter().chain(LITTLE_OPTIMIZED).collect();
    release_binary(target, &arguments, "kproxide", GIVEN)
}

/// The executable `name` from an optimized build, linked statically, in `target` (the target folder that the tests are built in); `arguments` are those
/// of `cargo build` that say what is built, such as `--package=kproxide`. Cargo does nothing when it is up to date. The environment variable `given`
/// names another executable, for trying a change without an optimized build.
///
/// # Panics
///
/// When it cannot be built; cargo's standard error says why.
pub fn release_binary(target: &Path, arguments: &[&str], name: &str, given: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(given) {
        return fs::canonicalize(&path)
            .unwrap_or_else(|error| panic!("{given}={}: {error}", path.display()));
    }
    built(target, arguments, name, &TESTED_ENVIRONMENT)
}

fn built(target: &Path, arguments: &[&str], name: &str, environment: &[(&str, &str)]) -> PathBuf {
    let lock = File::create(target.join("release.lock")).expect("the target folder takes files");
    lock.lock().expect("the target folder has locks");
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = in_background(env!("CARGO"));
    cargo
        .args(["build", "--release"])
        .args(arguments)
        .arg(format!("--target={triple}"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .env("CARGO_TARGET_DIR", target);
    // What clippy and the outer cargo leave behind would make this another build.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let is_of_profile = name.starts_with("CARGO_PROFILE_RELEASE_");
        if is_of_profile || name.starts_with("RUSTC") || name == "CARGO_ENCODED_RUSTFLAGS" {
            cargo.env_remove(name);
        }
    }
    cargo
        .envs(RELEASE_ENVIRONMENT)
        .envs(environment.iter().copied());
    eprintln!("building the release binary {name}; the first time takes some minutes");
    let built = cargo.status().expect("cargo starts");
    assert!(built.success(), "{cargo:?}: {built}");
    target.join(triple).join("release").join(name)
}

/// A command that computes for long, at the lowest priority: what waits for real servers has deadlines.
pub fn in_background(program: impl AsRef<OsStr>) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(program);
    nice
}
