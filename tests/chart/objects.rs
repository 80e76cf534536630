use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{OBJECTS, commented_examples, render, required_values, the, values};

#[tokio::test]
async fn defaults_leave_the_decision_to_the_api() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let objects = render(&programs, &required_values()).await.unwrap();
    let pool = &the(&objects, "NodePool")["spec"];
    assert_eq!(pool["nodeClass"], "default");
    assert_eq!(pool["clusters"], json!(["proxmox"]));
    // Without limits.minNodes, so that `kubectl scale` can own the field.
    assert_eq!(fields(pool), ["clusters", "nodeClass"]);
    let class = &the(&objects, "NodeClass")["spec"];
    assert_eq!(fields(class), ["instanceTypes", "template"]);
    assert_eq!(class["template"], json!({ "name": "k8s-node" }));
    let cluster = &the(&objects, "ProxmoxCluster")["spec"];
    assert_eq!(fields(cluster), ["credentials", "endpoints", "vmidRange"]);
    assert_eq!(cluster["credentials"], "proxmox");
}

fn fields(spec: &Value) -> Vec<&String> {
    spec.as_object().unwrap().keys().collect()
}

/// Nothing is read into them, and nothing is lost.
#[tokio::test]
async fn specs_are_handed_through_as_they_are() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let mut given = values(commented_examples());
    given["nodePool"]["spec"]["limits"]["minNodes"] = json!(0);
    given["nodePool"]["spec"]["paused"] = json!(false);
    let objects = render(&programs, &given).await.unwrap();
    for (object, kind, _) in OBJECTS {
        let mut spec = the(&objects, kind)["spec"].clone();
        for reference in ["credentials", "nodeClass", "clusters"] {
            spec.as_object_mut().unwrap().remove(reference);
        }
        let mut expected = given[object]["spec"].clone();
        if kind == "ProxmoxCluster" {
            expected["vmidRange"] = json!({ "first": 20000, "last": 20999 });
        }
        assert_eq!(spec, expected, "{kind}");
    }
}

#[tokio::test]
async fn a_reference_that_is_given_wins_over_the_charts() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    for clusters in [json!([]), json!(["proxmox", "another"])] {
        let more = json!({ "nodePool": { "spec": { "clusters": clusters } } });
        let objects = render(&programs, &values(more)).await.unwrap();
        let pool = &the(&objects, "NodePool")["spec"];
        assert_eq!(pool["clusters"], clusters);
        assert_eq!(pool["nodeClass"], "default");
    }
}

#[tokio::test]
async fn a_limit_of_zero_is_a_limit() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let limits = json!({ "maxNodes": 5, "cpuCores": 0, "memoryMiB": 0 });
    let more = json!({ "nodePool": { "spec": { "limits": limits, "repairAfter": "1h" } } });
    let objects = render(&programs, &values(more)).await.unwrap();
    let pool = &the(&objects, "NodePool")["spec"];
    assert_eq!(pool["limits"], limits);
    assert_eq!(pool["repairAfter"], "1h");
}

#[tokio::test]
async fn the_admin_port_is_for_those_who_are_named() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let monitoring = json!({ "namespaceSelector": { "matchLabels": { "name": "monitoring" } } });
    for (from, ingress) in [
        // A rule without `from` would be for everybody.
        (json!([]), json!([])),
        (
            json!([monitoring]),
            json!([{ "from": [monitoring], "ports": [{ "port": "admin", "protocol": "TCP" }] }]),
        ),
    ] {
        let more = json!({ "networkPolicy": { "enabled": true, "from": from } });
        let objects = render(&programs, &values(more)).await.unwrap();
        let policy = &the(&objects, "NetworkPolicy")["spec"];
        assert_eq!(policy["ingress"], ingress);
        assert_eq!(policy["policyTypes"], json!(["Ingress"]));
        assert_eq!(
            policy["podSelector"],
            the(&objects, "Deployment")["spec"]["selector"]
        );
    }
}

#[tokio::test]
async fn templates_for_labels_are_not_rendered_by_helm() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let templates =
        json!({ "zone": "{{ .TargetHost }}", "both": "{{ .Cluster }}-{{ .TargetHost }}" });
    let objects = render(
        &programs,
        &values(json!({ "nodePool": { "spec": { "labelTemplates": templates } } })),
    )
    .await
    .unwrap();
    assert_eq!(
        the(&objects, "NodePool")["spec"]["labelTemplates"],
        templates
    );
}

#[tokio::test]
async fn credentials_are_made_only_when_given_and_mounted_as_one_folder_per_cluster() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let given = |credentials: Value| {
        let mut values = values(json!({ "proxmox": { "name": "lab" } }));
        values["proxmox"]["credentials"] = credentials;
        values
    };
    let cases = [
        (
            json!({ "existingSecret": "mine" }),
            "mine",
            ["token-id", "token-secret"],
        ),
        (
            json!({ "existingSecret": "mine", "kind": "password" }),
            "mine",
            ["username", "password"],
        ),
        (
            json!({ "tokenId": "a@pve!t", "tokenSecret": "s" }),
            "kproxide-credentials",
            ["token-id", "token-secret"],
        ),
        (
            json!({ "username": "a@pve", "password": "s" }),
            "kproxide-credentials",
            ["username", "password"],
        ),
    ];
    for (credentials, secret, keys) in cases {
        let objects = render(&programs, &given(credentials.clone()))
            .await
            .unwrap();
        let volume =
            &the(&objects, "Deployment")["spec"]["template"]["spec"]["volumes"][0]["projected"];
        let items: Vec<Value> = keys
            .iter()
            .map(|key| json!({ "key": key, "path": format!("lab/{key}") }))
            .collect();
        assert_eq!(
            volume["sources"],
            json!([{ "secret": { "name": secret, "items": items } }])
        );
        let made: Vec<&Value> = objects
            .iter()
            .filter(|object| object["kind"] == "Secret")
            .collect();
        if credentials["existingSecret"].is_string() {
            assert!(made.is_empty(), "{made:?}");
        } else {
            let data = made[0]["stringData"].as_object().unwrap();
            assert!(
                keys.iter().all(|&key| data.contains_key(key)) && data.len() == 2,
                "{data:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_join_script_keeps_its_lines() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let script = "#!/bin/sh\nset -e\necho \"$(hostname)\"\n";
    let more = json!({ "nodeClass": { "joinScript": { "command": script } } });
    let objects = render(&programs, &values(more)).await.unwrap();
    let secret = the(&objects, "Secret");
    assert_eq!(secret["metadata"]["name"], "kproxide-join");
    assert_eq!(secret["stringData"]["command"], script);
}
