//! Programs of the tests that are written in Go: each is built at most once per state of its sources, and cached.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

/// The folder that holds built programs, instead of cargo's target folder.
const CACHE: &str = "KPROXIDE_CACHE";

/// A Go module in this package whose main package is one executable.
pub(crate) struct GoProgram {
    /// The module's folder in this package, the executable, and its folder in the cache.
    pub(crate) name: &'static str,
    /// What people call it.
    pub(crate) called: &'static str,
    /// The sources, compiled in, so that a change of one is a new executable for every test that links this crate.
    pub(crate) sources: &'static [(&'static str, &'static str)],
    /// Flags for Go's linker.
    pub(crate) link: String,
    /// The main package: the module's own, or one that the module pins as a tool; and build tags.
    pub(crate) package: &'static str,
    pub(crate) tags: &'static str,
    /// Whether it can be had, once that was asked.
    pub(crate) found: OnceLock<Availability>,
}

/// Whether this machine has, or can build, a program.
#[derive(Clone, Debug)]
pub(crate) enum Availability {
    /// It is built.
    Ready(PathBuf),
    /// It is not, and this machine has no Go to build it with.
    Missing(String),
    /// It could not be built or cached, for the given reason, the compiler's output included.
    Broken(String),
}

impl GoProgram {
    pub(crate) fn new(
        name: &'static str,
        called: &'static str,
        sources: &'static [(&'static str, &'static str)],
        link: String,
    ) -> Self {
        Self {
            name,
            called,
            sources,
            link,
            package: ".",
            tags: "",
            found: OnceLock::new(),
        }
    }

    /// Another main package of the module, with these build tags.
    #[must_use]
    pub(crate) fn of(mut self, package: &'static str, tags: &'static str) -> Self {
        (self.package, self.tags) = (package, tags);
        self
    }

    /// The executable, or nothing where a test shall be skipped for lack of Go, which this says on stderr. Tests that run at the same time wait for the one
    /// that builds.
    ///
    /// # Panics
    ///
    /// When the build fails. Without Go with `CI=true`, where skipping would hide that nothing was tested.
    pub(crate) fn require(&self) -> Option<PathBuf> {
        let must_run = std::env::var("CI").is_ok_and(|ci| ci == "true");
        unless_missing(self.called, self.availability(), must_run)
    }

    /// Finds the executable, or builds it.
    pub(crate) fn availability(&self) -> Availability {
        self.found
            .get_or_init(
                || match self.find_or_build(&cache_folder(), go_is_installed()) {
                    Ok(path) => Availability::Ready(path),
                    Err(error @ BuildError::NoGo(_)) => Availability::Missing(error.to_string()),
                    Err(error @ (BuildError::Failed { .. } | BuildError::Cache { .. })) => {
                        Availability::Broken(error.to_string())
                    }
                },
            )
            .clone()
    }

    /// One folder per state of the sources, so that going back to an older one finds its executable again.
    fn executable(&self, cache: &Path) -> PathBuf {
        let mut hash = Sha256::new();
        for (name, text) in self.sources {
            // The lengths keep one file's end from being read as the next one's beginning.
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        if self.package != "." {
            hash.update(self.package);
            hash.update(self.tags);
        }
        let key: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        cache.join(self.name).join(key).join(self.name)
    }

    fn find_or_build(&self, cache: &Path, go: bool) -> Result<PathBuf, BuildError> {
        let executable = self.executable(cache);
        if executable.exists() {
            return Ok(executable);
        }
        if !go {
            return Err(BuildError::NoGo(self.called));
        }
        let unfinished = executable.with_extension("unfinished");
        let folder = executable.parent().unwrap_or(cache);
        let in_cache = |source| BuildError::Cache {
            called: self.called,
            folder: folder.display().to_string(),
            source,
        };
        fs::create_dir_all(folder).map_err(in_cache)?;
        // Held until the end of this function, by one process at a time; the system releases it if that process dies.
        let lock = File::create(folder.join("lock")).map_err(in_cache)?;
        lock.lock().map_err(in_cache)?;
        if executable.exists() {
            return Ok(executable);
        }
        self.go_build(&unfinished)?;
        // The name appears only with a complete file behind it.
        fs::rename(&unfinished, &executable).map_err(in_cache)?;
        Ok(executable)
    }

    fn go_build(&self, output: &Path) -> Result<(), BuildError> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.name);
        let called = self.called;
        eprintln!("building {called}; the first time takes some minutes");
        let built = std::process::Command::new("go")
            .args([
                "build",
                "-trimpath",
                "-buildvcs=false",
                "-mod=readonly",
                "-gcflags=all=-dwarf=false",
                "-ldflags",
            ])
            .arg(&self.link)
            .args(["-tags", self.tags])
            .args([
                OsStr::new("-o"),
                output.as_os_str(),
                OsStr::new(self.package),
            ])
            .env("CGO_ENABLED", "0")
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output();
        let failed = |output: String| BuildError::Failed {
            called,
            folder: folder.display().to_string(),
            output,
        };
        match built {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(failed(format!(
                "{}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim_end()
            ))),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

fn unless_missing(called: &str, availability: Availability, must_run: bool) -> Option<PathBuf> {
    match availability {
        Availability::Ready(path) => Some(path),
        Availability::Missing(reason) if must_run => {
            panic!("CI=true forbids to skip: {reason}")
        }
        Availability::Missing(reason) => {
            // Straight to standard error: the test runner keeps what is printed otherwise for tests that fail.
            writeln!(io::stderr().lock(), "skipped: {reason}").expect("standard error takes text");
            None
        }
        Availability::Broken(reason) => panic!("{called} is broken: {reason}"),
    }
}

#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error("{0} is built with Go, and there is no `go` on PATH")]
    NoGo(&'static str),
    #[error("building {called} in {folder} failed: {output}")]
    Failed {
        called: &'static str,
        folder: String,
        output: String,
    },
    #[error("cannot cache {called} in {folder}: {source}")]
    Cache {
        called: &'static str,
        folder: String,
        source: io::Error,
    },
}

fn cache_folder() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = || {
        std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| crate_folder.join("../target"), PathBuf::from)
    };
    std::env::var_os(CACHE).map_or_else(target, PathBuf::from)
}

fn go_is_installed() -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("go").is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(sources: &'static [(&'static str, &'static str)]) -> GoProgram {
        GoProgram::new("some", "some program", sources, String::new())
    }

    #[test]
    fn another_byte_or_another_border_between_files_is_another_executable() {
        let path = |sources| program(sources).executable(Path::new("/cache"));
        let one = path(&[("a", "xy"), ("b", "z")]);
        assert_eq!(one.parent().unwrap().file_name().unwrap().len(), 64);
        assert_ne!(one, path(&[("a", "xy"), ("b", "Z")]));
        assert_ne!(one, path(&[("a", "x"), ("b", "yz")]));
    }

    #[test]
    fn without_go_the_reason_says_so_and_what_is_built_is_still_found() {
        let cache = tempfile::tempdir().unwrap();
        let some = program(&[("a", "x")]);
        let reason = some
            .find_or_build(cache.path(), false)
            .unwrap_err()
            .to_string();
        assert!(
            reason.contains("some program is built with Go, and there is no `go` on PATH"),
            "{reason}"
        );

        let built = some.executable(cache.path());
        fs::create_dir_all(built.parent().unwrap()).unwrap();
        fs::write(&built, "").unwrap();
        assert_eq!(some.find_or_build(cache.path(), false).unwrap(), built);
    }

    #[test]
    fn a_missing_program_skips_a_test() {
        assert!(unless_missing("it", Availability::Missing("no Go".to_owned()), false).is_none());
    }

    #[test]
    #[should_panic(expected = "CI=true forbids to skip: no Go")]
    fn a_missing_program_fails_a_test_in_ci() {
        unless_missing("it", Availability::Missing("no Go".to_owned()), true);
    }

    #[test]
    #[should_panic(expected = "it is broken: undefined: x")]
    fn a_failed_build_fails_a_test_everywhere() {
        unless_missing("it", Availability::Broken("undefined: x".to_owned()), false);
    }
}
