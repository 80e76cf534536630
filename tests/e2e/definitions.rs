//! The CustomResourceDefinitions by the chart's Job: real Helm, the Job's own ServiceAccount, the binary under test.

use std::path::Path;
use std::process::Output;

use kproxide_testkit::PodLauncher;
use kproxide_testkit::controlplane::CommandError;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::bench::{Bench, on_a_cluster};
use crate::binary::repository;
use crate::install::write;
use crate::stage::{NAMESPACE, POOL, RELEASE, SOON};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const POOLS: &str = "nodepools.kproxide.dev";
const VERSION: &str = "kproxide.dev/version";
const FIVE: [&str; 5] = [
    "proxmoxclusters.kproxide.dev",
    "nodeclasses.kproxide.dev",
    POOLS,
    "nodeclaims.kproxide.dev",
    "ledgers.kproxide.dev",
];

/// No pod of kproxide, and a field that the definition of an earlier release does not have.
fn values() -> Value {
    json!({
        "replicas": 0,
        "clusters": { "lab": {
            "credentials": { "existingSecret": "proxmox" },
            "spec": { "endpoints": ["https://pve1.example:8006"] },
        } },
        "nodeClasses": { "default": { "spec": { "template": { "name": "k8s-node" } } } },
        "nodePools": { "default": { "spec": { "expireAfter": "30d" } } },
    })
}

/// The definition of NodePools as it was before it had that field, by Helm.
async fn go_back(bench: &Bench) {
    let mut definitions: Vec<Value> = FIVE.iter().map(|name| shipped(name)).collect();
    let pools = &mut definitions[2];
    pools["metadata"]["annotations"] = json!({});
    spec_of(pools)
        .as_object_mut()
        .unwrap()
        .remove("expireAfter");
    for definition in definitions {
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=helm",
            "-f",
            "-",
        ];
        let text = definition.to_string();
        bench
            .cluster
            .kubectl_with_input(&apply, &text)
            .await
            .unwrap();
    }
    assert!(!has_the_field(bench).await, "the case shows nothing");
}

fn shipped(name: &str) -> Value {
    let plural = name.split('.').next().unwrap();
    let file = repository(&format!("charts/kproxide/crds/{plural}.yaml"));
    serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

pub(crate) fn spec_of(definition: &mut Value) -> &mut Value {
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    definition.pointer_mut(path).unwrap()
}

pub(crate) async fn has_the_field(bench: &Bench) -> bool {
    let path = format!("{DEFINITIONS}/{POOLS}");
    let mut definition = bench.cluster.api().get(&path).await.unwrap();
    !spec_of(&mut definition)["expireAfter"].is_null()
}

/// Helm, and beside it a kubelet that runs the Job's pod to its end: what both said.
async fn helm(bench: &Bench, verb: &str, values: &Value) -> (Result<String, CommandError>, String) {
    let file = write(values);
    let path = file.path().display().to_string();
    let chart = repository("charts/kproxide").display().to_string();
    let args = [
        verb,
        RELEASE,
        &chart,
        "--namespace",
        NAMESPACE,
        "--values",
        &path,
    ];
    helm_and_job(bench, &bench.binary, &args).await
}

/// The same, with the program of the Job's image.
pub(crate) async fn helm_and_job(
    bench: &Bench,
    program: &Path,
    args: &[&str],
) -> (Result<String, CommandError>, String) {
    let job = async {
        let launcher = PodLauncher::new(&bench.cluster, program);
        let selector = format!("app.kubernetes.io/name={RELEASE}-crds");
        let mut pod = launcher.launch(NAMESPACE, &selector).await.unwrap();
        pod.finish(SOON).await.unwrap();
        pod.log_tail(100)
    };
    tokio::join!(bench.cluster.helm(args), job)
}

#[test]
#[ignore = "tier: helm"]
fn an_upgrade_sets_a_field_that_the_installed_definition_did_not_have() {
    on_a_cluster(async |bench| {
        let api = bench.cluster.api();
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        // Another case may have made it.
        let _ = api.create("/api/v1/namespaces", &namespace).await;
        go_back(bench).await;
        // Helm may have brought them itself: it does so once, when it installs.
        let (installed, said) = helm(bench, "install", &values()).await;
        installed.unwrap();
        assert_eq!(said.lines().count(), FIVE.len(), "{said}");
        let pool = api.get(POOL).await.unwrap();
        assert_eq!(pool["spec"]["expireAfter"], "30d");

        // Its rights are gone with it.
        for path in [
            format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{RELEASE}-crds"),
            format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{RELEASE}-crds"),
            format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{RELEASE}-crds"),
            format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{RELEASE}-crds"),
        ] {
            assert!(api.find(&path).await.unwrap().is_none(), "{path}");
        }

        go_back(bench).await;
        let mut changed = values();
        changed["nodePools"]["default"]["spec"]["expireAfter"] = json!("60d");
        let (upgraded, said) = helm(bench, "upgrade", &changed).await;
        upgraded.unwrap();
        for name in FIVE {
            let outcome = if name == POOLS {
                "updated"
            } else {
                "unchanged"
            };
            assert!(said.contains(&format!("{name} {outcome}")), "{said}");
        }
        let pool = api.get(POOL).await.unwrap();
        assert_eq!(pool["spec"]["expireAfter"], "60d");
    });
}

/// As in a cluster that never had kproxide.
pub(crate) async fn forget(bench: &Bench) {
    let api = bench.cluster.api();
    for name in FIVE {
        let path = format!("{DEFINITIONS}/{name}");
        if api.find(&path).await.unwrap().is_some() {
            api.delete(&path).await.unwrap();
        }
        kproxide_testkit::eventually(SOON, "the definition gone", async || {
            let left = api.find(&path).await.unwrap();
            left.is_none().then_some(()).ok_or("it is there")
        })
        .await;
    }
}

/// As a person runs it.
async fn crds_apply(bench: &Bench) -> Output {
    Command::new(&bench.binary)
        .args(["crds", "--apply", "--kubeconfig"])
        .arg(bench.cluster.admin_kubeconfig_path())
        .env_clear()
        .output()
        .await
        .unwrap()
}

#[test]
#[ignore = "tier: helm"]
fn definitions_are_created_and_never_go_back_to_an_earlier_kproxide() {
    on_a_cluster(async |bench| {
        let api = bench.cluster.api();
        forget(bench).await;
        let made = crds_apply(bench).await;
        let said = String::from_utf8(made.stdout).unwrap();
        let expected: String = FIVE.map(|name| format!("{name} created\n")).concat();
        assert_eq!(said, expected, "{}", String::from_utf8_lossy(&made.stderr));

        // One of them is of a later kproxide, another is not as it should be: all stay as they are.
        go_back(bench).await;
        let later = json!({ "metadata": { "annotations": { VERSION: "99.0.0" } } });
        let claims = format!("{DEFINITIONS}/nodeclaims.kproxide.dev");
        api.merge(&claims, &later).await.unwrap();
        let refused = crds_apply(bench).await;
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        for expected in [
            "nodeclaims.kproxide.dev is of kproxide 99.0.0",
            "crds.hook=false",
        ] {
            assert!(said.contains(expected), "{said}");
        }
        assert!(!has_the_field(bench).await, "something was changed");

        // Without that word it is an earlier one.
        let now = json!({ "metadata": { "annotations": { VERSION: null } } });
        api.merge(&claims, &now).await.unwrap();
        let applied = crds_apply(bench).await;
        assert_eq!(applied.status.code(), Some(0));
        assert!(has_the_field(bench).await);
        let again = String::from_utf8(crds_apply(bench).await.stdout).unwrap();
        let expected: String = FIVE.map(|name| format!("{name} unchanged\n")).concat();
        assert_eq!(again, expected);
    });
}
