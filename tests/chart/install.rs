//! The chart on a real API server: what its schema, admission and scheduler make of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use kproxide_testkit::controlplane::{CONTROL_PLANE_NODE, condition};
use kproxide_testkit::{ControlPlane, Options, PodLauncher, eventually, require_controlplane};
use serde_json::{Value, json};

use crate::render::{chart, commented_examples, repository, values, values_file};

const NAMESPACE: &str = "autoscaling";

#[tokio::test]
async fn helm_installs_it_and_its_pod_runs_with_what_it_was_promised() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let cluster = ControlPlane::start(&programs, Options::default())
        .await
        .unwrap();
    let mut given = values(json!({ "policies": { "configMaps": [{ "name": "mine" }] } }));
    given["proxmox"]["credentials"] =
        json!({ "tokenId": "kproxide@pve!autoscaler", "tokenSecret": "s3cret" });
    let file = values_file(&given);
    let path = file.path().display().to_string();
    let notes = cluster
        .helm(&[
            "install",
            "kproxide",
            &chart(),
            "--namespace",
            NAMESPACE,
            "--create-namespace",
            "--values",
            &path,
        ])
        .await
        .unwrap();
    assert!(
        notes.contains("WARNING: Proxmox's credentials were given as values"),
        "{notes}"
    );

    // The API server completed the objects by the CRDs' defaults.
    let pool = cluster
        .api()
        .get("/apis/kproxide.dev/v1alpha1/nodepools/default")
        .await
        .unwrap();
    assert_eq!(
        pool["spec"]["limits"],
        json!({ "minNodes": 0, "maxNodes": 3 })
    );

    // In place of kproxide: something that runs until it is killed.
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("kproxide");
    fs::write(&binary, "#!/bin/sh\nenv\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    let launcher = PodLauncher::new(&cluster, &binary);
    let pod = launcher
        .launch(NAMESPACE, "app.kubernetes.io/name=kproxide")
        .await
        .unwrap();

    let read = |path: &str| fs::read_to_string(pod.path_of(path).unwrap()).unwrap();
    assert_eq!(
        read("/etc/kproxide/credentials/proxmox/token-id"),
        "kproxide@pve!autoscaler"
    );
    assert_eq!(
        read("/etc/kproxide/credentials/proxmox/token-secret"),
        "s3cret"
    );
    let credentials = pod.path_of("/etc/kproxide/credentials").unwrap();
    assert!(
        pod.args()
            .contains(&format!("--credentials-dir={}", credentials.display())),
        "{:?}",
        pod.args()
    );
    let world = eventually(
        Duration::from_secs(20),
        "the process to show its environment",
        async || {
            let log = pod.log_tail(100);
            if log.contains("POD_NAMESPACE=") {
                Ok(log)
            } else {
                Err(log)
            }
        },
    )
    .await;
    assert!(
        world.contains(&format!("NODE_NAME={CONTROL_PLANE_NODE}")),
        "{world}"
    );
    assert!(
        world.contains(&format!("POD_NAME={}", pod.name())),
        "{world}"
    );
    assert!(
        world.contains(&format!("POD_NAMESPACE={NAMESPACE}")),
        "{world}"
    );

    // A policy arrives while it runs.
    let module =
        json!({ "metadata": { "name": "mine" }, "binaryData": { "own.wasm": "AGFzbQ==" } });
    cluster
        .api()
        .create(
            &format!("/api/v1/namespaces/{NAMESPACE}/configmaps"),
            &module,
        )
        .await
        .unwrap();
    pod.refresh_volumes().await.unwrap();
    assert_eq!(
        fs::read(pod.path_of("/etc/kproxide/policies/own.wasm").unwrap()).unwrap(),
        b"\0asm"
    );

    // What the scheduler of a cluster without another Node decided.
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", pod.name());
    let bound = cluster.api().get(&path).await.unwrap();
    assert_eq!(condition(&bound, "PodScheduled"), Some("True"));
    assert_eq!(
        bound["spec"]["priorityClassName"],
        "system-cluster-critical"
    );

    permissions(&cluster).await;
}

/// RBAC as the API server understands it, for the questions that matter most.
async fn permissions(cluster: &ControlPlane) {
    let token = cluster
        .token_for(NAMESPACE, "kproxide", None)
        .await
        .unwrap();
    let kproxide = cluster.api_as(&token).unwrap();
    let may = async |verb: &str, group: &str, resource: &str, namespace: &str, name: &str| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": verb,
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "namespace": namespace,
                "name": name,
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        kproxide.create(path, &review).await.unwrap()["status"]["allowed"] == true
    };
    for (verb, group, resource, namespace, name) in [
        ("watch", "", "pods", "", ""),
        ("get", "", "namespaces", "", "kube-system"),
        ("create", "", "pods/eviction", "default", "any"),
        ("delete", "", "nodes", "", "any"),
        ("patch", "kproxide.dev", "nodeclaims/status", "", "any"),
        ("update", "kproxide.dev", "ledgers", "", "kproxide"),
        ("create", "events.k8s.io", "events", "default", ""),
        ("create", "", "secrets", NAMESPACE, ""),
        ("get", "", "secrets", NAMESPACE, "kproxide-ownership-key"),
        (
            "update",
            "coordination.k8s.io",
            "leases",
            NAMESPACE,
            "kproxide",
        ),
    ] {
        assert!(
            may(verb, group, resource, namespace, name).await,
            "may not {verb} {resource} {name}"
        );
    }
    for (verb, group, resource, namespace, name) in [
        ("get", "", "secrets", NAMESPACE, "kproxide-credentials"),
        ("list", "", "secrets", NAMESPACE, ""),
        (
            "get",
            "",
            "secrets",
            "kube-system",
            "kproxide-ownership-key",
        ),
        ("get", "", "namespaces", "", "default"),
        ("patch", "", "persistentvolumes", "", "any"),
        ("delete", "", "persistentvolumeclaims", "default", "any"),
        ("delete", "", "pods", "default", "any"),
        ("create", "", "pods", NAMESPACE, ""),
        ("create", "", "nodes", "", ""),
        (
            "update",
            "coordination.k8s.io",
            "leases",
            NAMESPACE,
            "other",
        ),
        ("update", "kproxide.dev", "nodepools", "", "default"),
        ("delete", "kproxide.dev", "ledgers", "", "kproxide"),
        (
            "create",
            "rbac.authorization.k8s.io",
            "clusterrolebindings",
            "",
            "",
        ),
    ] {
        assert!(
            !may(verb, group, resource, namespace, name).await,
            "may {verb} {resource} {name}"
        );
    }
}

#[tokio::test]
async fn a_scaled_pool_survives_an_upgrade() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let options = Options {
        kwok: false,
        ..Options::default()
    };
    let cluster = ControlPlane::start(&programs, options).await.unwrap();
    let helm = async |verb: &str, more: Value| {
        let file = values_file(&values(more));
        let path = file.path().display().to_string();
        cluster
            .helm(&[verb, "kproxide", &chart(), "--values", &path])
            .await
            .unwrap()
    };
    helm("install", json!({})).await;
    cluster
        .kubectl(&["scale", "nodepool/default", "--replicas=2"])
        .await
        .unwrap();
    helm(
        "upgrade",
        json!({ "nodePool": { "spec": { "limits": { "maxNodes": 7 } } } }),
    )
    .await;
    let pool = cluster
        .api()
        .get("/apis/kproxide.dev/v1alpha1/nodepools/default")
        .await
        .unwrap();
    assert_eq!(
        pool["spec"]["limits"],
        json!({ "minNodes": 2, "maxNodes": 7 })
    );
}

/// kubectl asks for strict validation, so that a field which the API does not know, or does not like, is an error.
#[tokio::test]
async fn the_api_server_accepts_each_example() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let options = Options {
        kwok: false,
        ..Options::default()
    };
    let cluster = ControlPlane::start(&programs, options).await.unwrap();
    let crds = repository("charts/kproxide/crds").display().to_string();
    cluster
        .kubectl(&["apply", "--server-side", "-f", &crds])
        .await
        .unwrap();
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "-f",
            &crds,
        ])
        .await
        .unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(repository("examples/values")).unwrap() {
        files.push(entry.unwrap().path());
    }
    let commented = values_file(&values(commented_examples()));
    files.push(commented.path().to_owned());
    // Helm might write them as 1e+08.
    let large = values_file(&values(json!({
        "proxmox": { "spec": { "vmidRange": { "first": 100000000, "last": 100000999 } } },
        "nodePool": { "spec": { "limits": { "memoryMiB": 1000000 } } },
    })));
    files.push(large.path().to_owned());
    for file in files {
        let path = file.display().to_string();
        let objects = cluster
            .helm(&["template", "kproxide", &chart(), "--values", &path])
            .await
            .unwrap();
        cluster
            .kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], &objects)
            .await
            .unwrap();
    }
}
