//! The executable that is every program of the control plane, built at most once per state of its sources.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

/// The folder that holds built control planes, instead of the one under cargo's target folder.
const CACHE: &str = "KPROXIDE_CACHE";

/// For one helper command: Helm and kubectl wait for the API server on their own, for ever if they must.
const RUN_DEADLINE: Duration = Duration::from_secs(180);

/// The sources, compiled in, so that a change of one is a new executable for every test that links this crate.
const SOURCES: [(&str, &str); 5] = [
    ("go.mod", include_str!("../../controlplane/go.mod")),
    ("go.sum", include_str!("../../controlplane/go.sum")),
    ("main.go", include_str!("../../controlplane/main.go")),
    ("oracle.go", include_str!("../../controlplane/oracle.go")),
    (
        "kwok_stages.go",
        include_str!("../../controlplane/kwok_stages.go"),
    ),
];

/// The Kubernetes release that the executable claims to be. Without it every component would say v0.0.0, which a chart's
/// `kubeVersion` refuses. A test compares it with go.mod.
const KUBERNETES: (&str, &str, &str) = ("1", "36", "v1.36.3");

/// Whether this machine has, or can build, the control plane.
#[derive(Clone, Debug)]
pub enum Availability {
    /// It is built.
    Ready(Programs),
    /// It is not, and this machine has no Go to build it with.
    Missing(String),
    /// It could not be built or cached, for the given reason, the compiler's output included.
    Broken(String),
}

/// The executable. Running `helm template` or `kubectl kustomize` needs nothing else; a cluster needs
/// [`ControlPlane::start`](super::ControlPlane::start).
#[derive(Clone, Debug)]
pub struct Programs {
    path: PathBuf,
}

/// The control plane's programs, or nothing where a test shall be skipped for lack of Go, which this says on stderr.
///
/// ```no_run
/// # async fn test() {
/// let Some(programs) = kproxide_testkit::require_controlplane() else { return };
/// # }
/// ```
///
/// # Panics
///
/// When the build fails. Without Go with `CI=true`, where skipping would hide that nothing was tested.
pub fn require_controlplane() -> Option<Programs> {
    let must_run = std::env::var("CI").is_ok_and(|ci| ci == "true");
    unless_missing(Programs::availability(), must_run)
}

fn unless_missing(availability: Availability, must_run: bool) -> Option<Programs> {
    match availability {
        Availability::Ready(programs) => Some(programs),
        Availability::Missing(reason) if must_run => {
            panic!("the real control plane is missing, and CI=true forbids to skip: {reason}")
        }
        Availability::Missing(reason) => {
            // Straight to standard error: the test runner keeps what is printed otherwise for tests that fail.
            writeln!(io::stderr().lock(), "skipped: {reason}").expect("standard error takes text");
            None
        }
        Availability::Broken(reason) => panic!("the real control plane is broken: {reason}"),
    }
}

impl Programs {
    /// Finds the executable, or builds it. A cold build takes four minutes of two cores and downloads Go modules; tests
    /// that run at the same time wait for the one that builds.
    pub fn availability() -> Availability {
        static FOUND: OnceLock<Availability> = OnceLock::new();
        FOUND
            .get_or_init(|| match find_or_build(&cache_folder(), go_is_installed()) {
                Ok(path) => Availability::Ready(Programs { path }),
                Err(error @ BuildError::NoGo) => Availability::Missing(error.to_string()),
                Err(error @ (BuildError::Failed { .. } | BuildError::Cache { .. })) => {
                    Availability::Broken(error.to_string())
                }
            })
            .clone()
    }

    /// Where the executable is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `helm`, without any cluster: `template`, `lint`, `package`.
    ///
    /// # Errors
    ///
    /// When it fails, with what it wrote to both outputs.
    pub async fn helm(&self, args: &[&str]) -> Result<String, CommandError> {
        self.run(&[&["helm"], args].concat()).await
    }

    /// Runs one of the programs and returns its standard output.
    ///
    /// # Errors
    ///
    /// When it fails, with what it wrote to both outputs.
    pub async fn run(&self, command: &[&str]) -> Result<String, CommandError> {
        let nobody = std::env::temp_dir();
        self.run_with(
            command,
            &[("HOME", &nobody), ("KUBECONFIG", Path::new("/dev/null"))],
            None,
        )
        .await
    }

    pub(super) async fn run_with(
        &self,
        command: &[&str],
        env: &[(&'static str, &Path)],
        input: Option<&str>,
    ) -> Result<String, CommandError> {
        let failed = |reason: String| CommandError {
            command: command.join(" "),
            reason,
        };
        let run = async {
            let mut child = tokio::process::Command::new(&self.path)
                .args(command)
                .envs(env.iter().copied())
                .stdin(if input.is_some() {
                    Stdio::piped()
                } else {
                    Stdio::null()
                })
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let stdin = child.stdin.take();
            let feed = async {
                if let (Some(mut stdin), Some(input)) = (stdin, input) {
                    // A program that does not read its input to the end says why on stderr.
                    let _ = stdin.write_all(input.as_bytes()).await;
                }
            };
            let ((), output) = tokio::join!(feed, child.wait_with_output());
            output
        };
        let output = tokio::time::timeout(RUN_DEADLINE, run)
            .await
            .map_err(|_| failed(format!("no end within {RUN_DEADLINE:?}")))?
            .map_err(|error: io::Error| failed(error.to_string()))?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(stdout);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(failed(format!("{}\n{stdout}{stderr}", output.status)))
    }
}

/// A program that failed: its command line, its exit status and everything that it printed.
#[derive(Debug, thiserror::Error)]
#[error("{command}: {reason}")]
pub struct CommandError {
    /// The command line.
    pub command: String,
    /// The exit status and both outputs.
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error("the real control plane is built with Go, and there is no `go` on PATH")]
    NoGo,
    #[error("building the control plane in {folder} failed: {output}")]
    Failed { folder: String, output: String },
    #[error("cannot cache the control plane in {folder}: {source}")]
    Cache { folder: String, source: io::Error },
}

fn cache_folder() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = || {
        std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| crate_folder.join("../target"), PathBuf::from)
    };
    std::env::var_os(CACHE)
        .map_or_else(target, PathBuf::from)
        .join("controlplane")
}

/// One folder per state of the sources, so that going back to an older one finds its executable again.
fn key(sources: &[(&str, &str)]) -> String {
    let mut hash = Sha256::new();
    for (name, text) in sources {
        // The lengths keep one file's end from being read as the next one's beginning.
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn find_or_build(cache: &Path, go: bool) -> Result<PathBuf, BuildError> {
    let folder = cache.join(key(&SOURCES));
    let executable = folder.join("controlplane");
    if executable.exists() {
        return Ok(executable);
    }
    let in_cache = |source| BuildError::Cache {
        folder: folder.display().to_string(),
        source,
    };
    if !go {
        return Err(BuildError::NoGo);
    }
    fs::create_dir_all(&folder).map_err(in_cache)?;
    // Held until the end of this function, by one process at a time; the system releases it if that process dies.
    let lock = File::create(folder.join("lock")).map_err(in_cache)?;
    lock.lock().map_err(in_cache)?;
    if executable.exists() {
        return Ok(executable);
    }
    let unfinished = folder.join("controlplane.unfinished");
    go_build(&unfinished)?;
    // The name appears only with a complete file behind it.
    fs::rename(&unfinished, &executable).map_err(in_cache)?;
    Ok(executable)
}

fn go_is_installed() -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("go").is_file()))
}

fn go_build(output: &Path) -> Result<(), BuildError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane");
    eprintln!("building the control plane for the tests; the first time takes some minutes");
    let (major, minor, version) = KUBERNETES;
    let package = "k8s.io/component-base/version";
    let link = format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} \
         -X {package}.gitTreeState=clean"
    );
    let built = std::process::Command::new("go")
        .args([
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-mod=readonly",
            "-gcflags=all=-dwarf=false",
            "-ldflags",
        ])
        .arg(link)
        .args([OsStr::new("-o"), output.as_os_str(), OsStr::new(".")])
        .env("CGO_ENABLED", "0")
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output();
    let failed = |output: String| BuildError::Failed {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_is_claimed_is_the_version_that_is_linked() {
        let (_, go_mod) = SOURCES[0];
        let (major, minor, version) = KUBERNETES;
        assert!(
            go_mod.contains(&format!("k8s.io/kubernetes {version}\n")),
            "go.mod has another Kubernetes"
        );
        assert!(version.starts_with(&format!("v{major}.{minor}.")));
    }

    #[test]
    fn another_byte_or_another_border_between_files_is_another_executable() {
        let one = key(&[("a", "xy"), ("b", "z")]);
        assert_eq!(one.len(), 64);
        assert_ne!(one, key(&[("a", "xy"), ("b", "Z")]));
        assert_ne!(one, key(&[("a", "x"), ("b", "yz")]));
    }

    #[test]
    fn without_go_the_reason_says_so_and_what_is_built_is_still_found() {
        let cache = tempfile::tempdir().unwrap();
        let reason = find_or_build(cache.path(), false).unwrap_err().to_string();
        assert!(reason.contains("no `go` on PATH"), "{reason}");

        let built = cache.path().join(key(&SOURCES)).join("controlplane");
        fs::create_dir_all(built.parent().unwrap()).unwrap();
        fs::write(&built, "").unwrap();
        assert_eq!(find_or_build(cache.path(), false).unwrap(), built);
    }

    #[test]
    fn a_missing_control_plane_skips_a_test() {
        assert!(unless_missing(Availability::Missing("no Go".to_owned()), false).is_none());
    }

    #[test]
    #[should_panic(expected = "CI=true forbids to skip: no Go")]
    fn a_missing_control_plane_fails_a_test_in_ci() {
        unless_missing(Availability::Missing("no Go".to_owned()), true);
    }

    #[test]
    #[should_panic(expected = "broken: undefined: x")]
    fn a_failed_build_fails_a_test_everywhere() {
        unless_missing(Availability::Broken("undefined: x".to_owned()), false);
    }
}
