//! What is linked into what, asked of Cargo: what is shipped holds no simulator, the planner nothing that could do I/O, and the simulator no type of ours, so
//! that it cannot share a mistake with the program that it tests.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot ask Cargo has failed"
)]

mod copies;
mod layers;
mod licenses;

use std::collections::BTreeSet;
use std::path::Path;

use kproxide_testkit::ask_cargo;
use serde_json::Value;

/// The direct dependencies of a package that its own targets are built with, tests included, and whether each is of this repository.
fn direct(package: &str) -> Vec<(String, bool)> {
    let metadata = ask_cargo(&["metadata", "--no-deps", "--format-version=1"]).unwrap();
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|one| one["name"] == package).unwrap();
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    dependencies
        .map(|one| {
            (
                one["name"].as_str().unwrap().to_owned(),
                one["source"].is_null(),
            )
        })
        .collect()
}

#[test]
fn what_is_shipped_holds_no_simulator() {
    let tree = ask_cargo(&[
        "tree",
        "--package=kproxide",
        "--no-default-features",
        "--edges=normal",
        "--prefix=none",
        "--format={p}",
    ])
    .unwrap();
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let ours: BTreeSet<&str> = names.filter(|name| name.starts_with("kproxide")).collect();
    assert_eq!(
        ours.into_iter().collect::<Vec<_>>(),
        [
            "kproxide",
            "kproxide-builtins",
            "kproxide-common",
            "kproxide-controller",
            "kproxide-kube",
            "kproxide-planner",
            "kproxide-policy",
            "kproxide-pve",
            "kproxide-tools"
        ]
    );
}

/// An allocator such as jemalloc is built for one size of pages, that of the computer which builds it. A Raspberry Pi 5 has pages of 16 KiB.
#[test]
fn what_is_shipped_allocates_by_its_c_library() {
    let tree = ask_cargo(&[
        "tree",
        "--package=kproxide",
        "--edges=normal",
        "--target=all",
        "--prefix=none",
        "--format={p}",
    ])
    .unwrap();
    let names: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(names.contains("wasmtime"), "{names:?}");
    for allocator in ["jemalloc", "mimalloc", "snmalloc", "tcmalloc", "rpmalloc"] {
        let found: Vec<_> = names
            .iter()
            .filter(|name| name.contains(allocator))
            .collect();
        assert!(found.is_empty(), "{found:?}");
    }
}

/// What `cargo tree` says of our packages that the host is built of, and the features that they are built with.
fn features(of: &str) -> Vec<String> {
    let tree = ask_cargo(&[
        "tree",
        "--package=kproxide",
        "--edges=normal,features",
        "--prefix=none",
        "--format={lib} {f}",
        of,
    ])
    .unwrap();
    assert!(tree.contains("kproxide_planner"), "{tree}");
    let ours = tree.lines().filter(|line| line.starts_with("kproxide"));
    ours.map(str::to_owned).collect()
}

/// Small worlds, the targets of fuzzing and policies that misbehave are for tests and for those who try kproxide; mistakes to be caught are for the
/// simulation alone.
#[test]
fn what_is_shipped_holds_nothing_of_tests() {
    for line in features("--no-default-features") {
        for feature in ["fuzz", "fixtures", "hostile", "mutants"] {
            assert!(!line.contains(feature), "{line}");
        }
    }
    for line in features("--features=default") {
        assert!(!line.contains("mutants"), "{line}");
    }
}

#[test]
fn the_planner_depends_on_nothing_that_could_do_io() {
    let linked = |features: &[&str]| {
        let asked: [&[&str]; 3] = [
            &["tree", "--package=kproxide-planner", "--edges=normal"],
            &["--depth=1", "--prefix=none", "--format={lib}"],
            features,
        ];
        let tree = ask_cargo(&asked.concat()).unwrap();
        let names: BTreeSet<String> = tree.split_whitespace().map(str::to_owned).collect();
        names.into_iter().collect::<Vec<_>>()
    };
    let alone = ["base64", "jiff", "kproxide_planner", "serde"];
    assert_eq!(linked(&[]), alone);
    assert_eq!(linked(&["--features=fuzz,mutants"]), alone);
    // For the host, which makes definitions of the schemas.
    let with_schemas = ["base64", "jiff", "kproxide_planner", "schemars", "serde"];
    assert_eq!(linked(&["--features=schema"]), with_schemas);
}

#[test]
fn the_simulator_depends_on_nothing_of_ours() {
    let mut found = direct("kproxide-simulator");
    assert!(found.iter().any(|(name, _)| name == "hyper"), "{found:?}");
    found.retain(|(_, ours)| *ours);
    assert_eq!(found, []);
}

/// `tests/fuzz` needs a nightly compiler, and is built by nothing else: what it names is there, and everything that is there is named.
#[test]
fn the_targets_under_libfuzzer_are_those_of_the_property_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let set = |names: &mut dyn Iterator<Item = &str>| -> BTreeSet<String> {
        names.map(str::to_owned).collect()
    };
    let manifest = read("tests/fuzz/Cargo.toml");
    let bins = manifest.split("[[bin]]\nname = \"").skip(1);
    let bins: Vec<(&str, &str)> = bins.filter_map(|bin| bin.split_once('"')).collect();
    let targets = set(&mut bins.iter().map(|(name, _)| *name));
    assert!(targets.len() > 10, "{targets:?}");

    let files = std::fs::read_dir(root.join("tests/fuzz/targets")).unwrap();
    let files: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    let files = set(&mut files.iter().filter_map(|file| file.strip_suffix(".rs")));
    assert_eq!(files, targets);

    const CRATES: [&str; 5] = ["controller", "kube", "planner", "policy", "pve"];
    let tests = CRATES.map(|name| read(&format!("host/{name}/src/fuzz/tests.rs")));
    let tests = tests.concat();
    let tested = tests.split("super::").skip(1);
    let tested = set(&mut tested.filter_map(|call| Some(call.split_once("(&data)")?.0)));
    assert_eq!(tested, targets);

    let readme = read("tests/README.md");
    let (_, fuzzing) = readme.split_once("\n## Fuzzing\n").unwrap();
    let (fuzzing, _) = fuzzing.split_once("\n## ").unwrap();
    let rows = fuzzing.lines().filter_map(|line| line.strip_prefix("| `"));
    let named = rows.filter_map(|row| row.split(" | ").next());
    let listed = set(&mut named
        .flat_map(|names| names.split([',', '`', ' ']))
        .filter(|name| !name.is_empty()));
    assert_eq!(listed, targets);

    // What the files call is in the crate that tests it; the planner's own needs no adapter.
    for (target, settings) in bins {
        let path = format!("targets/{target}.rs");
        assert!(settings.contains(&format!("path = {path:?}")), "{settings}");
        let file = read(&format!("tests/fuzz/{path}"));
        let of = CRATES.iter().find(|name| {
            file.contains(&format!(
                "|data: &[u8]| kproxide_{name}::fuzz::{target}(data));"
            ))
        });
        let of = of.unwrap_or_else(|| panic!("{file}"));
        let tests = read(&format!("host/{of}/src/fuzz/tests.rs"));
        assert!(
            tests.contains(&format!("super::{target}(&data)")),
            "{target}"
        );
        let needs_host = settings.contains("required-features = [\"host\"]");
        assert_eq!(needs_host, *of != "planner", "{target}");
    }
}

/// Packages with the features that they are built with, once for each set of them; those of build scripts and macros too.
fn built(arguments: &[&str]) -> BTreeSet<String> {
    let tree =
        ask_cargo(&[&["tree", "--prefix=none", "--format={p} [{f}]"], arguments].concat()).unwrap();
    let lines = tree
        .lines()
        .filter_map(|line| line.split_inclusive(']').next());
    let lines = lines.filter(|line| line.contains(" v"));
    lines.map(str::to_owned).collect()
}

/// A feature that only a test brings in is another build of the crate and of all above it, for CI and for a newcomer who tries `cargo demo` and then `cargo verify`.
#[test]
fn the_tests_are_built_of_what_the_demo_is_built_of() {
    let demo = built(&["--package=kproxide", "--edges=normal,build"]);
    let tests = built(&["--workspace", "--edges=normal,build,dev"]);
    assert!(
        demo.iter().any(|line| line.starts_with("tokio v")),
        "{demo:?}"
    );
    let again: Vec<_> = demo.difference(&tests).collect();
    assert!(
        again.is_empty(),
        "`cargo verify` builds these again, with other features: {again:#?}"
    );
}

/// Build scripts and macros share the crates of the program if they ask for the same features: `build-dependencies` of `policies/Cargo.toml`.
#[test]
fn the_demo_builds_no_crate_of_one_version_twice() {
    let demo = built(&["--package=kproxide", "--edges=normal,build"]);
    let mut before = BTreeSet::new();
    let versions = demo.iter().filter_map(|line| line.split(" [").next());
    let twice = versions.filter(|version| !before.insert(*version));
    let twice: Vec<_> = twice
        .filter_map(|version| version.split(' ').next())
        .collect();
    // Seconds, and of no version that we could ask for.
    assert_eq!(
        twice,
        [
            "bumpalo",
            "cranelift-bitset",
            "object",
            "pulley-interpreter",
            "wasmtime-internal-core"
        ]
    );
}
