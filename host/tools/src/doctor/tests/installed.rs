//! The controller's Deployment, with what it mounts and where it runs.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kproxide_simulator::kube::fixtures;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::ward::Ward;
use crate::doctor::Installation;
use kproxide_controller::judge::{Finding, Level};
use kproxide_kube::access::Account;

/// As the chart makes it, in its least form.
fn deployment() -> Value {
    let item = |key: &str| json!({ "key": key, "path": format!("home/{key}") });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "scaler", "namespace": "ops" },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": "scaler" } },
            "template": {
                "metadata": { "labels": { "app": "scaler" } },
                "spec": {
                    "serviceAccountName": "acts",
                    "containers": [{
                        "name": "kproxide", "image": "kproxide", "args": ["run", "--join-dir=/join"],
                        "volumeMounts": [{ "name": "credentials", "mountPath": "/credentials" },
                            { "name": "join", "mountPath": "/join" }, { "name": "policies", "mountPath": "/policies" }],
                    }],
                    "volumes": [
                        { "name": "credentials", "projected": { "sources": [
                            { "secret": { "name": "proxmox", "items": [item("token-id"), item("token-secret")] } }] } },
                        { "name": "join", "secret": { "secretName": "join", "items": [{ "key": "command", "path": "debian" }] } },
                        { "name": "policies", "projected": { "sources": [{ "configMap": { "name": "own", "optional": true } }] } },
                    ],
                },
            },
        },
    })
}

/// A policy as `kproxide policy pack` packs it, in a ConfigMap as the Deployment mounts it.
#[tokio::test(start_paused = true)]
async fn o2_policies_in_config_maps_that_the_deployment_mounts_are_read() {
    let ward = Ward::new();
    let kube = &ward.lab.kube;
    kube.create("namespaces", fixtures::namespace("ops"))
        .unwrap();
    let mut mounting = deployment();
    let pod = &mut mounting["spec"]["template"]["spec"];
    pod["containers"][0]["args"] = json!(["run", "--policy-dir=/policies", "--policy-dir=/more"]);
    kube.create("deployments.apps", mounting).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let pack = kproxide_builtins::builtin("pack");
    encoder.write_all(pack.unwrap().wasm).unwrap();
    let packed = STANDARD.encode(encoder.finish().unwrap());
    let own = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "own", "namespace": "ops" },
        "binaryData": { "first.wasm.gz": packed }, "data": { "README": "ours" } });
    kube.create("configmaps", own).unwrap();
    let pool = json!({ "policies": { "hostSelection": { "use": "first" } } });
    ward.edit("nodepools/workers", pool);
    let is_missing = async || {
        let report = ward.examined().await;
        let mut findings = report.findings.iter();
        findings.any(|it| it.reason.word == "PolicyMissing")
    };
    assert!(is_missing().await);
    let files = read(&ward).await.policies();
    assert_eq!(
        files.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["first"]
    );
    assert_eq!(&*files["first"][0].path, "/policies/first.wasm.gz");
    ward.policies.sync(files).await;
    assert!(!is_missing().await);
}

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data = data
        .iter()
        .map(|(key, value)| (key.to_string(), json!(STANDARD.encode(value))));
    let data: serde_json::Map<_, _> = data.collect();
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "ops" }, "data": data })
}

const TOKEN: [(&str, &str); 2] = [("token-id", "kproxide@pve!ci"), ("token-secret", "s3cret")];

fn lease(holder: &str, renewed: jiff::Timestamp) -> Value {
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "scaler", "namespace": "ops" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": format!("{renewed:.6}") } })
}

async fn read(ward: &Ward) -> Installation {
    Installation::read(&ward.kube(), "ops", "scaler").await
}

fn ill(findings: &[Finding]) -> Vec<(&str, &str, &str)> {
    let ill = findings.iter().filter(|it| it.level != Level::Ok);
    ill.map(|it| (it.object.as_str(), it.reason.word, it.message.as_str()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_the_controllers_pod_lacks_is_found_and_what_it_mounts_is_read() {
    let ward = Ward::new();
    let kube = &ward.lab.kube;
    let found = read(&ward).await;
    let none = (
        "Deployment/ops/scaler",
        "NotInstalled",
        "there is none of that name",
    );
    assert_eq!(ill(&found.findings), [none]);
    assert_eq!(found.account, None);

    kube.create("namespaces", fixtures::namespace("ops"))
        .unwrap();
    kube.create("deployments.apps", deployment()).unwrap();
    kube.create("secrets", secret("join", &[("command", "set -eu\n")]))
        .unwrap();
    // The scheduler and the controllers of the simulated cluster have their say.
    sleep(Duration::from_secs(30)).await;
    let found = read(&ward).await;
    let mut told = ill(&found.findings);
    told.sort();
    let [(pod, "PodUnschedulable", words), missing] = told[..] else {
        panic!("{told:?}");
    };
    assert!(pod.starts_with("Pod/ops/scaler-"), "{pod}");
    assert!(words.contains("no nodes available"), "{words}");
    let text = "there is none, and the pod of the controller mounts it";
    assert_eq!(missing, ("Secret/proxmox", "SecretMissing", text));

    fixtures::add_node(kube, fixtures::node("server-1", "4", "8Gi")).unwrap();
    kube.create("secrets", secret("proxmox", &TOKEN[..1]))
        .unwrap();
    sleep(Duration::from_secs(30)).await;
    let found = read(&ward).await;
    let text = "it has no key token-secret, and the pod of the controller mounts it";
    assert_eq!(
        ill(&found.findings),
        [("Secret/proxmox", "SecretMissing", text)]
    );

    kube.delete("secrets", "ops", "proxmox").unwrap();
    kube.create("secrets", secret("proxmox", &TOKEN)).unwrap();
    let now = ward.lab.clock.now();
    kube.create("leases.coordination.k8s.io", lease("scaler-0_1a", now))
        .unwrap();
    let found = read(&ward).await;
    assert_eq!(ill(&found.findings), []);
    let account = Account::Service {
        namespace: "ops".to_owned(),
        name: "acts".to_owned(),
    };
    assert_eq!(found.account, Some(account));
    assert_eq!(found.flag("join-dir", "/etc"), "/join");
    let files: Vec<(&str, &[u8])> = found
        .files
        .iter()
        .map(|(path, it)| (&**path, &**it))
        .collect();
    let expected: [(&str, &[u8]); 3] = [
        ("/credentials/home/token-id", b"kproxide@pve!ci"),
        ("/credentials/home/token-secret", b"s3cret"),
        ("/join/debian", b"set -eu\n"),
    ];
    assert_eq!(files, expected);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_of_which_no_replica_leads_is_not_well() {
    const LEASES: &str = "leases.coordination.k8s.io";
    let ward = Ward::new();
    let kube = &ward.lab.kube;
    kube.create("namespaces", fixtures::namespace("ops"))
        .unwrap();
    fixtures::add_node(kube, fixtures::node("server-1", "4", "8Gi")).unwrap();
    let bare = |replicas: u32, flags: &[&str]| {
        let mut bare = deployment();
        let spec = &mut bare["spec"];
        spec["replicas"] = replicas.into();
        let pod = &mut spec["template"]["spec"];
        pod["containers"][0]["args"] = json!(flags);
        pod["containers"][0]["volumeMounts"] = json!([]);
        pod["volumes"] = json!([]);
        bare
    };
    let said = async |deployment: Value, lease: Option<Value>| {
        let _ = kube.delete("deployments.apps", "ops", "scaler");
        let _ = kube.delete(LEASES, "ops", "scaler");
        kube.create("deployments.apps", deployment).unwrap();
        if let Some(lease) = lease {
            kube.create(LEASES, lease).unwrap();
        }
        let ill = read(&ward).await.findings.into_iter();
        let ill = ill.filter(|it| it.level != Level::Ok);
        ill.map(|it| (it.level, it.object, it.reason.word, it.message, it.commands))
            .collect::<Vec<_>>()
    };
    let see = "kubectl get pods,leases --namespace ops";
    let lost = |why: &str| {
        let message = why.to_owned();
        let (object, commands) = ("Lease/ops/scaler".to_owned(), vec![see.to_owned()]);
        vec![(Level::Error, object, "NoLeader", message, commands)]
    };
    let now = || ward.lab.clock.now();
    let ago = |seconds: i64| now() - jiff::SignedDuration::from_secs(seconds);
    let none = "there is none: no replica has ever led";
    assert_eq!(said(bare(2, &[]), None).await, lost(none));
    let held = |renewed| Some(lease("scaler-0_1a", renewed));
    assert_eq!(said(bare(2, &[]), held(now())).await, []);
    let old = "its holder has not renewed it in time";
    assert_eq!(said(bare(2, &[]), held(ago(90))).await, lost(old));
    let released = |ago| Some(lease("", ago));
    let nobody = lost("nobody holds it");
    assert_eq!(said(bare(2, &[]), released(ago(30))).await, nobody);
    // Between two leaders.
    assert_eq!(said(bare(2, &[]), released(ago(10))).await, []);
    // The Lease has the name of the controller, which need not be that of the Deployment. A dry run takes none.
    let other = said(bare(2, &["--name=other"]), held(now())).await;
    assert_eq!(other[0].1, "Lease/ops/other");
    assert_eq!(said(bare(1, &["run", "--dry-run"]), None).await, []);

    let stopped = said(bare(0, &[]), None).await;
    let command = "kubectl scale deployment scaler --namespace ops --replicas 1";
    let message = "spec.replicas is 0, so no replica leads".to_owned();
    let object = "Deployment/ops/scaler".to_owned();
    let commands = vec![command.to_owned()];
    assert_eq!(
        stopped,
        [(Level::Error, object, "NoLeader", message, commands)]
    );
}
