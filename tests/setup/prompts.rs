//! `kproxide init` at a terminal: it asks, and shows no secret that is typed. What was answered is not lost.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use kproxide_simulator::pve::topology::Version;
use nix::pty::openpty;
use nix::sys::termios::{LocalFlags, tcgetattr};
use serde_json::json;
use tokio::process::Child;
use tokio::time::Instant;

use crate::bare;
use crate::books::FINGERPRINT;
use crate::life::{SOON, kproxide};
use crate::world::World;

/// A person at a terminal who reads everything that it shows.
struct Person {
    types: File,
    shown: mpsc::Receiver<Vec<u8>>,
    seen: String,
    /// Up to here everything was answered.
    answered: usize,
}

impl Person {
    /// At a terminal of its own, where that runs.
    fn starts(arguments: &[&str]) -> (Person, Child) {
        let terminal = openpty(None, None).unwrap();
        let of_child = || Stdio::from(terminal.slave.try_clone().unwrap());
        let child = kproxide(arguments)
            .env("TERM", "xterm")
            .stdin(of_child())
            .stdout(of_child())
            .stderr(of_child())
            .spawn()
            .unwrap();
        drop(terminal.slave);
        let (sender, shown) = mpsc::channel();
        let mut master = File::from(terminal.master.try_clone().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // When the other end closes, reading fails.
            while let Ok(count) = master.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let person = Person {
            types: terminal.master.into(),
            shown,
            seen: String::new(),
            answered: 0,
        };
        (person, child)
    }

    /// Waits until these words are shown.
    fn reads(&mut self, words: &str) {
        let place = loop {
            if let Some(place) = self.seen[self.answered..].find(words) {
                break place;
            }
            let more = self.shown.recv_timeout(SOON);
            let more = more.unwrap_or_else(|error| panic!("{words}: {error}: {}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        };
        // The next question may have come with these words.
        self.answered += place + words.len();
    }

    fn answers(&mut self, words: &str, types: &str) {
        self.reads(words);
        self.types.write_all(types.as_bytes()).unwrap();
    }

    /// Types once the terminal shows nothing of it: before that, what is typed is thrown away.
    fn answers_unseen(&mut self, words: &str, types: &str) {
        self.answers_without(LocalFlags::ECHO, words, types);
    }

    /// Presses ^C once the program takes it as a key: before that, it would be a signal to whom this terminal belongs.
    fn interrupts(&mut self, words: &str) {
        self.answers_without(LocalFlags::ISIG, words, "\u{3}");
    }

    fn answers_without(&mut self, flag: LocalFlags, words: &str, types: &str) {
        self.reads(words);
        let begun = Instant::now();
        let has = |file: &File| tcgetattr(file).unwrap().local_flags.contains(flag);
        while has(&self.types) {
            assert!(begun.elapsed() < SOON, "{words}: {}", self.seen);
            thread::yield_now();
        }
        self.types.write_all(types.as_bytes()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_terminal_it_asks_and_shows_no_secret() {
    let world = World::prepared(bare(Version::V9), &[]).await;
    let (out, kubeconfig) = (world.path("out"), world.kubeconfig());
    let place = out.display().to_string();
    let arguments = ["init", "--kubeconfig", &kubeconfig, "--out", &place];
    let (mut person, child) = Person::starts(&arguments);
    let printed = &world.printed;
    let token = "zyxwvu.9876543210zyxwvu";
    let answers = tokio::task::spawn_blocking({
        let printed = printed.clone();
        let fingerprint = world.served.pve_wire.fingerprint().to_owned();
        move || {
            // Whose answer is of no use is asked that question again, and no other.
            person.answers("Address of any server", "https://127.0.0.1:1\r");
            person.reads("https://127.0.0.1:1: ");
            let endpoint = format!("{}\r", printed["endpoint"]);
            person.answers("Address of any server", &endpoint);
            // No word but these two is an answer.
            person.answers("Is it the same?", "maybe\r");
            person.reads("write yes or no");
            person.answers("Is it the same?", "no\r");
            person.reads("is not confirmed");
            // Enter takes the address that was given before.
            person.answers("Address of any server", "\r");
            person.answers("Is it the same?", &format!("{FINGERPRINT}\r"));
            person.reads("is not confirmed");
            person.answers("Address of any server", "\r");
            let pasted = format!("fingerprint: {}\r", fingerprint.to_lowercase());
            person.answers("Is it the same?", &pasted);
            assert!(person.seen.contains(&fingerprint), "{}", person.seen);
            person.answers("API token", &format!("{}\r", printed["token-id"]));
            person.answers_unseen("The token's secret", "mistyped-secret\r");
            person.reads("Proxmox refused the credentials");
            // Enter takes the token that was given before.
            person.answers("API token", "\r");
            person.answers_unseen(
                "The token's secret",
                &format!("{}\r", printed["token-secret"]),
            );
            person.answers("VMIDs of the machines", "\r");
            // Both are marked: the second one no longer.
            person.answers("Servers on which machines are made", "\u{1b}[B \r");
            person.answers("Another Proxmox cluster?", "\r");
            person.answers("Storage of the machines' disks", "\u{1b}[B\r");
            person.answers("How machines join", "\r");
            person.answers("Server that machines join at", "\r");
            // What is none is asked for again.
            person.answers_unseen("kubeadm token create", "mistyped-token\r");
            person.answers_unseen("no token of kubeadm", &format!("{token}\r"));
            person.reads("The commands that come next");
            person.seen
        }
    });
    let ended = end_of(child).await;
    let seen = answers.await.unwrap();
    assert!(ended.success(), "{seen}");
    let secrets = [&*printed["token-secret"], token, "mistyped-token"];
    for secret in secrets.into_iter().chain(["mistyped-secret"]) {
        assert!(!seen.contains(secret), "{seen}");
    }
    let values = fs::read_to_string(out.join("values.yaml")).unwrap();
    let values: serde_json::Value = serde_saphyr::from_str(&values).unwrap();
    let spec = &values["clusters"]["proxmox"]["spec"];
    assert_eq!(spec["hypervisors"], json!({"include": ["pve1"]}));
    let template = &values["nodeClasses"]["default"]["spec"]["template"];
    assert_eq!(template["storage"], json!("local-lvm"));
    let secrets = fs::read_to_string(out.join("secrets.yaml")).unwrap();
    assert!(secrets.contains(&format!("token='{token}'")), "{secrets}");
    assert!(!out.join("answers.json").exists());
}

/// By Enter, but for secrets, which are not offered.
fn takes_what_is_offered(mut person: Person, printed: &BTreeMap<String, String>) -> Person {
    person.reads("are offered again");
    person.answers("Address of any server", "\r");
    person.reads("You have confirmed it before.");
    person.answers("Is it the same?", "\r");
    person.answers("API token", "\r");
    let secret = format!("{}\r", printed["token-secret"]);
    person.answers_unseen("The token's secret", &secret);
    person.answers("VMIDs of the machines", "\r");
    person.answers("Servers on which machines are made", "\r");
    person.answers("Another Proxmox cluster?", "\r");
    person
}

async fn end_of(mut child: Child) -> ExitStatus {
    let ended = tokio::time::timeout(SOON, child.wait());
    ended.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_no_secrets_are_offered_again_after_an_interruption_and_after_an_error() {
    let world = World::prepared(bare(Version::V9), &[]).await;
    let (out, kubeconfig) = (world.path("out"), world.kubeconfig());
    let place = out.display().to_string();
    let printed = world.printed.clone();
    let begin = ["init", "--kubeconfig", &kubeconfig, "--out", &place];

    let (mut person, child) = Person::starts(&begin);
    let answers = tokio::task::spawn_blocking({
        let printed = printed.clone();
        move || {
            person.answers(
                "Address of any server",
                &format!("{}\r", printed["endpoint"]),
            );
            person.answers("Is it the same?", "yes\r");
            person.answers("API token", &format!("{}\r", printed["token-id"]));
            let secret = format!("{}\r", printed["token-secret"]);
            person.answers_unseen("The token's secret", &secret);
            person.answers("VMIDs of the machines", "500-599\r");
            // The second one no longer.
            person.answers("Servers on which machines are made", "\u{1b}[B \r");
            person.interrupts("Another Proxmox cluster?");
            person.seen
        }
    });
    let ended = end_of(child).await;
    let seen = answers.await.unwrap();
    assert!(!ended.success(), "{seen}");
    let kept = fs::read_to_string(out.join("answers.json")).unwrap();
    assert!(!kept.contains(&printed["token-secret"]), "{kept}");
    assert!(kept.contains("500-599"), "{kept}");

    // Something fails that nobody is asked about.
    let fails = [&begin[..], &["--template", "none"]].concat();
    let (person, child) = Person::starts(&fails);
    let answers = tokio::task::spawn_blocking({
        let printed = printed.clone();
        move || takes_what_is_offered(person, &printed)
    });
    let ended = end_of(child).await;
    let mut person = answers.await.unwrap();
    person.reads("keeps your answers, but no secret");
    assert_eq!(ended.code(), Some(2), "{}", person.seen);

    let whole = [&begin[..], &["--join", "itself"]].concat();
    let (person, child) = Person::starts(&whole);
    let answers = tokio::task::spawn_blocking(move || {
        let mut person = takes_what_is_offered(person, &printed);
        person.answers("Storage of the machines' disks", "\r");
        person.reads("The commands that come next");
        person.seen
    });
    let ended = end_of(child).await;
    let seen = answers.await.unwrap();
    assert!(ended.success(), "{seen}");
    let values = fs::read_to_string(out.join("values.yaml")).unwrap();
    let values: serde_json::Value = serde_saphyr::from_str(&values).unwrap();
    let spec = &values["clusters"]["proxmox"]["spec"];
    assert_eq!(spec["vmidRange"], json!({"first": 500, "last": 599}));
    assert_eq!(spec["hypervisors"], json!({"include": ["pve1"]}));
    assert!(!out.join("answers.json").exists());
}
