//! The repository holds what was written for it alone: what others wrote comes from its registry, unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use kproxide_testkit::ask_cargo;
use kproxide_testkit::licenses::is_license;
use serde_json::{Value, json};
use toml::Table;

const OURS: &str = "Apache-2.0";
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Manifests that this test cannot read: whoever brings one in teaches it.
const UNKNOWN: [&str; 12] = [
    "build.gradle",
    "composer.json",
    "deno.json",
    "gemfile",
    "mix.exs",
    "package.swift",
    "pipfile",
    "pom.xml",
    "pyproject.toml",
    "requirements.txt",
    "setup.cfg",
    "setup.py",
];

/// Tables of a manifest that bring something in.
const ALL: [&str; 4] = [
    "dependencies",
    "dev-dependencies",
    "build-dependencies",
    "replace",
];

/// What is somebody else's, or is brought in from elsewhere than a registry. `files` are all that git tracks, by their paths from the root; only manifests need
/// a text.
fn copies(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        let name = path.rsplit('/').next().unwrap_or(path);
        let reasons = match name {
            "Cargo.toml" => cargo(path, text),
            "Cargo.lock" => locked(files, text),
            "go.mod" => go(text),
            "package.json" => npm(text),
            ".gitmodules" => vec!["a submodule is somebody else's repository".to_owned()],
            name if UNKNOWN.contains(&name.to_lowercase().as_str()) => {
                vec!["tests/copies.rs cannot read such a manifest: teach it".to_owned()]
            }
            name if path != "LICENSE" && is_license(&name.to_lowercase()) => {
                vec!["a licence beside ours: the folder is somebody else's".to_owned()]
            }
            _ => Vec::new(),
        };
        found.extend(reasons.iter().map(|reason| format!("{path}: {reason}")));
    }
    found
}

/// The dependencies of a manifest that are in tables of these names, for whatever target and of whatever registry.
fn dependencies<'a>(manifest: &'a Table, tables: &[&str]) -> Vec<(&'a String, &'a toml::Value)> {
    let below = |name: &str| manifest.get(name).and_then(toml::Value::as_table);
    let targets = below("target").into_iter().flat_map(Table::values);
    let places = [manifest].into_iter().chain(below("workspace"));
    let places = places.chain(targets.filter_map(toml::Value::as_table));
    let mut found: Vec<_> = places
        .flat_map(|place| {
            tables
                .iter()
                .filter_map(|table| place.get(*table)?.as_table())
        })
        .collect();
    let patches = below("patch").into_iter().flat_map(Table::values);
    found.extend(patches.filter_map(toml::Value::as_table));
    found.into_iter().flatten().collect()
}

fn cargo(path: &str, text: &str) -> Vec<String> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![error.to_string()],
    };
    let mut found = Vec::new();
    let workspace = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("package"));
    for package in manifest.get("package").into_iter().chain(workspace) {
        let license = package.get("license").and_then(toml::Value::as_str);
        found.extend(
            license
                .filter(|license| *license != OURS)
                .map(|license| format!("it is licensed under {license}")),
        );
        for field in ["authors", "license-file"] {
            found.extend(
                package
                    .get(field)
                    .map(|value| format!("it has {field}: {}", json!(value))),
            );
        }
    }
    for (name, dependency) in dependencies(&manifest, &ALL) {
        for field in ["git", "registry", "registry-index"] {
            let value = dependency.get(field);
            found.extend(value.map(|value| format!("{name} comes from {field} {}", json!(value))));
        }
        let from = dependency.get("path").and_then(toml::Value::as_str);
        if let Some(outside) = from.filter(|from| leaves_the_repository(path, from)) {
            found.push(format!(
                "{name} comes from {outside}, outside of this repository"
            ));
        }
    }
    found
}

fn leaves_the_repository(manifest: &str, path: &str) -> bool {
    let mut depth = manifest.matches('/').count();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

/// A lock file names each package that can be linked. One that has fallen behind its manifests hides what they ask for now. (What is optional stands in it only
/// if its workspace ever asks for that.)
fn locked(files: &BTreeMap<String, String>, text: &str) -> Vec<String> {
    let ours: BTreeMap<String, BTreeSet<String>> = files
        .iter()
        .filter(|(path, _)| path.rsplit('/').next() == Some("Cargo.toml"))
        .filter_map(|(_, text)| {
            let manifest: Table = text.parse().ok()?;
            let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
            // Of a package outside of its workspace, Cargo locks no dependencies of tests.
            let needed = dependencies(&manifest, &["dependencies", "build-dependencies"]);
            let package = |(name, one): (&String, &toml::Value)| {
                let text = |field: &str| one.get(field).and_then(toml::Value::as_str);
                let is_optional = one.get("optional").and_then(toml::Value::as_bool);
                let name = text("package").unwrap_or(name).to_owned();
                (is_optional != Some(true)).then_some(name)
            };
            Some((name, needed.into_iter().filter_map(package).collect()))
        })
        .collect();
    let lock: Table = match text.parse() {
        Ok(lock) => lock,
        Err(error) => return vec![error.to_string()],
    };
    let mut found = Vec::new();
    let packages = lock.get("package").and_then(toml::Value::as_array);
    for package in packages.into_iter().flatten() {
        let text = |field: &str| package.get(field).and_then(toml::Value::as_str);
        let name = text("name").unwrap_or_default();
        match (text("source"), ours.get(name)) {
            (Some(CRATES_IO), _) => {}
            (Some(source), _) => found.push(format!("{name} comes from {source}")),
            (None, None) => found.push(format!(
                "{name} is of no registry, and not in this repository"
            )),
            (None, Some(needed)) => {
                let has = package.get("dependencies").and_then(toml::Value::as_array);
                let has: BTreeSet<&str> = has
                    .into_iter()
                    .flatten()
                    .filter_map(|one| one.as_str()?.split(' ').next())
                    .collect();
                let lacks: Vec<&str> = needed
                    .iter()
                    .map(String::as_str)
                    .filter(|name| !has.contains(name))
                    .collect();
                if !lacks.is_empty() {
                    found.push(format!(
                        "{name} needs {lacks:?}, which it lacks: call cargo metadata beside it"
                    ));
                }
            }
        }
    }
    found
}

/// Go takes another version of a module from its registry by the same word by which it takes a folder or a copy of somebody's.
fn go(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((replaced, by)) = line.split_once("=>") else {
            continue;
        };
        let replaced = replaced.trim().trim_start_matches("replace ");
        let [replaced, by] = [replaced, by].map(|side| side.split_whitespace().next());
        if replaced != by {
            found.push(format!(
                "it brings a module in from elsewhere: {}",
                line.trim()
            ));
        }
    }
    found
}

fn npm(text: &str) -> Vec<String> {
    let manifest: Value = match serde_json::from_str(text) {
        Ok(manifest) => manifest,
        Err(error) => return vec![error.to_string()],
    };
    let mut found = Vec::new();
    let license = manifest.get("license").filter(|license| **license != OURS);
    found.extend(license.map(|license| format!("it is licensed under {license}")));
    for field in ["author", "contributors", "maintainers"] {
        found.extend(
            manifest
                .get(field)
                .map(|value| format!("it has {field}: {value}")),
        );
    }
    for kind in [
        "dependencies",
        "devDependencies",
        "optionalDependencies",
        "peerDependencies",
        "overrides",
    ] {
        for (name, version) in manifest
            .get(kind)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            // A place has one of these, such as git+ssh://…, file:…, or owner/repository. A version has none.
            if version
                .as_str()
                .is_none_or(|version| version.contains([':', '/']))
            {
                found.push(format!("{name} comes from {version}"));
            }
        }
    }
    found
}

/// Packages of Cargo's metadata that are neither of a registry nor tracked.
fn untracked(metadata: &Value, root: &Path, tracked: &BTreeMap<String, String>) -> Vec<String> {
    let packages = metadata["packages"].as_array().unwrap().iter();
    let wrong = packages.filter(|package| match package["source"].as_str() {
        Some(source) => source != CRATES_IO,
        None => {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            let inside = manifest.strip_prefix(root).ok().and_then(Path::to_str);
            let is_member = metadata["workspace_members"]
                .as_array()
                .unwrap()
                .contains(&package["id"]);
            !is_member || inside.is_none_or(|path| !tracked.contains_key(path))
        }
    });
    wrong
        .map(|package| package["id"].as_str().unwrap().to_owned())
        .collect()
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::canonicalize(root).unwrap()
}

/// Every file that git tracks, with the text of those that may be manifests.
fn tracked() -> BTreeMap<String, String> {
    let root = root();
    let mut git = Command::new("git");
    let listed = git
        .args(["ls-files", "-z"])
        .current_dir(&root)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&listed.stderr);
    assert!(
        listed.status.success(),
        "this test asks git what is tracked, in a clone: {said}"
    );
    let paths = String::from_utf8(listed.stdout).unwrap();
    let paths = paths.split_terminator('\0');
    let text = |path: &str| match path.ends_with(".toml")
        || path.ends_with(".lock")
        || path.ends_with(".mod")
        || path.ends_with(".json")
    {
        // A file may be removed, and not yet from git's list.
        true => fs::read_to_string(root.join(path)).ok(),
        false => root.join(path).exists().then(String::new),
    };
    paths
        .filter_map(|path| Some((path.to_owned(), text(path)?)))
        .collect()
}

#[test]
fn the_repository_holds_no_copies_and_each_dependency_comes_from_its_registry() {
    let tracked = tracked();
    for path in [
        "LICENSE",
        "host/Cargo.toml",
        "tests/fuzz/Cargo.lock",
        "tests/packaging/go.mod",
    ] {
        assert!(tracked.contains_key(path), "{path}");
    }
    let found = copies(&tracked);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let metadata = ask_cargo(&["metadata", "--format-version=1"]).unwrap();
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    assert_eq!(untracked(&metadata, &root(), &tracked), [""; 0]);
}

fn files(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    let files = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    files.collect()
}

/// What is found in files, each with the text that `[...]` in a line of it stands for.
fn assert_found(given: &[(&str, &str)], expected: &[(&str, &str)]) {
    let found = copies(&files(given));
    let wanted: Vec<&(&str, &str)> = expected.iter().collect();
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    for (found, (path, part)) in found.iter().zip(wanted) {
        assert!(
            found.starts_with(&format!("{path}: ")) && found.contains(part),
            "{found} for {path}: {part}"
        );
    }
}

#[test]
fn a_licence_of_somebody_else_is_found_and_sources_called_so_are_not() {
    let given = [
        ("LICENSE", ""),
        ("host/LICENSE", ""),
        ("host/common/src/copyright.rs", ""),
        ("policies/a/COPYING.txt", ""),
        ("policies/b/license-mit", ""),
        ("policies/c/Unlicense", ""),
        ("policies/d/README.md", ""),
        ("tests/licenses/mod.rs", ""),
    ];
    let expected = [
        "host/LICENSE",
        "policies/a/COPYING.txt",
        "policies/b/license-mit",
        "policies/c/Unlicense",
    ];
    assert_found(&given, &expected.map(|path| (path, "somebody else's")));
}

#[test]
fn a_manifest_of_somebody_else_is_found() {
    let ours = "[package]\nname = 'a'\nlicense = 'Apache-2.0'\n";
    assert_found(
        &[
            (".gitmodules", ""),
            ("Cargo.toml", "[workspace.package]\nlicense = 'MIT'\n"),
            ("a/Cargo.toml", ours),
            (
                "b/Cargo.toml",
                "[package]\nname = 'b'\nlicense.workspace = true\n",
            ),
            (
                "c/Cargo.toml",
                "[package]\nname = 'c'\nlicense = 'MIT OR Apache-2.0'\nauthors = ['somebody']\n",
            ),
            (
                "d/Cargo.toml",
                "[package]\nname = 'd'\nlicense-file = 'TERMS'\n",
            ),
            ("e/Cargo.toml", "no manifest"),
            (
                "f/package.json",
                r#"{"license": "Apache-2.0", "private": true}"#,
            ),
            (
                "g/package.json",
                r#"{"license": "ISC", "author": "somebody", "contributors": []}"#,
            ),
            ("h/pyproject.toml", "[project]\n"),
            ("i/Gemfile", ""),
        ],
        &[
            (".gitmodules", "submodule"),
            ("Cargo.toml", "licensed under MIT"),
            ("c/Cargo.toml", "licensed under MIT OR Apache-2.0"),
            ("c/Cargo.toml", "authors: [\"somebody\"]"),
            ("d/Cargo.toml", "license-file: \"TERMS\""),
            ("e/Cargo.toml", "TOML parse error"),
            ("g/package.json", "licensed under \"ISC\""),
            ("g/package.json", "author: \"somebody\""),
            ("g/package.json", "contributors: []"),
            ("h/pyproject.toml", "teach it"),
            ("i/Gemfile", "teach it"),
        ],
    );
}

#[test]
fn a_dependency_from_elsewhere_than_a_registry_is_found() {
    let manifest = "\
[dependencies]
fine = '1'
ours = { path = '../b' }
outside = { path = '../../c' }
[dev-dependencies]
by-git = { git = 'https://example.com/a' }
[build-dependencies]
absolute = { path = '/c' }
[target.'cfg(unix)'.dependencies]
other = { version = '1', registry = 'mine' }
[workspace.dependencies]
again = { git = 'https://example.com/b', version = '1' }
[patch.crates-io]
patched = { path = '../..' }
";
    let go = "\
module a

require example.com/b v1.0.0
replace example.com/b => ../b
replace example.com/b v1.0.0 => example.com/b v1.0.1
replace (
\texample.com/c => example.com/c v1.0.0
\texample.com/c => example.com/copy-of-c v1.0.0
)
";
    let npm = r#"{"dependencies": {"a": "^1.2.3 || 2.x", "b": "file:../b"}, "devDependencies": {"c": "owner/c", "d": "git+ssh://example.com/d"}}"#;
    assert_found(
        &[
            ("a/Cargo.toml", manifest),
            ("b/go.mod", go),
            ("c/go.mod", "module c\n"),
            ("d/package.json", npm),
        ],
        &[
            ("a/Cargo.toml", "outside comes from ../../c"),
            (
                "a/Cargo.toml",
                "by-git comes from git \"https://example.com/a\"",
            ),
            ("a/Cargo.toml", "absolute comes from /c"),
            (
                "a/Cargo.toml",
                "again comes from git \"https://example.com/b\"",
            ),
            ("a/Cargo.toml", "other comes from registry \"mine\""),
            ("a/Cargo.toml", "patched comes from ../.."),
            ("b/go.mod", "replace example.com/b => ../b"),
            ("b/go.mod", "example.com/copy-of-c"),
            ("d/package.json", "b comes from \"file:../b\""),
            ("d/package.json", "c comes from \"owner/c\""),
            ("d/package.json", "d comes from \"git+ssh://example.com/d\""),
        ],
    );
}

#[test]
fn a_lock_file_with_another_source_or_behind_its_manifests_is_found() {
    let manifest = "[package]\nname = 'a'\n[dependencies]\nserde = '1'\nc = { version = '0.2', package = 'libc' }\nnix = { version = '1', optional = true }\n[build-dependencies]\nwat = '1'\n[dev-dependencies]\nproptest = '1'\n";
    let lock = "\
[[package]]
name = 'a'
version = '1.0.0'
dependencies = ['libc 0.2.1']
[[package]]
name = 'b'
version = '1.0.0'
[[package]]
name = 'libc'
version = '0.2.1'
source = 'registry+https://github.com/rust-lang/crates.io-index'
[[package]]
name = 'c'
version = '1.0.0'
source = 'git+https://example.com/c#1234'
[[package]]
name = 'd'
version = '1.0.0'
source = 'registry+https://example.com/index'
";
    assert_found(
        &[("Cargo.lock", lock), ("a/Cargo.toml", manifest)],
        &[
            ("Cargo.lock", "a needs [\"serde\", \"wat\"]"),
            ("Cargo.lock", "b is of no registry"),
            ("Cargo.lock", "c comes from git+https://example.com/c#1234"),
            (
                "Cargo.lock",
                "d comes from registry+https://example.com/index",
            ),
        ],
    );
}

#[test]
fn a_package_that_is_not_tracked_or_no_member_is_found() {
    let package = |id: &str, source: Option<&str>, manifest: &str| json!({ "id": id, "source": source, "manifest_path": manifest });
    let metadata = json!({
        "workspace_members": ["ours", "new", "outside"],
        "packages": [
            package("serde", Some(CRATES_IO), "/registry/serde/Cargo.toml"),
            package("git", Some("git+https://example.com/a"), "/git/a/Cargo.toml"),
            package("ours", None, "/repository/a/Cargo.toml"),
            package("new", None, "/repository/new/Cargo.toml"),
            package("outside", None, "/elsewhere/a/Cargo.toml"),
            package("no-member", None, "/repository/b/Cargo.toml"),
        ],
    });
    let tracked = files(&[("a/Cargo.toml", ""), ("b/Cargo.toml", "")]);
    let found = untracked(&metadata, Path::new("/repository"), &tracked);
    assert_eq!(found, ["git", "new", "outside", "no-member"]);
}
