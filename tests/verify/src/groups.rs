//! The groups of tests that are not in `cargo verify`: how much of each a slice holds, and which changes bring a group in whole.

use std::collections::BTreeMap;

use crate::slice::holds;

/// Tests with `#[ignore = "tier: WORD"]`.
#[derive(Debug)]
pub struct Group {
    pub word: &'static str,
    /// A slice holds one test in so many. With 1 it holds each test, and the test cuts itself by [`crate::slice::number`].
    pub one_in: u64,
    /// Chosen so that the slices of the group are about as long as each other: see [`crate::slice::holds`].
    pub salt: &'static str,
    /// A change below one of these, compared with a base, brings the group in whole.
    pub brought_by: &'static [&'static str],
}

/// The one table of what is cut how.
pub const GROUPS: [Group; 9] = [
    Group {
        word: "seeds",
        one_in: 1,
        salt: "",
        brought_by: &[],
    },
    Group {
        word: "plans",
        one_in: 1,
        salt: "",
        brought_by: &[
            "host/simulator/",
            "host/planner/src/claim/",
            "tests/simulation/systematic",
        ],
    },
    Group {
        word: "mistakes",
        one_in: 1,
        salt: "",
        brought_by: &["tests/simulation/broken", "host/planner/src/mutants.rs"],
    },
    Group {
        word: "floors",
        one_in: 8,
        salt: "614",
        brought_by: &[
            "host/simulator/",
            "host/planner/src/claim/",
            "tests/simulation/",
        ],
    },
    Group {
        word: "days",
        one_in: 8,
        salt: "616",
        brought_by: &["tests/simulation/days"],
    },
    Group {
        word: "languages",
        one_in: 4,
        salt: "859",
        brought_by: &[
            "policies/",
            "wit/",
            "examples/policies/",
            "tests/e2e/languages.rs",
        ],
    },
    Group {
        word: "documents",
        one_in: 1,
        salt: "",
        brought_by: &["examples/", "README.md", "charts/", "tests/documents/"],
    },
    Group {
        word: "helm",
        one_in: 4,
        salt: "504",
        brought_by: &[
            "charts/",
            "tests/e2e/charts.rs",
            "tests/e2e/definitions.rs",
            "tests/e2e/upgrades.rs",
        ],
    },
    Group {
        word: "e2e",
        one_in: 4,
        salt: "908",
        brought_by: &["tests/e2e/"],
    },
];

impl Group {
    pub fn named(word: &str) -> Option<&'static Group> {
        GROUPS.iter().find(|group| group.word == word)
    }

    /// Whether the slice of this number holds a test of the group.
    pub fn holds(&self, test: &str, number: u64) -> bool {
        holds(self.salt, test, number, self.one_in)
    }

    pub fn is_brought_by(&self, changed: &[String]) -> bool {
        let brings = |file: &String| self.brought_by.iter().any(|place| file.starts_with(place));
        changed.iter().any(brings)
    }
}

/// The functions under `#[ignore = "tier: WORD"]` in a source, with their words; and every other `#[ignore…]`, which would be in no tier.
pub fn ignored(source: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let mut found = BTreeMap::new();
    let mut in_no_tier = Vec::new();
    let mut word = None;
    for line in source.lines().map(str::trim) {
        let named = line
            .strip_prefix("async fn ")
            .or_else(|| line.strip_prefix("fn "));
        // With a backslash it is a text about sources.
        let attribute = line
            .strip_prefix("#[ignore")
            .filter(|_| !line.contains('\\'));
        if let Some(reason) = attribute {
            word = reason
                .strip_prefix(" = \"tier: ")
                .and_then(|rest| rest.strip_suffix("\"]"))
                .filter(|word| Group::named(word).is_some())
                .map(str::to_owned);
            if word.is_none() {
                in_no_tier.push(line.to_owned());
            }
        } else if let (Some(rest), Some(word)) = (named, word.take_if(|_| named.is_some())) {
            let name = rest.split('(').next().unwrap_or(rest);
            found.insert(name.to_owned(), word);
        }
    }
    (found, in_no_tier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_in_the_tier_that_its_attribute_names_and_another_word_is_none() {
        let source = "\
            #[test]\n#[ignore = \"tier: e2e\"]\nfn a() {}\n#[test]\nfn b() {}\n\
            #[tokio::test]\n#[ignore = \"tier: helm\"]\nasync fn c() {}\n\
            #[test]\n#[ignore]\nfn d() {}\n#[test]\n#[ignore = \"tier: nosuch\"]\nfn e() {}\n";
        let (found, in_no_tier) = ignored(source);
        let found: Vec<_> = found
            .iter()
            .map(|(name, word)| (&**name, &**word))
            .collect();
        assert_eq!(found, [("a", "e2e"), ("c", "helm")]);
        assert_eq!(in_no_tier, ["#[ignore]", "#[ignore = \"tier: nosuch\"]"]);
    }
}
