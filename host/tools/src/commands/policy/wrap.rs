//! `kproxide policy wrap`: a core module for WASI preview 1, as Go, C and others make it, becomes a policy.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::given::Tools;
use crate::commands::Exit;
use crate::commands::exit::Mistake;
use kproxide_policy::{FilesError, LoadError, read_file};

#[derive(Debug, thiserror::Error)]
pub(super) enum WrapError {
    #[error("{path} cannot be written")]
    Write { path: PathBuf, source: io::Error },
    #[error("{path}: {why}")]
    Refused { path: PathBuf, why: LoadError },
}

/// Writes the policy that the module is.
///
/// # Errors
/// Names the file, and what mends it; or the output is closed.
pub(super) async fn wrap(
    core: &Path,
    output: &Path,
    out: &mut impl Write,
) -> Result<Exit, Box<dyn Error>> {
    let refused = |why| WrapError::Refused {
        path: core.to_owned(),
        why,
    };
    let module = match read_file(core) {
        Ok(module) => module,
        Err(FilesError::Load(why)) => return Err(refused(why).into()),
        Err(error) => {
            let given = format!("{error}: give the core module that your compiler wrote");
            return Err(Mistake(given).into());
        }
    };
    if fs::canonicalize(output)
        .is_ok_and(|output| fs::canonicalize(core).is_ok_and(|it| it == output))
    {
        let output = output.display();
        return Err(Mistake(format!(
            "--output {output}: that is the core module itself: give the policy another name"
        ))
        .into());
    }
    let component = Tools::new()?.engine.wrap(module).await.map_err(refused)?;
    fs::write(output, &component).map_err(|source| WrapError::Write {
        path: output.to_owned(),
        source,
    })?;
    let kib = component.len().div_ceil(1024);
    writeln!(out, "{}: {kib} KiB", output.display())?;
    Ok(Exit::Success)
}
