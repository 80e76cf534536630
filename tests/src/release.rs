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

/// What the tests run is built with these arguments: it mostly waits for servers, or computes for minutes, and is built in two thirds of the time. All of it
/// has the same ones, so that the libraries are compiled once.
const OPTIMIZED_LESS: [&str; 2] = [
    "--config=profile.release.opt-level=1",
    "--config=profile.release.codegen-units=16",
];

/// What is built of kproxide for the image: no simulator.
pub const KPROXIDE: [&str; 2] = ["--package=kproxide", "--no-default-features"];

/// The release binary of kproxide for the image.
///
/// # Panics
///
/// When it cannot be built.
pub fn shipped_binary(target: &Path) -> PathBuf {
    built(target, &KPROXIDE, "kproxide", &[])
}

/// The binary that the end-to-end cases run: the [`shipped_binary`], optimized less. A bench gets the shipped one itself. If the environment variable
/// `KPROXIDE_E2E_BINARY` names an executable, both get that one.
///
/// # Panics
///
/// When it cannot be built.
pub fn kproxide_binary(target: &Path) -> PathBuf {
    let variable = "KPROXIDE_E2E_BINARY";
    if is_bench() && given(variable).is_none() {
        return shipped_binary(target);
    }
    release_binary(target, &KPROXIDE, "kproxide", variable)
}

/// Whether this process is a bench that measures: cargo gives it `--bench`. As a test (`cargo test`) a bench does not get that.
pub fn is_bench() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// The executable `name` from a build that is optimized less, linked statically, in `target` (the target folder that the tests are built in); `arguments` are those
/// of `cargo build` that say what is built, such as `--package=kproxide`. Cargo does nothing when it is up to date. The environment variable
/// `variable` names another executable, for trying a change without an optimized build.
///
/// # Panics
///
/// When it cannot be built; cargo's standard error says why.
pub fn release_binary(target: &Path, arguments: &[&str], name: &str, variable: &str) -> PathBuf {
    given(variable).unwrap_or_else(|| {
        let arguments = [arguments, &OPTIMIZED_LESS].concat();
        built(target, &arguments, name, &TESTED_ENVIRONMENT)
    })
}

fn given(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable)?;
    let path = fs::canonicalize(&path)
        .unwrap_or_else(|error| panic!("{variable}={}: {error}", path.display()));
    Some(path)
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
