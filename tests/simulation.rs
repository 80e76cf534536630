//! The simulation as a test: many seeds pass, and two processes write the same log of each. What runs is `cargo sim`, optimized: a seed then takes a quarter
//! of the time. `tests/simulation/` says what is simulated and what must hold.

#![expect(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it should be"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use kproxide_testkit::release_binary;

/// Each runs in two processes at one time.
const SEEDS: usize = 100;

/// What two processes came to with the same seeds: the digests of their logs on standard output.
fn twice() -> &'static [Output; 2] {
    static TWICE: OnceLock<[Output; 2]> = OnceLock::new();
    TWICE.get_or_init(|| {
        // <target>/<profile>/kproxide
        let target = Path::new(env!("CARGO_BIN_EXE_kproxide"))
            .ancestors()
            .nth(2)
            .expect("cargo puts binaries two folders below the target folder");
        let sim = release_binary(
            target,
            &["--package=kproxide-simulation", "--bin=sim"],
            "sim",
            "KPROXIDE_SIM_BINARY",
        );
        let start = |errors: Stdio| -> Child {
            Command::new(&sim)
                .args(["--seeds", &SEEDS.to_string(), "--digests", "--threads=1"])
                .stdout(Stdio::piped())
                .stderr(errors)
                .spawn()
                .unwrap()
        };
        // The summary of one is enough. It goes straight to standard error: the test runner shows what is printed otherwise only when the test fails.
        let both = [start(Stdio::inherit()), start(Stdio::null())];
        both.map(|process| process.wait_with_output().unwrap())
    })
}

#[test]
fn every_seed_ends_as_its_last_load_says() {
    for output in twice() {
        assert!(output.status.success(), "cargo sim: {}", output.status);
    }
}

#[test]
fn two_processes_write_the_same_log() {
    let [one, other] = twice().each_ref().map(|output| {
        let text = str::from_utf8(&output.stdout).unwrap();
        text.lines().collect::<Vec<_>>()
    });
    let differ: Vec<_> = one.iter().zip(&other).filter(|(a, b)| a != b).collect();
    assert!(
        differ.is_empty(),
        "of {} seeds two processes write different logs (`cargo sim --seeds 1 --first SEED --log DIR` writes one): {differ:?}",
        differ.len()
    );
    assert_eq!(one.len(), other.len());
    assert!(one.len() >= SEEDS, "{} digests", one.len());
    let digests = one.iter().filter_map(|line| Some(line.split_once(' ')?.1));
    let digests: BTreeSet<&str> = digests.collect();
    assert_eq!(digests.len(), one.len(), "two seeds run alike");
}
