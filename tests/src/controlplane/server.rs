use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStdin, Command};

/// Set for a server of the control plane: it ends when its standard input closes (`controlplane/main.go`).
const END_WITH_STDIN: &str = "CONTROLPLANE_END_WITH_STDIN";

/// A server that was asked to end and has not ended after so long is killed: it has told every client by then, and may wait for one that hangs.
const GRACE: Duration = Duration::from_secs(3);

/// A log's end is its last lines: servers say at the end why they end.
const TAIL_LINES: usize = 30;

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It could not even be started.
    #[error("cannot start {program}")]
    Spawn {
        /// Which one.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It could not be asked to end.
    #[error("cannot end {program}")]
    Signal {
        /// Which one.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It ended by itself.
    #[error("{program} ended with {status}:\n{log}")]
    Ended {
        /// Which one.
        program: &'static str,
        /// How.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
}

impl ServerError {
    /// Whether somebody else took the port between the moment it was found free and the moment it was bound.
    pub(super) fn is_taken_port(&self) -> bool {
        match self {
            ServerError::Spawn { .. } | ServerError::Signal { .. } => false,
            ServerError::Ended { log, .. } => log.contains("address already in use"),
        }
    }
}

/// One server of a control plane. It ends when this value is dropped, and also when the process that holds this value
/// dies without dropping anything: then the kernel closes the pipe that the server reads.
#[derive(Debug)]
pub(super) struct Server {
    program: &'static str,
    executable: PathBuf,
    flags: Vec<String>,
    child: Child,
    log: PathBuf,
    _lifeline: Option<ChildStdin>,
}

impl Server {
    /// Starts `program` of the executable with both outputs in `folder/program.log`.
    pub(super) fn start(
        executable: &Path,
        program: &'static str,
        flags: Vec<String>,
        folder: &Path,
    ) -> Result<Self, ServerError> {
        let log = folder.join(format!("{program}.log"));
        let mut child = spawn(executable, program, &flags, &log)?;
        Ok(Server {
            program,
            executable: executable.to_path_buf(),
            flags,
            _lifeline: child.stdin.take(),
            child,
            log,
        })
    }

    /// Starts it once more, with the same flags and the same log. It must have ended.
    pub(super) fn start_again(&mut self) -> Result<(), ServerError> {
        self.child = spawn(&self.executable, self.program, &self.flags, &self.log)?;
        self._lifeline = self.child.stdin.take();
        Ok(())
    }

    pub(super) fn program(&self) -> &'static str {
        self.program
    }

    pub(super) fn check_alive(&mut self) -> Result<(), ServerError> {
        // A child whose state cannot be read is not known to have ended; readiness decides then.
        match self.child.try_wait() {
            Ok(Some(status)) => Err(ServerError::Ended {
                program: self.program,
                status,
                log: self.log_tail(),
            }),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Kills it and waits until it is gone. Nothing in a test needs a graceful end.
    pub(super) async fn kill(&mut self) {
        // The only error is that it has ended already.
        let _ = self.child.kill().await;
    }

    /// Asks it to end by SIGTERM, and waits until it is gone.
    pub(super) async fn terminate(&mut self) -> Result<(), ServerError> {
        let program = self.program;
        if let Some(pid) = self.child.id() {
            let sent = crate::kubelet::signal(pid, "TERM").await;
            sent.map_err(|source| ServerError::Signal { program, source })?;
        }
        if tokio::time::timeout(GRACE, self.child.wait())
            .await
            .is_err()
        {
            self.kill().await;
        }
        Ok(())
    }

    /// The last lines of the log, under a heading.
    pub(super) fn log_tail(&self) -> String {
        format!(
            "--- {} ({})\n{}",
            self.program,
            self.log.display(),
            tail(&self.log, TAIL_LINES)
        )
    }
}

fn spawn(
    executable: &Path,
    program: &'static str,
    flags: &[String],
    log: &Path,
) -> Result<Child, ServerError> {
    let spawned = || {
        let output = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(executable);
        command
            .arg(program)
            .args(flags)
            .env(END_WITH_STDIN, "1")
            .env_remove("KUBECONFIG")
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true);
        if let Some(folder) = log.parent() {
            command.current_dir(folder);
        }
        command.spawn()
    };
    spawned().map_err(|source| ServerError::Spawn { program, source })
}

/// The last `lines` lines of a file; a sentence when it cannot be read.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    match std::fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(error) => format!("(no log: {error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_told_from_other_ends() {
        let ended = |log: &str| ServerError::Ended {
            program: "etcd",
            status: ExitStatus::default(),
            log: log.to_owned(),
        };
        assert!(ended("listen tcp 127.0.0.1:2379: bind: address already in use").is_taken_port());
        assert!(!ended("unknown flag: --colour").is_taken_port());
    }

    #[test]
    fn a_tail_is_the_last_lines_or_the_reason_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert!(tail(&log, 2).starts_with("(no log: "));
        std::fs::write(&log, "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(&log, 2), "two\nthree");
    }
}
