//! Values of another form than the chart takes, and names that the program does not have: refused with what to write.

use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{refusal, render, values};

/// As they stood beside `spec` in an earlier chart.
#[tokio::test]
async fn a_key_at_its_old_place_is_refused_with_the_new_one() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let old = json!({
        "clusters": { "lab": {
            "endpoints": ["https://pve1.example:8006"],
            "tls": { "caConfigMap": { "name": "pve-ca" } },
            "extraSpec": { "pool": "k8s" },
        } },
        "nodeClasses": { "default": {
            "template": { "name": "k8s-node" }, "join": { "guestExec": { "command": "true" } },
        } },
        "nodePools": {
            "default": { "limits": { "maxNodes": 5 } },
            "burst": { "scaleDown": {}, "spec": { "nodeClass": "default" } },
        },
    });
    let reason = refusal(&programs, &values(old)).await;
    for expected in [
        "clusters.lab.endpoints: not a key of this chart. Write clusters.lab.spec.endpoints",
        "clusters.lab.tls: not a key of this chart. Write clusters.lab.spec.tls, and tls.caConfigMap is caConfigMap",
        "clusters.lab.extraSpec: not a key of this chart. Write clusters.lab.spec",
        "nodeClasses.default.template: not a key of this chart. Write nodeClasses.default.spec.template",
        "nodeClasses.default.join: not a key of this chart. Write nodeClasses.default.joinScript",
        "nodePools.default.limits: not a key of this chart. Write nodePools.default.spec.limits",
        "nodePools.burst.scaleDown: not a key of this chart. Write nodePools.burst.spec.scaleDown",
    ] {
        assert!(reason.contains(expected), "{expected} is not in: {reason}");
    }
    assert!(!reason.contains("clusters.proxmox"), "{reason}");
}

/// The values of the chart before this one, and of the one before that: printed as they are to be written now.
#[tokio::test]
async fn values_of_earlier_charts_are_refused_with_the_new_form() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let template = json!({ "name": "k8s-node" });
    let endpoints = json!(["https://pve1.example:8006"]);
    let by_kind = json!({
        "proxmox": {
            "name": "lab",
            "credentials": { "tokenId": "kproxide@pve!autoscaler", "tokenSecret": "s3cret" },
            "spec": { "endpoints": endpoints },
        },
        "nodeClass": { "joinScript": { "command": "join s3cret" }, "spec": { "template": template } },
    });
    let flat = json!({
        "proxmox": {
            "credentials": { "existingSecret": "proxmox" },
            "endpoints": endpoints, "extraSpec": { "pool": "k8s" },
        },
        "nodeClass": { "name": "debian", "template": template },
        "nodePool": { "name": "burst", "limits": { "maxNodes": 5 } },
    });
    for (old, new) in [
        (
            by_kind,
            json!({
                "clusters": { "lab": {
                    "credentials": { "tokenId": "kproxide@pve!autoscaler", "tokenSecret": "(as it was)" },
                    "spec": { "endpoints": endpoints },
                } },
                "nodeClasses": { "default": {
                    "joinScript": { "command": "(as it was)" }, "spec": { "template": template },
                } },
                "nodePools": { "default": {} },
            }),
        ),
        (
            flat,
            json!({
                "clusters": { "proxmox": {
                    "credentials": { "existingSecret": "proxmox" },
                    "spec": { "endpoints": endpoints, "pool": "k8s" },
                } },
                "nodeClasses": { "debian": { "spec": { "template": template } } },
                "nodePools": { "burst": { "spec": { "limits": { "maxNodes": 5 } } } },
            }),
        ),
        // As a chart might take them that has a word for each.
        (
            json!({ "proxmox": "lab", "nodeClass": "debian", "nodePool": "burst" }),
            json!({ "clusters": { "lab": {} }, "nodeClasses": { "debian": {} }, "nodePools": { "burst": {} } }),
        ),
    ] {
        let reason = refusal(&programs, &old).await;
        assert!(!reason.contains("s3cret"), "{reason}");
        let (_, printed) = reason.split_once("Write\n\n").expect(&reason);
        let printed: String = printed
            .lines()
            .take_while(|line| line.starts_with(' ') || line.ends_with(':'))
            .fold(String::new(), |text, line| text + line + "\n");
        let printed: Value = serde_saphyr::from_str(&printed).unwrap();
        assert_eq!(printed, new);
        // What is printed is what the chart takes.
        if new["clusters"]["lab"] != json!({}) {
            render(&programs, &printed).await.unwrap();
        }
    }
}

#[tokio::test]
async fn plain_words_in_place_of_objects_are_refused_with_what_to_write() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let cases = [
        (
            json!({ "clusters": "lab" }),
            vec![
                "clusters: a map by the objects' names. Write",
                "      clusters:\n        lab:",
            ],
        ),
        (
            json!({ "nodePools": ["a", "b"] }),
            vec![
                "nodePools: a map by the objects' names. Write",
                "        a:",
                "        b:",
            ],
        ),
        (
            json!({ "nodePools": [{ "name": "a", "spec": { "weight": 7 } }] }),
            vec!["        a:\n          spec:\n            weight: 7"],
        ),
        (
            json!({ "nodeClasses": { "default": "k8s-node", "arm": 3 } }),
            vec![
                "nodeClasses.default: k8s-node is no object. Write nodeClasses: {default: {spec: {}}}",
                "nodeClasses.arm: 3 is no object",
            ],
        ),
        (
            json!({ "nodePools": { "default": { "spec": { "policies": {
                "hostSelection": "balanced", "scaleDown": "least-loaded",
            } } } } }),
            vec![
                "nodePools.default.spec.policies.hostSelection: write hostSelection: {use: balanced}",
                "nodePools.default.spec.policies.scaleDown: write scaleDown: {use: least-loaded}",
            ],
        ),
        (
            json!({ "policies": { "configMaps": ["mine"] } }),
            vec!["policies.configMaps: write [{name: mine}]"],
        ),
    ];
    for (more, expected) in cases {
        let reason = refusal(&programs, &values(more)).await;
        for text in expected {
            assert!(reason.contains(text), "{text} is not in: {reason}");
        }
    }
}

/// What only the program knows: its flags and its policies.
#[tokio::test]
async fn flags_and_policies_that_the_program_does_not_have_are_refused_by_name() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let using = |question: &str, policy: &str| {
        let policies = json!({ question: { "use": policy } });
        json!({ "nodePools": { "default": { "spec": { "policies": policies } } } })
    };
    for (more, expected) in [
        (
            json!({ "extraArgs": ["--anchor=false", "--pol-interval=30s"] }),
            "extraArgs: --pol-interval is no flag of kproxide run. It has: --admin-address",
        ),
        (
            json!({ "extraArgs": ["--min-nodes", "--lease-retry=1s"] }),
            "extraArgs: --min-nodes is no flag of kproxide run",
        ),
        (
            using("hostSelection", "ballanced"),
            "hostSelection.use: \"ballanced\" is not built in (these are: balanced, max-cpu, max-memory, pack, round-robin, spread)",
        ),
        (
            json!({ "nodePools": { "default": { "spec": { "policies": { "hostSelection": {
                "filters": [{ "use": "spread" }], "scores": [{ "use": "pack" }, { "use": "racks" }],
            } } } } } }),
            "hostSelection.scores.use: \"racks\" is not built in",
        ),
        // Built in, for another question.
        (
            using("scaleDown", "spread"),
            "scaleDown.use: \"spread\" is not built in (these are: least-loaded)",
        ),
        (
            using("labels", "templates"),
            "labels.use: \"templates\" is not built in (these are: go-template)",
        ),
    ] {
        let reason = refusal(&programs, &values(more)).await;
        assert!(reason.contains(expected), "{expected} is not in: {reason}");
        assert!(!reason.contains("--anchor is no flag"), "{reason}");
    }
    let mount = json!({ "name": "mine", "mountPath": "/etc/mine" });
    for source in [
        json!({ "policies": { "configMaps": [{ "name": "mine" }] } }),
        json!({ "extraVolumeMounts": [mount] }),
    ] {
        let mut given = values(using("hostSelection", "mine"));
        given
            .as_object_mut()
            .unwrap()
            .extend(source.as_object().unwrap().clone());
        render(&programs, &given).await.unwrap();
    }
}
