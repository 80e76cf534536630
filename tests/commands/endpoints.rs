//! Somebody who may create ProxmoxClusters, and a token that may go to the right server alone.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;

use kproxide_testkit::{eventually, free_port};
use serde_json::{Value, json};

use super::{Api, SOON, create_objects, kproxide, served};

/// Whether somebody has connected since the last time. His connections are closed.
fn was_called(thief: &TcpListener) -> bool {
    let calls = std::iter::from_fn(|| thief.accept().ok());
    calls.count() > 0
}

#[tokio::test]
async fn s9_no_command_connects_to_a_server_that_is_not_in_the_file_beside_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let _simulation = served(&out).await;
    let kubeconfig = format!("{out}/kubeconfig");
    let api = Api::of(Path::new(&kubeconfig));
    let connection = fs::read_to_string(format!("{out}/pve.json")).unwrap();
    let connection: Value = serde_json::from_str(&connection).unwrap();
    create_objects(&api, &connection).await;

    let thief = TcpListener::bind("127.0.0.1:0").unwrap();
    thief.set_nonblocking(true).unwrap();
    let address = thief.local_addr().unwrap();
    let clusters = "/apis/kproxide.dev/v1alpha1/proxmoxclusters";
    let cluster = |name: &str| {
        json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": "ProxmoxCluster", "metadata": { "name": name },
            "spec": { "endpoints": [format!("https://{address}")], "tls": { "insecureSkipVerify": true },
                "credentials": "proxmox", "vmidRange": { "first": 600, "last": 699 } },
        })
    };
    api.create(clusters, &cluster("mine")).await;
    let credentials = format!("{out}/credentials");
    let asks = async |command: &[&str]| {
        let flags = [
            "--kubeconfig",
            &kubeconfig,
            "--proxmox-credentials",
            &credentials,
        ];
        let ended = kproxide(&[command, &flags].concat()).output();
        let ended = tokio::time::timeout(SOON, ended).await.unwrap().unwrap();
        String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap()
    };
    let url = connection["url"].as_str().unwrap();
    let commands = [
        &["doctor"][..],
        &["plan", "--from-cluster"],
        &["explain", "pool", "default"],
    ];

    // Without the file all is as before: each command that has the token goes where the object says.
    let told = asks(commands[0]).await;
    assert!(was_called(&thief), "{told}");
    let command = "$ kubectl patch secret SECRET --namespace kproxide --patch '{\"stringData\":{\"endpoints\":\"https://127.0.0.1:";
    assert!(told.contains(command), "{told}");
    asks(commands[1]).await;
    assert!(was_called(&thief));

    let file = format!("{credentials}/proxmox/endpoints");
    fs::write(
        &file,
        format!(
            "# the rack\n{url}\n{}\n",
            connection["fingerprint"].as_str().unwrap()
        ),
    )
    .unwrap();
    for command in commands {
        let told = asks(command).await;
        assert!(!was_called(&thief), "{command:?}: {told}");
    }
    let told = asks(&["doctor"]).await;
    let line =
        format!("spec.endpoints: {address} is not in the file endpoints beside the credentials");
    assert!(told.contains(&line), "{told}");
    assert!(told.contains("(EndpointNotAllowed)"), "{told}");
    assert!(!told.contains("kubectl patch secret"), "{told}");

    let log = folder.path().join("log");
    let admin = format!("127.0.0.1:{}", free_port().unwrap());
    let flags = [
        "run",
        "--kubeconfig",
        &kubeconfig,
        "--credentials-dir",
        &credentials,
    ];
    let quick = [
        "--admin-address",
        &admin,
        "--poll-interval=1s",
        "--inventory-max-age=1s",
    ];
    let _host = kproxide(&[&flags[..], &quick].concat())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let ready = async |name: &str| {
        let object = api.get(&format!("{clusters}/{name}")).await;
        let conditions = object["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        let ready = conditions
            .find(|it| it["type"] == "Ready")
            .unwrap_or_default();
        ready["reason"].as_str().unwrap_or_default().to_owned()
    };
    let become_so = async |name: &str, reason: &str| {
        eventually(SOON, "the word on the ProxmoxCluster", async || {
            let found = ready(name).await;
            let log = fs::read_to_string(&log).unwrap();
            (found == reason)
                .then_some(())
                .ok_or(format!("{name}: {found}\n{log}"))
        })
        .await;
    };
    become_so("mine", "EndpointNotAllowed").await;
    become_so("default", "Ready").await;
    assert!(!was_called(&thief));
    // The right cluster alone, and then the other one too: the file counts without a restart.
    fs::write(&file, format!("{address}\n")).unwrap();
    become_so("default", "EndpointNotAllowed").await;
    eventually(SOON, "a call", async || {
        was_called(&thief).then_some(()).ok_or("none")
    })
    .await;
}
