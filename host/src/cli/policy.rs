//! `kproxide policy`: the built-in modules, for looking at and for building on.

use std::io::{self, Write};
use std::path::Path;
use std::{fs, path::PathBuf};

use kproxide_builtins::{BUILTINS, Kind};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PolicyCommandError {
    #[error("{path} cannot be written")]
    Write { path: PathBuf, source: io::Error },
    #[error("the list cannot be printed")]
    Print(#[source] io::Error),
}

/// One line per built-in: name, kind, size, digest.
///
/// # Errors
/// The output is closed.
pub fn list(out: &mut impl Write) -> Result<(), PolicyCommandError> {
    for builtin in BUILTINS {
        let kind = match builtin.kind {
            Kind::HostSelection => "host-selection",
            Kind::ScaleDown => "scale-down",
            Kind::Labels => "labels",
        };
        let kib = builtin.wasm.len().div_ceil(1024);
        writeln!(
            out,
            "{:<14} {kind:<15} {kib:>4} KiB  sha256:{}",
            builtin.name, builtin.sha256
        )
        .map_err(PolicyCommandError::Print)?;
    }
    Ok(())
}

/// Writes every built-in as `NAME.wasm`; existing files of those names are replaced.
///
/// # Errors
/// Names the file that could not be written.
pub fn export(folder: &Path, out: &mut impl Write) -> Result<(), PolicyCommandError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PolicyCommandError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for builtin in BUILTINS {
        let path = folder.join(format!("{}.wasm", builtin.name));
        fs::write(&path, builtin.wasm).map_err(failed(&path))?;
        writeln!(out, "{}", path.display()).map_err(PolicyCommandError::Print)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_files_are_the_built_ins() {
        let folder = tempfile::tempdir().unwrap();
        let mut printed = Vec::new();
        export(&folder.path().join("new"), &mut printed).unwrap();
        let spread = kproxide_builtins::builtin("spread").unwrap();
        assert_eq!(
            fs::read(folder.path().join("new/spread.wasm")).unwrap(),
            spread.wasm
        );
        assert_eq!(
            String::from_utf8(printed).unwrap().lines().count(),
            BUILTINS.len()
        );
    }

    #[test]
    fn the_list_shows_name_kind_and_digest() {
        let mut printed = Vec::new();
        list(&mut printed).unwrap();
        let text = String::from_utf8(printed).unwrap();
        let spread = kproxide_builtins::builtin("spread").unwrap();
        assert!(
            text.lines().any(|l| l.starts_with("spread ")
                && l.contains("host-selection")
                && l.ends_with(spread.sha256)),
            "{text}"
        );
    }
}
