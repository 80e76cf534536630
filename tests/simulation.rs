//! The simulation as tests: seeds pass, two processes write the same log of each, plans of the systematic stories pass, and mistakes that are built
//! in on purpose are caught. What runs is `cargo sim`, built as the other tests are. `tests/simulation/` says what is simulated and what must hold.
//!
//! It computes for long, and the end-to-end cases mostly wait. So these tests are among them, begin first, and step back for them. In a slice
//! (`tests/verify`) each runs a part, which the number of the slice says.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use kproxide_testkit::{in_background, simulation_binary};
use kproxide_verify::slice;

/// For each change, always the same ones. Of each, a second process must write the same log.
const FEW: usize = 12;
/// In a slice: no two numbers give the same ones.
const FRESH: u64 = 60;
/// So many are never fresh: `cargo broken`, the floors and people use them.
const OLD: u64 = 100_000;
/// With everything else.
const SEEDS: u64 = 200;
/// Of these, the floors are half of what is met.
const OF_FLOORS: u64 = 100;

/// Of all stories.
const PLANS: usize = 1600;
const PARTS_OF_PLANS: u64 = 4;

/// Built into one program, and caught.
const MUTANTS: usize = 50;
const PARTS_OF_MUTANTS: u64 = 8;

/// So many days, of so many seeds.
const DAYS: &str = "2";
const SEEDS_OF_DAYS: &str = "3";

/// Every seed ends as its last load says, and another process writes the same log of it.
#[test]
fn a_few_seeds_end_as_they_should_and_two_processes_write_the_same_log() {
    // Straight to standard error: the test runner shows what is printed otherwise only when the test fails.
    let one = digests(FEW, Stdio::inherit());
    let other = digests(FEW, Stdio::null());
    assert_eq!(one.len(), FEW);
    let differ: Vec<_> = one.iter().zip(&other).filter(|(a, b)| a != b).collect();
    assert!(
        differ.is_empty(),
        "two processes write different logs (`cargo sim --seeds 1 --first SEED --log DIR` writes one): {differ:?}",
    );
    let digests = one.iter().filter_map(|line| Some(line.split_once(' ')?.1));
    let digests: BTreeSet<&str> = digests.collect();
    assert_eq!(digests.len(), FEW, "two seeds run alike");
}

#[test]
fn seeds_that_have_shown_a_defect_once_end_as_they_should() {
    let told = told(&["--regressions"], Stdio::inherit());
    let seeds = count(&told, "simulation: ");
    assert!(seeds >= 10, "{seeds} seeds");
}

/// Fresh ones in a slice, asked for laws only.
/// Faults: F1 to F6, F8 to F10, F12 to F14, F17, F19 to F26, F31, F60 to F62, F72, F73, F80.
#[test]
#[ignore = "tier: seeds"]
fn seeds_end_as_they_should() {
    let (first, seeds) = match slice::number() {
        Some(number) => (OLD + 1 + number * FRESH, FRESH),
        None => (1, SEEDS),
    };
    let (first, seeds) = (first.to_string(), seeds.to_string());
    told(&["--seeds", &seeds, "--first", &first], Stdio::inherit());
}

/// A simulation in which nothing goes wrong any more must not pass.
#[test]
#[ignore = "tier: floors"]
fn a_hundred_seeds_meet_what_is_worth_meeting_and_quiet_ones_do_not() {
    let seeds = OF_FLOORS.to_string();
    told(&["--seeds", &seeds, "--floors"], Stdio::inherit());
    let quiet = sim()
        .args(["--seeds", "10", "--floors", "--quiet"])
        .output()
        .unwrap();
    let said = String::from_utf8(quiet.stdout).unwrap();
    assert_eq!(quiet.status.code(), Some(1), "{said}");
    for missing in [
        "0 pairs of effect and fault",
        "clone answer lost: 0,",
        "died before: 0,",
        "seeds in which both replicas acted: 0,",
    ] {
        assert!(said.contains(missing), "{missing}: {said}");
    }
}

/// Crashes before and after every effect of a launch and of a removal, answers that are lost or late, requests that arrive late,
/// the Lease lost with the old host going on, and events of watches that are skipped or come late; all that
/// `cargo sim --systematic` enumerates, or a quarter of it.
#[test]
#[ignore = "tier: plans"]
fn plans_of_the_systematic_stories_end_as_without_faults() {
    let slice = slice::number().map(|number| format!("{number}/{PARTS_OF_PLANS}"));
    let told = told(&sliced("--systematic", slice.as_deref()), Stdio::inherit());
    let plans = count(&told, "systematic: ");
    let least = match slice {
        // By chance some more or fewer.
        Some(_) => PLANS / 5,
        None => PLANS,
    };
    assert!(plans >= least, "{plans} plans, expected at least {least}");
}

/// A load that follows the clock, and faults at the rate of real life, for days: after the last of both the world comes to rest,
/// stays there for hours, until no VMID rests any more either, and nothing is left over. `tests/simulation/days/turns.rs` says
/// what a reversal is.
#[test]
#[ignore = "tier: days"]
fn days_of_real_life_come_to_rest() {
    // A slice has no room for more than one day.
    let (days, seeds) = match slice::number() {
        Some(_) => ("1", "1"),
        None => (DAYS, SEEDS_OF_DAYS),
    };
    // All at once: each is a process of one thread, and as long as the others.
    let asked = ["--days", days, "--seeds", seeds, "--threads", seeds];
    told(&asked, Stdio::inherit());
}

/// Each of the mistakes that are built in on purpose, or an eighth of them, is caught by a law that it is about: whoever is caught by others only
/// survives.
#[test]
#[ignore = "tier: mistakes"]
fn mistakes_are_caught_by_the_laws_that_they_are_about() {
    let slice = slice::number().map(|number| format!("{number}/{PARTS_OF_MUTANTS}"));
    // What panics on purpose is told by the table.
    let told = told(&sliced("--broken", slice.as_deref()), Stdio::null());
    let mutants = count(&told, "broken: ");
    let least = match slice {
        Some(_) => MUTANTS / 10,
        None => MUTANTS,
    };
    assert!(
        mutants >= least,
        "{mutants} mutants, expected at least {least}"
    );
}

/// A mistake is in one of eight slices, and is caught there.
#[test]
fn a_mistake_is_caught_by_the_slice_that_holds_it_and_by_no_other() {
    let caught = (0..PARTS_OF_MUTANTS).map(|number| {
        let slice = format!("{number}/{PARTS_OF_MUTANTS}");
        let told = told(
            &["--broken", "deleted-by-name", "--slice", &slice],
            Stdio::null(),
        );
        assert!(told.contains(" 0 not caught"), "{told}");
        count(&told, "broken: ")
    });
    let mut caught: Vec<usize> = caught.collect();
    caught.sort_unstable();
    assert_eq!(caught, [0, 0, 0, 0, 0, 0, 0, 1]);
}

fn sliced<'a>(what: &'a str, slice: Option<&'a str>) -> Vec<&'a str> {
    let slice = slice.map(|slice| ["--slice", slice]);
    [what]
        .into_iter()
        .chain(slice.into_iter().flatten())
        .collect()
}

fn sim() -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    in_background(BUILT.get_or_init(build))
}

fn build() -> PathBuf {
    // <target>/<profile>/kproxide
    let target = Path::new(env!("CARGO_BIN_EXE_kproxide"))
        .ancestors()
        .nth(2)
        .expect("cargo puts binaries two folders below the target folder");
    // The other cases wait for this one, and can begin while cargo goes on.
    crate::binary::kproxide();
    simulation_binary(target)
}

/// Runs the first so many seeds in a process of its own, and returns the digest of each one's log, in order. `errors` gets the summary.
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
