//! Executables of this workspace that tests run as processes of their own, built once and shared.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use kproxide_verify::nested::{SIMULATION, executable, forget_the_package};

/// What is shipped is built with this, besides cargo's arguments: variables of its environment.
///
/// Clippy looks at the build with all features; that this one has no warnings either, only `-D warnings` says.
pub const RELEASE_ENVIRONMENT: [(&str, &str); 1] =
    [("RUSTFLAGS", "-C target-feature=+crt-static -D warnings")];

/// What is built of kproxide for the image: no simulator.
pub const KPROXIDE: [&str; 2] = ["--package=kproxide", "--no-default-features"];

/// With this value `shipped`, the end-to-end cases run what is shipped. `cargo verify-all` sets it.
const WHICH: &str = "KPROXIDE_E2E";

/// The release binary of kproxide for the image, in `target`, the target folder that the tests are built in. Cargo does nothing when it is up to date.
///
/// # Panics
///
/// When it cannot be built; cargo's standard error says why.
pub fn shipped_binary(target: &Path) -> PathBuf {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = cargo(target, &["build", "--release", "--target", &triple]);
    cargo.args(KPROXIDE).envs(RELEASE_ENVIRONMENT);
    built(cargo, "the release binary; this takes some minutes", &[])
}

/// The binary that the end-to-end cases run: built as the other tests are, from the same libraries and with the demo, but linked statically, so that it runs in the
/// image. A bench gets the [`shipped_binary`], and so does everybody if [`is_shipped`].
///
/// # Panics
///
/// When it cannot be built; cargo's standard error says why.
pub fn kproxide_binary(target: &Path) -> PathBuf {
    if is_bench() || is_shipped() {
        return shipped_binary(target);
    }
    let cargo = cargo(target, &["rustc", "--package=kproxide", "--bin=kproxide"]);
    let statically = ["--", "-C", "target-feature=+crt-static"];
    let _one_at_a_time = lock(target);
    let built = built(cargo, "the static binary", &statically);
    // Cargo has one name for both ways to link it, and soon links the other again.
    let own = target.join("debug/static/kproxide");
    fs::create_dir_all(own.parent().unwrap_or(target)).expect("the target folder takes files");
    if let Err(error) = fs::remove_file(&own) {
        assert!(!own.exists(), "{}: {error}", own.display());
    }
    fs::hard_link(&built, &own).expect("the target folder has links");
    own
}

/// `cargo sim` as the tests run it, with the mistakes that `--broken` switches on: as the other tests are built, so that little of it is built anew.
///
/// # Panics
///
/// When it cannot be built; cargo's standard error says why.
pub fn simulation_binary(target: &Path) -> PathBuf {
    let _one_at_a_time = lock(target);
    built(cargo(target, &SIMULATION), "the simulation", &[])
}

/// Whether this process is a bench that measures: cargo gives it `--bench`. As a test (`cargo test`) a bench does not get that.
pub fn is_bench() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Whether the tests run what is shipped.
pub fn is_shipped() -> bool {
    std::env::var_os(WHICH).is_some_and(|which| which == "shipped")
}

fn cargo(target: &Path, arguments: &[&str]) -> Command {
    let mut cargo = in_background(env!("CARGO"));
    cargo
        .args(arguments)
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
    forget_the_package(&mut cargo);
    cargo
}

fn built(mut cargo: Command, called: &str, arguments: &[&str]) -> PathBuf {
    eprintln!("building {called}");
    executable(&mut cargo, arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// Held by one process at a time, until this is dropped.
fn lock(target: &Path) -> File {
    let lock = File::create(target.join("static.lock")).expect("the target folder takes files");
    lock.lock().expect("the target folder has locks");
    lock
}

/// A command that computes for long, at the lowest priority: what waits for real servers has deadlines.
pub fn in_background(program: impl AsRef<OsStr>) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(program);
    nice
}
