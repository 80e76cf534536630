//! What the guest of a machine that does not join says of itself: its addresses, cloud-init's state, the end of a log. Each
//! is asked for once, with a short deadline. The guest's words are untrusted, and may hold secrets of the join script.

use std::path::Path;
use std::time::Duration;

use kproxide_planner::claim::{Evidence, Machine, is_proven};
use tokio::time::{sleep, timeout};

use super::drive::Drive;
use super::join::STATUS_PAUSE;
use super::script::Script;
use kproxide_common::foreign::{self, end_of, output, start_of, value};
use kproxide_pve::client::Client;
use kproxide_pve::error::{Error, Meaning};

/// `$1` is the claim's UID, by which the output of its join script is found. The first line `--log` divides what
/// cloud-init says from the log's path and its end.
const ASK: &str = r#"if command -v cloud-init >/dev/null 2>&1; then cloud-init status --long 2>&1 | head -c 1000; fi
echo
echo --log
for log in "/var/lib/kproxide/join-$1/output" /var/log/cloud-init-output.log; do
  if [ -s "$log" ]; then
    echo "$log"
    tail -c 1500 "$log"
    break
  fi
done
"#;

/// Of each of the two questions.
const DEADLINE: Duration = Duration::from_secs(5);

/// Together with the words around them less than the 1024 bytes of an Event.
const ADDRESSES_MAX: usize = 4;
const NAME_BYTES: usize = 15;
const PROBLEM_BYTES: usize = 200;
const STATE_BYTES: usize = 200;
const LOG_BYTES: usize = 350;

impl Drive {
    /// `None`: without the proof that the VM is the claim's, or without Proxmox, nobody is asked.
    pub(super) async fn evidence(&self, machine: &Machine) -> Option<Evidence> {
        if !is_proven(&self.subject(), machine) {
            return None;
        }
        let client = self.proxmox()?;
        let hypervisor = &*machine.hypervisor;
        let vmid = self.facts().spec.vmid.0;
        let mut evidence = Evidence::default();
        match in_time(client.agent_addresses(hypervisor, vmid)).await {
            Ok(addresses) => {
                let addresses = addresses.into_iter().take(ADDRESSES_MAX);
                let named = addresses.map(|(name, address)| {
                    format!("{address} ({})", start_of(&value(&name), NAME_BYTES))
                });
                evidence.addresses = Some(named.collect());
            }
            // Neither does it run commands.
            Err(Unsaid::Silent) => {
                evidence.unsaid = Some("the guest agent does not answer".to_owned());
                return Some(evidence);
            }
            Err(Unsaid::Because(why)) => evidence.unsaid = Some(told(&why)),
        }
        let secrets = match self.join_script() {
            Ok(secrets) => secrets,
            Err(why) => {
                evidence.unsaid = Some(start_of(&why, PROBLEM_BYTES));
                return Some(evidence);
            }
        };
        match in_time(self.ask(&client, hypervisor, vmid)).await {
            Ok(said) => {
                let (state, log) = said.split_once("\n--log\n").unwrap_or((&said, ""));
                let (path, lines) = log.split_once('\n').unwrap_or((log, ""));
                evidence.cloud_init = start_of(&output(state, &secrets), STATE_BYTES);
                evidence.log = foreign::said(path);
                evidence.log_end = end_of(&output(lines, &secrets), LOG_BYTES);
            }
            Err(Unsaid::Silent) => {
                evidence.unsaid = Some("a command in the guest does not end".to_owned());
            }
            Err(Unsaid::Because(why)) => evidence.unsaid = Some(told(&why)),
        }
        Some(evidence)
    }

    async fn ask(&self, client: &Client, hypervisor: &str, vmid: u32) -> Result<String, Error> {
        let made_for = self.made_for().as_str();
        let command = ["/bin/sh", "-c", ASK, "kproxide-evidence", made_for];
        let pid = client.agent_exec(hypervisor, vmid, &command, None).await?;
        loop {
            let status = client.agent_exec_status(hypervisor, vmid, pid).await?;
            if status.exited {
                return Ok(status.stdout);
            }
            sleep(STATUS_PAUSE).await;
        }
    }

    /// What of the guest's words may be a secret of ours. Empty: machines of the class join by themselves.
    ///
    /// # Errors
    /// Nobody knows what that is, so nothing of the guest's words may be shown. Says why.
    pub(super) fn join_script(&self) -> Result<String, String> {
        let class = self.surroundings.class.as_ref();
        let Some(file) = class.and_then(|class| class.join.script().map(|path| &**path)) else {
            return Ok(String::new());
        };
        match Script::read(&self.context.join_dir, Path::new(file)) {
            Ok(script) => Ok(script.text().into_owned()),
            Err(problem) => Err(format!(
                "what the guest prints is not shown, for its secrets are not known: join.guestExec.commandSecretFile {file}: {problem}"
            )),
        }
    }
}

/// Why there is no answer.
enum Unsaid {
    /// There may be one next time.
    Silent,
    Because(String),
}

async fn in_time<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Unsaid> {
    match timeout(DEADLINE, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.meaning == Meaning::AgentDown => Err(Unsaid::Silent),
        Ok(Err(error)) => Err(Unsaid::Because(error.chain())),
        Err(_) => Err(Unsaid::Silent),
    }
}

fn told(why: &str) -> String {
    start_of(&output(why, ""), PROBLEM_BYTES)
}
