//! Joins through the guest agent. The class's script runs once per claim in the guest, even if kproxide asks several
//! times or crashes.
//!
//! The guest itself keeps the state, in a folder named by the claim's UID. The first run creates the folder, which is
//! its lock. It holds the script's output and, at the end, its exit code. A second command prints the state in one line
//! (`none`, `booting`, `running` or `done CODE`) and then the end of the output. The commands have a name as `$0`:
//! `kproxide-join` and `kproxide-join-status`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kproxide_planner::claim::{Failure, JoinLook, Outcome, Proven};
use kproxide_planner::world::World;
use tokio::time::sleep;

use super::Actor;
use super::drive::Drive;
use super::outcome::{Performed, failed};
use super::script::Script;
use kproxide_common::foreign::{self, OUTPUT_BYTES_MAX, end_of, output};
use kproxide_pve::client::Client;
use kproxide_pve::error::Error;

/// `$1` is the claim's UID; the script comes by standard input.
const RUN: &str = r#"d=/var/lib/kproxide/join-$1
mkdir -p /var/lib/kproxide && mkdir "$d" 2>/dev/null || exit 0
chmod 700 "$d"
echo $$ >"$d/pid"
/bin/sh -s >"$d/output" 2>&1
echo $? >"$d/code.new" && mv "$d/code.new" "$d/code"
"#;

/// A run that was interrupted (the guest restarted) is not repeated. It counts as failed, and kproxide replaces the
/// machine.
const STATUS: &str = r#"d=/var/lib/kproxide/join-$1
if [ -f "$d/code" ]; then
  echo "done $(cat "$d/code")"
  tail -c 2000 "$d/output"
elif [ -d "$d" ]; then
  if [ ! -s "$d/pid" ] || kill -0 "$(cat "$d/pid")" 2>/dev/null; then echo running
  else echo "done 255"; echo "the command was cut off"; tail -c 2000 "$d/output"; fi
elif command -v cloud-init >/dev/null 2>&1 && cloud-init status 2>/dev/null | grep -Eq "running|not (run|started)"; then
  echo booting
else
  echo none
fi
"#;

/// The status command answers at once, or the guest is in trouble.
const STATUS_TRIES: u32 = 5;
pub(super) const STATUS_PAUSE: Duration = Duration::from_millis(500);

impl Drive {
    /// Begins the run. Only the guest shows that it began.
    pub(super) async fn join(&self, proven: &Proven) -> Performed {
        let client = self.connected()?;
        let class = self.surroundings.class.as_ref();
        let Some(file) = class.and_then(|class| class.join.script().map(|path| &**path)) else {
            let text = "its class no longer joins through the guest agent";
            return Ok(failed(Failure::Retry, text));
        };
        let script = Script::read(&self.context.join_dir, Path::new(file)).map_err(|problem| {
            let text = format!("join.guestExec.commandSecretFile {file}: {problem}");
            failed(Failure::Retry, text)
        })?;
        let made_for = self.made_for().as_str();
        let command = ["/bin/sh", "-c", RUN, "kproxide-join", made_for];
        let (hypervisor, vmid) = (proven.hypervisor(), proven.vmid().0);
        let input = script.input();
        let run = client.agent_exec(hypervisor, vmid, &command, Some(&input));
        match run.await {
            Ok(_) => Ok(Outcome::Done),
            // Proxmox may say what it was given.
            Err(error) => Err(error.without_secrets(&script.text()).into()),
        }
    }

    /// How the run stands in the guest.
    pub(super) async fn look_at_join(
        &self,
        client: &Client,
        hypervisor: &str,
    ) -> Result<JoinLook, Error> {
        let vmid = self.facts().spec.vmid.0;
        if !client.agent_ping(hypervisor, vmid).await? {
            return Ok(JoinLook::AgentSilent("no answer to a ping".to_owned()));
        }
        let made_for = self.made_for().as_str();
        let command = ["/bin/sh", "-c", STATUS, "kproxide-join-status", made_for];
        let pid = client.agent_exec(hypervisor, vmid, &command, None).await?;
        for _ in 0..STATUS_TRIES {
            let status = client.agent_exec_status(hypervisor, vmid, pid).await?;
            if status.exited {
                return Ok(read_status(&status.stdout, self.join_script()));
            }
            sleep(STATUS_PAUSE).await;
        }
        Ok(JoinLook::AgentSilent(
            "a command in the guest does not end".to_owned(),
        ))
    }
}

impl Actor {
    /// Why the join scripts of classes cannot be read, by their paths.
    pub fn join_problems(&self, world: &World) -> BTreeMap<Arc<str>, String> {
        let classes = world.classes().values();
        let files = classes.filter_map(|class| class.join.script().cloned());
        let problem = |file: Arc<str>| {
            let read = Script::read(&self.context.join_dir, Path::new(&*file));
            Some((file, read.err()?))
        };
        files.filter_map(problem).collect()
    }
}

/// `script`: what of the guest's words may be a secret, or why none of them is shown.
fn read_status(said: &str, script: Result<String, String>) -> JoinLook {
    let clean = |said: &str| match &script {
        Ok(script) => output(said, script),
        Err(why) => why.clone(),
    };
    let (first, rest) = said.split_once('\n').unwrap_or((said, ""));
    match first.trim() {
        "none" => JoinLook::NotRun,
        "booting" => JoinLook::Booting,
        "running" => JoinLook::Running,
        other => match other
            .strip_prefix("done ")
            .and_then(|code| code.trim().parse().ok())
        {
            Some(0) => JoinLook::Succeeded,
            Some(exit_code) => JoinLook::Failed {
                exit_code,
                output: end_of(&clean(rest), OUTPUT_BYTES_MAX),
            },
            None => JoinLook::AgentSilent(format!(
                "the guest answered {:?} instead of the join command's state",
                foreign::said(&clean(other))
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_says_how_its_join_stands() {
        for (output, expected) in [
            ("none\n", JoinLook::NotRun),
            ("booting\n", JoinLook::Booting),
            ("running\n", JoinLook::Running),
            ("done 0\nfine\n", JoinLook::Succeeded),
            (
                "done 7\ncurl: (7) refused\n",
                JoinLook::Failed {
                    exit_code: 7,
                    output: "curl: (7) refused".to_owned(),
                },
            ),
        ] {
            assert_eq!(read_status(output, Ok(String::new())), expected, "{output}");
        }
        assert!(matches!(
            read_status("", Ok(String::new())),
            JoinLook::AgentSilent(_)
        ));
    }

    #[test]
    fn s5_without_its_script_nothing_that_a_guest_prints_is_shown() {
        for said in ["done 7\nsesame\n", "sesame\n"] {
            let shown = format!("{:?}", read_status(said, Err("no such file".to_owned())));
            assert!(shown.contains("no such file"), "{shown}");
            assert!(!shown.contains("sesame"), "{shown}");
        }
    }

    /// In a real shell, in a folder of its own.
    fn shell(script: &str, root: &std::path::Path, name: &str, input: &str) -> String {
        use std::io::Write as _;
        let script = script.replace("/var/lib/kproxide", &root.display().to_string());
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", &script, name, "uid-1"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // A run that finds the lock does not read its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn a_script_runs_once_and_its_result_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let counter = root.path().join("runs");
        let script = format!("echo run >>{}\necho joined\nexit 3\n", counter.display());
        assert_eq!(
            shell(STATUS, root.path(), "kproxide-join-status", ""),
            "none\n"
        );
        for _ in 0..2 {
            shell(RUN, root.path(), "kproxide-join", &script);
        }
        assert_eq!(std::fs::read_to_string(&counter).unwrap(), "run\n");
        let said = shell(STATUS, root.path(), "kproxide-join-status", "");
        let status = read_status(&said, Ok(String::new()));
        assert_eq!(
            status,
            JoinLook::Failed {
                exit_code: 3,
                output: "joined".to_owned()
            }
        );
    }

    #[test]
    fn a_run_that_was_cut_off_has_failed() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("join-uid-1");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("pid"), "999999999").unwrap();
        std::fs::write(folder.join("output"), "half").unwrap();
        let said = shell(STATUS, root.path(), "kproxide-join-status", "");
        let status = read_status(&said, Ok(String::new()));
        assert!(
            matches!(status, JoinLook::Failed { exit_code: 255, output } if output.ends_with("half"))
        );
    }
}
