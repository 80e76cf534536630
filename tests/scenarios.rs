//! The tables of `tests/README.md` against the tests that there are: a row that names none, or one that does not exist, is a lie.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources has failed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
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

/// A table of numbered rows, each of which is shown by the tests that have its number in their names.
struct Numbered {
    /// What the numbers begin with.
    letter: char,
    /// How many rows there are.
    rows: u32,
    /// How many of them no test shows yet. When you show one, write one less; no change makes it more.
    open: usize,
}

/// What can go wrong.
const FAULTS: Numbered = Numbered {
    letter: 'F',
    rows: 120,
    open: 4,
};

/// What public reports of autoscalers and Proxmox tools showed.
const REPORTS: Numbered = Numbered {
    letter: 'R',
    rows: 30,
    open: 0,
};

/// What Proxmox's own daemons showed.
const DAEMONS: Numbered = Numbered {
    letter: 'P',
    rows: 7,
    open: 0,
};

/// Where a test is, and what is real there. The first that fits counts.
const LEVELS: [(&str, &str); 10] = [
    ("host/planner/", "planner"),
    ("host/src/act/tests/", "life"),
    ("host/src/app/", "program"),
    ("host/src/kube/real.rs", "control plane"),
    ("host/src/kube/simulated", "simulators"),
    ("host/src/pve/tests/simulated", "simulators"),
    ("tests/simulation", "simulation"),
    ("tests/e2e/", "control plane"),
    ("tests/chart/install.rs", "control plane"),
    ("", "unit"),
];

/// By name, the levels at which there is a test of that name.
type Tests = BTreeMap<String, BTreeSet<&'static str>>;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// What users of such a chart look for, and what a first day of operation stumbled over.
#[test]
fn each_row_of_the_chart_and_of_the_first_day_has_a_test() {
    let text = fs::read_to_string(repository("tests/data/chart/rows.txt")).unwrap();
    let tests = tests();
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
        for test in shown_by.filter(|test| !tests.contains_key(*test)) {
            wrong.push(format!("{number}: there is no test {test}"));
        }
    }
    assert_eq!(wrong.join("\n"), "");
    let rows = |letter: char, count: u32| (1..=count).map(move |row| format!("{letter}{row}"));
    let expected: Vec<String> = rows('C', 27).chain(rows('D', 21)).collect();
    assert_eq!(numbers, expected);
}

/// All tests of the repository.
fn tests() -> Tests {
    let mut found = Tests::new();
    for folder in ["host", "policies", "tests"] {
        tests_below(folder, &mut found);
    }
    found
}

/// The names of all functions under a test attribute in the Rust files below a folder.
fn tests_below(folder: &str, found: &mut Tests) {
    for entry in fs::read_dir(repository(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            tests_below(&path, found);
        } else if path.ends_with(".rs") {
            for name in tests_in(&fs::read_to_string(entry.path()).unwrap()) {
                found.entry(name).or_default().insert(level(&path));
            }
        }
    }
}

fn level(path: &str) -> &'static str {
    let mut levels = LEVELS.iter();
    levels
        .find(|(place, _)| path.starts_with(place))
        .map_or("unit", |(_, level)| level)
}

/// The functions that follow `#[test]` or `#[tokio::test…]`, other attributes in between or not, and are in `cargo verify` or another tier; and the names
/// that a macro `cases!` makes tests of, one in a line.
fn tests_in(source: &str) -> Vec<String> {
    let mut marked = false;
    let mut in_cases = false;
    let mut names = Vec::new();
    for line in source.lines().map(str::trim) {
        if line == "cases! {" {
            in_cases = true;
        } else if in_cases && line == "}" {
            in_cases = false;
        } else if in_cases {
            names.push(line.to_owned());
        } else if line == "#[test]" || line.starts_with("#[tokio::test") {
            marked = true;
        } else if line.starts_with("#[ignore") && !line.starts_with("#[ignore = \"tier: ") {
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

fn check(firsts: &[&str]) {
    let tests = tests();
    let table = fs::read_to_string(repository("tests/README.md")).unwrap();
    let rows = rows(&table, firsts);
    let found: Vec<_> = rows.iter().map(|cells| cells[0]).collect();
    assert_eq!(found, firsts, "one row for each, in their order");
    for cells in rows {
        let (first, named) = (cells[0], named(cells[2]));
        assert!(!named.is_empty(), "{first} names no test");
        for test in named {
            assert!(
                tests.contains_key(test),
                "{first} names {test}, which no file has as a test"
            );
        }
    }
}

/// The rows with this letter that a test shows, by its name: `f4_…`, `f4_f9_…`, `f4_to_f9_…`.
fn shown_by(name: &str, letter: char) -> BTreeSet<u32> {
    let letter = letter.to_ascii_lowercase();
    let number = |word: &&str| -> Option<u32> { word.strip_prefix(letter)?.parse().ok() };
    let words: Vec<_> = name.split('_').collect();
    let mut numbers: BTreeSet<u32> = words.iter().filter_map(number).collect();
    for window in words.windows(3) {
        if let [first, "to", last] = window
            && let (Some(first), Some(last)) = (number(first), number(last))
        {
            numbers.extend(first..=last);
        }
    }
    numbers
}

/// What is wrong with a table of numbered rows, in words that say what to write; and its counts.
fn check_numbered(table: &str, about: &Numbered, tests: &Tests) -> (Vec<String>, String) {
    let letter = about.letter;
    let mut by_number: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for name in tests.keys() {
        for number in shown_by(name, letter) {
            by_number.entry(number).or_default().insert(name);
        }
    }
    let numbers: Vec<String> = (1..=about.rows)
        .map(|number| format!("{letter}{number}"))
        .collect();
    let rows = rows(table, &numbers);
    let found: Vec<_> = rows.iter().map(|cells| cells[0]).collect();
    let mut problems = Vec::new();
    if found != numbers {
        problems.push(format!(
            "one row for each of {letter}1 to {letter}{}, in their order, not {found:?}",
            about.rows
        ));
    }
    let mut open = 0;
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for (number, cells) in (1..).zip(&rows) {
        let [first, what, cell, said, ..] = cells[..] else {
            problems.push(format!("{} has no cell for its level", cells[0]));
            continue;
        };
        let there = by_number.remove(&number).unwrap_or_default();
        let named: BTreeSet<&str> = named(cell).into_iter().collect();
        if what.is_empty() {
            problems.push(format!("{first} does not say what happens"));
        }
        if named != there {
            let there: Vec<_> = there.iter().map(|name| format!("`{name}`")).collect();
            problems.push(format!(
                "{first}: the tests whose names begin with its number are {}",
                there.join(", ")
            ));
            continue;
        }
        let levels: BTreeSet<&str> = there
            .iter()
            .flat_map(|name| tests[*name].iter().copied())
            .collect();
        let mut reached: Vec<&str> = Vec::new();
        for (_, level) in LEVELS {
            if levels.contains(level) && !reached.contains(&level) {
                reached.push(level);
            }
        }
        if said != reached.join(", ") {
            problems.push(format!(
                "{first}: its level is `{}`, not `{said}`",
                reached.join(", ")
            ));
        }
        for level in reached {
            *counts.entry(level).or_default() += 1;
        }
        if there.is_empty() {
            open += 1;
            if cell
                .strip_prefix("open: ")
                .is_none_or(|reason| reason.len() < 10)
            {
                problems.push(format!("{first} names no test and no reason (`open: …`)"));
            }
        }
    }
    for (number, names) in by_number {
        problems.push(format!(
            "there is no row {letter}{number}, which {names:?} name"
        ));
    }
    if open != about.open {
        problems.push(format!(
            "{open} rows {letter} are open, not {}: may that be?",
            about.open
        ));
    }
    let mut counted = format!(
        "{letter}: {} rows, {} shown, {open} open",
        rows.len(),
        rows.len() - open
    );
    for (level, count) in counts {
        let _ = write!(counted, "; {level} {count}");
    }
    (problems, counted)
}

#[test]
fn each_row_names_its_tests_and_each_test_of_a_row_is_named() {
    let table = fs::read_to_string(repository("tests/README.md")).unwrap();
    let tests = tests();
    let mut all = Vec::new();
    for about in [FAULTS, REPORTS, DAEMONS] {
        let (problems, counted) = check_numbered(&table, &about, &tests);
        // Straight to standard error: the test runner shows what is printed otherwise only when the test fails.
        writeln!(std::io::stderr().lock(), "{counted}").unwrap();
        all.extend(problems);
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn a_table_that_lies_is_found_out() {
    let tests: Tests = [("f1_f3_a", "planner"), ("b2_f4_to_f6_b", "unit")]
        .map(|(name, level)| (name.to_owned(), [level].into()))
        .into();
    let row = |number: u32| match number {
        1 | 3 => format!("| F{number} | what | `f1_f3_a` | planner |\n"),
        4..=6 => format!("| F{number} | what | `b2_f4_to_f6_b` | unit |\n"),
        _ => format!("| F{number} | what | open: not yet shown | |\n"),
    };
    let truth: String = (1..=FAULTS.rows).map(row).collect();
    let problems = |table: &str| {
        let (mut problems, _) = check_numbered(table, &FAULTS, &tests);
        problems.retain(|problem| !problem.contains("may that be"));
        problems.join("\n")
    };
    assert_eq!(problems(&truth), "");
    for (lie, found) in [
        (truth.replace(&row(7), ""), "one row for each"),
        (
            truth.replace("`f1_f3_a` | planner", "`f1_f3_a` | unit"),
            "F3: its level is `planner`",
        ),
        (
            truth.replace(
                "| F5 | what | `b2_f4_to_f6_b` |",
                "| F5 | what | open: not yet shown |",
            ),
            "F5: the tests",
        ),
        (
            truth.replace(
                "| F2 | what | open: not yet shown |",
                "| F2 | what | `f1_f3_a` |",
            ),
            "F2: the tests",
        ),
        (
            truth.replace("| F2 | what | open: not yet shown |", "| F2 | what | |"),
            "F2 names no test and no reason",
        ),
        (
            truth.replace("| F9 | what |", "| F9 | |"),
            "F9 does not say",
        ),
    ] {
        assert!(
            problems(&lie).contains(found),
            "{found}: {}",
            problems(&lie)
        );
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
    let source = "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test]\n#[ignore = \"slow\"]\nasync fn c() {}\ncases! {\n    d\n}\nfn e() {}\n\
        #[test]\n#[ignore = \"tier: e2e\"]\nfn f() {}\n";
    assert_eq!(tests_in(source), ["a", "d", "f"]);
}
