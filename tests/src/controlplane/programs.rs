//! The executable that is every program of the control plane, built at most once per state of its sources.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use crate::go::GoProgram;

/// For one helper command: Helm and kubectl wait for the API server on their own, for ever if they must.
const RUN_DEADLINE: Duration = Duration::from_secs(180);

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
/// A cold build takes four minutes of two cores and downloads Go modules.
///
/// # Panics
///
/// When the build fails. Without Go with `CI=true`, where skipping would hide that nothing was tested.
pub fn require_controlplane() -> Option<Programs> {
    static CONTROL_PLANE: LazyLock<GoProgram> = LazyLock::new(|| {
        let called = "the real control plane";
        GoProgram::new("controlplane", called, &SOURCES, link())
    });
    CONTROL_PLANE.require().map(|path| Programs { path })
}

/// What tells every component the release that it is of.
fn link() -> String {
    let (major, minor, version) = KUBERNETES;
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} \
         -X {package}.gitTreeState=clean"
    )
}

impl Programs {
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
}
