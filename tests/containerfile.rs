//! `host/Containerfile` and `cargo image` make the same image.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use kproxide_testkit::{KPROXIDE, RELEASE_ENVIRONMENT, require_packager};
use serde_json::{Value, json};

use crate::{commit, repository, stand_in};

/// What is compared of an image.
#[derive(Debug, PartialEq)]
struct Image {
    /// Mode and content of each file, by its path.
    files: BTreeMap<String, (u32, Vec<u8>)>,
    user: String,
    entrypoint: Value,
    labels: BTreeMap<String, String>,
}

#[test]
fn the_containerfile_and_cargo_image_make_the_same_image() {
    let Some(packager) = require_packager() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let image = stand_in(&packager, packager.path(), folder.path()).unwrap();
    let config = image.unpack(&at("unpacked"), &at("root"));
    let labels: BTreeMap<String, String> =
        serde_json::from_value(config["config"]["Labels"].clone()).unwrap();
    let made = Image {
        files: files_below(&at("root"), "/"),
        user: config["config"]["User"].as_str().unwrap().to_owned(),
        entrypoint: config["config"]["Entrypoint"].clone(),
        labels,
    };

    // What the stages before it leave, of which the first takes minutes: the stand-in is in its place.
    let text = fs::read_to_string(repository().join("host/Containerfile")).unwrap();
    packager.files(&at("stages/files/files")).unwrap();
    fs::create_dir_all(at("stages/program")).unwrap();
    fs::copy(packager.path(), at("stages/program/kproxide")).unwrap();
    fs::create_dir_all(at("stages/program/licenses")).unwrap();
    let licenses = at("stages/program/licenses/THIRD-PARTY.txt");
    fs::copy(repository().join("LICENSE"), licenses).unwrap();
    assert!(last_stage(&text, &at("stages")) == made);

    // The comparison sees each line of the last stage.
    let (before, last) = text.split_once("\nFROM scratch\n").unwrap();
    for line in last.lines() {
        // A container engine takes one that is not declared for empty.
        if line == "ARG KPROXIDE_COMMIT" && commit().is_empty() {
            continue;
        }
        let without = last.replace(&format!("{line}\n"), "");
        let text = format!("{before}\nFROM scratch\n{without}");
        assert!(last_stage(&text, &at("stages")) != made, "{line}");
    }
}

#[test]
fn the_containerfile_builds_what_cargo_image_builds() {
    let text = fs::read_to_string(repository().join("host/Containerfile")).unwrap();
    let stages: Vec<&str> = text.split("\nFROM ").skip(1).collect();
    let [program, files, _] = stages.as_slice() else {
        panic!("{text}");
    };
    let variables = RELEASE_ENVIRONMENT.map(|(name, value)| {
        let quoted = if value.contains(' ') { "\"" } else { "" };
        format!("{name}={quoted}{value}{quoted} ")
    });
    for part in variables.iter().map(String::as_str).chain(KPROXIDE) {
        assert!(program.contains(part), "{part} is not in {program}");
    }
    assert!(
        program
            .contains("\nRUN mkdir /licenses && cargo licenses image >/licenses/THIRD-PARTY.txt\n"),
        "{program}"
    );
    // Only what the tests build is optimized less.
    assert!(!program.contains("CARGO_PROFILE_"), "{program}");
    let toolchain = fs::read_to_string(repository().join("rust-toolchain.toml")).unwrap();
    let version = toolchain.split('"').nth(1).unwrap();
    assert!(program.starts_with(&format!("docker.io/library/rust:{version}-")));
    let module = fs::read_to_string(repository().join("tests/packaging/go.mod")).unwrap();
    let (_, version) = module.split_once("\ngo ").unwrap();
    let version = version.lines().next().unwrap().trim_end_matches(".0");
    assert!(
        files.starts_with(&format!("docker.io/library/golang:{version}-")),
        "{version}"
    );
    assert!(
        files.contains("\nCOPY tests/packaging/ .\nRUN go run . files /files\n"),
        "{files}"
    );

    // A clone has what it copies, and all that cargo asks for.
    let copied: Vec<&str> = program
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .flat_map(|line| line.split(' '))
        .collect();
    for entry in fs::read_dir(repository()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_of_the_build = !name.starts_with('.') && !name.starts_with("target");
        if is_of_the_build && !["README.md", "LICENSE"].contains(&name.as_str()) {
            let is_copied = copied.iter().any(|path| path.trim_end_matches('/') == name);
            assert!(is_copied, "{name} is not copied: {copied:?}");
        }
    }
    for path in copied.iter().filter(|path| **path != "./") {
        assert!(repository().join(path).exists(), "{path}");
    }
}

/// What a container engine makes of the last stage, with what the stages before it leave in folders of their names.
fn last_stage(text: &str, stages: &Path) -> Image {
    let (_, last) = text.rsplit_once("\nFROM scratch\n").unwrap();
    let mut image = Image {
        files: BTreeMap::new(),
        user: String::new(),
        entrypoint: json!(null),
        labels: BTreeMap::new(),
    };
    let mut declared = String::new();
    for line in last.lines() {
        let (instruction, rest) = line.split_once(' ').unwrap();
        match instruction {
            "ARG" if rest == "KPROXIDE_COMMIT" => declared = commit(),
            "COPY" => {
                let (stage, paths) = rest
                    .strip_prefix("--from=")
                    .unwrap()
                    .split_once(' ')
                    .unwrap();
                let (from, to) = paths.split_once(' ').unwrap();
                let source = stages.join(stage).join(from.trim_start_matches('/'));
                if source.is_dir() {
                    image.files.extend(files_below(&source, to));
                } else {
                    image.files.insert(to.to_owned(), file(&source));
                }
            }
            "LABEL" => {
                let (name, value) = rest.split_once('=').unwrap();
                let value: String = serde_json::from_str(value).unwrap();
                let value = value.replace("$KPROXIDE_COMMIT", &declared);
                image.labels.insert(name.to_owned(), value);
            }
            "USER" => image.user = rest.to_owned(),
            "ENTRYPOINT" => image.entrypoint = serde_json::from_str(rest).unwrap(),
            other => panic!("teach this test what {other} does"),
        }
    }
    image
}

fn files_below(folder: &Path, prefix: &str) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        if entry.path().is_dir() {
            files.extend(files_below(&entry.path(), &format!("{path}/")));
        } else {
            files.insert(path, file(&entry.path()));
        }
    }
    files
}

fn file(path: &Path) -> (u32, Vec<u8>) {
    let mode = path.metadata().unwrap().permissions().mode();
    (mode & 0o777, fs::read(path).unwrap())
}
