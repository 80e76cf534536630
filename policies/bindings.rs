//! A part of `build.rs`: what a world of `wit/policy.wit` is in a language.
//!
//! The Rust policies could make theirs by the macro of wit-bindgen, and do where they are built for anything else. In the nested call of cargo that macro,
//! with the parsers that it is made of, would be more than half of what is compiled, and compiled for the second time.

use std::fs;
use std::path::{Path, PathBuf};

use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};
use wit_bindgen_rust::{Opts, WithOption};

use crate::{fail, write};

/// Module of the SDK, and world.
const MODULES: [(&str, &str); 3] = [
    ("host_selection", "host-selection-policy"),
    ("scale_down", "scale-down-policy"),
    ("labels", "label-policy"),
];

/// Shared by all worlds: those of the first module are the only ones.
const SHARED: [(&str, &str); 2] = [
    ("kproxide:policy/types@0.1.0", "kproxide::policy::types"),
    ("kproxide:policy/log@0.1.0", "kproxide::policy::log"),
];

/// What `policies/sdk/src/bindings.rs` includes, with the options that its macros have. Returns the folder. Cargo builds all guests again when one of its
/// files is newer: what has not changed is left alone.
pub(crate) fn for_guests(workspace: &Path, target_dir: &Path) -> PathBuf {
    let folder = target_dir.join("bindings");
    fs::create_dir_all(&folder)
        .unwrap_or_else(|error| fail(&format!("{}: {error}", folder.display())));
    for (module, world) in MODULES {
        let file = folder.join(format!("{module}.rs"));
        for (_, bytes) in of(workspace, world, rust(module)) {
            if !fs::read(&file).is_ok_and(|there| there == bytes) {
                write(&file, &bytes);
            }
        }
    }
    folder
}

fn rust(module: &str) -> Box<dyn WorldGenerator> {
    let first = MODULES[0].0;
    let shared = SHARED.iter().filter(|_| module != first);
    let with = shared.map(|(interface, path)| {
        let path = format!("super::{first}::{path}");
        ((*interface).to_owned(), WithOption::Path(path))
    });
    let options = Opts {
        pub_export_macro: true,
        export_macro_name: Some(format!("export_{module}_world")),
        default_bindings_module: Some(format!("kproxide_policy_sdk::bindings::{module}")),
        additional_derive_attributes: vec!["PartialEq".to_owned()],
        with: with.collect(),
        ..Opts::default()
    };
    Box::new(options.build())
}

/// Names and bytes of the files that the generator makes of the world.
pub(crate) fn of(
    workspace: &Path,
    world: &str,
    mut generator: Box<dyn WorldGenerator>,
) -> Vec<(String, Vec<u8>)> {
    let mut resolve = Resolve::default();
    let mut files = Files::default();
    let made = resolve
        .push_path(workspace.join("wit/policy.wit"))
        .and_then(|(package, _)| resolve.select_world(&[package], Some(world)))
        .and_then(|world| generator.generate(&mut resolve, world, &mut files));
    made.unwrap_or_else(|error| fail(&format!("no bindings for the world {world}: {error:#}")));
    let files = files.iter();
    files
        .map(|(path, bytes)| (path.to_owned(), bytes.to_vec()))
        .collect()
}
