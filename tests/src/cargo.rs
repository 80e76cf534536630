//! What Cargo says of this repository.

use std::path::Path;
use std::process::Command;

/// What Cargo prints, with the lock file as it is. It fetches crates of other systems that were never needed here.
///
/// # Errors
///
/// What Cargo says of a failure.
pub fn ask_cargo(arguments: &[&str]) -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .arg("--locked")
        .current_dir(root)
        .output()
        .map_err(|error| format!("{}: {error}", env!("CARGO")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("cargo {arguments:?}: {said}")),
    }
}
