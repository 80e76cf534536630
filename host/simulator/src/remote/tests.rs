//! The simulated Kubernetes on the wire stands for a real cluster: two worlds, and a machine of one joins the other.

use std::io::Write;

use super::*;
use crate::{
    kubelet::{Kubelets, NodeSpec, Pace},
    physics::Guests,
    pve::Topology,
    serve::{Cluster, Served, Setting},
};

fn setting(cluster: Cluster) -> Setting {
    Setting {
        seed: 1,
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        topology: Topology::of(1).instant(),
        guests: Guests::instant(),
        pace: Pace::INSTANT,
        pve_port: 0,
        cluster,
    }
}

#[tokio::test]
async fn a_machine_joins_the_cluster_of_a_kubeconfig() {
    let served = Served::start(setting(Cluster::Simulated { port: 0 }))
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    served.write_files(folder.path(), "proxmox").unwrap();
    let api = connect(&folder.path().join("kubeconfig")).unwrap();
    let token = fs::read_to_string(folder.path().join("credentials/proxmox/token-id")).unwrap();
    assert_eq!(token, "kproxide@pve!ci");

    let kube = &served.kube.as_ref().unwrap().kube;
    let clock = *kube.clock();
    let (kubelets, run) = Kubelets::new(api, clock, Pace::INSTANT, 1);
    kubelets.start_node(NodeSpec::new("outsider", "uuid", 1_000, 1_024));
    let (_, mut changes) = kube.subscribe(&["nodes"]);
    let joined = async {
        while kube.get("nodes", "", "outsider").is_none() {
            changes.recv().await;
        }
    };
    tokio::select! {
        () = run => panic!("the kubelets ended"),
        joined = tokio::time::timeout(Duration::from_secs(30), joined) => joined.unwrap(),
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_named_with_the_cause() {
    let check = async |text: &str, server: &str, cause: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let error = reach(file.path()).await.err().unwrap();
        let mut said = String::new();
        let mut link: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = link {
            said += &format!("{error}: ");
            link = error.source();
        }
        assert!(said.contains(server) && said.contains(cause), "{said}");
    };
    let user = "users: [{name: me, user: {token: mine}}]";
    let nobody = format!("{CLUSTER}{user}\n");
    check(&nobody, "https://127.0.0.1:1 ", "did not answer").await;

    let simulated = || Served::start(setting(Cluster::Simulated { port: 0 }));
    let (one, other) = (simulated().await.unwrap(), simulated().await.unwrap());
    let (one, other) = (one.kube.as_ref().unwrap(), other.kube.as_ref().unwrap());
    let url = other.wire.url();
    let mixed = one.kubeconfig().replace(&one.wire.url(), &url);
    check(&mixed, &url, "invalid peer certificate").await;
}

fn refusal(text: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let error = connect(file.path()).unwrap_err().to_string();
    error.replace(&file.path().display().to_string(), "FILE")
}

const CLUSTER: &str = "
current-context: here
contexts: [{name: here, context: {cluster: lab, user: me}}]
clusters: [{name: lab, cluster: {server: 'https://127.0.0.1:1'}}]
";

#[test]
fn what_cannot_be_used_is_refused_by_reason() {
    let check = |text: &str, expected: &str| {
        let refusal = refusal(text);
        assert!(refusal.contains(expected), "{refusal}");
    };
    check("a: b", "FILE is no kubeconfig");
    check(
        &format!("{CLUSTER}users: []\n"),
        "FILE has no user \"me\", which its current context names",
    );
    check(
        &format!("{CLUSTER}users: [{{name: me, user: {{exec: {{command: login}}}}}}]\n"),
        "the user me has neither a client certificate with its key nor a token",
    );
    check(
        &format!("{CLUSTER}users: [{{name: me, user: {{client-key-data: '*'}}}}]\n"),
        "client-key-data in the kubeconfig is not base64",
    );
}
