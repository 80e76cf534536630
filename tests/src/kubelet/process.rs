use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};

/// The container's process. It ends when this value is dropped, and also when the test's process dies without dropping
/// anything: a watchdog waits at the other end of a pipe and kills it then. (The parent-death signal would follow the
/// *thread* that spawned the process, and test threads come and go.)
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    watchdog: Child,
}

impl Process {
    /// Starts `binary` with this environment and no other, both outputs appended to `log`.
    pub(super) fn start(
        binary: &Path,
        args: &[String],
        env: &BTreeMap<String, String>,
        log: &Path,
    ) -> io::Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        let child = Command::new(binary)
            .args(args)
            .env_clear()
            .envs(env)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child
            .id()
            .expect("a process that nobody waited for yet has an id");
        let watchdog = shell("cat >/dev/null; kill -KILL \"$0\" 2>/dev/null", pid)
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Process { child, watchdog })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten();
        if status.is_some() {
            self.dismiss_watchdog();
        }
        status
    }

    pub(super) async fn kill(&mut self) {
        // Before the process id is free for another process.
        self.dismiss_watchdog();
        // The only error is that it has ended already.
        let _ = self.child.kill().await;
    }

    /// SIGTERM, and SIGKILL after `grace`.
    pub(super) async fn terminate(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.signal("TERM").await?;
        let status = match tokio::time::timeout(grace, self.child.wait()).await {
            Ok(status) => status?,
            Err(_) => {
                self.child.start_kill()?;
                self.child.wait().await?
            }
        };
        self.dismiss_watchdog();
        Ok(status)
    }

    /// Nothing happens to a process that has ended.
    pub(super) async fn signal(&self, name: &str) -> io::Result<()> {
        match self.pid() {
            Some(pid) => signal(pid, name).await,
            None => Ok(()),
        }
    }

    fn dismiss_watchdog(&mut self) {
        // The only error is that it has ended already.
        let _ = self.watchdog.start_kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.dismiss_watchdog();
    }
}

/// Sends a signal, by its name without `SIG`, to a process that nobody has waited for yet.
pub(crate) async fn signal(pid: u32, name: &str) -> io::Result<()> {
    shell(&format!("kill -{name} \"$0\""), pid)
        .stdin(Stdio::null())
        .spawn()?
        .wait()
        .await
        .map(drop)
}

/// A line of shell with a process id as `$0`. The shell's `kill` spares this crate the unsafe system call.
fn shell(line: &str, pid: u32) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .arg(pid.to_string())
        .kill_on_drop(true);
    command
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;
    use crate::eventually;

    fn script(folder: &Path, line: &str) -> Process {
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        Process::start(
            Path::new("/bin/sh"),
            &["-c".to_owned(), line.to_owned()],
            &env,
            &folder.join("log"),
        )
        .unwrap()
    }

    async fn says_ready(folder: &Path) {
        eventually(
            Duration::from_secs(10),
            "the script's first word",
            async || {
                let log = std::fs::read_to_string(folder.join("log")).unwrap();
                (log.contains("ready")).then_some(()).ok_or(log)
            },
        )
        .await;
    }

    #[tokio::test]
    async fn a_process_that_obeys_ends_as_it_likes() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = script(
            folder.path(),
            "trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done",
        );
        says_ready(folder.path()).await;
        let status = process.terminate(Duration::from_secs(20)).await.unwrap();
        assert_eq!(status.code(), Some(7));
    }

    #[tokio::test]
    async fn a_process_that_does_not_obey_is_killed_after_its_grace() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = script(
            folder.path(),
            "trap '' TERM; echo ready; while :; do sleep 0.02; done",
        );
        says_ready(folder.path()).await;
        let status = process.terminate(Duration::from_millis(100)).await.unwrap();
        assert_eq!(status.signal(), Some(9));
        assert_eq!(process.ended(), Some(status));
    }

    #[tokio::test]
    async fn the_watchdog_kills_when_nobody_holds_its_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = script(folder.path(), "echo ready; while :; do sleep 0.02; done");
        says_ready(folder.path()).await;
        drop(process.watchdog.stdin.take());
        let status = eventually(Duration::from_secs(10), "its end", async || process.ended()).await;
        assert_eq!(status.signal(), Some(9));
    }
}
