//! From a NodeClass to the VM and its Node.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::physics::{Guests, Join, Quirk};
use kproxide_simulator::pve::AuditEntry;
use kproxide_simulator::pve::topology::{StorageKind, StorageSpec, VmSpec};
use serde_json::{Value, json};

use super::run;
use kproxide_controller::config::Config;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished, run_with};

const SCRIPT: &str = "curl https://k3s.example | sh -s agent\n";

/// The one machine's Node.
fn ready_node(lab: &Lab) -> Value {
    let mut nodes = lab.kube.list("nodes");
    nodes.retain(|node| node["metadata"]["labels"]["kproxide.dev/claim"].is_string());
    let [node] = &nodes[..] else {
        panic!("{} Nodes of ours: {nodes:?}", nodes.len());
    };
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let ready = json!(["Ready", "True"]);
    assert!(
        conditions
            .iter()
            .any(|condition| json!([condition["type"], condition["status"]]) == ready),
        "{conditions:?}"
    );
    node.clone()
}

/// The script on the standard input of each run, by the VM's number.
fn join_runs(lab: &Lab) -> BTreeMap<u32, Vec<String>> {
    let is_run = |(name, value): &(String, String)| {
        name == "command" && value.lines().any(|part| part == "kproxide-join")
    };
    let mut runs = BTreeMap::<u32, Vec<String>>::new();
    for AuditEntry { path, params, .. } in lab.pve.audit() {
        if !path.ends_with("/agent/exec") || !params.iter().any(is_run) {
            continue;
        }
        let vmid = path.split('/').nth(4).and_then(|part| part.parse().ok());
        let input = params.into_iter().find(|(name, _)| name == "input-data");
        runs.entry(vmid.unwrap())
            .or_default()
            .extend(input.map(|(_, value)| value));
    }
    runs
}

/// A world whose machines join by this script alone, and how its host is configured.
fn joining_by(script: &str) -> (Lab, Config, tempfile::TempDir) {
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("debian"), script).unwrap();
    let taint = json!({ "key": "kproxide.dev/unregistered", "effect": "NoExecute" });
    let setting = Setting {
        guests: Guests {
            join: Join::OnExec,
            taints: vec![taint],
            ..Guests::default()
        },
        ..Setting::new(1, 2)
    };
    let join = json!({ "guestExec": { "commandSecretFile": "debian" } });
    let lab = furnished(setting, json!({ "join": join }), json!({}));
    let config = Config {
        join_dir: secret.path().to_owned(),
        ..config("kproxide-0")
    };
    (lab, config, secret)
}

/// As the README recommends: the script comes from a mounted Secret, and the kubelets register with the startup taint.
#[tokio::test(start_paused = true)]
async fn a_machine_runs_its_join_script_once_and_its_node_is_opened() {
    let (lab, config, _secret) = joining_by(SCRIPT);
    run_with(&lab, config, MACHINE).await;

    let node = ready_node(&lab);
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    assert_eq!(taints.collect::<Vec<_>>(), [] as [&Value; 0]);
    let runs = join_runs(&lab);
    let births = lab.pve.snapshot().births;
    let machines = births.iter().filter(|birth| birth.vmid < 9_000);
    let expected = machines.map(|birth| (birth.vmid, vec![SCRIPT.to_owned()]));
    assert_eq!(runs, expected.collect());
    assert_eq!(runs.len(), 1);
}

/// One letter beyond Latin-1 in a comment: Proxmox refuses that letter wherever it stands.
#[tokio::test(start_paused = true)]
async fn n1_a_script_with_letters_beyond_ascii_joins_its_machine() {
    let (lab, config, _secret) = joining_by("# 100% ✓ it's ready\ncurl https://k3s.example | sh\n");
    run_with(&lab, config, MACHINE).await;
    ready_node(&lab);
    let sent = "printf '# 100%% \\342\\234\\223 it\\047s ready\ncurl https://k3s.example | sh\n' | /bin/sh -s\n";
    let runs: Vec<_> = join_runs(&lab).into_values().collect();
    assert_eq!(runs, [[sent]]);
}

/// It is asked twice, because a daemon that restarts answers so too; then the claim ends with its reason, and the next machine serves.
#[tokio::test(start_paused = true)]
async fn n5_a_guest_without_a_shell_is_known_and_not_asked_again() {
    let (lab, config, _secret) = joining_by(SCRIPT);
    lab.physics.quirk_of_next(Quirk {
        no_shell: true,
        ..Quirk::default()
    });
    run_with(&lab, config, 2 * MACHINE).await;
    ready_node(&lab);
    let first = lab
        .pve
        .snapshot()
        .births
        .iter()
        .find(|birth| birth.vmid < 9_000)
        .unwrap()
        .vmid;
    let audit = lab.pve.audit().into_iter();
    let path = format!("/qemu/{first}/agent/exec");
    let asked = audit.filter(|entry| entry.path.ends_with(&path)).count();
    assert_eq!(asked, 2);
    let events = lab.kube.list("events.events.k8s.io").into_iter();
    let notes: Vec<_> = events.map(|event| event["note"].to_string()).collect();
    let told = |note: &String| note.contains("the guest has no /bin/sh");
    assert!(notes.iter().any(told), "{notes:?}");
}

/// Long enough for a Node that is not needed to go: cold start, stabilization, age and unneeded time.
const IDLE: Duration = Duration::from_secs(60 * 60);

fn wants_no_machine(lab: &Lab) {
    let none = json!({ "spec": { "limits": { "minNodes": 0 } } });
    let patched = lab
        .kube
        .patch("nodepools.kproxide.dev", "", "", "workers", none);
    patched.unwrap();
}

fn machines(lab: &Lab) -> usize {
    let vms = lab.pve.snapshot().vms;
    vms.iter().filter(|vm| vm.vmid < 9_000).count()
}

#[tokio::test(start_paused = true)]
async fn b13_the_node_that_kproxide_runs_on_is_never_removed() {
    let lab = super::lab();
    run(&lab, MACHINE).await;
    let ours = ready_node(&lab)["metadata"]["name"]
        .as_str()
        .map(Into::into);
    wants_no_machine(&lab);
    let there = Config {
        own_node: ours,
        ..config("kproxide-0")
    };
    run_with(&lab, there, IDLE).await;
    assert_eq!(machines(&lab), 1);
    run(&lab, IDLE).await;
    assert_eq!(machines(&lab), 0, "without kproxide on it, it goes");
}

#[tokio::test(start_paused = true)]
async fn b1_a_pod_that_nobody_would_make_again_keeps_its_node() {
    let lab = super::lab();
    run(&lab, MACHINE).await;
    let node = ready_node(&lab)["metadata"]["name"].clone();
    let mut pod = fixtures::pod("by-hand", "1", "1Gi");
    pod["spec"]["nodeName"] = node;
    lab.kube.create("pods", pod).unwrap();
    wants_no_machine(&lab);
    run(&lab, IDLE).await;
    assert_eq!(machines(&lab), 1);
    lab.kube.delete("pods", "default", "by-hand").unwrap();
    run(&lab, IDLE).await;
    assert_eq!(machines(&lab), 0, "without the pod, it goes");
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_what_its_class_says() {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDpUuWdL7yBRmbJ/A+kKxwoOBA6qS7tQCKG5QGPn5Jof ops@example.com, laptop + desk";
    let mut setting = Setting::new(1, 2);
    let topology = &mut setting.topology;
    topology.vms = vec![VmSpec::template(9001, "k8s-node", "pve1", "ceph", 10 << 30)];
    let ssd = StorageSpec::new("ssd", StorageKind::Rbd, 1 << 40, &["images"]);
    topology.storages.push(ssd.shared());
    setting.topology = setting.topology.least_privileged();
    let class = json!({
        "template": { "name": "k8s-node", "placement": "shared", "clone": "full", "storage": "ssd" },
        "instanceTypes": [{ "name": "medium", "cores": 4, "memoryMiB": 8192, "diskGiB": 20 }],
        "cloudInit": {
            "user": "ops",
            "sshKeys": [key],
            "ipPool": {
                "cidr": "10.1.0.0/24",
                "gateway": "10.1.0.1",
                "ranges": [{ "first": "10.1.0.10", "last": "10.1.0.19" }],
            },
            "nameserver": "10.1.0.2, 10.1.0.3",
            "searchDomain": "lab.example",
        },
        "tags": ["k8s", "burst"],
        "vmOptions": { "cpuType": "x86-64-v2-AES" },
    });
    let lab = furnished(setting, class, json!({}));
    run(&lab, MACHINE).await;

    let snapshot = lab.pve.snapshot();
    let vm = snapshot.vms.iter().find(|vm| vm.vmid < 9_000);
    let vm = vm.unwrap_or_else(|| {
        let events = lab.kube.list("events.events.k8s.io").into_iter();
        panic!(
            "no machine: {:?}",
            events
                .map(|event| event["note"].to_string())
                .collect::<Vec<_>>()
        )
    });
    assert_eq!((vm.cores, vm.memory), (4, 8 << 30));
    for (field, expected) in [
        ("ciuser", "ops"),
        ("ipconfig0", "ip=10.1.0.10/24,gw=10.1.0.1"),
        ("nameserver", "10.1.0.2 10.1.0.3"),
        ("searchdomain", "lab.example"),
        ("tags", "burst;k8s"),
        ("cpu", "x86-64-v2-AES"),
    ] {
        assert_eq!(vm.config.get(field).map(String::as_str), Some(expected));
    }
    assert_eq!(decoded(&vm.config["sshkeys"]), format!("{key}\n"));
    assert!(vm.config["scsi0"].contains("size=20G"), "{:?}", vm.config);

    let volumes = snapshot.volumes.iter();
    let disks: Vec<_> = volumes
        .filter(|volume| volume.vmid == vm.vmid)
        .map(|volume| volume.volid.as_str())
        .collect();
    assert!(
        !disks.is_empty() && disks.iter().all(|disk| disk.starts_with("ssd:")),
        "{disks:?}"
    );
    let addresses = &ready_node(&lab)["status"]["addresses"];
    assert!(addresses.to_string().contains("10.1.0.10"), "{addresses}");
}

/// Percent-encoded, as Proxmox keeps keys.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).unwrap());
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).unwrap()
}
