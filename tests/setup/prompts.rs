//! `kproxide init` at a terminal: it asks, and shows no secret that is typed.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use kproxide_simulator::pve::topology::Version;
use nix::pty::openpty;
use nix::sys::termios::{LocalFlags, tcgetattr};
use serde_json::json;
use tokio::time::Instant;

use crate::bare;
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
        self.reads(words);
        let begun = Instant::now();
        let shows = |file: &File| {
            tcgetattr(file)
                .unwrap()
                .local_flags
                .contains(LocalFlags::ECHO)
        };
        while shows(&self.types) {
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
    let terminal = openpty(None, None).unwrap();
    let place = out.display().to_string();
    let arguments = ["init", "--kubeconfig", &kubeconfig, "--out", &place];
    let of_child = |terminal: &std::os::fd::OwnedFd| Stdio::from(terminal.try_clone().unwrap());
    let mut child = kproxide(&arguments)
        .env("TERM", "xterm")
        .stdin(of_child(&terminal.slave))
        .stdout(of_child(&terminal.slave))
        .stderr(of_child(&terminal.slave))
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
    let mut person = Person {
        types: terminal.master.into(),
        shown,
        seen: String::new(),
        answered: 0,
    };
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
            person.answers("Is it the same?", "n");
            person.reads("is not confirmed. Nothing was sent to it");
            person.answers("Address of any server", &endpoint);
            person.answers("Is it the same?", "y");
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
    let ended = tokio::time::timeout(SOON, child.wait())
        .await
        .unwrap()
        .unwrap();
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
}
