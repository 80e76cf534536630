//! The chart on a real API server: what its schema, admission and scheduler make of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use kproxide_testkit::controlplane::{CONTROL_PLANE_NODE, condition};
use kproxide_testkit::{ControlPlane, Options, PodLauncher, eventually, require_controlplane};
use serde_json::{Value, json};

use crate::render::{
    NO_HOOK, chart, commented_examples, names, repository, required_values, values, values_file,
};

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
    given["clusters"]["proxmox"]["credentials"] =
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
            NO_HOOK,
            "--values",
            &path,
        ])
        .await
        .unwrap();
    assert!(
        notes.contains("WARNING: Proxmox's credentials were given as values"),
        "{notes}"
    );

    // The pod of `helm test` finds the ServiceAccount.
    let test = cluster
        .helm(&["get", "hooks", "kproxide", "--namespace", NAMESPACE])
        .await
        .unwrap();
    let made = cluster
        .kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], &test)
        .await
        .unwrap();
    assert_eq!(made.trim(), "pod/kproxide-doctor created (server dry run)");

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
    let Some(cluster) = ControlPlane::without_kwok().await else {
        return;
    };
    let helm = async |verb: &str, more: Value| {
        let file = values_file(&values(more));
        let path = file.path().display().to_string();
        cluster
            .helm(&[verb, "kproxide", &chart(), NO_HOOK, "--values", &path])
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
        json!({ "nodePools": { "default": { "spec": { "limits": { "maxNodes": 7 } } } } }),
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

/// Every part of the pod that can be set, and every object but the ServiceMonitor, whose kind is not there.
fn knobs() -> Value {
    json!({
        "replicas": 2,
        "allowManagedNodes": true,
        "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "zone", "labelSelector": { "matchLabels": { "a": "b" } } },
        ] } },
        "hostAliases": [{ "ip": "10.0.0.11", "hostnames": ["pve1.example"] }],
        "dnsPolicy": "None",
        "dnsConfig": { "nameservers": ["10.0.0.1"] },
        "initContainers": [{ "name": "first", "image": "busybox", "command": ["true"] }],
        "extraEnv": [{ "name": "TZ", "value": "Europe/Berlin" }],
        "extraObjects": [{ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "mine" } }],
        "imagePullSecrets": [{ "name": "registry" }],
        "commonLabels": { "team": "platform" },
        "commonAnnotations": { "owner": "me" },
        "dashboard": { "enabled": true },
        "networkPolicy": {
            "enabled": true,
            "egress": {
                "enabled": true,
                "to": [{ "ipBlock": { "cidr": "10.0.0.0/24" } }],
                "more": [{ "ports": [{ "port": 123, "protocol": "UDP" }] }],
            },
        },
    })
}

/// kubectl asks for strict validation, so that a field which the API does not know, or does not like, is an error.
#[tokio::test]
async fn the_api_server_accepts_each_example() {
    let Some(cluster) = ControlPlane::without_kwok().await else {
        return;
    };
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
    let commented = values_file(&commented_examples());
    files.push(commented.path().to_owned());
    // Helm might write them as 1e+08.
    let large = values_file(&values(json!({
        "clusters": { "proxmox": { "spec": { "vmidRange": { "first": 100000000, "last": 100000999 } } } },
        "nodePools": { "default": { "spec": { "limits": { "memoryMiB": 1000000 } } } },
    })));
    files.push(large.path().to_owned());
    let knobs = values_file(&values(knobs()));
    files.push(knobs.path().to_owned());
    for file in files {
        let path = file.display().to_string();
        let objects = cluster
            .helm(&[
                "template",
                "kproxide",
                &chart(),
                "--skip-tests",
                "--values",
                &path,
            ])
            .await
            .unwrap();
        cluster
            .kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], &objects)
            .await
            .unwrap();
    }
}

/// What Helm keeps is told by it, with the commands; what others made is not.
#[tokio::test]
async fn the_notes_name_objects_that_the_values_no_longer_have_and_a_second_release_is_refused() {
    let Some(cluster) = ControlPlane::without_kwok().await else {
        return;
    };
    let helm = async |verb: &str, release: &str, namespace: &str, given: &Value| {
        let file = values_file(given);
        let path = file.path().display().to_string();
        let there = ["--namespace", namespace, "--create-namespace"];
        let args = [verb, release, &chart(), NO_HOOK, "--values", &path];
        let args: &[&str] = match verb {
            "install" => &[&args[..], &there[..]].concat(),
            _ => &[&args[..], &there[..2]].concat(),
        };
        cluster.helm(args).await
    };
    let mut first = required_values();
    first["nodePools"] = json!({ "old": { "spec": { "weight": 1 } }, "stays": {} });
    first["clusters"]["lab"] = first["clusters"]["proxmox"].clone();
    let notes = helm("install", "kproxide", NAMESPACE, &first)
        .await
        .unwrap();
    assert!(notes.contains("NodePools:       old, stays"), "{notes}");
    assert!(
        notes.contains("kubectl scale nodepool old --replicas=1"),
        "{notes}"
    );
    assert!(!notes.contains("\n  kubectl delete"), "{notes}");
    let foreign = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool",
        "metadata": { "name": "by-hand" }, "spec": { "nodeClass": "default" },
    });
    let pools = "/apis/kproxide.dev/v1alpha1/nodepools";
    cluster.api().create(pools, &foreign).await.unwrap();

    let mut second = first.clone();
    second["nodePools"] = json!({ "stays": {}, "new": {} });
    second["clusters"].as_object_mut().unwrap().remove("lab");
    let notes = helm("upgrade", "kproxide", NAMESPACE, &second)
        .await
        .unwrap();
    let commands: Vec<&str> = notes
        .lines()
        .filter_map(|line| line.strip_prefix("  kubectl delete "))
        .collect();
    assert_eq!(commands, ["nodepool old", "proxmoxcluster lab"], "{notes}");
    let left = cluster.api().list(pools).await.unwrap();
    assert_eq!(left.len(), 4, "{left:?}");
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        cluster
            .kubectl(&[&["delete"], &words[..]].concat())
            .await
            .unwrap();
    }
    let notes = helm("upgrade", "kproxide", NAMESPACE, &second)
        .await
        .unwrap();
    assert!(!notes.contains("no longer among its values"), "{notes}");

    let mut other = required_values();
    other["nodePools"] = json!({ "another": {} });
    let refused = helm("install", "second", "elsewhere", &other).await;
    let said = refused.unwrap_err().reason;
    assert!(
        said.contains("\"only-one-kproxide-in-a-cluster\"")
            && said.contains("cannot be imported into the current release"),
        "{said}"
    );
}

/// A map entry without anything, as YAML has it for `name:`.
#[tokio::test]
async fn an_entry_that_is_empty_is_an_object_with_the_defaults_of_the_api() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("values.yaml");
    let text = format!(
        "clusters: {}\nnodeClasses: {}\nnodePools:\n  a:\n  b: {{}}\n",
        required_values()["clusters"],
        required_values()["nodeClasses"]
    );
    fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    let rendered = programs
        .helm(&[
            "template",
            "kproxide",
            &chart(),
            "--no-hooks",
            "--values",
            &path,
        ])
        .await
        .unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    assert_eq!(names(&objects, "NodePool"), ["a", "b"]);
}
