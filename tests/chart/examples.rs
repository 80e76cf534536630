use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use kproxide_testkit::require_controlplane;
use serde_json::Value;

use crate::render::{chart, repository, the};

#[tokio::test]
async fn each_example_renders() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let mut rendered = 0;
    for entry in fs::read_dir(repository("examples/values")).unwrap() {
        let path = entry.unwrap().path().display().to_string();
        programs
            .helm(&["template", "kproxide", &chart(), "--values", &path])
            .await
            .unwrap();
        rendered += 1;
    }
    assert!(rendered >= 3, "only {rendered} examples");
}

/// The scripts of a first installation make a template that joins nothing by itself, on a local storage.
#[tokio::test]
async fn the_smallest_example_makes_machines_that_join() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let path = repository("examples/values/minimal.yaml")
        .display()
        .to_string();
    let rendered = programs
        .helm(&["template", "kproxide", &chart(), "--values", &path])
        .await
        .unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let class = &the(&objects, "NodeClass")["spec"];
    assert_eq!(class["template"]["placement"], "local");
    assert!(class["join"]["guestExec"].is_object(), "{class}");
}

/// What the script tells Proxmox, on a machine where `pveum` only writes down what it is told.
fn told_by_create_token(version: &str, more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for (name, text) in [
        (
            "pveum",
            format!(
                "case \"$*\" in\n*' list '*) echo '[]' ;;\n'user token add'*) echo '{{\"value\":\"a-secret\"}}' ;;\nesac\n\
                 echo \"$*\" >> '{}'",
                log.display()
            ),
        ),
        (
            "pveversion",
            format!("echo 'pve-manager/{version}/0123456789abcdef (running kernel: 6.8)'"),
        ),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!(
        "{}:{}",
        folder.path().display(),
        std::env::var("PATH").unwrap()
    );
    let output = Command::new("bash")
        .arg(repository("examples/proxmox/create-token.sh"))
        .args([
            "--pool",
            "k8s",
            "--template",
            "9000",
            "--storage",
            "ceph",
            "--bridge",
            "vmbr0",
        ])
        .args(more)
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("token-secret='a-secret'"),
        "{output:?}"
    );
    fs::read_to_string(log).unwrap()
}

#[test]
fn the_token_reaches_its_pool_its_template_and_what_they_need() {
    let told = told_by_create_token("9.0.3", &[]);
    let mut granted: Vec<&str> = told
        .lines()
        .filter(|line| {
            line.starts_with("acl modify") && line.contains("--tokens kproxide@pve!autoscaler")
        })
        .map(|line| {
            line.split(" --tokens")
                .next()
                .unwrap()
                .trim_start_matches("acl modify ")
        })
        .collect();
    granted.sort_unstable();
    let expected = [
        "/ --roles KproxideAudit",
        "/nodes --roles KproxideAudit",
        "/pool/k8s --roles KproxideMachines",
        "/sdn/zones/localnetwork/vmbr0 --roles KproxideNetwork",
        "/storage/ceph --roles KproxideStorage",
        "/vms/9000 --roles KproxideTemplate",
    ];
    assert_eq!(granted, expected);
    assert!(
        told.contains(
            "acl modify / --roles KproxideAudit --tokens kproxide@pve!autoscaler --propagate 0"
        ),
        "{told}"
    );
    assert!(
        told.contains("user token add kproxide@pve autoscaler --privsep 1"),
        "{told}"
    );
}

#[test]
fn the_guest_agents_right_depends_on_version_and_join() {
    let machines = |version: &str, more: &[&str]| {
        let told = told_by_create_token(version, more);
        told.lines()
            .find(|line| line.contains("KproxideMachines --privs"))
            .unwrap()
            .to_owned()
    };
    assert!(machines("8.4.1", &[]).contains("VM.Monitor"));
    let nine = machines("9.0.3", &[]);
    assert!(
        nine.contains("VM.GuestAgent.Audit") && !nine.contains("VM.Monitor"),
        "{nine}"
    );
    assert!(!nine.contains("Unrestricted"), "{nine}");
    assert!(machines("9.0.3", &["--guest-exec"]).contains("VM.GuestAgent.Unrestricted"));
}
