//! A simulated Proxmox cluster, and what is around the script on its servers: Proxmox's programs as stand-ins, each of
//! which asks this process, and `/etc/pve` as a folder.
//!
//! ```text
//! setup.sh ──▶ stand-in.pl (as pveum, qm, ssh, …) ──socket──▶ Cluster ──▶ simulated Proxmox VE
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kproxide_simulator::pve::{Pve, Topology};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::books::Books;
use crate::repository;
use crate::table::{self, Call};

/// For a script that takes a second on an idle computer.
const SOON: Duration = Duration::from_secs(120);
/// The secret of root's token in the simulated Proxmox; root's own programs need none.
pub(crate) const ROOT: &str = "root@pam!test=secret";
const PROGRAMS: [&str; 12] = [
    "hostname",
    "id",
    "openssl",
    "pvesh",
    "pveum",
    "pveversion",
    "qemu-img",
    "qm",
    "scp",
    "ssh",
    "virt-customize",
    "wget",
];

pub(crate) struct Cluster {
    pub(crate) pve: Pve,
    pub(crate) books: Arc<Mutex<Books>>,
    pub(crate) folder: TempDir,
    _answers: JoinSet<()>,
}

/// How a script ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    /// What was called, in its order, with the server where.
    pub(crate) calls: Vec<(String, Call)>,
}

#[derive(Deserialize)]
struct Asked {
    program: String,
    server: String,
    arguments: Vec<String>,
}

/// What a stand-in does.
#[derive(Serialize, Default)]
pub(crate) struct Does {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
    /// Where it runs `out` as a command.
    pub(crate) server: Option<String>,
}

impl Cluster {
    /// The servers of a topology, with nothing of kproxide in it.
    pub(crate) fn new(pve: Pve, topology: &Topology) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["bin", "pve", "tmp"] {
            fs::create_dir(path(name)).unwrap();
        }
        let program = path("stand-in.pl");
        fs::copy(repository("tests/data/setup/stand-in.pl"), &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        for name in PROGRAMS {
            symlink(&program, path("bin").join(name)).unwrap();
        }
        let books = Books::new(pve.clone(), topology, path("pve"));
        let books = Arc::new(Mutex::new(books));
        let listener = UnixListener::bind(path("socket")).unwrap();
        let mut answers = JoinSet::new();
        answers.spawn(answer_all(listener, pve.clone(), Arc::clone(&books)));
        let cluster = Cluster {
            pve,
            books,
            folder,
            _answers: answers,
        };
        cluster.books().write_files();
        cluster
    }

    pub(crate) fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }

    /// Runs the script on a server. No call of it may be one that the table does not have.
    pub(crate) async fn setup(&self, server: &str, arguments: &[&str]) -> Ended {
        self.run(server, arguments, &[]).await
    }

    /// The same on a computer that lacks these programs.
    pub(crate) async fn run(&self, server: &str, arguments: &[&str], without: &[&str]) -> Ended {
        self.books().write_files();
        let bin = self.folder.path().join("bin");
        for program in without {
            fs::remove_file(bin.join(program)).unwrap();
        }
        let before = self.books().calls.len();
        let script = repository("examples/proxmox/setup.sh");
        let ended = Command::new("bash")
            .arg(script)
            .args(arguments)
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("STAND_IN", self.folder.path().join("socket"))
            .env("SERVER", server)
            .env(
                "KPROXIDE_PVE_DIR",
                self.folder.path().join("pve").join(server),
            )
            .env("TMPDIR", self.folder.path().join("tmp"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let ended = tokio::time::timeout(SOON, ended).await.unwrap().unwrap();
        let books = self.books();
        assert_eq!(books.misused, Vec::<String>::new());
        let left = fs::read_dir(self.folder.path().join("tmp")).unwrap();
        assert_eq!(left.count(), 0, "it leaves files");
        Ended {
            code: ended.status.code().unwrap(),
            out: String::from_utf8(ended.stdout).unwrap(),
            err: String::from_utf8(ended.stderr).unwrap(),
            calls: books.calls[before..].to_vec(),
        }
    }

    /// What Proxmox's API answers to this token (`user!name=secret`), or the status.
    pub(crate) async fn ask(&self, token: &str, path: &str) -> Result<Value, u16> {
        ask(&self.pve, token, path).await
    }
}

impl Ended {
    /// What changed something, as words.
    pub(crate) fn changes(&self) -> Vec<String> {
        let changing = |(_, call): &&(String, Call)| {
            let word = call.command.split(' ').next_back().unwrap();
            ["pveum", "qm"].contains(&call.command.split(' ').next().unwrap()) && word != "list"
        };
        self.calls
            .iter()
            .filter(changing)
            .map(|(_, call)| words(call))
            .collect()
    }

    /// How often a command was called.
    pub(crate) fn count(&self, command: &str) -> usize {
        self.calls
            .iter()
            .filter(|(_, call)| call.command == command)
            .count()
    }
}

/// A call as one would type it. The file of an image has a new name each time.
pub(crate) fn words(call: &Call) -> String {
    let mut words = vec![call.command.clone()];
    words.extend(call.operands.iter().cloned());
    for (name, value) in &call.options {
        let value = match value.split_once("import-from=") {
            Some((before, file)) => {
                let (_, after) = file.split_once(',').unwrap();
                format!("{before}import-from=IMAGE,{after}")
            }
            None => value.clone(),
        };
        words.push(format!("--{name} {value}"));
    }
    words.join(" ")
}

async fn answer_all(listener: UnixListener, pve: Pve, books: Arc<Mutex<Books>>) {
    let rows = Arc::new(table::rows());
    let mut calls = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (pve, books, rows) = (pve.clone(), Arc::clone(&books), Arc::clone(&rows));
        calls.spawn(async move {
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            let asked: Asked = serde_json::from_str(&text).unwrap();
            let mut words = vec![asked.program];
            words.extend(asked.arguments);
            let does = match table::read(&rows, &words) {
                Ok(call) => {
                    books
                        .lock()
                        .unwrap()
                        .calls
                        .push((asked.server.clone(), call.clone()));
                    match call.command.strip_prefix("pvesh get ") {
                        Some(path) => get(&pve, path, &call).await,
                        None => books.lock().unwrap().answer(&asked.server, &call),
                    }
                }
                Err(misuse) => {
                    books.lock().unwrap().misused.push(misuse.clone());
                    failed(&misuse)
                }
            };
            let answer = serde_json::to_vec(&does).unwrap();
            stream.write_all(&answer).await.unwrap();
        });
    }
}

/// A program that ends with 255, as Proxmox's do.
pub(crate) fn failed(text: &str) -> Does {
    Does {
        code: 255,
        err: format!("{text}\n"),
        ..Does::default()
    }
}

async fn get(pve: &Pve, path: &str, call: &Call) -> Does {
    let options = call
        .options
        .iter()
        .filter(|(name, _)| name != "output-format");
    let query: Vec<String> = options
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    match ask(pve, ROOT, &format!("{path}?{}", query.join("&"))).await {
        Ok(data) => Does {
            out: data.to_string(),
            ..Does::default()
        },
        Err(status) => failed(&format!("{path}: {status}")),
    }
}

async fn ask(pve: &Pve, token: &str, path: &str) -> Result<Value, u16> {
    let request = http::Request::get(format!("/api2/json{path}"))
        .header("authorization", format!("PVEAPIToken={token}"))
        .body(Bytes::new())
        .unwrap();
    let answer = pve.handle(request).await;
    let status = answer.status();
    match status.is_success() {
        true => {
            let answer: BTreeMap<String, Value> = serde_json::from_slice(answer.body()).unwrap();
            Ok(answer["data"].clone())
        }
        false => Err(status.as_u16()),
    }
}
