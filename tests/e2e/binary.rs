//! The program under test: what is shipped, built once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names another executable, for trying a change without an optimized build.
const GIVEN: &str = "KPROXIDE_E2E_BINARY";

/// The release binary as the image has it: without the simulator, linked statically. Cargo builds it into its own target
/// folder, and so does nothing when it is up to date.
pub(crate) fn kproxide() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| match std::env::var_os(GIVEN) {
            Some(path) => fs::canonicalize(&path)
                .unwrap_or_else(|error| panic!("{GIVEN}={}: {error}", path.display())),
            None => build(),
        })
        .clone()
}

fn build() -> PathBuf {
    // <target>/<profile>/kproxide
    let target = Path::new(env!("CARGO_BIN_EXE_kproxide"))
        .ancestors()
        .nth(2)
        .expect("cargo puts binaries two folders below the target folder");
    let lock = File::create(target.join("e2e.lock")).unwrap();
    lock.lock().unwrap();
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--release",
            "--package=kproxide",
            "--no-default-features",
        ])
        .arg(format!("--target={triple}"))
        .current_dir(repository("."))
        .env("CARGO_TARGET_DIR", target)
        // Clippy looks at the build with all features; that this one has no warnings either, only this says.
        .env("RUSTFLAGS", "-C target-feature=+crt-static -D warnings");
    // What clippy and the outer cargo leave behind would make this another build.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("RUSTC") || name == "CARGO_ENCODED_RUSTFLAGS" {
            cargo.env_remove(name);
        }
    }
    eprintln!("building the release binary; the first time takes some minutes");
    let built = cargo.status().unwrap();
    assert!(built.success(), "{cargo:?}: {built}");
    target.join(triple).join("release/kproxide")
}

/// A path in the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
