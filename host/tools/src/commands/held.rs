//! Files that hold what commands say. `KPROXIDE_UPDATE=1` writes them anew.

use std::fs;
use std::path::Path;

/// Compares with the file, or writes it.
pub(super) fn hold(path: &Path, said: &str, different: &mut Vec<String>) {
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        fs::write(path, said).unwrap();
    }
    if fs::read_to_string(path).unwrap_or_default() != said {
        let file = path.display();
        different.push(format!("{file}: this is said now:\n{said}"));
    }
}
