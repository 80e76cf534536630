//! The image, started as a container engine starts it: from its own files alone, which it cannot change, as its user, and with a name server to ask.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kproxide_testkit::controlplane::condition;
use kproxide_testkit::{eventually, free_port, is_shipped, require_packager};
use serde_json::json;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::bench::on_a_cluster;
use crate::stage::{SOON, Scene, Stage};

const CLUSTER: &str = "/apis/kproxide.dev/v1alpha1/proxmoxclusters/lab";
/// What Proxmox is called here, and nowhere else.
const NAME: &str = "pve.kproxide.test";
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 53, 53);
/// The aim for the image with what is shipped in it. Time and memory are printed only: a busy computer is slower.
const ARCHIVE_MB_MAX: f64 = 40.0;

#[test]
fn the_image_starts_read_only_as_its_user_finds_proxmox_by_name_and_makes_a_machine() {
    on_a_cluster(async |bench| {
        let Some(packager) = require_packager() else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let licenses = folder.path().join("licenses");
        fs::write(&licenses, "their texts").unwrap();
        let image = packager.image(&bench.binary, &licenses, folder.path());
        let image = image.unwrap();
        let again = packager.image(&bench.binary, &licenses, &folder.path().join("again"));
        assert_eq!(again.unwrap().digest, image.digest);
        let root = folder.path().join("root");
        image.unpack(&folder.path().join("unpacked"), &root);

        let mut version = Command::new(root.join("kproxide"));
        let printed = version.args(["version", "--licenses"]).output().unwrap();
        assert_eq!(printed.stdout, b"their texts", "{printed:?}");

        let sandbox = Sandbox::possible(&root).await;
        let pve_port = free_port().unwrap();
        let host = match &sandbox {
            Sandbox::Container { .. } => NAME,
            Sandbox::Nothing { .. } => "localhost",
        };
        let endpoint = format!("https://{host}:{pve_port}");
        let stage = Stage::set(
            bench,
            Scene {
                program: Some(sandbox.program(&root)),
                pve_port,
                ..Scene::with(
                    json!({ "clusters": { "lab": { "spec": { "endpoints": [endpoint] } } } }),
                )
            },
        )
        .await;
        eventually(SOON, "the Proxmox cluster Ready", async || {
            let cluster = stage.api().get(CLUSTER).await.unwrap();
            match condition(&cluster, "Ready") {
                Some("True") => Ok(()),
                _ => Err(cluster["status"].to_string()),
            }
        })
        .await;
        stage.until_more_ticks(3).await;
        let idle = kib(&stage, "VmRSS");

        let isolated = match &sandbox {
            Sandbox::Container { asked, .. } => {
                assert!(asked.load(Ordering::Relaxed) > 0, "nobody asked for {NAME}");
                is_contained(&stage);
                "UID 65532 in a read-only root of the image's files, and a name by DNS".to_owned()
            }
            Sandbox::Nothing { reason } => format!("no container here: {reason}"),
        };

        // With compiled policies, which need memory that can be executed.
        stage.deploy("web", 1, "1", "1Gi", json!({})).await;
        stage.until_running("web", 1).await;
        let mb = image.bytes as f64 / 1e6;
        eprintln!(
            "the image: {mb:.1} MB (aim: 40), ready after {:.1} s (2), idle {:.0} MB (45), after a machine {:.0} MB; {isolated}",
            stage.ready_after.as_secs_f64(),
            idle as f64 / 1024.0,
            kib(&stage, "VmRSS") as f64 / 1024.0,
        );
        assert!(!is_shipped() || mb <= ARCHIVE_MB_MAX, "{mb} MB");
        stage.end().await;
    });
}

/// A line of `/proc/PID/status`, in KiB.
fn kib(stage: &Stage<'_>, line: &str) -> u64 {
    let status = stage.pod.process_file("status").unwrap();
    let lines = status.lines().filter_map(|line| line.split_once(":"));
    let mut values = lines.filter(|(name, _)| *name == line);
    let (_, value) = values.next().unwrap();
    value.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The process is nobody else's, and its files are the image's, which nobody can change.
fn is_contained(stage: &Stage<'_>) {
    let status = stage.pod.process_file("status").unwrap();
    for line in ["Uid", "Gid"] {
        let id = format!("{line}:\t65532\t65532\t65532\t65532\n");
        assert!(status.contains(&id), "{status}");
    }
    let mounts = stage.pod.process_file("mountinfo").unwrap();
    let mut root = mounts.lines().filter_map(|mount| {
        let mut fields = mount.split(' ').skip(4);
        (fields.next() == Some("/")).then(|| fields.next().unwrap())
    });
    let options = root.next_back().unwrap();
    assert!(options.split(',').any(|option| option == "ro"), "{mounts}");
}

/// How much of a container this computer lets a test make.
enum Sandbox {
    Container {
        /// How often the name was asked for.
        asked: Arc<AtomicUsize>,
        /// Answers until this goes.
        _name_server: JoinSet<()>,
    },
    Nothing {
        reason: String,
    },
}

impl Sandbox {
    async fn possible(root: &Path) -> Self {
        let mut probe = Command::new("unshare");
        probe.args(["--mount", "--propagation=private", "chroot"]);
        probe.args(["--userspec=65532:65532", "--skip-chdir", "/", "true"]);
        let reason = match probe.output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Some(format!("unshare: {error}")),
        };
        if let Some(reason) = reason {
            return Self::Nothing { reason };
        }
        let socket = match UdpSocket::bind((NAME_SERVER, 53)).await {
            Ok(socket) => socket,
            Err(error) => {
                let reason = format!("port 53 of {NAME_SERVER}: {error}");
                return Self::Nothing { reason };
            }
        };
        // As the kubelet does.
        let servers = format!("nameserver {NAME_SERVER}\n");
        fs::write(root.join("etc/resolv.conf"), servers).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let mut name_server = JoinSet::new();
        name_server.spawn(serve(socket, Arc::clone(&asked)));
        Self::Container {
            asked,
            _name_server: name_server,
        }
    }

    /// What starts the image's program. In a container the pod's own folder, which stands for its volumes, is where it is outside.
    fn program(&self, root: &Path) -> PathBuf {
        match self {
            Self::Nothing { .. } => root.join("kproxide"),
            Self::Container { .. } => {
                let start = root.with_extension("sh");
                let text = CONTAINER.replace("ROOT", &root.display().to_string());
                fs::write(&start, text).unwrap();
                fs::set_permissions(&start, fs::Permissions::from_mode(0o755)).unwrap();
                start
            }
        }
    }
}

/// The devices are some of those that every runtime makes (OCI's runtime specification, Default Devices).
const CONTAINER: &str = r#"#!/bin/sh
set -e
volumes=$(dirname "$KUBECONFIG")
chown -R 65532:65532 "$volumes"
mkdir -p "ROOT$volumes" ROOT/dev
touch ROOT/dev/null ROOT/dev/random ROOT/dev/urandom
exec unshare --mount --propagation=private sh -e -c '
  mount --bind "ROOT" "ROOT"
  mount --bind "$0" "ROOT$0"
  for device in null random urandom; do mount --bind "/dev/$device" "ROOT/dev/$device"; done
  mount -o remount,bind,ro "ROOT"
  exec chroot --userspec=65532:65532 "ROOT" /kproxide "$@"
' "$volumes" "$@"
"#;

/// A name server that knows one name, which is this computer.
async fn serve(socket: UdpSocket, asked: Arc<AtomicUsize>) {
    let mut packet = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut packet).await {
        let answer = answer(&packet[..length]);
        if answer[7] > 0 {
            asked.fetch_add(1, Ordering::Relaxed);
        }
        // Who asks in vain asks again.
        let _ = socket.send_to(&answer, from).await;
    }
}

/// The answer to a question (RFC 1035, 4.1): the address of [`NAME`], nothing for other types, and for other names that there are none.
fn answer(question: &[u8]) -> Vec<u8> {
    const HEADER: usize = 12;
    const ADDRESS: [u8; 4] = [0, 1, 0, 1];
    let labels = NAME.split('.');
    let mut name: Vec<u8> = labels
        .flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat())
        .collect();
    name.push(0);
    let asked = &question[HEADER..];
    let is_known = asked.to_ascii_lowercase().starts_with(&name);
    let is_address = is_known && asked[name.len()..].starts_with(&ADDRESS);
    // The id; then: an answer, recursion is there, and whether there is such a name; one question, and one answer or none.
    let mut answer = question[..2].to_vec();
    answer.extend([0x85, if is_known { 0x80 } else { 0x83 }]);
    answer.extend([0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    let end = asked.iter().position(|byte| *byte == 0).unwrap() + 5;
    answer.extend(&asked[..end]);
    if is_address {
        // The name of the question; for a minute; 127.0.0.1.
        answer.extend([0xc0, HEADER as u8]);
        answer.extend(ADDRESS);
        answer.extend([0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}
