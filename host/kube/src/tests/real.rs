//! The adapter against a real API server: the cases of the simulated one, and what only the real one can say, such as CEL.
//!
//! One control plane for everything in here, since starting one takes seconds.

use std::time::Duration;

use kproxide_testkit::{ControlPlane, Options, require_controlplane};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::cases::{self, OURS, send};
use crate::client::Client;
use crate::watch::{self, Kind, Report};

#[tokio::test]
async fn the_adapter_on_a_real_api_server() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Options {
        kwok: false,
        ..Options::default()
    };
    let cluster = ControlPlane::start(&programs, options).await.unwrap();
    let client = Client::connect(Some(cluster.admin_kubeconfig_path()))
        .await
        .unwrap();

    cases::install(&client).await;
    no_warnings_about_the_definitions(&client).await;
    good_objects_are_taken_and_bad_ones_refused(&client).await;
    cases::what_the_schema_refuses_is_invalid(&client).await;
    cases::f56_f57_a_claim_lives_and_goes_by_compare_and_set(&client).await;
    a_claims_specification_is_immutable(&client).await;
    cases::f56_of_two_writers_of_the_ledger_one_loses(&client).await;
    cases::f57_a_node_is_marked_cordoned_and_deleted_by_uid(&client).await;
    cases::f57_f69_evictions_obey_budgets_and_uids(&client).await;
    cases::the_key_is_made_once_and_told_from_others(&client).await;
    cases::status_is_written_when_something_changes(&client).await;
    cases::an_event_is_written(&client).await;
    watches_sync(&client).await;
    cluster.stop().await;
}

/// The API server says in a condition what it does not like about a schema.
async fn no_warnings_about_the_definitions(client: &Client) {
    for crd in crate::crd::crds() {
        let name = format!("{}.kproxide.dev", crd.spec.names.plural);
        let served = send(
            client,
            "GET",
            &format!("{}/{name}", cases::CRDS),
            &Value::Null,
        )
        .await
        .unwrap();
        let conditions = served["status"]["conditions"].as_array().unwrap();
        assert!(
            !conditions
                .iter()
                .any(|condition| condition["type"] == "NonStructuralSchema"),
            "{name}: {conditions:?}"
        );
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn with(mut base: Value, change: impl FnOnce(&mut Value)) -> Value {
    change(&mut base);
    base
}

async fn good_objects_are_taken_and_bad_ones_refused(client: &Client) {
    let cluster = || {
        json!({"endpoints": ["https://pve1.example:8006"], "credentials": "lab", "vmidRange": {"first": 600, "last": 699},
               "tls": {"caFile": "/ca.pem"}, "systemReserved": {"cpu": 1, "memory": "2Gi"}})
    };
    let class = || {
        json!({"template": {"name": "t"}, "instanceTypes": [{"name": "m", "cores": 4, "memoryMiB": 8192}],
               "cloudInit": {"ipPool": {"cidr": "10.0.0.0/24", "ranges": [{"first": "10.0.0.10", "last": "10.0.0.20"}]}},
               "join": {"guestExec": {"commandSecretFile": "/join/script"}}})
    };
    let pool = || {
        json!({"nodeClass": "c", "limits": {"maxNodes": 10}, "labelTemplates": {"a": "{{ .TargetHost }}"},
               "policies": {"hostSelection": {"use": "spread", "settings": {"deep": {"anything": [1, "a"]}}}}})
    };
    let claim = || {
        json!({"pool": "p", "class": "c", "cluster": "lab", "vmid": 600, "vmName": "p-1", "hypervisor": "pve1", "instanceType": "m",
               "resources": {"milliCores": 4000, "memoryBytes": 1024}, "templateDigest": "t", "policyDigest": "p"})
    };
    let paths = [
        ("ProxmoxCluster", "proxmoxclusters"),
        ("NodeClass", "nodeclasses"),
        ("NodePool", "nodepools"),
        ("NodeClaim", "nodeclaims"),
        ("Ledger", "ledgers"),
    ];
    let path = |kind: &str| {
        let plural = paths.iter().find(|(of, _)| *of == kind).unwrap().1;
        format!("{OURS}/{plural}")
    };
    for (kind, spec) in [
        ("ProxmoxCluster", cluster()),
        ("NodeClass", class()),
        ("NodePool", pool()),
        ("NodeClaim", claim()),
    ] {
        cases::create(client, &path(kind), object(kind, "good", spec)).await;
    }
    let refused: &[(&str, Value, &str)] = &[
        (
            "ProxmoxCluster",
            with(cluster(), |spec| {
                spec["vmidRange"] = json!({"first": 9000, "last": 10000})
            }),
            "must not hold 9999",
        ),
        (
            "ProxmoxCluster",
            with(cluster(), |spec| {
                spec["vmidRange"] = json!({"first": 700, "last": 600})
            }),
            "first must not be larger",
        ),
        (
            "ProxmoxCluster",
            with(cluster(), |spec| {
                spec["vmidRange"] = json!({"first": 7, "last": 600})
            }),
            "greater than or equal to 100",
        ),
        (
            "ProxmoxCluster",
            with(cluster(), |spec| spec["endpoints"] = json!([])),
            "endpoints",
        ),
        (
            "ProxmoxCluster",
            with(cluster(), |spec| spec["endpoints"] = json!(["pve1:8006"])),
            "endpoints[0]",
        ),
        (
            "ProxmoxCluster",
            with(cluster(), |spec| {
                spec["tls"]["insecureSkipVerify"] = json!(true)
            }),
            "set exactly one of tls.caFile",
        ),
        (
            "ProxmoxCluster",
            with(cluster(), |spec| spec["tls"] = json!({})),
            "set exactly one of tls.caFile",
        ),
        (
            "ProxmoxCluster",
            with(cluster(), |spec| {
                spec["systemReserved"]["memory"] = json!("two")
            }),
            "systemReserved.memory",
        ),
        (
            "ProxmoxCluster",
            with(cluster(), |spec| spec["endpoint"] = json!("x")),
            "unknown field \"spec.endpoint\"",
        ),
        (
            "NodePool",
            with(pool(), |spec| {
                spec["policies"]["hostSelection"]["filters"] = json!([{"use": "racks"}])
            }),
            "use and settings cannot stand beside filters and scores",
        ),
        (
            "NodePool",
            with(pool(), |spec| {
                spec["policies"]["hostSelection"] =
                    json!({"settings": {"a": 1}, "scores": [{"use": "pack"}]})
            }),
            "use and settings cannot stand beside filters and scores",
        ),
        (
            "NodePool",
            with(pool(), |spec| {
                spec["policies"]["hostSelection"] = json!({
                    "filters": [{"use": "racks"}, {"use": "pack"}],
                    "scores": [{"use": "spread"}, {"use": "pack"}],
                })
            }),
            "a policy stands in filters and in scores",
        ),
        (
            "NodePool",
            with(pool(), |spec| {
                spec["policies"]["scaleDown"] = json!({"scores": [{"use": "a"}, {"use": "a"}]})
            }),
            "Duplicate value",
        ),
        (
            "NodePool",
            with(pool(), |spec| {
                spec["policies"]["scaleDown"] = json!({"scores": [{"use": "a", "weight": 0}]})
            }),
            "greater than or equal to 1",
        ),
        (
            "NodeClass",
            with(class(), |spec| {
                spec["template"] = json!({"name": "t", "clone": "linked", "storage": "s"})
            }),
            "template.storage cannot be used with clone: linked",
        ),
        (
            "NodeClass",
            with(class(), |spec| spec["template"]["clone"] = json!("thin")),
            "Unsupported value: \"thin\"",
        ),
        (
            "NodeClass",
            with(class(), |spec| spec["cloudInit"]["dhcp"] = json!(true)),
            "exclude each other",
        ),
        (
            "NodeClass",
            with(class(), |spec| {
                spec["cloudInit"]["address"] = json!("10.0.0.5/24")
            }),
            "unknown field \"spec.cloudInit.address\"",
        ),
        (
            "NodeClass",
            with(class(), |spec| spec["join"]["template"] = json!({})),
            "set exactly one of join.template",
        ),
        (
            "NodeClass",
            with(class(), |spec| {
                spec["timeouts"] = json!({"join": "ten minutes"})
            }),
            "timeouts.join",
        ),
        (
            "NodeClass",
            with(class(), |spec| spec["instanceTypes"] = json!([])),
            "instanceTypes",
        ),
        (
            "NodePool",
            with(pool(), |spec| spec["limits"] = json!({"minNodes": 4})),
            "limits.minNodes must not be larger",
        ),
        (
            "NodePool",
            with(pool(), |spec| {
                spec["scaleDown"] = json!({"loadHeadroom": -0.1})
            }),
            "loadHeadroom",
        ),
        (
            "NodePool",
            with(pool(), |spec| spec["weight"] = json!(-1)),
            "weight",
        ),
        (
            "NodePool",
            with(pool(), |spec| spec["drainTimeout"] = json!("15")),
            "drainTimeout",
        ),
        (
            "NodePool",
            with(pool(), |spec| spec["maxNodes"] = json!(3)),
            "unknown field \"spec.maxNodes\"",
        ),
        (
            "NodeClaim",
            with(claim(), |spec| spec["resources"]["cores"] = json!(4)),
            "unknown field \"spec.resources.cores\"",
        ),
        (
            "Ledger",
            json!({"entries": [], "limits": {}}),
            "unknown field \"spec.limits\"",
        ),
        ("Ledger", json!({}), "there is one Ledger, named kproxide"),
    ];
    for (kind, spec, expected) in refused {
        let answer = send(
            client,
            "POST",
            &path(kind),
            &object(kind, "bad", spec.clone()),
        )
        .await;
        let text = answer.expect_err(expected);
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

async fn a_claims_specification_is_immutable(client: &Client) {
    let spec = crate::convert::tests_support::full_spec();
    let created = crate::claims::create(client, &"fixed".into(), &spec)
        .await
        .unwrap();
    assert!(matches!(created, crate::claims::Creation::Created(_)));
    let change = json!({"spec": {"vmid": 601}});
    let refused = send(
        client,
        "PATCH",
        &format!("{OURS}/nodeclaims/fixed"),
        &change,
    )
    .await
    .unwrap_err();
    assert!(refused.contains("spec is immutable"), "{refused}");
}

async fn watches_sync(client: &Client) {
    let (sender, mut reports) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    for (_, task) in watch::tasks(client, &sender) {
        tasks.spawn(task);
    }
    let mut synced = 0;
    let all = async {
        while synced < Kind::ALL.len() {
            match reports.recv().await.unwrap() {
                Report::Synced(_) => synced += 1,
                Report::Failed(kind, problem) => panic!("{kind}: {problem}"),
                Report::Changes(..) | Report::Recovered(_) => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all)
        .await
        .expect("every watch syncs");
}
