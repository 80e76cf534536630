//! A part of `build.rs`: what `kproxide policy new` writes. The bindings of C and Go are made of `wit/policy.wit` in each
//! build, by the generators of the version that the Rust policies are built with: they cannot go stale.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use wit_bindgen_core::WorldGenerator;

use crate::{bindings, fail, write};

const WORLDS: [(&str, &str); 3] = [
    ("host-selection", "host-selection-policy"),
    ("scale-down", "scale-down-policy"),
    ("labels", "label-policy"),
];

pub(crate) fn embed(workspace: &Path, out: &Path) {
    let mut files = Vec::new();
    for (name, folder) in [
        ("templates", "policies/templates"),
        ("sdk", "policies/sdk/src"),
    ] {
        let folder = workspace.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut found = Vec::new();
        walk(&folder, &mut found);
        for file in found {
            let path = file.strip_prefix(&folder).expect("it is in the folder");
            let path = path.to_str().expect("our files have names of letters");
            files.push((format!("{name}/{path}"), file.clone()));
        }
    }
    for (kind, world) in WORLDS {
        for (language, generator) in [("c", c()), ("go", go())] {
            for (path, bytes) in bindings::of(workspace, world, generator) {
                let file = out.join("bindings").join(language).join(kind).join(&path);
                fs::create_dir_all(file.parent().expect("it is in a folder"))
                    .unwrap_or_else(|error| fail(&format!("{}: {error}", file.display())));
                write(&file, &bytes);
                files.push((format!("bindings/{language}/{kind}/{path}"), file));
            }
        }
    }
    files.sort();
    let mut table = String::from("&[\n");
    for (path, file) in files {
        writeln!(table, "({path:?}, include_bytes!({file:?})),").expect("a String takes any text");
    }
    table.push(']');
    write(&out.join("starters.rs"), table.as_bytes());
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder)
        .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>())
        .unwrap_or_else(|error| fail(&format!("{}: {error}", folder.display())));
    for entry in entries {
        match entry.path() {
            path if path.is_dir() => walk(&path, found),
            path => found.push(path),
        }
    }
}

fn c() -> Box<dyn WorldGenerator> {
    let options = wit_bindgen_c::Opts {
        rename_world: Some("policy".to_owned()),
        ..wit_bindgen_c::Opts::default()
    };
    options.build()
}

fn go() -> Box<dyn WorldGenerator> {
    let options = wit_bindgen_go::Opts {
        // It would be by whatever gofmt this computer has.
        format: wit_bindgen_go::Format::False,
        ..wit_bindgen_go::Opts::default()
    };
    options.build()
}
