//! Builds every built-in policy to a WebAssembly component, in one nested cargo call, and lists them for `lib.rs`.
//!
//! The nested call has a target folder of its own: within the outer one it would wait for the lock that the outer call
//! holds. It sees none of the outer call's compiler settings, so that `cargo clippy` or a user's `RUSTFLAGS` change
//! nothing about the components, and paths are taken out of them: the same sources give the same digest everywhere.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sha2::{Digest, Sha256};

#[path = "bindings.rs"]
mod bindings;
#[cfg(feature = "starters")]
#[path = "starters.rs"]
mod starters;

/// Name (also that of the folder and the file) and variant of `Kind`.
const POLICIES: [(&str, &str); 8] = [
    ("spread", "HostSelection"),
    ("max-memory", "HostSelection"),
    ("max-cpu", "HostSelection"),
    ("balanced", "HostSelection"),
    ("round-robin", "HostSelection"),
    ("pack", "HostSelection"),
    ("least-loaded", "ScaleDown"),
    ("go-template", "Labels"),
];

/// Policies that misbehave on purpose: tests of the engine ask for them by the feature `hostile`.
const HOSTILE: [(&str, &str); 3] = [
    ("hostile", "HostSelection"),
    ("hostile-scale-down", "ScaleDown"),
    ("hostile-labels", "Labels"),
];

const TARGET: &str = "wasm32-unknown-unknown";
const PROFILE: &str = "guest";

fn main() {
    let policies = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = policies
        .parent()
        .expect("policies/ is a folder of the workspace");
    let out = PathBuf::from(variable("OUT_DIR"));

    let hostile = env::var_os("CARGO_FEATURE_HOSTILE").is_some();
    let policies = POLICIES.iter().chain(HOSTILE.iter().filter(|_| hostile));
    let names: Vec<&str> = policies.map(|(name, _)| *name).collect();

    rerun_if_changed(workspace, &names);
    require_target();
    let target_dir = guest_target_dir(&out);
    build_guests(workspace, &target_dir, &names);
    let components = target_dir.join(TARGET).join(PROFILE);
    embed(&POLICIES, &components, &out, "builtins.rs");
    if hostile {
        embed(&HOSTILE, &components, &out, "hostile.rs");
    }
    #[cfg(feature = "starters")]
    starters::embed(workspace, &out);
    let stub = wat::parse_file(workspace.join("policies/preview1.wat"))
        .unwrap_or_else(|error| fail(&error.to_string()));
    write(&out.join("preview1.wasm"), &stub);
}

fn rerun_if_changed(workspace: &Path, names: &[&str]) {
    for name in names {
        for file in ["src", "Cargo.toml"] {
            println!(
                "cargo::rerun-if-changed={}",
                workspace.join("policies").join(name).join(file).display()
            );
        }
    }
    for file in [
        "policies/build.rs",
        "policies/bindings.rs",
        "policies/preview1.wat",
        "policies/sdk/src",
        "policies/sdk/Cargo.toml",
        "wit",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", workspace.join(file).display());
    }
}

/// Without the target's standard library, rustc fails for each crate with an error that does not say what to do.
fn require_target() {
    let rustc = variable("RUSTC");
    if has_target(&rustc) {
        return;
    }
    let tried = add_target();
    if !has_target(&rustc) {
        fail(&format!(
            "the built-in policies are built for {TARGET}, which this Rust toolchain ({rustc}) does not have.\n\
             Install it with: rustup target add {TARGET}\n{tried}"
        ));
    }
}

fn has_target(rustc: &str) -> bool {
    let answer = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    answer.is_ok_and(|answer| {
        let folder = String::from_utf8_lossy(&answer.stdout);
        answer.status.success()
            && fs::read_dir(folder.trim()).is_ok_and(|mut files| files.next().is_some())
    })
}

/// `rust-toolchain.toml` lists the target, but rustup reads that list only when it installs the toolchain: whoever has the
/// toolchain already lacks it, and the first command of the README shall work all the same. Returns what came of it.
fn add_target() -> String {
    // The proxies of rustup say which toolchain runs; without it cargo is not rustup's, and neither are its targets.
    let Ok(toolchain) = env::var("RUSTUP_TOOLCHAIN") else {
        return "(This toolchain is not one of rustup's.)".to_owned();
    };
    // RUSTUP_AUTO_INSTALL=0 is about toolchains that are chosen by being called; this is one that runs, and a target by name.
    let rustup = Command::new("rustup")
        .args(["target", "add", TARGET, "--toolchain", &toolchain])
        .output();
    match rustup {
        Ok(rustup) if rustup.status.success() => "(That was tried, with success.)".to_owned(),
        Ok(rustup) => format!(
            "(That was tried. rustup says: {})",
            String::from_utf8_lossy(&rustup.stderr).trim()
        ),
        Err(error) => format!("(That was tried, but rustup does not run: {error})"),
    }
}

/// Next to the outer profile's folder, shared by all profiles, by all `--target`s, and by check, clippy and build: `target/guests`.
fn guest_target_dir(out: &Path) -> PathBuf {
    let is_called = |folder: &Path, name: &str| folder.file_name() == Some(OsStr::new(name));
    let build = out.ancestors().find(|folder| is_called(folder, "build"));
    // <target>[/<triple>]/<profile>/build
    let mut target = build.and_then(Path::parent).and_then(Path::parent);
    if target.is_some_and(|folder| is_called(folder, &variable("TARGET"))) {
        target = target.and_then(Path::parent);
    }
    target.unwrap_or(out).join("guests")
}

fn build_guests(workspace: &Path, target_dir: &Path, names: &[&str]) {
    let mut cargo = Command::new(variable("CARGO"));
    // The lock file is the outer call's: never written from here.
    cargo
        .args([
            "build",
            "--locked",
            "--profile",
            PROFILE,
            "--target",
            TARGET,
        ])
        .current_dir(workspace);
    cargo.arg("--target-dir").arg(target_dir);
    for name in names {
        cargo.args(["--package", &format!("kproxide-policy-{name}")]);
    }
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(steers_the_compiler) {
            cargo.env_remove(name);
        }
    }
    // Also set in .cargo/config.toml, which cargo does not find when it is called from outside the repository.
    cargo.env(
        "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER",
        "wasm-component-ld",
    );
    let bindings = bindings::for_guests(workspace, target_dir);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", rustflags(workspace, &bindings));
    cargo.env("KPROXIDE_BINDINGS", &bindings);

    let output = cargo
        .output()
        .unwrap_or_else(|error| fail(&format!("cannot run cargo: {error}")));
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let hint = if said.contains("wasm-component-ld") && said.contains("not found") {
            "\nwasm-component-ld comes with the toolchains of rustup; a distribution's Rust may lack it."
        } else {
            ""
        };
        fail(&format!(
            "the built-in policies do not build:\n{said}{hint}"
        ));
    }
}

/// The variables of the outer call that would change which compiler runs, what it is told, or where it writes.
fn steers_the_compiler(name: &str) -> bool {
    let prefixes = [
        "RUSTC",
        "RUSTDOC",
        "CARGO_BUILD_",
        "CARGO_PROFILE_",
        "CARGO_TARGET_",
        "CLIPPY_",
    ];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_INCREMENTAL"].contains(&name)
}

/// Takes the places of sources on this machine out of panic messages, and has the bindings included that were made here. Being set, it also hides flags that a
/// user has in a cargo configuration of their own. Flags are separated as cargo expects it.
fn rustflags(workspace: &Path, bindings: &Path) -> String {
    let home =
        env::var("CARGO_HOME").or_else(|_| env::var("HOME").map(|home| format!("{home}/.cargo")));
    let mut places = vec![(workspace.display().to_string(), "kproxide")];
    places.extend(home.map(|home| (home, "cargo")));
    // The last that fits counts, and this may be within the workspace.
    places.push((bindings.display().to_string(), "bindings"));
    let places = places
        .iter()
        .map(|(place, name)| format!("--remap-path-prefix={place}={name}"));
    // Generated code is unsafe, which nothing written by hand may be. The lints see all of that elsewhere: where the guests are built as libraries.
    let bindings = ["--cfg=kproxide_bindings", "--cap-lints=warn"].map(str::to_owned);
    places.chain(bindings).collect::<Vec<_>>().join("\u{1f}")
}

/// Copies the components to `OUT_DIR` and writes the table that `lib.rs` includes.
fn embed(policies: &[(&str, &str)], components: &Path, out: &Path, file: &str) {
    let mut table = String::from("&[\n");
    for (name, kind) in policies {
        let built = components.join(format!("kproxide_policy_{}.wasm", name.replace('-', "_")));
        let wasm =
            fs::read(&built).unwrap_or_else(|error| fail(&format!("{}: {error}", built.display())));
        let copy = out.join(format!("{name}.wasm"));
        write(&copy, &wasm);
        let sha256 = hex(&Sha256::digest(&wasm));
        writeln!(
            table,
            "Builtin {{ name: {name:?}, kind: Kind::{kind}, wasm: include_bytes!({copy:?}), sha256: {sha256:?} }},"
        )
        .expect("a String takes any text");
    }
    table.push(']');
    write(&out.join(file), table.as_bytes());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(file: &Path, bytes: &[u8]) {
    fs::write(file, bytes).unwrap_or_else(|error| fail(&format!("{}: {error}", file.display())));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}

fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    std::process::exit(1);
}
