//! The program under test, built once: linked statically, as what is shipped. A bench gets what is shipped.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kproxide_testkit::kproxide_binary;

/// What `kproxide_testkit::kproxide_binary` says.
pub(crate) fn kproxide() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            // <target>/<profile>/kproxide
            let target = Path::new(env!("CARGO_BIN_EXE_kproxide"))
                .ancestors()
                .nth(2)
                .expect("cargo puts binaries two folders below the target folder");
            kproxide_binary(target)
        })
        .clone()
}

/// A path in the repository.
#[allow(dead_code, reason = "a bench takes only the binary from this file")]
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
