use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{render, required_values, the, values};

#[tokio::test]
async fn defaults_leave_the_decision_to_the_api() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let objects = render(&programs, &required_values()).await.unwrap();
    let pool = &the(&objects, "NodePool")["spec"];
    assert_eq!(pool["nodeClass"], "default");
    assert_eq!(pool["clusters"], json!(["proxmox"]));
    // Without minNodes, so that `kubectl scale` can own the field.
    assert_eq!(pool["limits"], json!({ "maxNodes": 3 }));
    assert_eq!(pool["scaleDown"], Value::Null);
    let class = &the(&objects, "NodeClass")["spec"];
    assert_eq!(
        class["template"],
        json!({ "name": "k8s-node", "placement": "shared", "clone": "auto" })
    );
    assert_eq!(class["join"], json!({ "template": {} }));
    let cluster = &the(&objects, "ProxmoxCluster")["spec"];
    assert_eq!(cluster["credentials"], "proxmox");
    assert_eq!(cluster["tls"], Value::Null);
}

#[tokio::test]
async fn a_limit_of_zero_is_a_limit() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let limits = json!({ "maxNodes": 5, "cpuCores": 0, "memoryMiB": 0 });
    let more = json!({ "nodePool": { "limits": limits, "repairAfter": "1h" } });
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
        &values(json!({ "nodePool": { "labelTemplates": templates } })),
    )
    .await
    .unwrap();
    assert_eq!(
        the(&objects, "NodePool")["spec"]["labelTemplates"],
        templates
    );
}

#[tokio::test]
async fn extra_fields_reach_the_objects_and_win() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let more = json!({
        "proxmox": { "pool": "a", "extraSpec": { "pool": "b", "future": [1] } },
        "nodeClass": { "extraSpec": { "template": { "storage": "ceph" } } },
        "nodePool": { "extraSpec": { "limits": { "maxNodes": 9 } } },
    });
    let objects = render(&programs, &values(more)).await.unwrap();
    let cluster = &the(&objects, "ProxmoxCluster")["spec"];
    assert_eq!(
        (&cluster["pool"], &cluster["future"]),
        (&json!("b"), &json!([1]))
    );
    assert_eq!(
        the(&objects, "NodeClass")["spec"]["template"]["storage"],
        "ceph"
    );
    assert_eq!(
        the(&objects, "NodeClass")["spec"]["template"]["name"],
        "k8s-node"
    );
    assert_eq!(the(&objects, "NodePool")["spec"]["limits"]["maxNodes"], 9);
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
    let more = json!({ "nodeClass": { "join": { "guestExec": { "command": script } } } });
    let objects = render(&programs, &values(more)).await.unwrap();
    let secret = the(&objects, "Secret");
    assert_eq!(secret["metadata"]["name"], "kproxide-join");
    assert_eq!(secret["stringData"]["command"], script);
}
