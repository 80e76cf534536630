//! Which of the tests that `cargo verify` leaves out a slice holds.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use kproxide_verify::groups::{Group, ignored};

/// `cargo slice [NUMBER] [--base COMMIT]`
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// None: the tree says it.
    pub(crate) number: Option<u64>,
    pub(crate) base: Option<String>,
}

impl Asked {
    /// Reads the arguments; `base` is the one of the environment. None if they are something else.
    pub(crate) fn parse(arguments: &[&str], base: Option<String>) -> Option<Self> {
        let mut asked = Self { number: None, base };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--base" => asked.base = Some((*arguments.next()?).to_owned()),
                number => asked.number = Some(number.parse().ok()?),
            }
        }
        Some(asked)
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("cargo slice")?;
        if let Some(number) = self.number {
            write!(out, " {number}")?;
        }
        match &self.base {
            Some(base) => write!(out, " --base {base}"),
            None => Ok(()),
        }
    }
}

/// What one executable runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    /// A change brought their group.
    pub(crate) whole: Vec<String>,
    /// They run in the slice of its number, and cut themselves if they are of a group that says so.
    pub(crate) cut: Vec<String>,
}

/// Of these tests, as the runner names them, those of the slice of this number, where these files have changed.
pub(crate) fn held(tests: &[String], number: u64, changed: &[String]) -> io::Result<Slice> {
    if tests.is_empty() {
        return Ok(Slice::default());
    }
    let words = words()?;
    let mut slice = Slice::default();
    for test in tests {
        let name = test.rsplit("::").next().unwrap_or(test);
        let group = words.get(name).and_then(|word| Group::named(word));
        let group = group.ok_or_else(|| {
            io::Error::other(format!(
                "{test} is ignored, and no source says `#[ignore = \"tier: …\"]` of it"
            ))
        })?;
        if group.is_brought_by(changed) {
            slice.whole.push(test.clone());
        } else if group.holds(name, number) {
            slice.cut.push(test.clone());
        }
    }
    Ok(slice)
}

/// The group of each test that is ignored, by its function's name.
fn words() -> io::Result<BTreeMap<String, String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut words = BTreeMap::new();
    for source in sources(&root)? {
        let (found, in_no_tier) = ignored(&source);
        if let Some(line) = in_no_tier.first() {
            return Err(io::Error::other(format!(
                "{line}: that is no tier, see tests/verify/src/groups.rs"
            )));
        }
        words.extend(found);
    }
    Ok(words)
}

fn sources(root: &Path) -> io::Result<Vec<String>> {
    let mut sources = Vec::new();
    let mut folders: Vec<_> = ["host", "policies", "tests"]
        .map(|folder| root.join(folder))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                // This package writes about the attribute.
                && !path.starts_with(root.join("tests/verify"))
            {
                let source = fs::read_to_string(&path)?;
                if source.contains("#[ignore") {
                    sources.push(source);
                }
            }
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What each test takes that `cargo verify` leaves out, in seconds; a test that cuts itself has what the whole of it takes, and behind it into how many
    /// parts a slice cuts it.
    const SECONDS: &str = include_str!("../seconds.txt");

    /// Numbers after which all slices come again.
    const ROUND: u64 = 8;

    fn all() -> Vec<String> {
        let words = words().unwrap();
        assert!(words.len() >= 50, "{words:?}");
        words.into_keys().collect()
    }

    /// Name, seconds, and parts.
    fn seconds() -> BTreeMap<&'static str, (f64, f64)> {
        let rows = SECONDS.lines().filter(|line| !line.starts_with('#'));
        rows.map(|row| {
            let mut cells = row.split(' ');
            let name = cells.next().unwrap();
            let mut number = || cells.next().map(|cell| cell.parse::<f64>().unwrap());
            (name, (number().unwrap(), number().unwrap_or(1.0)))
        })
        .collect()
    }

    #[test]
    fn each_test_that_takes_longer_is_in_a_group_and_has_its_seconds() {
        let seconds: Vec<String> = seconds().into_keys().map(str::to_owned).collect();
        assert_eq!(seconds, all(), "tests/verify/seconds.txt");
    }

    #[test]
    fn numbers_in_a_row_hold_everything_exactly_once() {
        let words = words().unwrap();
        for first in [0, 17, 999_995] {
            for test in all() {
                let group = Group::named(&words[&test]).unwrap();
                let numbers = first..first + group.one_in;
                let held = numbers.filter(|number| group.holds(&test, *number));
                assert_eq!(held.count(), 1, "{test} from {first}");
            }
        }
    }

    #[test]
    fn slices_take_about_as_long_as_each_other() {
        let (seconds, all) = (seconds(), all());
        let estimated = |number: u64| -> f64 {
            let held = held(&all, number, &[]).unwrap().cut;
            let of = |test: &String| {
                let (seconds, parts) = seconds[test.as_str()];
                seconds / parts
            };
            held.iter().map(of).sum()
        };
        let estimated: Vec<f64> = (0..ROUND).map(estimated).collect();
        let longest = estimated.iter().copied().fold(0.0, f64::max);
        let shortest = estimated.iter().copied().fold(f64::MAX, f64::min);
        assert!(
            longest <= 1.2 * shortest,
            "{estimated:.0?} s: other salts in tests/verify/src/groups.rs make them more alike"
        );
    }

    #[test]
    fn a_change_brings_its_groups_in_whole_and_nothing_else() {
        let all = all();
        let whole = |file: &str| held(&all, 0, &[file.to_owned()]).unwrap().whole;
        assert_eq!(whole("host/controller/src/app.rs"), Vec::<String>::new());
        let words = words().unwrap();
        for (file, expected) in [
            ("wit/policy.wit", vec!["languages"]),
            ("charts/kproxide/values.yaml", vec!["documents", "helm"]),
            ("README.md", vec!["documents"]),
            ("host/planner/src/claim/op.rs", vec!["floors", "plans"]),
        ] {
            let brought: BTreeSet<&str> = whole(file).iter().map(|test| &*words[test]).collect();
            assert_eq!(brought, expected.into_iter().collect(), "{file}");
            let of = |word: &&String| brought.contains(&***word);
            assert_eq!(
                whole(file).len(),
                words.values().filter(of).count(),
                "{file}"
            );
        }
        // A test is run once.
        let slice = held(&all, 0, &["README.md".to_owned()]).unwrap();
        assert!(slice.whole.iter().all(|test| !slice.cut.contains(test)));
    }

    #[test]
    fn the_line_that_is_printed_asks_for_the_same_slice() {
        for (number, base) in [
            (None, None),
            (Some(417), None),
            (Some(3), Some("abc".to_owned())),
        ] {
            let asked = Asked { number, base };
            let line = asked.to_string();
            let words: Vec<&str> = line.split(' ').skip(2).collect();
            assert_eq!(Asked::parse(&words, None), Some(asked));
        }
        let from_environment = Asked::parse(&["5"], Some("abc".to_owned())).unwrap();
        assert_eq!(from_environment.to_string(), "cargo slice 5 --base abc");
        assert_eq!(Asked::parse(&["--base"], None), None);
        assert_eq!(Asked::parse(&["five"], None), None);
    }
}
