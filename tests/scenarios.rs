//! The tables of acceptance scenarios and of bad input in `tests/README.md` against the tests that there are: a row that names none, or one that does not exist, is a lie.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources has failed"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What kproximate fails, and each has to be shown not to fail here.
const NUMBERS: [&str; 21] = [
    "B1", "B2", "B3", "B4", "B5", "B6", "B8", "B9", "B10", "B12", "B13", "B14", "B15", "B16",
    "B18", "B20", "B23", "B25", "B26", "B29", "keys",
];

/// What somebody will give us one day, and each has to be told.
const INPUTS: [&str; 16] = [
    "unknown field",
    "unknown flag",
    "missing template",
    "a VM that is no template",
    "wrong token",
    "wrong fingerprint",
    "missing privilege",
    "no storage space",
    "template syntax",
    "invalid label",
    "a policy that traps",
    "a policy that spins",
    "a policy that allocates",
    "NaN, a score above 1",
    "wrong or ineligible indices",
    "a policy that wants WASI",
];

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The names of all functions under a test attribute in the Rust files below a folder.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(tests_in(&fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The functions that follow `#[test]` or `#[tokio::test…]`, other attributes in between or not, and are not ignored.
fn tests_in(source: &str) -> Vec<String> {
    let mut marked = false;
    let mut names = Vec::new();
    for line in source.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            marked = true;
        } else if line.starts_with("#[ignore") {
            marked = false;
        } else if let Some(rest) = line
            .strip_prefix("async fn ")
            .or_else(|| line.strip_prefix("fn "))
        {
            if std::mem::take(&mut marked) {
                names.extend(rest.split('(').next().map(str::to_owned));
            }
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            marked = false;
        }
    }
    names
}

/// First cell and named tests of each row `| B1 | what | `test`, `test` |` that begins with one of `firsts`.
fn rows(table: &str, firsts: &[&str]) -> Vec<(String, Vec<String>)> {
    table
        .lines()
        .filter_map(|line| {
            let cells: Vec<_> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
            let [first, _, tests, ..] = cells[..] else {
                return None;
            };
            let tests = tests.split('`').skip(1).step_by(2);
            firsts
                .contains(&first)
                .then(|| (first.to_owned(), tests.map(str::to_owned).collect()))
        })
        .collect()
}

fn check(firsts: &[&str]) {
    let mut tests = BTreeSet::new();
    for folder in ["host", "policies", "tests"] {
        tests_below(&repository(folder), &mut tests);
    }
    let table = fs::read_to_string(repository("tests/README.md")).unwrap();
    let rows = rows(&table, firsts);
    let found: Vec<_> = rows.iter().map(|(first, _)| first.as_str()).collect();
    assert_eq!(found, firsts, "one row for each, in their order");
    for (first, named) in rows {
        assert!(!named.is_empty(), "{first} names no test");
        for test in named {
            assert!(
                tests.contains(&test),
                "{first} names {test}, which no file has as a test"
            );
        }
    }
}

#[test]
fn each_acceptance_scenario_names_tests_that_exist() {
    check(&NUMBERS);
}

#[test]
fn each_bad_input_names_tests_that_exist() {
    check(&INPUTS);
}

#[test]
fn only_functions_that_the_runner_runs_count() {
    let source =
        "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test]\n#[ignore = \"slow\"]\nasync fn c() {}\n";
    assert_eq!(tests_in(source), ["a"]);
}
