//! The tables of `tests/README.md`, and `tests/FAULTS.md`, against the tests that there are: a row that names none, or one that does not exist, is a lie.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources has failed"
)]

mod faults;

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

/// Who may be against us, and each has to be told what holds him.
const ACTORS: [&str; 10] = [
    "a tenant: creates pods in his namespaces",
    "a kubelet: root on one machine",
    "a guest: answers for the guest agent, or reads the disk",
    "a Proxmox user with rights in kproxide's pool",
    "the network between kproxide and Proxmox",
    "who writes NodePools, NodeClasses, NodeClaims or the Ledger",
    "who creates or changes ProxmoxClusters",
    "a thief of the ServiceAccount's token",
    "a thief of Proxmox's token",
    "who reads a disk or the memory of kproxide's host",
];

/// A function that the runner runs.
#[derive(Debug, PartialEq)]
struct Test {
    name: String,
    /// Its file, from the repository's folder.
    path: String,
    /// What stands in a line `/// Faults: F4, F6 to F9.` above it.
    faults: String,
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// What users of such a chart look for, and what a first day of operation stumbled over.
#[test]
fn each_row_of_the_chart_and_of_the_first_day_has_a_test() {
    let text = fs::read_to_string(repository("tests/data/chart/rows.txt")).unwrap();
    let tests = tests();
    let tests = names(&tests);
    let mut wrong = Vec::new();
    let mut numbers = Vec::new();
    for row in text.lines().filter(|row| !row.starts_with('#')) {
        let (what, shown_by) = row.split_once(" | ").unwrap_or((row, ""));
        let (number, what) = what.split_once(' ').unwrap();
        numbers.push(number.to_owned());
        let mut shown_by = shown_by.split(' ').filter(|it| !it.is_empty()).peekable();
        if what.is_empty() || shown_by.peek().is_none() {
            wrong.push(format!("{number}: no test"));
        }
        for test in shown_by.filter(|test| !tests.contains(test)) {
            wrong.push(format!("{number}: there is no test {test}"));
        }
    }
    assert_eq!(wrong.join("\n"), "");
    let rows = |letter: char, count: u32| (1..=count).map(move |row| format!("{letter}{row}"));
    let expected: Vec<String> = rows('C', 27).chain(rows('D', 21)).collect();
    assert_eq!(numbers, expected);
}

/// All tests of the repository.
fn tests() -> Vec<Test> {
    let mut found = Vec::new();
    for folder in ["host", "policies", "tests"] {
        tests_below(folder, &mut found);
    }
    found
}

/// All functions under a test attribute in the Rust files below a folder.
fn tests_below(folder: &str, found: &mut Vec<Test>) {
    for entry in fs::read_dir(repository(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            tests_below(&path, found);
        } else if path.ends_with(".rs") {
            found.extend(tests_in(&path, &fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

/// The names of tests.
fn names(tests: &[Test]) -> BTreeSet<&str> {
    tests.iter().map(|test| test.name.as_str()).collect()
}

/// The functions that follow `#[test]` or `#[tokio::test…]`, other attributes in between or not; and the names that a macro `cases!` makes tests of, one
/// in a line. One that is ignored is none, but for those of a tier: `cargo verify-all` runs them.
fn tests_in(path: &str, source: &str) -> Vec<Test> {
    let mut marked = false;
    let mut in_cases = false;
    let mut faults = String::new();
    let mut tests = Vec::new();
    let mut add = |name: &str, faults: String| {
        let (name, path) = (name.to_owned(), path.to_owned());
        tests.push(Test { name, path, faults });
    };
    for line in source.lines().map(str::trim) {
        if line == "cases! {" {
            in_cases = true;
        } else if in_cases && line == "}" {
            in_cases = false;
        } else if in_cases {
            add(line, String::new());
        } else if line == "#[test]" || line.starts_with("#[tokio::test") {
            marked = true;
        } else if line.starts_with("#[ignore") {
            marked &= line.starts_with("#[ignore = \"tier: ");
        } else if let Some(numbers) = line.strip_prefix("/// Faults: ") {
            numbers.clone_into(&mut faults);
        } else if let Some(rest) = line
            .strip_prefix("async fn ")
            .or_else(|| line.strip_prefix("fn "))
        {
            let faults = std::mem::take(&mut faults);
            if std::mem::take(&mut marked) {
                add(rest.split('(').next().unwrap(), faults);
            }
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            marked = false;
            faults.clear();
        }
    }
    tests
}

/// The cells of each row `| B1 | what | `test`, `test` | … |` that begins with one of `firsts`.
fn rows<'a>(table: &'a str, firsts: &[impl AsRef<str>]) -> Vec<Vec<&'a str>> {
    table
        .lines()
        .filter_map(|line| {
            let cells: Vec<_> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
            let is_row = firsts.iter().any(|first| first.as_ref() == cells[0]);
            (is_row && cells.len() > 3).then_some(cells)
        })
        .collect()
}

/// What a cell has between backticks.
fn named(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Each row of the page's table names tests in that column.
fn check(page: &str, firsts: &[&str], column: usize) {
    let tests = tests();
    let tests = names(&tests);
    let table = fs::read_to_string(repository(page)).unwrap();
    let rows = rows(&table, firsts);
    let found: Vec<_> = rows.iter().map(|cells| cells[0]).collect();
    assert_eq!(found, firsts, "one row for each, in their order");
    for cells in rows {
        let (first, named) = (cells[0], named(cells[column]));
        assert!(!named.is_empty(), "{first} names no test");
        for test in named {
            assert!(
                tests.contains(test),
                "{first} names {test}, which no file has as a test"
            );
        }
    }
}

#[test]
fn each_acceptance_scenario_names_tests_that_exist() {
    check("tests/README.md", &NUMBERS, 2);
}

#[test]
fn each_bad_input_names_tests_that_exist() {
    check("tests/README.md", &INPUTS, 2);
}

#[test]
fn s10_each_actor_of_the_security_page_names_tests_that_exist() {
    check(".github/SECURITY.md", &ACTORS, 4);
}

/// A longer name fits no line of a table, nor of what the runner prints.
#[test]
fn no_test_has_a_name_of_more_than_100_characters() {
    let tests = tests();
    let long: Vec<&Test> = tests.iter().filter(|test| test.name.len() > 100).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn only_functions_that_the_runner_runs_count() {
    let source = "\
#[test]
fn a() {}
fn b() {}
#[tokio::test]
#[ignore = \"slow\"]
async fn c() {}
/// What it shows.
/// Faults: F4, F6 to F9.
#[test]
#[ignore = \"tier: days\"]
fn d() {}
cases! {
    e
}
/// Faults: F5.
const F: u32 = 1;
#[test]
fn g() {}
fn h() {}
";
    let test = |name: &str, faults: &str| Test {
        name: name.to_owned(),
        path: "a.rs".to_owned(),
        faults: faults.to_owned(),
    };
    let expected = [
        test("a", ""),
        test("d", "F4, F6 to F9."),
        test("e", ""),
        test("g", ""),
    ];
    assert_eq!(tests_in("a.rs", source), expected);
}
