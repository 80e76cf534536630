use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{
    OBJECTS, commented_examples, named, names, refusal, render, repository, required_values, the,
    values,
};

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

#[tokio::test]
async fn o17_the_path_of_the_api_is_left_out_of_an_address() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let written = json!([
        "https://pve1.example:8006/api2/json",
        "https://pve2.example:8006/api2/json/",
        "https://pve3.example:8006",
    ]);
    let given = values(json!({ "clusters": { "proxmox": { "spec": { "endpoints": written } } } }));
    let objects = render(&programs, &given).await.unwrap();
    let expected = [1, 2, 3].map(|it| format!("https://pve{it}.example:8006"));
    let cluster = &the(&objects, "ProxmoxCluster")["spec"];
    assert_eq!(cluster["endpoints"], json!(expected));
}

fn fields(spec: &Value) -> Vec<&String> {
    spec.as_object().unwrap().keys().collect()
}

/// A default stands in the API and nowhere else: the chart proposes a value only where the API has none.
#[tokio::test]
async fn no_default_of_the_api_is_repeated() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let objects = render(&programs, &required_values()).await.unwrap();
    for (kind, plural) in [
        ("ProxmoxCluster", "proxmoxclusters"),
        ("NodeClass", "nodeclasses"),
    ] {
        let path = repository(&format!("charts/kproxide/crds/{plural}.yaml"));
        let definition: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let known = &schema["properties"]["spec"]["properties"];
        for field in fields(&the(&objects, kind)["spec"]) {
            let schema = &known[field];
            assert!(
                schema.is_object() && schema["default"].is_null(),
                "{kind}: spec.{field} has a default"
            );
        }
    }
}

#[tokio::test]
async fn a_class_with_generated_sizes_gets_no_other() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let generated = json!([{ "family": "a", "cores": [2], "memoryPerCoreMiB": [2048] }]);
    for (generated, expected) in [
        (generated.clone(), Value::Null),
        (
            json!([]),
            json!([{ "name": "medium", "cores": 2, "memoryMiB": 4096 }]),
        ),
    ] {
        let spec = json!({ "generatedTypes": generated });
        let given = values(json!({ "nodeClasses": { "default": { "spec": spec } } }));
        let objects = render(&programs, &given).await.unwrap();
        assert_eq!(
            the(&objects, "NodeClass")["spec"]["instanceTypes"],
            expected
        );
    }
}

#[tokio::test]
async fn each_entry_is_an_object_with_its_own_files() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let given = json!({
        "clusters": {
            "home": {
                "credentials": { "tokenId": "a@pve!t", "tokenSecret": "s" },
                "caConfigMap": { "name": "home-ca" },
                "spec": { "endpoints": ["https://home.example:8006"] },
            },
            "lab": {
                "credentials": { "existingSecret": "lab-login", "kind": "password" },
                "caConfigMap": { "name": "lab-ca", "key": "root.pem" },
                "spec": { "endpoints": ["https://lab.example:8006"], "vmidRange": { "first": 100, "last": 199 } },
            },
        },
        "nodeClasses": {
            "amd": { "joinScript": { "command": "join amd" }, "spec": { "template": { "name": "a" } } },
            "arm": {
                "joinScript": { "existingSecret": "arm-join", "key": "script" },
                "spec": { "template": { "name": "b" }, "arch": "arm64" },
            },
            "alone": { "spec": { "template": { "name": "c" } } },
        },
        "nodePools": {
            "burst": { "spec": { "nodeClass": "amd", "weight": 3 } },
            "edge": { "spec": { "nodeClass": "arm", "clusters": ["lab"] } },
        },
    });
    let objects = render(&programs, &given).await.unwrap();
    let spec = |kind: &str, name: &str| named(&objects, kind, name)["spec"].clone();
    assert_eq!(names(&objects, "ProxmoxCluster"), ["home", "lab"]);
    assert_eq!(names(&objects, "NodeClass"), ["alone", "amd", "arm"]);
    assert_eq!(names(&objects, "NodePool"), ["burst", "edge"]);
    for name in ["home", "lab"] {
        let cluster = spec("ProxmoxCluster", name);
        assert_eq!(cluster["credentials"], name);
        assert_eq!(
            cluster["tls"]["caFile"],
            format!("/etc/kproxide/ca/{name}.pem")
        );
    }
    assert_eq!(
        spec("ProxmoxCluster", "lab")["vmidRange"],
        json!({ "first": 100, "last": 199 })
    );
    for (name, file) in [
        ("amd", json!("amd")),
        ("arm", json!("arm")),
        ("alone", Value::Null),
    ] {
        let join = &spec("NodeClass", name)["join"]["guestExec"]["commandSecretFile"];
        assert_eq!(*join, file, "{name}");
    }
    assert_eq!(
        spec("NodePool", "burst"),
        json!({ "nodeClass": "amd", "clusters": ["home", "lab"], "weight": 3 })
    );
    assert_eq!(
        spec("NodePool", "edge"),
        json!({ "nodeClass": "arm", "clusters": ["lab"] })
    );

    let volumes = &the(&objects, "Deployment")["spec"]["template"]["spec"]["volumes"];
    let file = |source: &str, name: &str, key: &str, path: &str| json!({ source: { "name": name, "items": [{ "key": key, "path": path }] } });
    let optional = |name: &str, key: &str, path: &str| {
        let mut source = file("secret", name, key, path);
        source["secret"]["optional"] = json!(true);
        source
    };
    assert_eq!(
        volumes[0]["projected"]["sources"],
        json!([
            { "secret": { "name": "kproxide-credentials", "items": [
                { "key": "home.token-id", "path": "home/token-id" },
                { "key": "home.token-secret", "path": "home/token-secret" },
            ] } },
            optional("kproxide-credentials", "home.endpoints", "home/endpoints"),
            { "secret": { "name": "lab-login", "items": [
                { "key": "password", "path": "lab/password" },
                { "key": "username", "path": "lab/username" },
            ] } },
            optional("lab-login", "endpoints", "lab/endpoints"),
        ])
    );
    assert_eq!(
        volumes[1]["projected"]["sources"],
        json!([
            file("configMap", "home-ca", "ca.crt", "home.pem"),
            file("configMap", "lab-ca", "root.pem", "lab.pem"),
        ])
    );
    assert_eq!(
        volumes[2]["projected"]["sources"],
        json!([
            file("secret", "kproxide-join", "amd", "amd"),
            file("secret", "arm-join", "script", "arm"),
        ])
    );
    assert_eq!(
        named(&objects, "Secret", "kproxide-credentials")["stringData"],
        json!({ "home.token-id": "a@pve!t", "home.token-secret": "s" })
    );
    assert_eq!(
        named(&objects, "Secret", "kproxide-join")["stringData"],
        json!({ "amd": "join amd" })
    );
}

/// Somebody else makes them: what the chart brings is the program and its rights.
#[tokio::test]
async fn without_objects_there_must_be_mounted_credentials() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let mount = |path: &str| {
        let mount = json!({ "name": "lab", "mountPath": path, "readOnly": true });
        let volume = json!({ "name": "lab", "secret": { "secretName": "lab" } });
        json!({ "extraVolumes": [volume], "extraVolumeMounts": [mount] })
    };
    let objects = render(&programs, &mount("/etc/kproxide/credentials/lab"))
        .await
        .unwrap();
    for (_, kind) in OBJECTS {
        assert!(names(&objects, kind).is_empty(), "{kind}");
    }
    let pod = &the(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"].as_array().unwrap().len(), 1, "{pod}");
    let reason = refusal(&programs, &mount("/etc/policies")).await;
    assert!(reason.contains("clusters: at least one"), "{reason}");
}

/// Nothing is read into them, and nothing is lost.
#[tokio::test]
async fn specs_are_handed_through_as_they_are() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let mut given = commented_examples();
    let pool = &mut given["nodePools"]["default"]["spec"];
    pool["limits"]["minNodes"] = json!(0);
    pool["paused"] = json!(false);
    let objects = render(&programs, &given).await.unwrap();
    for (map, kind) in OBJECTS {
        let entries = given[map].as_object().unwrap();
        for (name, entry) in entries {
            let mut expected = entry["spec"].clone();
            match kind {
                "ProxmoxCluster" => expected["credentials"] = json!(name),
                "NodeClass" => {
                    expected["join"] = json!({ "guestExec": { "commandSecretFile": name } });
                }
                _ => {}
            }
            assert_eq!(named(&objects, kind, name)["spec"], expected, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_reference_that_is_given_wins_over_the_charts() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    for clusters in [json!([]), json!(["proxmox", "another"])] {
        let more = json!({ "nodePools": { "default": { "spec": { "clusters": clusters } } } });
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
    let more = json!({ "nodePools": { "default": { "spec": { "limits": limits, "repairAfter": "1h" } } } });
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
        &values(json!({ "nodePools": { "default": { "spec": { "labelTemplates": templates } } } })),
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
        let mut values = required_values();
        values["clusters"] = json!({ "lab": {
            "credentials": credentials,
            "spec": { "endpoints": ["https://pve1.example:8006"] },
        } });
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
            ["password", "username"],
        ),
        (
            json!({ "tokenId": "a@pve!t", "tokenSecret": "s" }),
            "kproxide-credentials",
            ["token-id", "token-secret"],
        ),
        (
            json!({ "username": "a@pve", "password": "s" }),
            "kproxide-credentials",
            ["password", "username"],
        ),
        (
            json!({ "tokenId": "a@pve!t", "tokenSecret": "s", "endpoints": ["pve1", "pve2:8006"] }),
            "kproxide-credentials",
            ["token-id", "token-secret"],
        ),
    ];
    for (credentials, secret, keys) in cases {
        let objects = render(&programs, &given(credentials.clone()))
            .await
            .unwrap();
        let volume =
            &the(&objects, "Deployment")["spec"]["template"]["spec"]["volumes"][0]["projected"];
        let inside = |key: &str| match secret {
            "mine" => key.to_owned(),
            _ => format!("lab.{key}"),
        };
        let items: Vec<Value> = keys
            .iter()
            .map(|key| json!({ "key": inside(key), "path": format!("lab/{key}") }))
            .collect();
        assert_eq!(
            volume["sources"],
            json!([
                { "secret": { "name": secret, "items": items } },
                { "secret": { "name": secret, "optional": true, "items": [
                    { "key": inside("endpoints"), "path": "lab/endpoints" },
                ] } },
            ])
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
                keys.iter().all(|key| data.contains_key(&inside(key))),
                "{data:?}"
            );
            let allowed = credentials["endpoints"].is_array();
            let lines = allowed.then(|| json!("pve1\npve2:8006"));
            assert_eq!(data.get("lab.endpoints"), lines.as_ref());
            assert_eq!(data.len(), 2 + usize::from(allowed));
        }
    }
}

#[tokio::test]
async fn a_join_script_keeps_its_lines() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let script = "#!/bin/sh\nset -e\necho \"$(hostname)\"\n";
    let more = json!({ "nodeClasses": { "default": { "joinScript": { "command": script } } } });
    let objects = render(&programs, &values(more)).await.unwrap();
    let secret = the(&objects, "Secret");
    assert_eq!(secret["metadata"]["name"], "kproxide-join");
    assert_eq!(secret["stringData"]["default"], script);
}
