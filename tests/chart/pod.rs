use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{render, repository, required_values, the, values};

fn pod(objects: &[Value]) -> &Value {
    &the(objects, "Deployment")["spec"]["template"]["spec"]
}

#[tokio::test]
async fn the_pod_is_one_locked_down_process() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let objects = render(&programs, &required_values()).await.unwrap();
    let deployment = &the(&objects, "Deployment")["spec"];
    assert_eq!(deployment["replicas"], 1);
    assert_eq!(deployment["strategy"]["type"], "Recreate");
    let pod = pod(&objects);
    assert_eq!(
        pod["securityContext"],
        json!({
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": { "type": "RuntimeDefault" },
        })
    );
    let container = &pod["containers"][0];
    assert_eq!(
        container["securityContext"],
        json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        })
    );
    assert_eq!(pod["hostNetwork"], Value::Null);
    for (probe, path) in [
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ] {
        assert_eq!(container[probe]["httpGet"]["path"], path, "{probe}");
    }
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    for mount in container["volumeMounts"].as_array().unwrap() {
        assert_eq!(mount["readOnly"], true, "{mount}");
        assert_eq!(mount["subPath"], Value::Null, "{mount}");
    }
}

#[tokio::test]
async fn the_pod_keeps_off_the_nodes_that_it_makes() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let extra = json!({ "tolerations": [{ "key": "mine", "operator": "Exists" }] });
    let objects = render(&programs, &values(extra)).await.unwrap();
    let pod = pod(&objects);
    let affinity = &pod["affinity"]["nodeAffinity"];
    assert_eq!(
        affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
        json!([{ "matchExpressions": [
            { "key": "kproxide.dev/claim", "operator": "DoesNotExist" },
            { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"] },
        ] }])
    );
    let preferred = &affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["preference"];
    assert_eq!(
        preferred["matchExpressions"][0]["key"],
        "node-role.kubernetes.io/control-plane"
    );
    let tolerated: Vec<&str> = pod["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|toleration| toleration["key"].as_str().unwrap())
        .collect();
    let expected = [
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
        "node-role.kubernetes.io/etcd",
        "CriticalAddonsOnly",
        "mine",
    ];
    assert_eq!(tolerated, expected);
    assert_eq!(pod["dnsPolicy"], "Default");
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
}

#[tokio::test]
async fn the_flags_and_mounts_follow_the_values() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let plain = render(&programs, &required_values()).await.unwrap();
    let container = &pod(&plain)["containers"][0];
    assert_eq!(
        container["args"],
        json!([
            "run",
            "--name=kproxide",
            "--credentials-dir=/etc/kproxide/credentials",
            "--join-dir=/etc/kproxide/join",
            "--admin-address=0.0.0.0:8080",
            "--log=info",
            "--log-format=json",
        ])
    );
    assert_eq!(mounted(container), ["/etc/kproxide/credentials"]);

    let full = values(json!({
        "clusters": { "proxmox": { "caConfigMap": { "name": "pve-ca" } } },
        "nodeClasses": { "default": { "joinScript": { "existingSecret": "join" } } },
        "policies": { "configMaps": [{ "name": "mine" }, { "name": "ours", "optional": false }] },
        "admin": { "address": "[::]", "port": 9090 },
        "dryRun": true,
        "kproximateMetrics": false,
        "extraArgs": ["--cold-start=0s"],
    }));
    let full = render(&programs, &full).await.unwrap();
    let container = &pod(&full)["containers"][0];
    let args = container["args"].as_array().unwrap();
    for flag in [
        "--policy-dir=/etc/kproxide/policies",
        "--admin-address=[::]:9090",
        "--dry-run",
        "--kproximate-metrics=false",
        "--cold-start=0s",
    ] {
        assert!(args.contains(&json!(flag)), "{flag} is not in {args:?}");
    }
    assert_eq!(
        mounted(container),
        [
            "/etc/kproxide/credentials",
            "/etc/kproxide/ca",
            "/etc/kproxide/join",
            "/etc/kproxide/policies"
        ]
    );
    let policies = &pod(&full)["volumes"][3]["projected"]["sources"];
    assert_eq!(
        policies[0]["configMap"],
        json!({ "name": "mine", "optional": true })
    );
    assert_eq!(
        policies[1]["configMap"],
        json!({ "name": "ours", "optional": false })
    );
    assert_eq!(
        the(&full, "ProxmoxCluster")["spec"]["tls"]["caFile"],
        "/etc/kproxide/ca/proxmox.pem"
    );
    assert_eq!(
        the(&full, "NodeClass")["spec"]["join"],
        json!({ "guestExec": { "commandSecretFile": "default" } }),
        "a file in --join-dir"
    );
    assert_eq!(
        pod(&full)["volumes"][2]["projected"]["sources"],
        json!([{ "secret": {
            "name": "join", "items": [{ "key": "command", "path": "default" }],
        } }])
    );
}

#[tokio::test]
async fn another_clusters_credentials_are_mounted_beside_the_charts() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let volume = json!({ "name": "lab", "secret": { "secretName": "proxmox-lab" } });
    let mount =
        json!({ "name": "lab", "mountPath": "/etc/kproxide/credentials/lab", "readOnly": true });
    let more = json!({ "extraVolumes": [volume], "extraVolumeMounts": [mount] });
    let objects = render(&programs, &values(more)).await.unwrap();
    let pod = pod(&objects);
    assert_eq!(
        mounted(&pod["containers"][0]),
        ["/etc/kproxide/credentials", "/etc/kproxide/credentials/lab"]
    );
    assert_eq!(pod["volumes"][1], volume);
}

#[tokio::test]
async fn the_image_is_the_charts_version_unless_told_otherwise() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let digest = format!("sha256:{}", "a".repeat(64));
    for (image, expected) in [
        (
            json!({}),
            concat!("ghcr.io/kproxide/kproxide:", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
        (
            json!({ "repository": "mine/it", "tag": "x" }),
            "mine/it:x".to_owned(),
        ),
        (
            json!({ "repository": "mine/it", "tag": "x", "digest": digest }),
            format!("mine/it@{digest}"),
        ),
    ] {
        let objects = render(&programs, &values(json!({ "image": image })))
            .await
            .unwrap();
        assert_eq!(pod(&objects)["containers"][0]["image"], expected);
    }
}

fn mounted(container: &Value) -> Vec<&str> {
    container["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect()
}

/// What decides where the pod runs, for values that say something about it. The other half is a test of the program's, which
/// has to know this without Helm. After a change of the chart: `KPROXIDE_UPDATE=1 cargo test -p kproxide-testkit --test chart
/// doctor_knows`.
#[tokio::test]
async fn doctor_knows_where_the_pod_of_the_chart_may_run() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let term = |key: &str| json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] });
    let field =
        json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] });
    let terms = json!({ "nodeSelectorTerms": [term("disk"), term("gpu"), field] });
    let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": terms });
    let apart = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "db" } } }] });
    let spread = json!([{ "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "kproxide" } } }]);
    let mut known = Vec::new();
    for given in [
        json!({}),
        json!({ "allowManagedNodes": true }),
        json!({ "allowManagedNodes": true, "image": { "architectures": [] } }),
        json!({ "image": { "architectures": ["arm64"] }, "nodeSelector": { "disk": "ssd" },
            "tolerations": [{ "key": "mine", "operator": "Exists" }, { "key": "gpu", "effect": "NoSchedule" }] }),
        json!({ "affinity": { "nodeAffinity": required.clone(), "podAntiAffinity": apart } }),
        json!({ "allowManagedNodes": true, "image": { "architectures": [] }, "affinity": { "nodeAffinity": required } }),
        json!({ "resources": { "requests": { "memory": "1Gi" }, "limits": null }, "priorityClassName": "" }),
        json!({ "topologySpreadConstraints": spread, "initContainers": [
            { "name": "waits", "image": "busybox", "resources": { "requests": { "cpu": "2" } } }] }),
    ] {
        let given = values(given);
        let objects = render(&programs, &given).await.unwrap();
        let pod = pod(&objects);
        let mut shown = json!({ "resources": pod["containers"][0]["resources"] });
        for field in [
            "nodeSelector",
            "affinity",
            "tolerations",
            "priorityClassName",
            "topologySpreadConstraints",
            "initContainers",
        ] {
            shown[field] = pod[field].clone();
        }
        // What is only preferred keeps the pod away from no Node.
        let affinity = shown["affinity"].as_object_mut().unwrap();
        let of_nodes = affinity["nodeAffinity"].as_object_mut().unwrap();
        of_nodes.remove("preferredDuringSchedulingIgnoredDuringExecution");
        let required = of_nodes.get_mut("requiredDuringSchedulingIgnoredDuringExecution");
        let terms = required.map(|it| it["nodeSelectorTerms"].as_array_mut().unwrap());
        for term in terms.into_iter().flatten() {
            term.as_object_mut().unwrap().retain(|_, it| !it.is_null());
        }
        if of_nodes.is_empty() {
            affinity.remove("nodeAffinity");
        }
        if affinity.is_empty() {
            shown["affinity"] = Value::Null;
        }
        known.push(json!({ "values": given, "pod": shown }));
    }
    let path = repository("host/tools/src/doctor/tests/pods.json");
    let known: Vec<String> = known.iter().map(Value::to_string).collect();
    let text = format!("[\n{}\n]\n", known.join(",\n"));
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}
