//! By which licences everything that is shipped may be passed on, and what `THIRD-PARTY.txt` says of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kproxide_testkit::ask_cargo;
use kproxide_testkit::licenses::{Library, Shipped, linked, third_party};
use serde_json::{Value, json};
use spdx::{Expression, Licensee, ParseMode};

const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// The list of `.cargo/deny.toml`, by which cargo-deny judges too.
fn allowed() -> Vec<Licensee> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cargo/deny.toml");
    let file: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    let names = file["licenses"]["allow"].as_array().unwrap();
    let names = names.iter().map(|name| name.as_str().unwrap());
    names.map(|name| Licensee::parse(name).unwrap()).collect()
}

/// What may not be shipped, and who asks for it.
fn forbidden(libraries: &[Library], allowed: &[Licensee]) -> Vec<String> {
    let mut found = Vec::new();
    for library in libraries {
        let license = library.license.as_deref().unwrap_or("no licence");
        let is_allowed = Expression::parse_mode(license, ParseMode::LAX).is_ok_and(|expression| {
            expression.evaluate(|needed| allowed.iter().any(|one| one.satisfies(needed)))
        });
        if !is_allowed {
            let needed_by: Vec<&str> = library.needed_by.iter().map(String::as_str).collect();
            found.push(format!(
                "{} has {license}, which deny.toml does not allow; needed by {}",
                library.title(),
                needed_by.join(", ")
            ));
        }
    }
    found
}

#[test]
fn everything_that_is_shipped_has_a_licence_that_is_allowed() {
    let allowed = allowed();
    for shipped in [Shipped::Image, Shipped::Archive] {
        for architecture in ARCHITECTURES {
            let libraries = shipped.libraries(architecture).unwrap();
            let has = |name: &str| libraries.iter().any(|one| one.name == name);
            // One of the program's, one of a policy's alone, and what is no crate.
            for name in ["wasmtime", "wit-bindgen", "GNU C Library"] {
                assert!(has(name), "{shipped:?}: {name}");
            }
            assert_eq!(has("ratatui"), shipped == Shipped::Archive);
            let certificates = "golang.org/x/crypto/x509roots/fallback";
            assert_eq!(has(certificates), shipped == Shipped::Image);
            // No crate is allowed what the C library is: kproxide's sources are open, so whoever wants another one can link it.
            let of_the_c_library =
                "GNU C Library has LGPL-2.1-or-later, which deny.toml does not allow; needed by ";
            assert_eq!(forbidden(&libraries, &allowed), [of_the_c_library]);
        }
    }
}

#[test]
fn what_is_not_allowed_is_named_with_who_needs_it() {
    let package = |name: &str, license: Option<&str>| {
        json!({
            "name": name, "version": "1.0.0", "source": "registry+https://github.com/rust-lang/crates.io-index", "license": license, "license_file": null,
            "authors": [], "repository": null, "manifest_path": format!("/crates/{name}/Cargo.toml"),
        })
    };
    let mut packages = vec![
        package("kproxide", Some("Apache-2.0")),
        package("kproxide-policy-spread", Some("Apache-2.0")),
        package("kproxide-policy-pack", Some("Apache-2.0")),
    ];
    for ours in &mut packages {
        ours["source"] = Value::Null;
    }
    packages.extend([
        package("serde", Some("MIT OR Apache-2.0")),
        package("copyleft", Some("GPL-3.0-only")),
        package("both", Some("MIT AND AGPL-3.0-only")),
        package("either", Some("GPL-2.0-only OR MIT")),
        package("slash", Some("MIT/Apache-2.0")),
        package("llvm", Some("Apache-2.0 WITH LLVM-exception")),
        package("classpath", Some("Apache-2.0 WITH Classpath-exception-2.0")),
        package("silent", None),
        package("vague", Some("a licence of mine")),
        package("unlinked", Some("GPL-3.0-only")),
    ]);
    let metadata = json!({ "packages": packages }).to_string();
    let program = "\
0kproxide v1.0.0 (/kproxide/host)
1serde v1.0.0
2copyleft v1.0.0
1either v1.0.0
1slash v1.0.0
1both v1.0.0
1copyleft v1.0.0 (*)
";
    let policies = "\
0kproxide-policy-spread v1.0.0 (/kproxide/policies/spread)
1llvm v1.0.0 (proc-macro)
2classpath v1.0.0

0kproxide-policy-pack v1.0.0 (/kproxide/policies/pack)
1silent v1.0.0
2vague v1.0.0
1both v1.0.0
";
    let libraries = linked(&metadata, &[program, policies]).unwrap();
    let names: Vec<&str> = libraries.iter().map(|one| one.name.as_str()).collect();
    let expected = [
        "both",
        "classpath",
        "copyleft",
        "either",
        "llvm",
        "serde",
        "silent",
        "slash",
        "vague",
    ];
    assert_eq!(names, expected);
    let wrong = |name: &str, license: &str, by: &str| {
        format!("{name} 1.0.0 has {license}, which deny.toml does not allow; needed by {by}")
    };
    assert_eq!(
        forbidden(&libraries, &allowed()),
        [
            wrong(
                "both",
                "MIT AND AGPL-3.0-only",
                "kproxide, kproxide-policy-pack"
            ),
            wrong(
                "classpath",
                "Apache-2.0 WITH Classpath-exception-2.0",
                "llvm"
            ),
            wrong("copyleft", "GPL-3.0-only", "kproxide, serde"),
            wrong("silent", "no licence", "kproxide-policy-pack"),
            wrong("vague", "a licence of mine", "silent"),
        ]
    );
    let unknown = linked(&metadata, &["0kproxide v1.0.0\n1unheard-of v1.0.0\n"]);
    assert!(unknown.unwrap_err().contains("unheard-of 1.0.0"));
}

/// `policies/build.rs` says which policies are built in.
#[test]
fn the_policies_that_are_asked_for_are_those_that_are_built_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/build.rs");
    let text = fs::read_to_string(path).unwrap();
    let table = |name: &str| -> Vec<String> {
        let (_, table) = text.split_once(&format!("const {name}: ")).unwrap();
        let (table, _) = table.split_once("];").unwrap();
        let names = table
            .split("(\"")
            .skip(1)
            .filter_map(|row| row.split('"').next());
        names
            .map(|name| format!("kproxide-policy-{name}"))
            .collect()
    };
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let (policies, hostile) = (table("POLICIES"), table("HOSTILE"));
    assert!(policies.len() > 1 && hostile.len() > 1, "{text}");
    assert_eq!(
        sorted(Shipped::Image.builtins().unwrap()),
        sorted(policies.clone())
    );
    let all = [policies, hostile].concat();
    assert_eq!(sorted(Shipped::Archive.builtins().unwrap()), sorted(all));
}

/// A crate on this computer, as a registry would unpack it.
fn library(folder: &Path, name: &str, license: &str, files: &[(&str, &str)]) -> Library {
    let folder = folder.join(name);
    fs::create_dir_all(&folder).unwrap();
    for (file, text) in files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Library {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        license: Some(license.to_owned()),
        authors: vec![format!("{name}'s first author"), "a second".to_owned()],
        folder: Some(folder),
        ..Library::default()
    }
}

#[test]
fn each_text_stands_once_with_the_crates_that_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let mit = "\u{feff}MIT: do as\r\nyou like  \r\n";
    let lines = third_party(
        Shipped::Image,
        "x86_64",
        &[
            library(
                folder.path(),
                "apple",
                "MIT OR Apache-2.0",
                &[
                    ("LICENSE-MIT", mit),
                    ("LICENSE-APACHE", "Apache: likewise"),
                    ("src/licenses.rs", "no licence"),
                    ("README.md", "no licence either"),
                ],
            ),
            library(
                folder.path(),
                "banana",
                "MIT",
                &[("license.txt", "MIT: do\nas you like")],
            ),
            library(
                folder.path(),
                "cherry",
                "ISC",
                &[("third_party/NOTICE", "of a copy in it")],
            ),
            library(folder.path(), "date", "ISC", &[]),
            library(
                folder.path(),
                "elder",
                "Apache-2.0 WITH LLVM-exception",
                &[
                    ("LICENSES/one", "of one"),
                    ("LICENSES/other", "of the other"),
                ],
            ),
        ],
    );
    let text = lines.unwrap();
    let (list, texts) = text.split_once("\n-----").unwrap();
    let (_, list) = list.split_once("\n\napple").unwrap();
    assert_eq!(
        format!("apple{list}"),
        "\
apple 1.0.0: MIT OR Apache-2.0; text 1, 2
banana 1.0.0: MIT; text 2
cherry 1.0.0: ISC; text 3, 4; it is by cherry's first author, a second, and has no file of its own
date 1.0.0: ISC; text 4; it is by date's first author, a second, and has no file of its own
elder 1.0.0: Apache-2.0 WITH LLVM-exception; text 5, 6, 7, 8; it is by elder's first author, a second, and has no file of its own
"
    );
    for (part, times) in [
        ("Text 1, of apple 1.0.0\n", 1),
        ("Text 2, of apple 1.0.0, banana 1.0.0\n", 1),
        ("\n\nMIT: do as\nyou like\n", 1),
        ("Apache: likewise", 1),
        ("Text 4, of cherry 1.0.0, date 1.0.0\n", 1),
        ("of a copy in it", 1),
        ("ISC License", 1),
        ("of the other", 1),
        ("LLVM Exceptions", 1),
        ("no licence", 0),
    ] {
        assert_eq!(texts.matches(part).count(), times, "{part:?} in {texts}");
    }
}

#[test]
fn a_crate_without_any_licence_makes_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let written = |license: Option<&str>| {
        let mut library = library(folder.path(), "silent", "", &[]);
        library.license = license.map(str::to_owned);
        third_party(Shipped::Image, "x86_64", &[library]).unwrap_err()
    };
    let reason = written(None);
    assert!(reason.contains("silent 1.0.0: it has neither"), "{reason}");
    let reason = written(Some("a licence of mine"));
    assert!(
        reason.contains("silent 1.0.0: \"a licence of mine\" is no SPDX"),
        "{reason}"
    );
    let reason = written(Some("LicenseRef-mine"));
    assert!(
        reason.contains("SPDX has no text for LicenseRef-mine"),
        "{reason}"
    );
}

/// Cargo's tree without metadata: what must stand in the text.
fn crates_of_the_image() -> BTreeMap<String, u32> {
    let trees = [
        "--package=kproxide --no-default-features --target=x86_64-unknown-linux-gnu".to_owned(),
        format!(
            "--target=wasm32-unknown-unknown --package={}",
            Shipped::Image.builtins().unwrap().join(" --package=")
        ),
    ];
    let mut crates = BTreeMap::new();
    for tree in trees {
        let asked = format!("tree --edges=normal --prefix=none --no-dedupe --format={{p}} {tree}");
        let arguments: Vec<&str> = asked.split(' ').collect();
        for line in ask_cargo(&arguments).unwrap().lines() {
            // Ours have a folder.
            if let Some((name, rest)) = line.split_once(" v").filter(|_| !line.contains("(/")) {
                let version = rest.split(' ').next().unwrap();
                crates.insert(format!("{name} {version}"), 0);
            }
        }
    }
    crates
}

#[test]
fn the_text_for_the_image_has_each_crate_that_is_linked_once() {
    let libraries = Shipped::Image.libraries("x86_64").unwrap();
    let [text, again] =
        [(); 2].map(|()| third_party(Shipped::Image, "x86_64", &libraries).unwrap());
    assert!(text == again, "the same sources give another text");
    for place in [env!("CARGO_MANIFEST_DIR"), ".cargo/registry/src"] {
        assert!(!text.contains(place), "{place} is of this computer");
    }
    let mut crates = crates_of_the_image();
    assert!(crates.len() > 250, "{crates:?}");
    let (head, texts) = text.split_once("\n-----").unwrap();
    let (_, list) = head.rsplit_once("\n\n").unwrap();
    let beside = [
        "Rust's standard library 1.",
        "GNU C Library:",
        "golang.org/x/crypto/x509roots/fallback v0.",
    ];
    let mut count = 0;
    let mut numbers = Vec::new();
    for line in list.lines() {
        let (title, rest) = line.split_once(": ").unwrap();
        let (_, rest) = rest.split_once("; text ").unwrap();
        let rest = rest.split("; it is by ").next().unwrap();
        numbers.extend(
            rest.split(", ")
                .map(|number| number.parse::<usize>().unwrap()),
        );
        if beside.iter().any(|known| line.starts_with(known)) {
            count += 1;
        } else {
            let times = crates.get_mut(title);
            *times.unwrap_or_else(|| panic!("{line} is not linked")) += 1;
        }
    }
    assert_eq!(count, beside.len());
    crates.retain(|_, times| *times != 1);
    assert_eq!(crates, BTreeMap::new(), "these are not there once");

    // Each text is somebody's, and stands there.
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, Vec::from_iter(1..=numbers.len()));
    for number in numbers {
        assert_eq!(texts.matches(&format!("\nText {number}, of ")).count(), 1);
    }
    for name in [
        "Apache License",
        "Permission is hereby granted",
        "GNU LESSER GENERAL PUBLIC LICENSE",
    ] {
        assert!(texts.contains(name), "{name}");
    }
}
