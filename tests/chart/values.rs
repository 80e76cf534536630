use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{chart, refusal, render, repository, required_values, values};

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
        "clusters: at least one",
        "nodeClasses: at least one",
        "nodePools: at least one",
    ] {
        assert!(reason.contains(missing), "{missing} is not in: {reason}");
    }
    // Each of several entries, and no word of those that are complete.
    let mut given = required_values();
    given["clusters"]["lab"] = json!({});
    given["nodeClasses"]["arm"] = json!({ "spec": {} });
    given["nodePools"]["arm"] = json!({ "spec": { "nodeClass": "arm" } });
    let reason = refusal(&programs, &given).await;
    for missing in [
        "clusters.lab.spec.endpoints:",
        "clusters.lab.credentials:",
        "nodeClasses.arm.spec.template.name:",
        "nodePools.default.spec.nodeClass: the name of a NodeClass: one of arm, default",
    ] {
        assert!(reason.contains(missing), "{missing} is not in: {reason}");
    }
    for complete in ["clusters.proxmox", "nodeClasses.default", "nodePools.arm"] {
        assert!(!reason.contains(complete), "{complete} is in: {reason}");
    }
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
            json!({ "clusters": { "proxmox": { "spec": { "endpoint": "https://pve1.example:8006" } } } }),
        ),
        (
            "insecure",
            json!({ "clusters": { "proxmox": { "spec": { "tls": { "insecure": true } } } } }),
        ),
        (
            "memory",
            json!({ "nodeClasses": { "default": { "spec": { "instanceTypes": [{ "name": "a", "cores": 1, "memoryMiB": 1024, "memory": 1 }] } } } }),
        ),
        (
            "maxKpNodes",
            json!({ "nodePools": { "default": { "spec": { "limits": { "maxKpNodes": 3 } } } } }),
        ),
        (
            "onError",
            json!({ "nodePools": { "default": { "spec": { "policies": { "hostSelection": { "use": "spread", "onError": "fail" } } } } } }),
        ),
        (
            "barePod",
            json!({ "nodePools": { "default": { "spec": { "scaleDown": { "blockedBy": { "barePod": false } } } } } }),
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

#[tokio::test]
async fn a_value_of_the_wrong_shape_is_refused_with_its_path() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let wrong = [
        (
            "/clusters/proxmox/spec/endpoints/0",
            json!({ "clusters": { "proxmox": { "spec": { "endpoints": ["https://pve1.example:8006/pve"] } } } }),
        ),
        (
            "/clusters/proxmox/spec/endpoints/0",
            json!({ "clusters": { "proxmox": { "spec": { "endpoints": ["http://pve1.example:8006"] } } } }),
        ),
        (
            "/clusters/proxmox/credentials/tokenId",
            json!({ "clusters": { "proxmox": { "credentials": { "tokenId": "kproxide@pve" } } } }),
        ),
        (
            "/clusters/proxmox/spec/tls/fingerprints/0",
            json!({ "clusters": { "proxmox": { "spec": { "tls": { "fingerprints": ["AA:BB"] } } } } }),
        ),
        (
            "/nodeClasses/default/spec/template/clone",
            json!({ "nodeClasses": { "default": { "spec": { "template": { "clone": "copy" } } } } }),
        ),
        (
            "/nodePools/default/spec/limits/maxNodes",
            json!({ "nodePools": { "default": { "spec": { "limits": { "maxNodes": "many" } } } } }),
        ),
        (
            "/nodePools/default/spec/drainTimeout",
            json!({ "nodePools": { "default": { "spec": { "drainTimeout": 15 } } } }),
        ),
        (
            "/nodePools/default/spec/repairAfter",
            json!({ "nodePools": { "default": { "spec": { "repairAfter": "soon" } } } }),
        ),
        // The API server takes a fraction as text only.
        (
            "/nodePools/default/spec/headroom/cpu",
            json!({ "nodePools": { "default": { "spec": { "headroom": { "cpu": 0.5 } } } } }),
        ),
        ("/log", json!({ "log": "inof" })),
        ("Lab", json!({ "clusters": { "Lab": {} } })),
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
        json!({ "clusters": { "proxmox": { "credentials": credentials } } })
    };
    let fingerprint = "00".repeat(32);
    let contradictions = [
        (
            "clusters.proxmox.credentials: either existingSecret",
            json!({ "clusters": { "proxmox": { "credentials": token } } }),
        ),
        (
            "clusters.proxmox.credentials: either existingSecret",
            json!({ "clusters": { "proxmox": { "credentials": { "password": "s" } } } }),
        ),
        (
            "clusters.proxmox.credentials: either tokenId",
            given(
                json!({ "tokenId": "kproxide@pve!autoscaler", "tokenSecret": "s", "password": "s" }),
            ),
        ),
        (
            "clusters.proxmox.credentials: tokenId and tokenSecret, both",
            given(json!({ "tokenId": "kproxide@pve!autoscaler" })),
        ),
        (
            "clusters.proxmox.credentials: username and password, both",
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
            "clusters.proxmox: either caConfigMap or spec.tls",
            json!({ "clusters": { "proxmox": { "caConfigMap": { "name": "ca" }, "spec": { "tls": { "fingerprints": [fingerprint] } } } } }),
        ),
        (
            "nodeClasses.default.joinScript: either",
            json!({ "nodeClasses": { "default": { "joinScript": { "existingSecret": "join", "command": "true" } } } }),
        ),
        (
            "nodeClasses.default: either joinScript or spec.join",
            json!({ "nodeClasses": { "default": { "joinScript": { "command": "true" }, "spec": { "join": { "template": {} } } } } }),
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
    let whole = [
        "policies",
        "resources",
        "podSecurityContext",
        "securityContext",
    ];
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
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
        "NodeClass",
        "NodePool",
        "ProxmoxCluster",
        "Role",
        "RoleBinding",
        "Service",
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
