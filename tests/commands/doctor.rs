//! `kproxide doctor` as a process: beside a served simulation, and before a real API server.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kproxide_testkit::{ControlPlane, eventually};
use serde_json::{Value, json};

use super::{Api, SOON, create_objects, kproxide, printed, served};

#[tokio::test]
async fn doctor_says_by_its_exit_code_what_it_has_found() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let mut simulation = served(&out).await;
    let (kubeconfig, credentials) = (format!("{out}/kubeconfig"), format!("{out}/credentials"));
    let doctor = async |kubeconfig: &str, more: &[&str]| {
        let first = [
            "doctor",
            "--kubeconfig",
            kubeconfig,
            "--proxmox-credentials",
            &credentials,
        ];
        let ended = kproxide(&[&first[..], more].concat()).output();
        let ended = tokio::time::timeout(SOON, ended).await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            ended.status.code().unwrap(),
            text(ended.stdout),
            text(ended.stderr),
        )
    };
    let api = Api::of(Path::new(&kubeconfig));
    let connection = fs::read_to_string(format!("{out}/pve.json")).unwrap();
    create_objects(&api, &serde_json::from_str(&connection).unwrap()).await;

    // There is no Deployment, and the token of a simulation may do everything.
    let (code, told, _) = doctor(&kubeconfig, &["-o", "json"]).await;
    let report: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (code, &report["summary"]["errors"]),
        (10, &json!(0)),
        "{told}"
    );
    let findings = report["findings"].as_array().unwrap();
    let of = |reason: &str| findings.iter().find(|it| it["reason"] == reason);
    assert_eq!(
        of("NotInstalled").unwrap()["object"],
        "Deployment/kproxide/kproxide"
    );
    assert_eq!(of("TokenOverPrivileged").unwrap()["level"], "warning");
    let seen = findings
        .iter()
        .filter(|it| it["seenFrom"] == "this computer");
    assert_eq!(seen.count(), 1, "{told}");
    assert_eq!(doctor(&kubeconfig, &["--fail-on", "error"]).await.0, 0);

    let pool = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": { "name": "wrong" },
        "spec": { "nodeClass": "nobody" },
    });
    api.create("/apis/kproxide.dev/v1alpha1/nodepools", &pool)
        .await;
    let (code, told, _) = doctor(&kubeconfig, &[]).await;
    assert_eq!(code, 20, "{told}");
    let line = "  error    NodePool/wrong: spec.nodeClass: there is no NodeClass nobody";
    assert!(told.contains(line), "{told}");
    assert!(told.ends_with(", errors 1\n"), "{told}");
    assert_eq!(doctor(&kubeconfig, &["--fail-on", "never"]).await.0, 0);

    // An address that no DNS server knows, by the name that stands for such names.
    let cluster = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "ProxmoxCluster", "metadata": { "name": "away" },
        "spec": { "endpoints": ["https://pve.invalid:8006"], "tls": { "insecureSkipVerify": true }, "credentials": "proxmox", "pool": "k8s",
            "vmidRange": { "first": 600, "last": 699 } },
    });
    api.create("/apis/kproxide.dev/v1alpha1/proxmoxclusters", &cluster)
        .await;
    let (_, told, _) = doctor(&kubeconfig, &["-o", "yaml"]).await;
    assert!(told.contains("NameUnknown"), "{told}");

    // Before an installation: a Node takes the pod of these values, and none that of the others.
    let values = folder.path().join("values.yaml").display().to_string();
    let told_of = async |disk: &str, more: &[&str]| {
        let text =
            format!("clusters: {{}}\nnodePools: {{wrong: {{spec: {{}}}}}}\nnodeSelector: {disk}\n");
        fs::write(&values, text).unwrap();
        let arguments = ["doctor", "--fail-on", "never", "--values", &values];
        printed(&[&arguments[..], more].concat()).await
    };
    let cluster = ["--kubeconfig", &*kubeconfig];
    let told = told_of("{disk: ssd}", &cluster).await;
    let line = "  error    Deployment/kproxide/kproxide: no Node takes the pod of the controller: ";
    assert!(told.contains(line), "{told}");
    assert!(told.contains("nodeSelector disk=ssd"), "{told}");
    for told in [
        told_of("{}", &cluster).await,
        told_of("{disk: ssd}", &[]).await,
    ] {
        assert!(!told.contains("PodUnschedulable"), "{told}");
    }

    let missing = format!("{out}/nowhere");
    assert_eq!(doctor(&missing, &[]).await.0, 2);
    simulation.kill().await.unwrap();
    let (code, _, said) = doctor(&kubeconfig, &[]).await;
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("Kubernetes does not answer"), "{said}");
}

/// The controller as the chart installs it, as far as its rights are concerned, and a person who may do everything.
fn installed() -> String {
    let rules = include_str!("../../charts/kproxide/templates/rbac.yaml");
    let named = [
        ("{{ include \"kproxide.fullname\" . }}", "kproxide"),
        (
            "{{ include \"kproxide.serviceAccountName\" . }}",
            "kproxide",
        ),
        ("{{ .Release.Namespace }}", "kproxide"),
        (
            "{{- include \"kproxide.metadata\" (list . (include \"kproxide.fullname\" .) dict) | nindent 2 }}",
            "name: kproxide",
        ),
    ];
    let rules = named
        .iter()
        .fold(rules.to_owned(), |rules, (template, name)| {
            rules.replace(template, name)
        });
    let rules = rules.lines().filter(|line| !line.contains("{{"));
    let rules = rules.collect::<Vec<_>>().join("\n");
    format!(
        "
apiVersion: v1
kind: Namespace
metadata: {{name: kproxide}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: kproxide, namespace: kproxide}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: boss, namespace: kproxide}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: boss}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}
subjects: [{{kind: ServiceAccount, name: boss, namespace: kproxide}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: kproxide, namespace: kproxide}}
spec:
  selector: {{matchLabels: {{app: kproxide}}}}
  template:
    metadata: {{labels: {{app: kproxide}}}}
    spec: {{serviceAccountName: kproxide, containers: [{{name: kproxide, image: kproxide}}]}}
---
{rules}"
    )
}

#[tokio::test]
async fn doctor_asks_a_real_api_server_what_the_controllers_account_may_do() {
    let Some(cluster) = ControlPlane::without_kwok().await else {
        return;
    };
    cluster.define(&printed(&["crds"]).await).await;
    let apply: Vec<&str> = "apply --server-side --namespace kproxide -f -"
        .split(' ')
        .collect();
    cluster
        .kubectl_with_input(&apply, &installed())
        .await
        .unwrap();
    let token = cluster.token_for("kproxide", "boss", None).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig").display().to_string();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": {
            "server": cluster.url(), "certificate-authority-data": STANDARD.encode(cluster.ca_pem()),
        } }],
        "users": [{ "name": "u", "user": { "token": token } }],
    });
    fs::write(&kubeconfig, config.to_string()).unwrap();
    // What is said of the account, once it is so.
    let says = async |level: &str, words: &str| {
        eventually(SOON, words, async || {
            let arguments = [
                "doctor",
                "--kubeconfig",
                &kubeconfig,
                "--fail-on",
                "never",
                "-o",
                "json",
            ];
            let told = printed(&arguments).await;
            let report: Value = serde_json::from_str(&told).unwrap();
            let mut findings = report["findings"].as_array().unwrap().iter();
            let of_account = findings.find(|it| it["object"] == "ServiceAccount/kproxide/kproxide");
            let is_so = of_account.is_some_and(|it| {
                it["level"] == level && it["message"].as_str().unwrap().contains(words)
            });
            let definitions = told.matches("\"CustomResourceDefinition/").count();
            match is_so && definitions == 5 && !told.contains("DefinitionOld") {
                true => Ok(()),
                false => Err(told),
            }
        })
        .await;
    };
    says("ok", "it may do what the controller does").await;
    cluster
        .kubectl(&["delete", "clusterrolebinding", "kproxide"])
        .await
        .unwrap();
    says("error", "create pods/eviction").await;
    cluster
        .kubectl_with_input(&apply, &installed())
        .await
        .unwrap();
    says("ok", "it may do what the controller does").await;
}
