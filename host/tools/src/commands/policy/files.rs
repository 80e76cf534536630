//! `kproxide policy show files`: the built-in policies as files.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kproxide_builtins::BUILTINS;
use thiserror::Error;

#[derive(Debug, Error)]
pub(super) enum ExportError {
    #[error("{path} cannot be written")]
    Write { path: PathBuf, source: io::Error },
    #[error("the output is closed")]
    Print(#[from] io::Error),
}

/// Writes every built-in as `NAME.wasm`; existing files of those names are replaced.
///
/// # Errors
/// Names the file that could not be written.
pub(super) fn export(folder: &Path, out: &mut impl Write) -> Result<(), ExportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ExportError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for builtin in BUILTINS {
        let path = folder.join(format!("{}.wasm", builtin.name));
        fs::write(&path, builtin.wasm).map_err(failed(&path))?;
        writeln!(out, "{}", path.display())?;
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
}
