//! What the guest of a machine that does not join says of itself: its addresses, cloud-init's state, the end of a log. Each
//! is asked for once, with a short deadline. The guest's words are untrusted, and may hold secrets of the join script.

use std::path::Path;
use std::time::Duration;

use kproxide_planner::claim::{Evidence, Machine, is_proven};
use tokio::time::{sleep, timeout};

use super::drive::Drive;
use super::join::STATUS_PAUSE;
use super::script::Script;
use crate::pve::client::Client;
use crate::pve::error::{Error, Meaning};

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

/// In the place of what may be a secret.
const HIDDEN: &str = "[hidden]";
/// A shorter word of the script is not hidden: it is rather a name than a secret.
const SECRET_BYTES: usize = 16;
/// What follows such a word is hidden.
const SECRETS: [&str; 7] = [
    "token",
    "bearer",
    "password",
    "passwd",
    "secret",
    "hash",
    "authorization",
];

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
                    format!("{address} ({})", start_of(&clean(&name, ""), NAME_BYTES))
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
        match in_time(self.ask(&client, hypervisor, vmid)).await {
            Ok(said) => {
                let secrets = self.join_script();
                let (state, log) = said.split_once("\n--log\n").unwrap_or((&said, ""));
                let (path, lines) = log.split_once('\n').unwrap_or((log, ""));
                evidence.cloud_init = start_of(&clean(state, &secrets), STATE_BYTES);
                evidence.log = clean(path, "");
                evidence.log_end = end_of(&clean(lines, &secrets), LOG_BYTES);
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
    fn join_script(&self) -> String {
        let class = self.surroundings.class.as_ref();
        let file = class.and_then(|class| class.join_script.as_deref());
        let read = file.and_then(|file| Script::read(&self.context.join_dir, Path::new(file)).ok());
        read.map_or_else(String::new, |script| script.text().into_owned())
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
    start_of(&clean(why, ""), PROBLEM_BYTES)
}

/// One line of the guest's words, without control characters and without what may be a secret.
fn clean(text: &str, script: &str) -> String {
    let lines = plain(text);
    let lines = lines.lines().map(|line| without_secrets(line, script));
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    lines.join(" | ")
}

/// Without control characters, the sequences that colour a terminal, and characters that turn the direction of writing.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut is_in_sequence = false;
    for letter in text.chars() {
        match letter {
            '\u{1b}' => is_in_sequence = true,
            // The bracket begins the sequence, a letter ends it.
            _ if is_in_sequence && letter != '\n' => {
                is_in_sequence = !letter.is_ascii_alphabetic();
            }
            // A carriage return is how progress is shown: on one line of a terminal.
            '\n' | '\r' => {
                is_in_sequence = false;
                plain.push('\n');
            }
            '\t' => plain.push(' '),
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => {}
            _ if letter.is_control() => {}
            _ => plain.push(letter),
        }
    }
    plain
}

/// Hides a word of the script that is long and no path or address, and whatever follows a word such as `token`.
fn without_secrets(line: &str, script: &str) -> String {
    let mut words = Vec::new();
    let mut is_named_before = false;
    for word in line.split_whitespace() {
        let parts = word.split(['=', '"', '\'', ',', ';']);
        let is_of_script = parts
            .clone()
            .any(|part| part.len() >= SECRET_BYTES && !part.contains('/') && script.contains(part));
        let named = name_of_secret(word);
        let hides = match named {
            Some(name) => word.len() > name,
            None => is_named_before || is_of_script,
        };
        words.push(match (hides, named) {
            (true, Some(name)) => format!("{}{HIDDEN}", &word[..name]),
            (true, None) => HIDDEN.to_owned(),
            (false, _) => word.to_owned(),
        });
        is_named_before = named.is_some_and(|name| name == word.len());
    }
    words.join(" ")
}

/// The bytes of `--token=` in `--token=abc`, of `password:` in `password:`.
fn name_of_secret(word: &str) -> Option<usize> {
    let end = word.find(['=', ':']).map_or(word.len(), |at| at + 1);
    let name = word[..end].to_ascii_lowercase();
    let name = name.trim_end_matches(['=', ':', '"', '\'']);
    SECRETS
        .iter()
        .any(|secret| name.ends_with(secret))
        .then_some(end)
}

/// Its first whole words.
fn start_of(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max);
    let whole = text[..end].rfind(char::is_whitespace).unwrap_or(end);
    format!("{}…", &text[..whole])
}

/// Its last whole words.
fn end_of(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let start = text.ceil_char_boundary(text.len() - bytes_max);
    let whole = text[start..]
        .find(char::is_whitespace)
        .map_or(start, |at| start + at + 1);
    format!("… {}", &text[whole..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "curl -sfL https://get.k3s.io/installer | K3S_TOKEN=K10abcdef0123456789::server:4711 sh\n\
                          kubeadm join 10.0.0.5:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:99\n";

    #[test]
    fn what_a_guest_says_becomes_one_clean_line() {
        for (said, expected) in [
            ("status: done\n\nerrors: []\n", "status: done | errors: []"),
            (
                "\u{1b}[0;31mfailed\u{1b}[0m to start\u{7}",
                "failed to start",
            ),
            ("10%\r20%\r100%", "10% | 20% | 100%"),
            ("a\tb \u{202e}c\u{0}", "a b c"),
            ("", ""),
        ] {
            assert_eq!(clean(said, ""), expected, "{said:?}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_hidden() {
        for (said, expected) in [
            (
                "+ kubeadm join 10.0.0.5:6443 --token abcdef.0123456789abcdef",
                "+ kubeadm join 10.0.0.5:6443 --token [hidden]",
            ),
            (
                "joining with abcdef.0123456789abcdef now",
                "joining with [hidden] now",
            ),
            (
                "K3S_TOKEN=K10abcdef0123456789::server:4711 sh",
                "K3S_TOKEN=[hidden] sh",
            ),
            ("a=\"K10abcdef0123456789::server:4711\"", HIDDEN),
            ("password: hunter2", "password: [hidden]"),
            // Of another one's, in a template that joins by itself.
            ("--token=xyz", "--token=[hidden]"),
            (
                "curl: (7) https://get.k3s.io/installer: Connection refused",
                "curl: (7) https://get.k3s.io/installer: Connection refused",
            ),
        ] {
            assert_eq!(clean(said, SCRIPT), expected, "{said}");
        }
    }

    #[test]
    fn words_stay_whole_and_in_bounds() {
        let text = "größer als alles andere ".repeat(40);
        let text = text.trim_end();
        let words: Vec<_> = text.split(' ').collect();
        for bytes in 10..200 {
            let start = start_of(text, bytes);
            let end = end_of(text, bytes);
            assert!(start.len() <= bytes + '…'.len_utf8() && end.len() <= bytes + "… ".len());
            for cut in [start.strip_suffix('…'), end.strip_prefix("… ")] {
                assert!(cut.unwrap().split(' ').all(|word| words.contains(&word)));
            }
        }
        assert_eq!(start_of("short", 10), "short");
        assert_eq!(end_of("short", 10), "short");
    }
}
