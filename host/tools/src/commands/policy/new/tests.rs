use std::collections::{BTreeMap, BTreeSet};

use super::*;

const LANGUAGES: [Language; 5] = [
    Language::Rust,
    Language::Js,
    Language::Go,
    Language::C,
    Language::Python,
];

fn each() -> impl Iterator<Item = (Kind, Language)> {
    let of = |kind: Kind| LANGUAGES.map(|language| (kind, language));
    Kind::ALL.into_iter().flat_map(of)
}

#[test]
fn each_kind_in_each_language_is_whole_and_has_no_name_but_its_own() {
    for (kind, language) in each() {
        let made = files("night-rate", kind, language);
        let paths: BTreeMap<&str, &[u8]> = made
            .iter()
            .map(|(path, bytes)| (&**path, &**bytes))
            .collect();
        assert_eq!(paths.len(), made.len(), "{language:?}: a path twice");
        let source = source(kind, language);
        for path in ["README.md", "wit/policy.wit", ".gitignore", &source] {
            assert!(paths.contains_key(path), "{kind:?} {language:?}: {path}");
        }
        for (path, bytes) in &paths {
            let Ok(text) = std::str::from_utf8(bytes) else {
                assert!(path.ends_with(".o"), "{path} is no text");
                continue;
            };
            for left in ["my-policy", "my_policy", "my-kind", "my-world", "MY-"] {
                assert!(!text.contains(left), "{path}: {left}");
            }
            for elsewhere in ["wit_component/", "bytecodealliance.org/pkg"] {
                assert!(!text.contains(elsewhere), "{path}: {elsewhere}");
            }
        }
        assert!(text_of(&paths, &source).contains("policy.wit") || language == Language::Rust);
    }
}

fn text_of<'a>(paths: &BTreeMap<&str, &'a [u8]>, path: &str) -> &'a str {
    std::str::from_utf8(paths[path]).unwrap()
}

#[test]
fn all_templates_and_bindings_are_part_of_some_policy() {
    let mut used = BTreeSet::new();
    for (kind, language) in each() {
        for (from, _) in STARTERS {
            if place(from, language.folder(), kind, language).is_some() {
                used.insert(*from);
            }
        }
    }
    let unused: Vec<&str> = STARTERS
        .iter()
        .map(|(from, _)| *from)
        .filter(|from| !used.contains(from) && !from.ends_with(".txt") && !from.ends_with("go.mod"))
        .collect();
    assert_eq!(unused, Vec::<&str>::new());
    assert!(used.len() > 50, "{used:?}");
}

#[test]
fn bindings_are_of_the_interface_that_is_served() {
    for (kind, function) in [
        (
            Kind::HostSelection,
            "kproxide:policy/host-selection@0.1.0#rank",
        ),
        (Kind::ScaleDown, "kproxide:policy/scale-down@0.1.0#order"),
        (Kind::Labels, "kproxide:policy/labels@0.1.0#decorate"),
    ] {
        for (language, file) in [(Language::Go, "wit_exports.go"), (Language::C, "policy.c")] {
            let made = files("mine", kind, language);
            let (_, bytes) = made.iter().find(|(path, _)| path == file).unwrap();
            let text = std::str::from_utf8(bytes).unwrap();
            assert!(text.contains(function), "{language:?}: {function}");
        }
    }
}

#[test]
fn the_sdk_of_a_new_policy_asks_for_what_the_workspace_has() {
    let workspace = include_str!("../../../../../../Cargo.toml");
    let sdk = text("templates/rust/sdk.toml");
    for dependency in ["serde = {", "wit-bindgen = {"] {
        let of = |text: &str| {
            let line = text.lines().find(|line| line.starts_with(dependency));
            line.map(str::to_owned)
        };
        // kproxide's own build makes the bindings without the macro.
        let sdk = of(&sdk).map(|line| line.replace("\"macros\", ", ""));
        assert_eq!(sdk, of(workspace), "{dependency}");
    }
}

#[test]
fn names_are_those_that_a_policy_and_a_crate_can_have() {
    for name in ["a", "racks", "night-rate", "b2"] {
        assert!(is_name(name), "{name}");
    }
    let long = "a".repeat(NAME_BYTES_MAX + 1);
    for name in [
        "",
        "-a",
        "a-",
        "a--b",
        "2a",
        "Racks",
        "my_policy",
        "../a",
        "a/b",
        "ä",
        &long,
    ] {
        assert!(!is_name(name), "{name}");
    }
}
