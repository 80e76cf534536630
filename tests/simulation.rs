//! The simulation as a test: many seeds pass, two processes write the same log of each, every plan of the systematic stories
//! passes, and every mistake that is built in on purpose is caught. What runs is `cargo sim`, optimized. `tests/simulation/`
//! says what is simulated and what must hold.
//!
//! It computes for long, and the end-to-end cases mostly wait. So it is one of them, begins first, and steps back for them.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use kproxide_testkit::{in_background, release_binary};

const SEEDS: usize = 200;
/// Of each of these, a second process must write the same log.
const COMPARED: usize = 30;

/// Of all stories.
const PLANS: usize = 1600;

/// So many days, of so many seeds.
const DAYS: &str = "2";
const SEEDS_OF_DAYS: &str = "3";

/// Built into one program, and caught.
const MUTANTS: usize = 50;

#[test]
fn f1_f2_f3_f4_f5_f6_f8_f9_f10_f12_f13_f14_f17_f19_f20_f21_f22_f23_f24_f25_f26_f31_f60_f61_f62_f72_f73_f80_all_parts_of_the_simulation_pass()
 {
    let parts = [
        ("seeds", seeds as fn()),
        ("systematic", systematic),
        ("days", days),
    ];
    let begun = |(name, part): (&'static str, fn())| {
        let thread = thread::Builder::new().name(format!("simulation: {name}"));
        (name, thread.spawn(part).unwrap())
    };
    // One mistake is looked for at a time, mostly in one world: beside that there is room for the other parts.
    let mistakes = begun(("mistakes", mistakes));
    // What one part finds does not hide what the next would.
    let ended = parts.into_iter().map(begun).chain([mistakes]);
    let failed = ended.filter_map(|(name, thread)| thread.join().err().map(|_| name));
    let failed: Vec<&str> = failed.collect();
    assert!(failed.is_empty(), "{failed:?} failed, see above");
}

/// Every seed ends as its last load says, and another process writes the same log of it.
fn seeds() {
    // Straight to standard error: the test runner shows what is printed otherwise only when the test fails.
    let one = digests(SEEDS, Stdio::inherit());
    // And those that have shown a defect once.
    assert!(one.len() >= SEEDS, "{} seeds", one.len());
    let one = &one[..COMPARED];
    let other = &digests(COMPARED, Stdio::null())[..COMPARED];
    let differ: Vec<_> = one.iter().zip(other).filter(|(a, b)| a != b).collect();
    assert!(
        differ.is_empty(),
        "of {} seeds two processes write different logs (`cargo sim --seeds 1 --first SEED --log DIR` writes one): {differ:?}",
        differ.len()
    );
    let digests = one.iter().filter_map(|line| Some(line.split_once(' ')?.1));
    let digests: BTreeSet<&str> = digests.collect();
    assert_eq!(digests.len(), COMPARED, "two seeds run alike");
}

/// Crashes before and after every effect of a launch and of a removal, answers that are lost or late, requests that arrive late,
/// the Lease lost with the old host going on, and events of watches that are skipped or come late; all that
/// `cargo sim --systematic` enumerates.
fn systematic() {
    let told = told(&["--systematic"], Stdio::inherit());
    let plans = count(&told, "systematic: ");
    assert!(plans >= PLANS, "{plans} plans, expected at least {PLANS}");
}

/// A load that follows the clock, and faults at the rate of real life, for days: after the last of both the world comes to rest,
/// stays there for hours, until no VMID rests any more either, and nothing is left over. `tests/simulation/days/turns.rs` says
/// what a reversal is.
fn days() {
    // All at once: each is a process of one thread, and as long as the others.
    let days = [
        "--days",
        DAYS,
        "--seeds",
        SEEDS_OF_DAYS,
        "--threads",
        SEEDS_OF_DAYS,
    ];
    told(&days, Stdio::inherit());
}

/// Each of the mistakes that are built in on purpose is caught, by a law that it is about: whoever is caught by others only
/// survives.
fn mistakes() {
    // What panics on purpose is told by the table.
    let told = told(&["--broken"], Stdio::null());
    let mutants = count(&told, "broken: ");
    assert!(
        mutants >= MUTANTS,
        "{mutants} mutants, expected at least {MUTANTS}"
    );
}

fn sim() -> Command {
    // <target>/<profile>/kproxide
    let target = Path::new(env!("CARGO_BIN_EXE_kproxide"))
        .ancestors()
        .nth(2)
        .expect("cargo puts binaries two folders below the target folder");
    // The other cases wait for this one, and can begin while cargo goes on.
    crate::binary::kproxide();
    in_background(release_binary(
        target,
        &[
            "--package=kproxide-simulation",
            "--features=mutants",
            "--bin=sim",
        ],
        "sim",
        "KPROXIDE_SIM_BINARY",
    ))
}

/// Runs so many seeds in a process of its own, and returns the digest of each one's log, in order. `errors` gets the summary.
fn digests(seeds: usize, errors: Stdio) -> Vec<String> {
    let output = sim()
        .args(["--seeds", &seeds.to_string(), "--digests"])
        .stderr(errors)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo sim --seeds {seeds}: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Runs `cargo sim` with these arguments, which must succeed, shows what it prints and returns it.
fn told(arguments: &[&str], errors: Stdio) -> String {
    let output = sim().args(arguments).stderr(errors).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    io::stderr().write_all(told.as_bytes()).unwrap();
    assert!(
        output.status.success(),
        "cargo sim {arguments:?}: {}",
        output.status
    );
    told
}

/// The number that the last line with this beginning goes on with.
fn count(told: &str, beginning: &str) -> usize {
    let (_, number) = told.rsplit_once(beginning).unwrap();
    number.split(' ').next().unwrap().parse().unwrap()
}
