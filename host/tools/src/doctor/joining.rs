//! The join scripts: read as a person would who looks for the usual mistakes. Nothing of them is run.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kproxide_planner::keys::UNREGISTERED_TAINT;
use kproxide_planner::world::World;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::Sources;
use super::cluster::KUBERNETES_DEADLINE;
use super::installation::Files;
use kproxide_common::hex::hex;
use kproxide_controller::act;
use kproxide_controller::judge::{Finding, Group, Level};
use kproxide_controller::judge::{named, reasons};
use kproxide_kube::client::Client;

/// For the server that a script names, and for the shell that reads it.
const JOIN_DEADLINE: Duration = Duration::from_secs(4);
/// Of a server's certificates.
const AUTHORITIES_BYTES_MAX: usize = 1 << 20;
const SHELL: &str = "/bin/sh";

/// Where join scripts are.
pub enum Scripts {
    /// In a folder, as the pod has it.
    Folder(PathBuf),
    /// In Secrets that were read.
    Mounted { folder: String, files: Files },
    /// Doctor does not see them from here.
    Unseen,
}

impl Scripts {
    /// The script of a class, or why it cannot be read. `None`: it is not known.
    pub(super) fn read(&self, file: &str) -> Option<Result<String, String>> {
        let read = match self {
            Self::Folder(folder) => Some(act::Script::read(folder, Path::new(file))),
            Self::Mounted { folder, files } => {
                let path = Path::new(folder).join(file);
                Some(match files.get(&path.display().to_string()) {
                    Some(bytes) => act::Script::new(bytes.clone()),
                    None => Err(format!(
                        "the pod has no file {}: {}",
                        path.display(),
                        act::MOUNT_IT
                    )),
                })
            }
            Self::Unseen => None,
        };
        Some(read?.map(|script| script.text().into_owned()))
    }
}

pub(super) async fn check(sources: &Sources, world: &World) -> Vec<Finding> {
    let checks = world.classes().iter().map(async |(name, class)| {
        let Some(file) = class.join.script() else {
            return Vec::new();
        };
        // That it cannot be read is the class's own finding.
        let Some(Ok(script)) = sources.scripts.read(file) else {
            return Vec::new();
        };
        let script = Script {
            object: named("NodeClass", name),
            file,
            text: &script,
        };
        script.check(sources).await
    });
    join_all(checks).await.concat()
}

struct Script<'s> {
    object: String,
    file: &'s str,
    text: &'s str,
}

impl Script<'_> {
    async fn check(&self, sources: &Sources) -> Vec<Finding> {
        let error = |reason, text: String| {
            let text = format!("join script {}: {text}", self.file);
            Finding::error(Group::Joining, self.object.clone(), reason, text)
        };
        if let Some(problem) = syntax(self.text).await {
            return vec![error(&reasons::JOIN_SYNTAX, problem)];
        }
        if let Some((line, text)) = placeholder(self.text) {
            // Its other values mean nothing yet.
            let text = format!("line {line} is still to be edited: {text}");
            return vec![error(&reasons::JOIN_PLACEHOLDER, text)];
        }
        let mut findings = Vec::new();
        if !lines(self.text).any(|(_, line)| line.contains(UNREGISTERED_TAINT)) {
            let text =
                format!("it does not give the Node the taint {UNREGISTERED_TAINT}=:NoExecute");
            findings.push(error(&reasons::JOIN_TAINT, text));
        }
        if let Some((host, port)) = server(self.text) {
            let at = format!("the server {host}:{port}");
            let finding = match silence(&host, port).await {
                Some(problem) => {
                    let text = format!("{at} does not answer: {problem}");
                    Some(error(&reasons::JOIN_SERVER, text))
                }
                None if is_foreign(self.text, &host, port).await => {
                    let text = format!("{at} has other certificates than those of the token");
                    Some(error(&reasons::JOIN_AUTHORITY, text))
                }
                None => None,
            };
            findings.extend(finding.map(|it| it.seen_from(&sources.place)));
        }
        if let Some(installs) = version(self.text)
            && let Some(serves) = served(sources.kube.as_ref()).await
            && minor(&installs) > minor(&serves)
        {
            let text = format!("it installs {installs}, and the API server is {serves}");
            findings.push(error(&reasons::JOIN_VERSION, text));
        }
        if let Some(token) = bootstrap_token(self.text) {
            let kube = sources.kube.as_ref();
            let another = format!("{} token create --ttl 0", maker(self.text));
            findings.extend(match lasts(kube, &token, sources.clock.now()).await {
                Lasts::Over(problem) => {
                    Some(error(&reasons::JOIN_TOKEN, problem).typing([another]))
                }
                Lasts::Until(until) => {
                    let text = format!(
                        "the bootstrap token {token} expires at {until:.0}, and then no new machine joins"
                    );
                    let level = Level::Warning;
                    let finding = error(&reasons::JOIN_TOKEN_EXPIRES, text).typing([another]);
                    Some(Finding { level, ..finding })
                }
                Lasts::Unknown => None,
            });
        }
        if findings.is_empty() {
            let text = format!("join script {}", self.file);
            findings.push(Finding::ok(Group::Joining, self.object.clone(), text));
        }
        findings
    }
}

/// Lines with their numbers, without comments.
fn lines(script: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(script.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The first line with a value that stands for one: `...`, `<TOKEN>`, or a host of the names that are for examples. A
/// script may compare with these.
fn placeholder(script: &str) -> Option<(usize, &str)> {
    let mut lines = lines(script).filter(|(_, line)| !line.starts_with('['));
    lines.find(|(_, line)| {
        let words = line.split(|letter: char| letter.is_whitespace() || "=\"':/".contains(letter));
        let mut words = words.filter(|word| !word.is_empty());
        words.any(|word| {
            let is_named = word
                .strip_prefix('<')
                .and_then(|word| word.strip_suffix('>'))
                .is_some_and(|name| name.len() > 1);
            matches!(word, "..." | "…" | "CHANGEME" | "EDIT")
                || is_named
                || word.ends_with(".example")
                || word.ends_with(".example.com")
        })
    })
}

/// The words that follow one of these on its line, without quotes.
fn after<'s>(script: &'s str, keys: &'static [&'static str]) -> impl Iterator<Item = &'s str> {
    let lines = lines(script).filter(|(_, line)| !line.starts_with('['));
    let rests = lines.flat_map(move |(_, line)| {
        keys.iter()
            .filter_map(move |key| Some(line.split_once(key)?.1))
    });
    let end = |letter: char| letter.is_whitespace() || "\"';".contains(letter);
    rests.flat_map(move |rest| rest.split(end).filter(|word| !word.is_empty()))
}

/// The words of a shell that cannot read it. `None`: it can, or there is no shell here.
async fn syntax(script: &str) -> Option<String> {
    let mut command = Command::new(SHELL);
    command
        .arg("-n")
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut child = command
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let said = async {
        let _ = input.write_all(script.as_bytes()).await;
        drop(input);
        child.wait_with_output().await
    };
    let output = timeout(JOIN_DEADLINE, said).await.ok()?.ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then(|| said.trim().to_owned())
}

/// The server of k3s and RKE2 (an URL), or of `kubeadm join HOST:PORT`.
fn server(script: &str) -> Option<(String, u16)> {
    const KEYS: &[&str] = &[
        "K3S_URL=",
        "RKE2_URL=",
        "server=",
        "server:",
        "--server",
        "kubeadm join",
    ];
    after(script, KEYS).find_map(|word| {
        let written = word.trim_start_matches("https://").trim_end_matches('/');
        let (host, port) = written.rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        let port = port.parse().ok()?;
        (!host.is_empty()).then(|| (host.to_owned(), port))
    })
}

async fn silence(host: &str, port: u16) -> Option<String> {
    match timeout(JOIN_DEADLINE, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!(
            "no connection within {} s",
            JOIN_DEADLINE.as_secs()
        )),
    }
}

/// A full token of k3s and RKE2 names the server's authorities by their hash, `K10HASH::`, and this server has others.
async fn is_foreign(script: &str, host: &str, port: u16) -> bool {
    const KEYS: &[&str] = &["K3S_TOKEN=", "RKE2_TOKEN=", "token=", "token:"];
    let expected = after(script, KEYS).find_map(|word| {
        let (hash, _) = word.strip_prefix("K10")?.split_once("::")?;
        (hash.len() == 64).then(|| hash.to_owned())
    });
    let Some(expected) = expected else {
        return false;
    };
    match timeout(JOIN_DEADLINE, authorities(host, port)).await {
        Ok(Some(authorities)) => hex(&Sha256::digest(authorities)) != expected,
        // What does not answer as k3s does says nothing.
        Ok(None) | Err(_) => false,
    }
}

/// As an agent asks for them, before it can trust anybody.
async fn authorities(host: &str, port: u16) -> Option<Vec<u8>> {
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    let http = reqwest::Client::builder()
        .no_proxy()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .ok()?;
    let asked = http.get(format!("https://{host}:{port}/cacerts")).send();
    let mut answer = asked.await.ok()?.error_for_status().ok()?;
    let mut authorities = Vec::new();
    while let Some(chunk) = answer.chunk().await.ok()? {
        authorities.extend_from_slice(&chunk);
        if authorities.len() > AUTHORITIES_BYTES_MAX {
            return None;
        }
    }
    Some(authorities)
}

/// The version of Kubernetes that is installed, such as `v1.33.4+k3s1`.
fn version(script: &str) -> Option<String> {
    const KEYS: &[&str] = &["INSTALL_K3S_VERSION=", "INSTALL_RKE2_VERSION=", "version="];
    let mut words = after(script, KEYS);
    let found = words.find(|word| word.starts_with('v') && minor(word).is_some());
    found.map(str::to_owned)
}

async fn served(kube: Option<&Client>) -> Option<String> {
    let kube = kube?;
    let (_, version) = timeout(KUBERNETES_DEADLINE, kube.ask("/version"))
        .await
        .ok()?
        .ok()?;
    version["gitVersion"].as_str().map(str::to_owned)
}

/// Major and minor of `v1.33.4+k3s1`.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// `abcdef.0123456789abcdef`, without its secret half. In k3s and RKE2 the server's authorities may stand before it: `K10HASH::abcdef.0123456789abcdef`.
fn bootstrap_token(script: &str) -> Option<String> {
    const KEYS: &[&str] = &[
        "--token=",
        "--token ",
        "K3S_TOKEN=",
        "RKE2_TOKEN=",
        "token=",
        "token:",
    ];
    let is_of = |text: &str, length| {
        text.len() == length
            && text
                .bytes()
                .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
    };
    after(script, KEYS).find_map(|word| {
        let word = word.rsplit_once("::").map_or(word, |(_, token)| token);
        let (id, secret) = word.split_once('.')?;
        (is_of(id, 6) && is_of(secret, 16)).then(|| id.to_owned())
    })
}

/// The program that makes bootstrap tokens for that script.
fn maker(script: &str) -> &'static str {
    let names = |word: &str| lines(script).any(|(_, line)| line.to_lowercase().contains(word));
    match (names("rke2"), names("k3s")) {
        (true, _) => "rke2",
        (false, true) => "k3s",
        (false, false) => "kubeadm",
    }
}

/// How long a bootstrap token is good for.
enum Lasts {
    /// Why it is not.
    Over(String),
    Until(Timestamp),
    /// For ever, or the caller may not read it.
    Unknown,
}

async fn lasts(kube: Option<&Client>, id: &str, now: Timestamp) -> Lasts {
    let path = format!("/api/v1/namespaces/kube-system/secrets/bootstrap-token-{id}");
    let asked = async {
        timeout(KUBERNETES_DEADLINE, kube?.ask(&path))
            .await
            .ok()?
            .ok()
    };
    match asked.await {
        Some((404, _)) => Lasts::Over(format!(
            "there is no bootstrap token {id}, or it has expired"
        )),
        Some((200, secret)) => {
            let until = decoded(&secret["data"]["expiration"]);
            match until.and_then(|until| until.parse::<Timestamp>().ok()) {
                Some(until) if until <= now => Lasts::Over(format!(
                    "the bootstrap token {id} has expired at {until:.0}"
                )),
                Some(until) => Lasts::Until(until),
                None => Lasts::Unknown,
            }
        }
        Some(_) | None => Lasts::Unknown,
    }
}

fn decoded(field: &Value) -> Option<String> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(field.as_str()?);
    String::from_utf8(bytes.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of a file: the one rule says what can be sent.
    #[test]
    fn n1_a_script_in_a_secret_that_proxmox_would_not_take_is_told() {
        let files = [("/join/a", "✓".repeat(9_000)), ("/join/b", "✓".to_owned())];
        let files = files.map(|(path, text)| (path.to_owned(), text.into_bytes()));
        let scripts = Scripts::Mounted {
            folder: "/join".to_owned(),
            files: files.into_iter().collect(),
        };
        let problem = |file: &str| scripts.read(file).unwrap().err().unwrap_or_default();
        assert!(problem("a").contains("108023 letters"), "{}", problem("a"));
        assert_eq!(problem("b"), "");
        assert!(problem("c").contains("the pod has no file /join/c: mount"));
    }

    /// Edited as a person would, the shipped scripts have nothing left to edit, and are understood.
    #[tokio::test]
    async fn the_shipped_scripts_are_still_to_be_edited() {
        let token = "token=abcdef.0123456789abcdef";
        for (script, host, port, installs) in [
            (
                include_str!("../../../../examples/join/k3s-agent.sh"),
                "k3s.example",
                6443,
                "v1.33.4+k3s1",
            ),
            (
                include_str!("../../../../examples/join/rke2-agent.sh"),
                "rke2.example",
                9345,
                "v1.33.4+rke2r1",
            ),
            (
                include_str!("../../../../examples/join/kubeadm.sh"),
                "kubernetes.example",
                6443,
                "v1.33",
            ),
        ] {
            let (line, text) = placeholder(script).unwrap();
            assert!(text.contains(host), "{line}: {text}");
            let assigned = |value: &str| script.replacen(&format!("server={value}"), "server=", 1);
            let edited = assigned(&format!("https://{host}:{port}"));
            let edited = edited.replacen(&format!("server={host}:{port}"), "server=", 1);
            let edited =
                edited.replacen("server=\n", &format!("server=https://10.0.0.1:{port}\n"), 1);
            assert!(
                placeholder(&edited).unwrap().1.contains("token=..."),
                "{edited}"
            );
            let edited = edited.replacen("token=...", token, 1).replacen(
                "hash=sha256:...",
                "hash=sha256:ab",
                1,
            );
            assert_eq!(placeholder(&edited), None);
            assert_eq!(server(&edited), Some(("10.0.0.1".to_owned(), port)));
            assert_eq!(version(&edited).as_deref(), Some(installs));
            assert_eq!(bootstrap_token(&edited).as_deref(), Some("abcdef"));
            assert!(script.contains(maker(&edited)), "{edited}");
            assert!(edited.contains(UNREGISTERED_TAINT));
            assert_eq!(syntax(&edited).await, None);
        }
        assert!(minor("v1.33.4+k3s1") > minor("v1.32.9"));
    }

    #[test]
    fn the_server_and_the_token_are_found_where_they_stand_in_a_line() {
        let kubeadm = "kubeadm join [fd00::1]:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:0";
        assert_eq!(server(kubeadm), Some(("fd00::1".to_owned(), 6443)));
        assert_eq!(bootstrap_token(kubeadm).as_deref(), Some("abcdef"));
        let rke2 = "# server: https://wrong:1\necho 'server: https://rke2.lan:9345' >/etc/rancher/rke2/config.yaml";
        assert_eq!(server(rke2), Some(("rke2.lan".to_owned(), 9345)));
        assert_eq!(
            placeholder("kubeadm join <SERVER>:6443").map(|it| it.0),
            Some(1)
        );
        assert_eq!(placeholder("cat <<EOF >/x\nif [ 1 < 2 ]; then b; fi"), None);
        assert_eq!(bootstrap_token("export K3S_TOKEN=K10abc::server:xyz"), None);
    }

    #[tokio::test]
    async fn a_script_that_the_shell_cannot_read_is_told_with_the_shells_words() {
        assert_eq!(syntax("set -eu\nexport A=1\n").await, None);
        let said = syntax("if true; then\n").await.unwrap();
        assert!(said.contains("end of file"), "{said}");
    }
}
