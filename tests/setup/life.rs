//! The shipped program with nothing but what the script has made and printed.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::{NodeSpec, Pace};
use kproxide_simulator::physics::{Guests, Join};
use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::Version;
use kproxide_simulator::serve::{Served, Setting, SimulatedKube};
use kproxide_testkit::{eventually, free_port};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::cluster::Cluster;
use crate::{LOCAL, bare, repository, succeeded, token};

/// For what takes seconds on an idle computer, in a program that is not optimized.
pub(crate) const SOON: Duration = Duration::from_secs(240);

#[expect(
    clippy::disallowed_methods,
    reason = "the program in the other process has the computer's clock"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Servers on the wire, and a Kubernetes, where nothing takes time.
pub(crate) fn setting(topology: Topology) -> Setting {
    Setting {
        seed: 1,
        now: now(),
        topology,
        guests: Guests::instant(),
        pace: Pace::INSTANT,
        pve_port: 0,
        cluster: kproxide_simulator::serve::Cluster::Simulated { port: 0 },
    }
}

pub(crate) fn kproxide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kproxide"));
    command
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// With the join script of k3s, through the guest agent: the rights are all that a machine needs, and nothing else.
#[tokio::test]
async fn kproxide_makes_a_machine_with_the_token_and_the_template_that_were_made_for_it() {
    for version in [Version::V9, Version::V8] {
        let topology = bare(version);
        let served = Served::start(Setting {
            guests: Guests {
                join: Join::OnExec,
                taints: vec![json!({"key": "kproxide.dev/unregistered", "effect": "NoExecute"})],
                ..Guests::instant()
            },
            ..setting(topology.clone())
        })
        .await
        .unwrap();
        let cluster = Cluster::new(served.pve.clone(), &topology);
        cluster.books().tell_simulation();
        let ended = succeeded(cluster.setup("pve1", &LOCAL).await);

        let kube = served.kube.as_ref().unwrap();
        furnish(kube, &served).await;
        kube.kube
            .create("pods", fixtures::pod("waits", "1", "1Gi"))
            .unwrap();
        let _host = run(&cluster, kube, &token(&ended));
        let log = cluster.folder.path().join("log");
        eventually(SOON, "the pod running on a machine", async || {
            let pod = kube.kube.get("pods", "default", "waits").unwrap();
            let object = kube
                .kube
                .get("proxmoxclusters.kproxide.dev", "", "proxmox")
                .unwrap();
            let conditions = object["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten();
            let fits: Vec<&Value> = conditions.filter(|it| it["type"] == "TokenFits").collect();
            match pod["status"]["phase"] == "Running"
                && fits.iter().any(|it| it["status"] == "True")
            {
                true => Ok(()),
                false => Err(format!(
                    "{}\n{fits:?}\n{}",
                    pod["status"],
                    fs::read_to_string(&log).unwrap()
                )),
            }
        })
        .await;
        let machines = served
            .pve
            .snapshot()
            .vms
            .into_iter()
            .filter(|vm| !vm.template);
        let pools: Vec<Option<String>> =
            machines.filter(|vm| vm.running).map(|vm| vm.pool).collect();
        assert_eq!(pools, [Some("kproxide".to_owned())]);

        let ended = cluster.setup("pve1", &["--remove"]).await;
        crate::refused(&ended, "machines of kproxide exist: VM ");
    }
}

/// A control plane that takes no pods, our definitions, and one object of each kind.
async fn furnish(kube: &SimulatedKube, served: &Served) {
    let namespace = json!({"metadata": {"name": "kproxide"}});
    kube.kube.create("namespaces", namespace).unwrap();
    let printed = kproxide(&["crds"]).output().await.unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    let definitions: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    for definition in definitions {
        kube.kube
            .create("customresourcedefinitions.apiextensions.k8s.io", definition)
            .unwrap();
    }
    let server = "a0000000-0000-4000-8000-000000000001";
    served
        .kubelets
        .start_node(NodeSpec::new("server-1", server, 2_000, 4_096).control_plane());
    for (resource, kind, name, spec) in [
        (
            "proxmoxclusters.kproxide.dev",
            "ProxmoxCluster",
            "proxmox",
            json!({
                "endpoints": [served.pve_wire.url()],
                "tls": {"fingerprints": [served.pve_wire.fingerprint()]},
                "credentials": "proxmox",
                "pool": "kproxide",
                "vmidRange": {"first": 20_000, "last": 20_999},
            }),
        ),
        (
            "nodeclasses.kproxide.dev",
            "NodeClass",
            "default",
            json!({
                "template": {"name": "k8s-node", "placement": "local"},
                "instanceTypes": [{"name": "default", "cores": 2, "memoryMiB": 4096}],
                "join": {"guestExec": {"commandSecretFile": "command"}},
            }),
        ),
        (
            "nodepools.kproxide.dev",
            "NodePool",
            "default",
            json!({"nodeClass": "default", "limits": {"maxNodes": 3}}),
        ),
    ] {
        let object = json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        kube.kube.create(resource, object).unwrap();
    }
}

/// kproxide with that token.
fn run(cluster: &Cluster, kube: &SimulatedKube, token: &str) -> Child {
    let path = |name: &str| cluster.folder.path().join(name);
    let credentials = path("credentials/proxmox");
    fs::create_dir_all(&credentials).unwrap();
    let (id, secret) = token.split_once('=').unwrap();
    fs::write(credentials.join("token-id"), id).unwrap();
    fs::write(credentials.join("token-secret"), secret).unwrap();
    fs::create_dir(path("join")).unwrap();
    fs::copy(
        repository("examples/join/k3s-agent.sh"),
        path("join/command"),
    )
    .unwrap();
    fs::write(path("kubeconfig"), kube.kubeconfig()).unwrap();
    let text = |name: &str| path(name).display().to_string();
    kproxide(&[
        "run",
        "--kubeconfig",
        &text("kubeconfig"),
        "--credentials-dir",
        &text("credentials"),
        "--join-dir",
        &text("join"),
        "--admin-address",
        &format!("127.0.0.1:{}", free_port().unwrap()),
        "--poll-interval=1s",
        "--inventory-max-age=1s",
    ])
    .stderr(File::create(path("log")).unwrap())
    .spawn()
    .unwrap()
}
