//! Guests whose agent runs what it is told in a real shell, each in a folder that stands for its disk.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kproxide_simulator::pve::{CommandResult, MachineEvent, Pve};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// The class's script, and the one machine that runs it.
pub(super) struct Guest {
    folder: TempDir,
    /// Its agent, as long as it lives.
    _agent: JoinSet<()>,
}

impl Guest {
    /// `script` runs in the guest's folder, as the working directory; the machine joins once there is a file `joined`.
    pub(super) fn new(pve: &Pve, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("join")).unwrap();
        fs::create_dir(folder.path().join("disk")).unwrap();
        let mut agent = JoinSet::new();
        fs::write(folder.path().join("join/script"), script).unwrap();
        let disk = folder.path().join("disk");
        let (pve, mut events) = (pve.clone(), pve.machine_events());
        agent.spawn(async move {
            while let Some(event) = events.recv().await {
                if let MachineEvent::Started { vmid, .. } = &event {
                    let addresses = ["10.0.0.7", "fd00::7"].map(str::to_owned);
                    pve.set_guest(*vmid, "guest", &addresses).unwrap();
                    pve.set_agent_ready(*vmid, true).unwrap();
                }
                if let MachineEvent::AgentExec {
                    vmid,
                    pid,
                    command,
                    input,
                    ..
                } = &event
                {
                    let result = shell(&disk, command, input);
                    pve.complete_exec(*vmid, *pid, result).unwrap();
                }
            }
        });
        Self {
            folder,
            _agent: agent,
        }
    }

    /// What a NodeClass names as `--join-dir`'s file.
    pub(super) fn script(&self) -> PathBuf {
        self.join_dir().join("script")
    }

    pub(super) fn join_dir(&self) -> PathBuf {
        self.folder.path().join("join")
    }

    pub(super) fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    pub(super) fn has_joined(&self) -> bool {
        self.disk().join("joined").exists()
    }
}

fn shell(disk: &Path, command: &[String], input: &[u8]) -> CommandResult {
    let [program, arguments @ ..] = command else {
        panic!("an empty command");
    };
    let inside = |text: &String| {
        ["/var/lib/kproxide", "/var/log"]
            .iter()
            .fold(text.clone(), |text, folder| {
                let inside = format!("{}{folder}", disk.display());
                text.replace(folder, &inside)
            })
    };
    // What a test puts there is what the guest has installed.
    let programs = format!(
        "{}:{}",
        disk.join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let mut child = Command::new(program)
        .args(arguments.iter().map(inside))
        .current_dir(disk)
        .env("PATH", programs)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A run that finds the lock does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    let ended = child.wait_with_output().unwrap();
    CommandResult {
        exitcode: ended.status.code().unwrap(),
        out: ended.stdout,
        err: ended.stderr,
        ..CommandResult::default()
    }
}
