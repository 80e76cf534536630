//! `kproxide policy new`: a folder with a working policy, all that it is built of, and its tests. The files stand in
//! `policies/templates`, as a policy of the name my-policy.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use kproxide_builtins::{STARTERS, WIT, builtin};

use crate::args::policy::{Kind, Language, New};
use crate::commands::exit::Mistake;

/// Longer ones are no names of ConfigMaps' keys that people can read.
const NAME_BYTES_MAX: usize = 63;

#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be written")]
pub(super) struct WriteError {
    path: PathBuf,
    source: io::Error,
}

/// Writes the folder NAME.
///
/// # Errors
/// The name is none, its folder is there, a file cannot be written, or the output is closed.
pub(super) fn new(args: &New, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let New {
        name,
        kind,
        lang,
        into,
    } = args;
    if !is_name(name) {
        return Err(Mistake(format!(
            "{name} cannot be the name of a policy: use lower-case letters, digits and single dashes, begin with a letter, and \
             take at most {NAME_BYTES_MAX}"
        ))
        .into());
    }
    if !into.is_dir() {
        let into = into.display();
        return Err(Mistake(format!(
            "--into {into}: there is no such folder: make it first, or give another"
        ))
        .into());
    }
    let folder = into.join(name);
    if folder.symlink_metadata().is_ok() {
        let folder = folder.display();
        return Err(Mistake(format!(
            "{folder} is there already: give another name, or remove it"
        ))
        .into());
    }
    for (path, bytes) in files(name, *kind, *lang) {
        let path = folder.join(path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all);
        written
            .and_then(|()| fs::write(&path, bytes))
            .map_err(|source| WriteError { path, source })?;
    }
    let readme = folder.join("README.md");
    writeln!(out, "{} has the next commands.", readme.display())?;
    if builtin(name).is_some() {
        writeln!(
            out,
            "kproxide has a built-in policy {name}: once you mount {name}.wasm, it replaces that. Give your policy another \
             name if you want both."
        )?;
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(letters)
        && !name.ends_with('-')
        && !name.contains("--")
}

/// Paths below the folder, and bytes.
fn files(name: &str, kind: Kind, language: Language) -> Vec<(String, Vec<u8>)> {
    let own = language.folder();
    let mut files = vec![("wit/policy.wit".to_owned(), WIT.as_bytes().to_vec())];
    for (from, bytes) in STARTERS {
        let Some(path) = place(from, own, kind, language) else {
            continue;
        };
        // The object file of C's bindings is no text.
        let bytes = match std::str::from_utf8(bytes) {
            Ok(text) => named(text, name, kind).into_bytes(),
            Err(_) => bytes.to_vec(),
        };
        files.push((path, bytes));
    }
    let build = text(&format!("templates/{own}/build.txt"));
    let readme = text("templates/readme.txt")
        .replace("MY-BUILD", build.trim_end())
        .replace("MY-LANGUAGE", language.title())
        .replace("MY-SOURCE", &source(kind, language))
        .replace("MY-FIELD", kind.field())
        .replace("MY-SETTINGS", kind.settings());
    files.push((
        "README.md".to_owned(),
        named(&readme, name, kind).into_bytes(),
    ));
    files
}

/// Where an embedded file goes in a new policy, if it is part of it.
fn place(from: &str, own: &str, kind: Kind, language: Language) -> Option<String> {
    let kind_name = kind.name();
    if let Some(case) = from.strip_prefix(&format!("templates/cases/{kind_name}/")) {
        return Some(format!("tests/{case}"));
    }
    if let Some(file) = from.strip_prefix("sdk/") {
        let is_rust = language == Language::Rust;
        return is_rust.then(|| format!("vendor/kproxide-policy-sdk/src/{file}"));
    }
    if let Some(file) = from.strip_prefix(&format!("bindings/{own}/{kind_name}/")) {
        return (file != "go.mod").then(|| file.to_owned());
    }
    let file = from.strip_prefix(&format!("templates/{own}/"))?;
    if let Some(rest) = file.strip_prefix(kind_name) {
        return Some(match rest {
            ".about.go" => "export_wit_world/about.go".to_owned(),
            _ => source(kind, language),
        });
    }
    match file {
        "gitignore" => Some(".gitignore".to_owned()),
        "sdk.toml" => Some("vendor/kproxide-policy-sdk/Cargo.toml".to_owned()),
        "build.txt" => None,
        _ => {
            let of_a_kind = Kind::ALL.iter().any(|kind| file.starts_with(kind.name()));
            (!of_a_kind).then(|| file.to_owned())
        }
    }
}

/// The file that the author changes.
fn source(kind: Kind, language: Language) -> String {
    match language {
        Language::Rust => "src/lib.rs".to_owned(),
        Language::Js => "policy.js".to_owned(),
        Language::Go => {
            let package = kind.name().replace('-', "_");
            format!("export_kproxide_policy_{package}/policy.go")
        }
        Language::C => "main.c".to_owned(),
        Language::Python => "policy.py".to_owned(),
    }
}

/// A template as that of this policy.
fn named(text: &str, name: &str, kind: Kind) -> String {
    text.replace("my-policy", name)
        .replace("my_policy", &name.replace('-', "_"))
        .replace("my-kind", kind.name())
        .replace("my-world", kind.world())
        // The generator of Go's bindings calls the module so, and takes two packages from elsewhere.
        .replace("\"wit_component/", &format!("\"{name}/"))
        .replace(
            "\"go.bytecodealliance.org/pkg/wit/",
            &format!("\"{name}/wit/"),
        )
}

fn text(path: &str) -> String {
    let found = STARTERS.iter().find(|(name, _)| *name == path);
    let (_, bytes) = found.unwrap_or_else(|| unreachable!("{path} is embedded"));
    String::from_utf8_lossy(bytes).into_owned()
}

impl Kind {
    const ALL: [Self; 3] = [Self::HostSelection, Self::ScaleDown, Self::Labels];

    fn name(self) -> &'static str {
        match self {
            Self::HostSelection => "host-selection",
            Self::ScaleDown => "scale-down",
            Self::Labels => "labels",
        }
    }

    /// In `wit/policy.wit`.
    fn world(self) -> &'static str {
        match self {
            Self::HostSelection => "host-selection-policy",
            Self::ScaleDown => "scale-down-policy",
            Self::Labels => "label-policy",
        }
    }

    /// Below `policies` of a NodePool.
    fn field(self) -> &'static str {
        match self {
            Self::HostSelection => "hostSelection",
            Self::ScaleDown => "scaleDown",
            Self::Labels => "labels",
        }
    }

    /// Of the example, in one line of YAML.
    fn settings(self) -> &'static str {
        match self {
            Self::HostSelection => "{prefix: pve}",
            Self::ScaleDown => "{minimumAgeSeconds: 600}",
            Self::Labels => "{key: example.com/hypervisor}",
        }
    }
}

impl Language {
    /// Of `policies/templates`.
    fn folder(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Js => "js",
            Self::Go => "go",
            Self::C => "c",
            Self::Python => "python",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Js => "JavaScript",
            Self::Go => "Go",
            Self::C => "C",
            Self::Python => "Python",
        }
    }
}

#[cfg(test)]
mod tests;
