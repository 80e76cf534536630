//! `tests/FAULTS.md`: each thing that can go wrong, by its number, and where it is shown that it does no harm. The page is made from `data/faults.txt` and
//! from the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;

use crate::{Test, repository, tests};

/// Rows of one letter.
struct Table {
    letter: char,
    heading: &'static str,
    rows: u32,
    /// How many of them no test shows yet. When you show one, write one less; no change makes it more.
    open: usize,
}

const TABLES: [Table; 5] = [
    Table {
        letter: 'F',
        heading: "What can go wrong",
        rows: 120,
        open: 4,
    },
    Table {
        letter: 'R',
        heading: "What public reports of autoscalers and Proxmox tools showed",
        rows: 41,
        open: 0,
    },
    Table {
        letter: 'P',
        heading: "What Proxmox's own daemons showed",
        rows: 7,
        open: 0,
    },
    Table {
        letter: 'S',
        heading: "What an attack of an hour showed",
        rows: 12,
        open: 1,
    },
    Table {
        letter: 'N',
        heading: "What Proxmox's own daemons showed later",
        rows: 6,
        open: 0,
    },
];

/// Where a test is, and what is real there. The first that fits counts.
const LEVELS: [(&str, &str); 10] = [
    ("host/planner/", "planner"),
    ("host/controller/src/act/tests/", "life"),
    ("host/lab/tests/", "program"),
    ("host/kube/src/tests/real.rs", "control plane"),
    ("host/kube/src/tests/simulated", "simulators"),
    ("host/pve/src/tests/simulated", "simulators"),
    ("tests/simulation", "simulation"),
    ("tests/e2e/", "control plane"),
    ("tests/chart/install.rs", "control plane"),
    ("", "unit"),
];

const HEAD: &str = "\
# Faults

Each fault that we know of, and the files with the tests which show that it does no harm. A test has the number of its
fault in its name: `f4_…`, or `f4_f9_…` or `f4_to_f9_…` for several. Or the numbers stand above it in one line:
`/// Faults: F4, F6 to F9.` So a search for `f4_` or `F4` in a file finds the tests of F4 there, but for those in a range.

This page is made from `data/faults.txt` and from the tests. After a change of either:

```sh
KPROXIDE_UPDATE=1 cargo test -p kproxide-testkit --test scenarios
```

Levels, that is, what is real in a test:

- *planner*: the pure core
- *life*: whole lives of claims, through `act` on both simulators
- *program*: the whole program in one process
- *simulators*: an adapter on its simulator
- *simulation*: the seeds
- *control plane*: real API servers
- *unit*: everything else
";

fn level(path: &str) -> &'static str {
    let mut levels = LEVELS.iter();
    levels
        .find(|(place, _)| path.starts_with(place))
        .map_or("unit", |(_, level)| level)
}

/// The rows with this letter that `words` name: `f4_…`, `f4_f9_…`, `f4_to_f9_…`, `F4, F6 to F9.`
fn shown_by(words: &str, letter: char) -> BTreeSet<u32> {
    let words = words.to_lowercase();
    let letter = letter.to_ascii_lowercase();
    let number = |word: &&str| -> Option<u32> { word.strip_prefix(letter)?.parse().ok() };
    let words: Vec<_> = words
        .split(|it: char| !it.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
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

/// A line `F4 what happens`, or `F4 what happens | open: why no test shows it`.
struct Row<'a> {
    number: &'a str,
    what: &'a str,
    open: Option<&'a str>,
}

fn rows(text: &str, letter: char) -> Vec<Row<'_>> {
    let lines = text.lines().filter(|line| line.starts_with(letter));
    let row = |line| {
        let (number, rest) = str::split_once(line, ' ').unwrap_or((line, ""));
        let (what, open) = match rest.split_once(" | open: ") {
            Some((what, open)) => (what, Some(open)),
            None => (rest, None),
        };
        Row { number, what, open }
    };
    lines.map(row).collect()
}

/// The files that show one row: how many tests each has for it.
type Shown<'a> = BTreeMap<&'a str, usize>;

/// The table of a page; what is wrong with its rows, in words that say what to write; and its counts.
fn table(text: &str, about: &Table, tests: &[Test]) -> (String, Vec<String>, String) {
    let letter = about.letter;
    let mut by_number: BTreeMap<u32, Shown<'_>> = BTreeMap::new();
    for test in tests {
        let mut numbers = shown_by(&test.name, letter);
        numbers.extend(shown_by(&test.faults, letter));
        for number in numbers {
            *by_number
                .entry(number)
                .or_default()
                .entry(&test.path)
                .or_default() += 1;
        }
    }
    let rows = rows(text, letter);
    let numbers: Vec<&str> = rows.iter().map(|row| row.number).collect();
    let expected: Vec<String> = (1..=about.rows)
        .map(|row| format!("{letter}{row}"))
        .collect();
    let mut problems = Vec::new();
    if numbers != expected {
        problems.push(format!(
            "one row for each of {letter}1 to {letter}{}, in their order, not {numbers:?}",
            about.rows
        ));
    }
    let mut made = format!(
        "\n## {}\n\n| | what happens | level | tests |\n|---|---|---|---|\n",
        about.heading
    );
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut open = 0;
    for (number, row) in (1..).zip(&rows) {
        let Row {
            number: first,
            what,
            ..
        } = row;
        let shown = by_number.remove(&number).unwrap_or_default();
        let levels = levels(&shown);
        for level in &levels {
            *counts.entry(level).or_default() += 1;
        }
        open += usize::from(shown.is_empty());
        if what.is_empty() {
            problems.push(format!("{first} does not say what happens"));
        }
        match (shown.is_empty(), row.open) {
            (true, None) => problems.push(format!(
                "no test shows {first}, and it has no reason (`| open: …`)"
            )),
            (false, Some(_)) => {
                problems.push(format!("{first} is open no more: {shown:?} show it"))
            }
            (true, Some(why)) if why.len() < 10 => {
                problems.push(format!("{first}: {why:?} is no reason"))
            }
            (true, Some(_)) | (false, None) => {}
        }
        let cell = row
            .open
            .map_or_else(|| links(&shown), |why| format!("open: {why}"));
        writeln!(
            made,
            "| {first} | {what} | {} | {cell} |",
            levels.join(", ")
        )
        .unwrap();
    }
    for (number, shown) in by_number {
        problems.push(format!(
            "there is no row {letter}{number}, which tests in {shown:?} name"
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
        write!(counted, "; {level} {count}").unwrap();
    }
    (made, problems, counted)
}

/// The levels of these files, in the order in which they stand above.
fn levels(shown: &Shown<'_>) -> Vec<&'static str> {
    let there: BTreeSet<&str> = shown.keys().map(|path| level(path)).collect();
    let mut levels = Vec::new();
    for (_, level) in LEVELS {
        if there.contains(level) && !levels.contains(&level) {
            levels.push(level);
        }
    }
    levels
}

fn links(shown: &Shown<'_>) -> String {
    let link = |(path, count): (&&str, &usize)| {
        let target = path
            .strip_prefix("tests/")
            .map_or_else(|| format!("../{path}"), str::to_owned);
        let times = if *count > 1 {
            format!(" {count}")
        } else {
            String::new()
        };
        format!(
            "[{}]({target}){times}",
            path.strip_prefix("host/").unwrap_or(path)
        )
    };
    shown.iter().map(link).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_page_of_faults_has_each_row_and_each_test_of_a_row() {
    let text = fs::read_to_string(repository("tests/data/faults.txt")).unwrap();
    let tests = tests();
    let (mut page, mut all) = (HEAD.to_owned(), Vec::new());
    for about in &TABLES {
        let (table, problems, counted) = table(&text, about, &tests);
        // Straight to standard error: the test runner shows what is printed otherwise only when the test fails.
        writeln!(std::io::stderr().lock(), "{counted}").unwrap();
        page += &table;
        all.extend(problems);
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
    let file = repository("tests/FAULTS.md");
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        fs::write(&file, &page).unwrap();
    }
    assert!(
        fs::read_to_string(&file).is_ok_and(|there| there == page),
        "tests/FAULTS.md is not of these tests: KPROXIDE_UPDATE=1 cargo test -p kproxide-testkit --test scenarios"
    );
}

#[test]
fn a_row_that_lies_is_found_out() {
    let about = Table {
        letter: 'F',
        heading: "Two of each",
        rows: 9,
        open: 2,
    };
    let test = |name: &str, path: &str, faults: &str| Test {
        name: name.to_owned(),
        path: path.to_owned(),
        faults: faults.to_owned(),
    };
    let tests = [
        test("f1_f3_a", "host/planner/src/a.rs", ""),
        test("f3_b", "host/planner/src/a.rs", ""),
        test("b2_f4_to_f6_c", "tests/c.rs", ""),
        test("d", "tests/simulation.rs", "F1, F7 to F8."),
    ];
    let truth = "F1 one\nF2 two | open: not yet shown\nF3 three\nF4 four\nF5 five\nF6 six\nF7 seven\nF8 eight\nF9 nine | open: nor is this\n";
    let (made, problems, counted) = table(truth, &about, &tests);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        made,
        "
## Two of each

| | what happens | level | tests |
|---|---|---|---|
| F1 | one | planner, simulation | [planner/src/a.rs](../host/planner/src/a.rs), [tests/simulation.rs](simulation.rs) |
| F2 | two |  | open: not yet shown |
| F3 | three | planner | [planner/src/a.rs](../host/planner/src/a.rs) 2 |
| F4 | four | unit | [tests/c.rs](c.rs) |
| F5 | five | unit | [tests/c.rs](c.rs) |
| F6 | six | unit | [tests/c.rs](c.rs) |
| F7 | seven | simulation | [tests/simulation.rs](simulation.rs) |
| F8 | eight | simulation | [tests/simulation.rs](simulation.rs) |
| F9 | nine |  | open: nor is this |
"
    );
    assert_eq!(
        counted,
        "F: 9 rows, 7 shown, 2 open; planner 2; simulation 3; unit 3"
    );

    let problems = |text: &str, tests: &[Test]| table(text, &about, tests).1.join("\n");
    for (from, to, found) in [
        ("F7 seven\n", "", "one row for each of F1 to F9"),
        (
            "F3 three\nF4 four\n",
            "F4 four\nF3 three\n",
            "in their order",
        ),
        (
            "F5 five",
            "F5 five | open: not yet shown",
            "F5 is open no more",
        ),
        (
            " | open: not yet shown",
            "",
            "no test shows F2, and it has no reason",
        ),
        (
            " | open: not yet shown",
            " | open: why",
            "F2: \"why\" is no reason",
        ),
        ("F8 eight", "F8", "F8 does not say what happens"),
    ] {
        let lie = truth.replace(from, to);
        assert_ne!(lie, truth);
        assert!(
            problems(&lie, &tests).contains(found),
            "{found}: {}",
            problems(&lie, &tests)
        );
    }
    let fewer = problems(truth, &tests[..3]);
    assert!(
        fewer.contains("no test shows F7") && fewer.contains("4 rows F are open, not 2"),
        "{fewer}"
    );
    let more = problems(truth, &[test("f10_e", "tests/e.rs", "")]);
    assert!(
        more.contains("there is no row F10, which tests in {\"tests/e.rs\": 1} name"),
        "{more}"
    );
}
