use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{OBJECTS, chart, refusal, render, repository, required_values, values};

#[tokio::test]
async fn the_chart_lints_strictly_with_and_without_values() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    programs
        .helm(&["lint", "--strict", &chart()])
        .await
        .unwrap();
    let minimal = repository("examples/values/minimal.yaml")
        .display()
        .to_string();
    programs
        .helm(&["lint", "--strict", &chart(), "--values", &minimal])
        .await
        .unwrap();
}

#[tokio::test]
async fn everything_that_is_missing_is_named_at_once() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let reason = refusal(&programs, &json!({})).await;
    for missing in [
        "proxmox.spec.endpoints:",
        "proxmox.credentials:",
        "nodeClass.spec.template.name:",
    ] {
        assert!(reason.contains(missing), "{missing} is not in: {reason}");
    }
    let reason = refusal(
        &programs,
        &json!({ "proxmox": required_values()["proxmox"] }),
    )
    .await;
    assert!(
        reason.contains("nodeClass.spec.template.name:") && !reason.contains("proxmox."),
        "{reason}"
    );
}

#[tokio::test]
async fn a_value_that_nobody_knows_is_refused_by_name() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let unknown = [
        ("kpNodeCores", json!({ "kpNodeCores": 2 })),
        (
            "endpoint",
            json!({ "proxmox": { "spec": { "endpoint": "https://pve1.example:8006" } } }),
        ),
        (
            "insecure",
            json!({ "proxmox": { "spec": { "tls": { "insecure": true } } } }),
        ),
        (
            "memory",
            json!({ "nodeClass": { "spec": { "instanceTypes": [{ "name": "a", "cores": 1, "memoryMiB": 1024, "memory": 1 }] } } }),
        ),
        (
            "maxKpNodes",
            json!({ "nodePool": { "spec": { "limits": { "maxKpNodes": 3 } } } }),
        ),
        (
            "onError",
            json!({ "nodePool": { "spec": { "policies": { "hostSelection": { "use": "spread", "onError": "fail" } } } } }),
        ),
        (
            "barePod",
            json!({ "nodePool": { "spec": { "scaleDown": { "blockedBy": { "barePod": false } } } } }),
        ),
    ];
    for (name, more) in unknown {
        let reason = refusal(&programs, &values(more)).await;
        assert!(
            reason.contains(&format!("'{name}'")),
            "{name} is not in: {reason}"
        );
    }
}

/// As they stood beside `name` in an earlier chart.
#[tokio::test]
async fn a_key_at_its_old_place_is_refused_with_the_new_one() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let old = json!({
        "proxmox": {
            "endpoints": ["https://pve1.example:8006"],
            "tls": { "caConfigMap": { "name": "pve-ca" } },
            "extraSpec": { "pool": "k8s" },
        },
        "nodeClass": { "template": { "name": "k8s-node" }, "join": { "guestExec": { "command": "true" } } },
        "nodePool": { "limits": { "maxNodes": 5 }, "scaleDown": {} },
    });
    let reason = refusal(&programs, &values(old)).await;
    for expected in [
        "proxmox.endpoints: not a key of this chart. Write proxmox.spec.endpoints",
        "proxmox.tls: not a key of this chart. Write proxmox.spec.tls, and tls.caConfigMap is proxmox.caConfigMap",
        "proxmox.extraSpec: not a key of this chart. Write proxmox.spec",
        "nodeClass.template: not a key of this chart. Write nodeClass.spec.template",
        "nodeClass.join: not a key of this chart. Write nodeClass.joinScript",
        "nodePool.limits: not a key of this chart. Write nodePool.spec.limits",
        "nodePool.scaleDown: not a key of this chart. Write nodePool.spec.scaleDown",
    ] {
        assert!(reason.contains(expected), "{expected} is not in: {reason}");
    }
    assert!(!reason.contains("proxmox.credentials"), "{reason}");
}

#[tokio::test]
async fn a_value_of_the_wrong_shape_is_refused_with_its_path() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let wrong = [
        (
            "/proxmox/spec/endpoints/0",
            json!({ "proxmox": { "spec": { "endpoints": ["https://pve1.example:8006/api2/json"] } } }),
        ),
        (
            "/proxmox/spec/endpoints/0",
            json!({ "proxmox": { "spec": { "endpoints": ["http://pve1.example:8006"] } } }),
        ),
        (
            "/proxmox/credentials/tokenId",
            json!({ "proxmox": { "credentials": { "tokenId": "kproxide@pve" } } }),
        ),
        (
            "/proxmox/spec/tls/fingerprints/0",
            json!({ "proxmox": { "spec": { "tls": { "fingerprints": ["AA:BB"] } } } }),
        ),
        (
            "/nodeClass/spec/template/clone",
            json!({ "nodeClass": { "spec": { "template": { "clone": "copy" } } } }),
        ),
        (
            "/nodePool/spec/limits/maxNodes",
            json!({ "nodePool": { "spec": { "limits": { "maxNodes": "many" } } } }),
        ),
        (
            "/nodePool/spec/drainTimeout",
            json!({ "nodePool": { "spec": { "drainTimeout": 15 } } }),
        ),
        (
            "/nodePool/spec/repairAfter",
            json!({ "nodePool": { "spec": { "repairAfter": "soon" } } }),
        ),
        // The API server takes a fraction as text only.
        (
            "/nodePool/spec/headroom/cpu",
            json!({ "nodePool": { "spec": { "headroom": { "cpu": 0.5 } } } }),
        ),
        (
            "/admin/address",
            json!({ "admin": { "address": "localhost" } }),
        ),
        (
            "/networkPolicy/from/0",
            json!({ "networkPolicy": { "from": [{}] } }),
        ),
        (
            "/image/digest",
            json!({ "image": { "digest": "sha256:latest" } }),
        ),
    ];
    for (path, more) in wrong {
        let reason = refusal(&programs, &values(more)).await;
        assert!(
            reason.contains(&format!("'{path}'")),
            "{path} is not in: {reason}"
        );
    }
}

#[tokio::test]
async fn values_that_contradict_each_other_are_refused() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let token = json!({ "tokenId": "kproxide@pve!autoscaler", "tokenSecret": "s" });
    // Instead of the Secret among the required values.
    let given = |mut credentials: Value| {
        credentials["existingSecret"] = json!("");
        json!({ "proxmox": { "credentials": credentials } })
    };
    let fingerprint = "00".repeat(32);
    let contradictions = [
        (
            "proxmox.credentials: either existingSecret",
            json!({ "proxmox": { "credentials": token } }),
        ),
        (
            "proxmox.credentials: either existingSecret",
            json!({ "proxmox": { "credentials": { "password": "s" } } }),
        ),
        (
            "proxmox.credentials: either tokenId",
            given(
                json!({ "tokenId": "kproxide@pve!autoscaler", "tokenSecret": "s", "password": "s" }),
            ),
        ),
        (
            "proxmox.credentials: tokenId and tokenSecret, both",
            given(json!({ "tokenId": "kproxide@pve!autoscaler" })),
        ),
        (
            "proxmox.credentials: username and password, both",
            given(json!({ "password": "s" })),
        ),
        (
            "serviceAccount.name: needed",
            json!({ "serviceAccount": { "create": false } }),
        ),
        (
            "extraArgs: --admin-address is set by the chart: use admin.address",
            json!({ "extraArgs": ["--poll-interval=30s", "--admin-address=[::]:8080"] }),
        ),
        (
            "extraArgs: --join-dir is set by the chart: use extraVolumeMounts",
            json!({ "extraArgs": ["--join-dir=/tmp"] }),
        ),
        (
            "extraArgs: --dry-run is set by the chart: use dryRun",
            json!({ "extraArgs": ["--dry-run"] }),
        ),
        (
            "proxmox: either caConfigMap or spec.tls",
            json!({ "proxmox": { "caConfigMap": { "name": "ca" }, "spec": { "tls": { "fingerprints": [fingerprint] } } } }),
        ),
        (
            "nodeClass.joinScript: either",
            json!({ "nodeClass": { "joinScript": { "existingSecret": "join", "command": "true" } } }),
        ),
        (
            "nodeClass: either joinScript or spec.join",
            json!({ "nodeClass": { "joinScript": { "command": "true" }, "spec": { "join": { "template": {} } } } }),
        ),
    ];
    for (problem, more) in contradictions {
        let reason = refusal(&programs, &values(more)).await;
        assert!(reason.contains(problem), "{problem} is not in: {reason}");
    }
}

/// A knob that turns nothing is worse than none.
#[test]
fn each_default_is_read_by_a_template() {
    let text = std::fs::read_to_string(repository("charts/kproxide/values.yaml")).unwrap();
    let defaults: Value = serde_saphyr::from_str(&text).unwrap();
    let mut templates = String::new();
    for entry in std::fs::read_dir(repository("charts/kproxide/templates")).unwrap() {
        templates += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    let words: std::collections::BTreeSet<&str> = templates
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .collect();
    // These are taken over with the object that holds them.
    let whole = ["spec", "policies", "resources"];
    let mut unread = Vec::new();
    let mut keys = vec![(String::new(), &defaults)];
    while let Some((path, value)) = keys.pop() {
        for (key, value) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            if !words.contains(key.as_str()) {
                unread.push(path.clone());
            }
            if !whole.contains(&key.as_str()) {
                keys.push((path, value));
            }
        }
    }
    assert!(unread.is_empty(), "no template reads {unread:?}");
}

/// A default stands in the API and nowhere else: the chart proposes a value only where the API has none.
#[test]
fn no_default_of_the_api_is_repeated() {
    let text = std::fs::read_to_string(repository("charts/kproxide/values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    for (object, _, plural) in OBJECTS {
        let path = repository(&format!("charts/kproxide/crds/{plural}.yaml"));
        let definition: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let required = schema["properties"]["spec"]["required"].as_array().unwrap();
        for field in values[object]["spec"].as_object().unwrap().keys() {
            assert!(
                required.contains(&json!(field)),
                "{object}.spec.{field} has a default"
            );
        }
    }
}

#[tokio::test]
async fn the_required_values_are_enough() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let kinds: Vec<String> = render(&programs, &required_values())
        .await
        .unwrap()
        .iter()
        .map(|object| object["kind"].as_str().unwrap().to_owned())
        .collect();
    let mut sorted = kinds.clone();
    sorted.sort();
    let expected = [
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
        "NodeClass",
        "NodePool",
        "ProxmoxCluster",
        "Role",
        "RoleBinding",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicyBinding",
    ];
    assert_eq!(sorted, expected);
}
