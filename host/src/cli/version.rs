//! `kproxide version`: what a bug report begins with.

use std::env::consts::{ARCH, OS};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fmt, fs, io};

use serde::Serialize;

use kproxide_tools::args::Format;

/// The engine of policies. It does not say so itself; a test compares this with `Cargo.lock`.
const WASMTIME: &str = "48.0.8";

/// The licences of others, beside the program in the image and in a release's archive (`tests/src/licenses`). They are not built in: each build would have to
/// ask Cargo what it links, that of the demo too.
const LICENSES: &str = "licenses/THIRD-PARTY.txt";

#[derive(Debug, thiserror::Error)]
#[error(
    "--licenses: cannot read {}, which stands beside the program in the image and in a release's archive (of a program that you built, \
     `cargo licenses archive` prints it)", .path.display()
)]
struct NoLicenses {
    path: PathBuf,
    source: io::Error,
}

/// Stable: fields may be added.
#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    /// Of the sources, if the build was told by the variable `KPROXIDE_COMMIT`.
    commit: Option<&'static str>,
    /// As Rust calls what it was built for.
    target: String,
    wasmtime: &'static str,
}

/// # Errors
/// The output is closed.
pub(super) fn print(format: Format, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let version = Version::of_this();
    match format {
        Format::Text => Ok(writeln!(out, "{version}")?),
        format @ (Format::Json | Format::Yaml) => {
            kproxide_tools::commands::print(out, format, &version)
        }
    }
}

/// # Errors
/// The file does not stand beside this program, or the output is closed.
pub(super) fn print_licenses(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    print_licenses_of(&env::current_exe()?, out)
}

fn print_licenses_of(program: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let path = program.with_file_name(LICENSES);
    let text = fs::read(&path).map_err(|source| NoLicenses { path, source })?;
    Ok(out.write_all(&text)?)
}

impl Version {
    fn of_this() -> Self {
        let libc = match (cfg!(target_env = "gnu"), cfg!(target_env = "musl")) {
            (true, _) => "-gnu",
            (_, true) => "-musl",
            (false, false) => "",
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("KPROXIDE_COMMIT").filter(|commit| !commit.is_empty()),
            target: format!("{ARCH}-unknown-{OS}{libc}"),
            wasmtime: WASMTIME,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            version,
            commit,
            target,
            wasmtime,
        } = self;
        write!(f, "kproxide {version} (")?;
        if let Some(commit) = commit {
            write!(f, "commit {commit}, ")?;
        }
        write!(f, "{target}, wasmtime {wasmtime})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn printed(format: Format) -> String {
        let mut out = Vec::new();
        print(format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_version_says_what_a_bug_report_needs() {
        let json: serde_json::Value = serde_json::from_str(&printed(Format::Json)).unwrap();
        let fields: BTreeSet<_> = json
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            fields,
            BTreeSet::from(["version", "commit", "target", "wasmtime"])
        );
        assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
        let yaml: serde_json::Value = serde_saphyr::from_str(&printed(Format::Yaml)).unwrap();
        assert_eq!(yaml, json);
        let text = printed(Format::Text);
        for field in ["version", "target", "wasmtime"] {
            let value = json[field].as_str().unwrap();
            assert!(text.contains(value), "{field} is not in {text}");
        }
        let target = json["target"].as_str().unwrap();
        assert!(target.contains("-unknown-"), "{target}");
    }

    #[test]
    fn the_commit_is_said_when_the_build_was_told() {
        let mut version = Version::of_this();
        version.commit = Some("0123abc");
        assert!(
            version.to_string().contains("(commit 0123abc, "),
            "{version}"
        );
        version.commit = None;
        assert!(!version.to_string().contains("commit"), "{version}");
    }

    #[test]
    fn licences_are_those_beside_the_program_and_without_them_the_way_to_get_them_is_said() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut out = Vec::new();
        for (folder, text) in folders.iter().zip(["of the one", "of the other"]) {
            let program = folder.path().join("kproxide");
            let error = print_licenses_of(&program, &mut out)
                .unwrap_err()
                .to_string();
            let missing = folder.path().join("licenses/THIRD-PARTY.txt");
            assert!(error.contains(missing.to_str().unwrap()), "{error}");
            assert!(error.contains("cargo licenses archive"), "{error}");

            fs::create_dir(folder.path().join("licenses")).unwrap();
            fs::write(&missing, text).unwrap();
            print_licenses_of(&program, &mut out).unwrap();
            assert_eq!(String::from_utf8(std::mem::take(&mut out)).unwrap(), text);
        }
    }

    #[test]
    fn the_version_of_wasmtime_is_the_one_that_is_linked() {
        let lock = include_str!("../../../Cargo.lock");
        let linked = format!("name = \"wasmtime\"\nversion = \"{WASMTIME}\"\n");
        assert!(lock.contains(&linked), "Cargo.lock has another wasmtime");
    }
}
