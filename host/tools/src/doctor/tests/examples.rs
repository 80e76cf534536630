//! What kproxide's own examples ask for is well, in a Proxmox that has it.

use std::path::Path;

use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::{HypervisorSpec, Version, VmSpec};
use tokio::time::{Duration, sleep};

use super::ward::{Ward, ailments, topology};
use crate::doctor::{Report, Values, examine};
use kproxide_controller::judge::Level;

const GIB: u64 = 1 << 30;
const BROADCAST: Duration = Duration::from_secs(30);

/// Servers with the pool and the templates of an example.
fn proxmox(servers: &[&str], pool: &str, template: &str, storage: &str) -> Topology {
    let mut topology = Topology::of(0);
    let servers = servers.iter();
    topology.hypervisors = servers
        .map(|name| HypervisorSpec::new(name, 16, 64 * GIB))
        .collect();
    topology.pools[0].name = pool.to_owned();
    let names: Vec<String> = topology
        .hypervisors
        .iter()
        .map(|it| it.name.clone())
        .collect();
    let count = if storage == "ceph" { 1 } else { names.len() };
    topology.vms = (9001..)
        .zip(&names[..count])
        .map(|(vmid, server)| VmSpec::template(vmid, template, server, storage, 10 * GIB))
        .collect();
    topology.least_privileged()
}

async fn examined(ward: &Ward, file: &str, text: &str) -> Report {
    let mut sources = ward.sources();
    sources.kube = None;
    sources.account = None;
    sources.objects = Values::read(file, text).unwrap().objects;
    examine(&sources, Vec::new()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_example_is_clean_in_a_proxmox_that_has_what_it_names() {
    let four = ["pve1", "pve2", "pve3", "pve-backup"];
    let examples = [
        (
            "minimal.yaml",
            proxmox(&["pve1"], "kproxide", "k8s-node", "local-lvm"),
        ),
        (
            "kproximate.yaml",
            proxmox(&four, "kproxide", "kproximate-template", "local-lvm"),
        ),
        (
            "ip-pool.yaml",
            proxmox(&four[..2], "k8s", "k8s-node", "ceph"),
        ),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/values");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), examples.len());
    for (file, topology) in examples {
        let ward = Ward::of(topology);
        let script = std::fs::read(ward.join.path().join("debian")).unwrap();
        std::fs::write(ward.join.path().join("default"), script).unwrap();
        sleep(BROADCAST).await;
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let report = examined(&ward, file, &text).await;
        assert_eq!(ailments(&report), [], "{file}:\n{report}");
        // The same in a Proxmox that lacks the template.
        let report = examined(&ward, file, &text.replace("name: k", "name: x")).await;
        assert_ne!(ailments(&report), [], "{file}:\n{report}");
    }
}

/// There the guest agent has one privilege for all.
#[tokio::test(start_paused = true)]
async fn on_version_8_the_privileges_are_those_of_version_8() {
    let mut topology = topology();
    topology.version = Version::V8;
    for row in &mut topology.acl {
        let is_agent = |it: &String| it.starts_with("VM.GuestAgent.");
        if row.privileges.iter().any(is_agent) {
            row.privileges.retain(|it| !is_agent(it));
            row.privileges.push("VM.Monitor".to_owned());
        }
    }
    let of_pool = topology.acl.iter().find(|row| row.path == "/pool/k8s");
    let privileges = of_pool.unwrap().privileges.clone();
    let ward = Ward::of(topology);
    sleep(BROADCAST).await;
    let report = ward.examined().await;
    assert_eq!(ailments(&report), [], "{report}");

    let few: Vec<&str> = privileges.iter().map(String::as_str).collect();
    let few: Vec<&str> = few.into_iter().filter(|it| *it != "VM.Monitor").collect();
    ward.grant("/pool/k8s", &few);
    let report = ward.examined().await;
    let expected = [(Level::Error, "ProxmoxCluster/home", "PrivilegesMissing")];
    assert_eq!(ailments(&report), expected, "{report}");
    let finding = report.findings.iter().find(|it| it.level == Level::Error);
    let finding = finding.unwrap();
    assert!(finding.message.contains("VM.Monitor"), "{report}");
    finding.commands.iter().for_each(|line| ward.run(line));
    let report = ward.examined().await;
    assert_eq!(ailments(&report), [], "{report}");
}
