//! Policies of files in processes of their own: what a worker may do, that it answers as the engine in this process does, and that its death costs nothing.
//! The workers are the binary that `kproxide run` starts. Only here the engine can be asked directly.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

mod attempts;
mod deaths;
mod hostile;
mod questions;
mod reloads;
mod twins;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kproxide_builtins::{BUILTINS, Builtin, HOSTILE};
use kproxide_policy::{Engine, Execution, Workers};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kproxide");
/// What a container of 512 MiB leaves.
const MEMORY_BYTES: u64 = 352 << 20;

fn caged() -> Engine {
    caged_within(Duration::from_secs(60))
}

/// With so much time to load a file.
fn caged_within(load: Duration) -> Engine {
    caged_by(PathBuf::from(PROGRAM), load)
}

/// Whose workers this program is.
fn caged_by(program: PathBuf, load: Duration) -> Engine {
    let workers = Workers::new(program, MEMORY_BYTES).loading_within(load);
    Engine::new(Execution::Blocking).unwrap().caging(workers)
}

fn wasm(name: &str) -> Arc<[u8]> {
    let all: Vec<&Builtin> = BUILTINS.iter().chain(HOSTILE).collect();
    let of = all.iter().find(|policy| policy.name == name);
    of.unwrap_or_else(|| panic!("{name} is not embedded"))
        .wasm
        .into()
}
