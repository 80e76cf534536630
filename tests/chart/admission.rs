//! What the API server refuses to kproxide beyond RBAC: rendered, and in force on a real one.

use std::time::Duration;

use kproxide_testkit::controlplane::{Api, ApiError};
use kproxide_testkit::{ControlPlane, eventually, require_controlplane};
use serde_json::{Value, json};

use crate::render::{NO_HOOK, chart, render, required_values, values, values_file};

const NAMESPACE: &str = "autoscaling";
const NODES: &str = "/api/v1/nodes";
const CLAIM: &str = "kproxide.dev/claim";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// The API server takes a new policy up within a second or two.
const SOON: Duration = Duration::from_secs(120);

fn policies(objects: &[Value]) -> Vec<&Value> {
    objects
        .iter()
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicy")
        .collect()
}

#[tokio::test]
async fn the_admission_policies_are_for_the_service_account_alone() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    for (account, user) in [
        (json!({}), "kproxide"),
        (json!({ "create": false, "name": "given" }), "given"),
    ] {
        let more = json!({ "serviceAccount": account });
        let objects = render(&programs, &values(more)).await.unwrap();
        let policies = policies(&objects);
        assert_eq!(policies.len(), 3);
        for policy in policies {
            assert_eq!(policy["spec"]["failurePolicy"], "Fail");
            let only =
                format!("request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{user}'");
            let conditions = &policy["spec"]["matchConditions"];
            assert_eq!(conditions[0]["expression"], only);
            let bound = objects.iter().find(|object| {
                object["kind"] == "ValidatingAdmissionPolicyBinding"
                    && object["spec"]["policyName"] == policy["metadata"]["name"]
            });
            let actions = &bound.unwrap()["spec"]["validationActions"];
            assert_eq!(*actions, json!(["Deny"]));
        }
    }
}

#[tokio::test]
async fn the_admission_policies_can_be_left_out() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let without = json!({ "admissionPolicy": { "enabled": false } });
    let objects = render(&programs, &values(without)).await.unwrap();
    assert!(
        objects
            .iter()
            .all(|object| object["apiVersion"] != "admissionregistration.k8s.io/v1")
    );
}

#[tokio::test]
async fn a_stolen_token_cannot_touch_control_planes_secrets_or_nodes_not_called_kproxides() {
    let Some(cluster) = ControlPlane::without_kwok().await else {
        return;
    };
    let file = values_file(&required_values());
    let path = file.path().display().to_string();
    let install = ["install", "kproxide", &chart(), NO_HOOK, "--values", &path];
    let there = ["--namespace", NAMESPACE, "--create-namespace"];
    cluster
        .helm(&[&install[..], &there].concat())
        .await
        .unwrap();
    for (name, labels) in [
        ("server", json!({ CONTROL_PLANE: "" })),
        ("foreign", json!({})),
        (
            "joined",
            json!({ "disk": "hdd", "kproxide.dev/pool": "workers" }),
        ),
    ] {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": labels, "annotations": { "example.com/owner": "somebody" } },
            "spec": { "taints": [
                { "key": "dedicated", "value": "db", "effect": "NoSchedule" },
                { "key": "kproxide.dev/unregistered", "effect": "NoExecute" },
            ] },
        });
        cluster.api().create(NODES, &node).await.unwrap();
    }
    let token = cluster.token_for(NAMESPACE, "kproxide", None).await;
    let thief = Thief(cluster.api_as(&token.unwrap()).unwrap());
    let taint = json!({ "spec": { "taints": [{ "key": "mine", "effect": "NoExecute" }] } });

    eventually(SOON, "the policy in force", async || {
        // A trial run is judged as the real thing.
        let trial = thief.patch("foreign?dryRun=All", &taint).await;
        match trial {
            Err(error) if error.to_string().contains("it has no label") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    // Nodes that somebody else made.
    let cordon = json!({ "spec": { "unschedulable": true } });
    let other_label = json!({ "metadata": { "labels": { "example.com/colour": "blue" } } });
    for patch in [&taint, &cordon, &other_label] {
        let why = "kproxide may not change Node foreign: it has no label kproxide.dev/claim";
        refused(thief.patch("foreign", patch).await, why);
    }
    let why = "kproxide may not delete Node foreign: it has no label kproxide.dev/claim";
    refused(thief.0.delete(&format!("{NODES}/foreign")).await, why);

    // Control planes, whatever label they are given.
    let gain = json!({ "metadata": { "labels": { CLAIM: "workers-a" } } });
    let why = "kproxide may not touch Node server";
    for patch in [&gain, &taint, &cordon] {
        refused(thief.patch("server", patch).await, why);
    }
    refused(thief.0.delete(&format!("{NODES}/server")).await, why);
    // Even when a person has called it kproxide's.
    let server = format!("{NODES}/server");
    cluster.api().merge(&server, &gain).await.unwrap();
    refused(thief.patch("server", &cordon).await, why);
    refused(thief.0.delete(&server).await, why);

    is_called_ours(&thief).await;
    takes_nothing_away(&thief).await;

    // A machine that joined may be emptied and deleted, but neither given away nor promoted.
    thief.patch("joined", &cordon).await.unwrap();
    let promotion = json!({ "metadata": { "labels": { CONTROL_PLANE: "" } } });
    let why = "would get, the role of a control plane";
    refused(thief.patch("joined", &promotion).await, why);
    let given_away = json!({ "metadata": { "labels": { CLAIM: null } } });
    let why = "it has no label kproxide.dev/claim and gets none";
    refused(thief.patch("joined", &given_away).await, why);
    thief.0.delete(&format!("{NODES}/joined")).await.unwrap();

    secrets(&thief).await;
    changes_one_finalizer(&thief).await;

    // Whoever is not kproxide is not asked.
    let foreign = format!("{NODES}/foreign");
    cluster.api().merge(&foreign, &taint).await.unwrap();
    cluster.api().delete(&foreign).await.unwrap();
    no_complaints_about_the_expressions(cluster.api()).await;
}

/// A machine that joined may be called ours, by a request that does nothing else.
async fn is_called_ours(thief: &Thief) {
    let why = "the label kproxide.dev/claim, and change nothing else of it before it has that";
    for more in [
        json!({ "metadata": { "labels": { "rack": "a" } } }),
        json!({ "metadata": { "labels": { "disk": "ssd" } } }),
        json!({ "metadata": { "annotations": { "example.com/made-by": "a pool" } } }),
        json!({ "metadata": { "annotations": { "example.com/owner": "a pool" } } }),
        json!({ "metadata": { "labels": { "kproxide.dev/pool": null } } }),
        json!({ "metadata": { "finalizers": ["example.com/stay"] } }),
        json!({ "metadata": { "ownerReferences": [
            { "apiVersion": "v1", "kind": "Node", "name": "nobody", "uid": "00000000-0000-4000-8000-000000000001" },
        ] } }),
        json!({ "spec": { "unschedulable": true } }),
        json!({ "spec": { "providerID": "proxmox://lab/101" } }),
        json!({ "spec": { "taints": [
            { "key": "dedicated", "value": "db", "effect": "NoSchedule" },
            { "key": "kproxide.dev/unregistered", "effect": "NoExecute" },
            { "key": "mine", "effect": "NoExecute" },
        ] } }),
    ] {
        let mut patch = more;
        patch["metadata"]["labels"][CLAIM] = json!("workers-a");
        refused(thief.patch("joined", &patch).await, why);
    }
    let named = json!({ "metadata": { "labels": { CLAIM: "workers-a" } } });
    thief.patch("joined", &named).await.unwrap();
}

/// A machine that is ours gets and overwrites what a claim says, and loses what is kproxide's own. What others have written stays.
async fn takes_nothing_away(thief: &Thief) {
    let theirs = json!({ "key": "dedicated", "value": "db", "effect": "NoSchedule" });
    let why = "kproxide may take no label, annotation or taint but its own off Node joined";
    for loss in [
        json!({ "metadata": { "labels": { "disk": null } } }),
        json!({ "metadata": { "annotations": { "example.com/owner": null } } }),
        json!({ "spec": { "taints": [] } }),
        json!({ "spec": { "taints": [{ "key": "dedicated", "effect": "NoExecute" }] } }),
        json!({ "spec": { "taints": [{ "key": "dedicated", "value": "web", "effect": "NoSchedule" }] } }),
    ] {
        refused(thief.patch("joined", &loss).await, why);
    }
    // The node lifecycle controller may add a taint to a Node without a kubelet between the read and the request: that one stays, too.
    eventually(SOON, "a request that keeps each taint", async || {
        let joined = thief.0.get(&format!("{NODES}/joined")).await.unwrap();
        let mut taints = joined["spec"]["taints"].as_array().unwrap().clone();
        taints.retain(|taint| taint["key"] != "kproxide.dev/unregistered");
        assert!(taints.contains(&theirs), "{taints:?}");
        taints.push(json!({ "key": "gpu", "effect": "NoExecute" }));
        let marked = json!({
            "metadata": { "labels": { "rack": "a", "disk": "ssd" }, "annotations": { "example.com/made-by": "a pool" } },
            "spec": { "taints": taints },
        });
        thief.patch("joined", &marked).await
    })
    .await;

    // kproxide's own value of this label may go, and nobody else's.
    let excluded = |value: Value| json!({ "metadata": { "labels": { EXCLUDED: value } } });
    for value in [json!("kproxide"), Value::Null, json!("true")] {
        thief.patch("joined", &excluded(value)).await.unwrap();
    }
    refused(thief.patch("joined", &excluded(Value::Null)).await, why);
    let changed = thief.patch("joined", &excluded(json!("kproxide"))).await;
    let why = "kproxide may not change the value of the label node.kubernetes.io/exclude-from";
    refused(changed, why);
}

/// RBAC lets it change NodePools, NodeClasses and ProxmoxClusters.
async fn changes_one_finalizer(thief: &Thief) {
    let pool = "/apis/kproxide.dev/v1alpha1/nodepools/default";
    let spent = json!({ "spec": { "limits": { "maxNodes": 1000 } } });
    eventually(SOON, "the policy in force", async || {
        let trial = format!("{pool}?dryRun=All");
        thief.0.merge(&trial, &spent).await.err().ok_or("not yet")
    })
    .await;
    let why = "kproxide may change nothing of default but its finalizer kproxide.dev/in-use";
    for bad in [
        spent,
        json!({ "metadata": { "labels": { "team": "a" } } }),
        json!({ "metadata": { "annotations": { "kproxide.dev/keep-machines": "true" } } }),
        json!({ "metadata": { "finalizers": ["kproxide.dev/in-use", "example.com/stay"] } }),
    ] {
        refused(thief.0.merge(pool, &bad).await, why);
    }
    for finalizers in [json!(["kproxide.dev/in-use"]), json!([])] {
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        thief.0.merge(pool, &patch).await.unwrap();
    }
}

/// RBAC lets it create any Secret of its namespace, and read one.
async fn secrets(thief: &Thief) {
    let secret = |name: &str, kind: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": "default" } },
        })
    };
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    let (ours, key) = ("kproxide-ownership-key", "kproxide.dev/ownership-key");
    let trial = format!("{path}?dryRun=All");
    eventually(SOON, "the policy in force", async || {
        thief
            .0
            .create(&trial, &secret("another", key))
            .await
            .err()
            .ok_or("not yet")
    })
    .await;
    for bad in [
        secret("another", key),
        // The controller manager would fill it with that ServiceAccount's token.
        secret(ours, "kubernetes.io/service-account-token"),
    ] {
        let why = "kproxide may only make the Secret kproxide-ownership-key";
        refused(thief.0.create(&path, &bad).await, why);
    }
    thief.0.create(&path, &secret(ours, key)).await.unwrap();
}

/// The controller manager checks the expressions against the types of what they are about.
async fn no_complaints_about_the_expressions(api: &Api) {
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    eventually(SOON, "the expressions checked", async || {
        for policy in api.list(path).await.unwrap() {
            let status = &policy["status"];
            let warnings = &status["typeChecking"]["expressionWarnings"];
            assert!(warnings.is_null(), "{warnings}");
            if status["observedGeneration"].is_null() {
                return Err(policy["metadata"]["name"].to_string());
            }
        }
        Ok(())
    })
    .await;
}

/// Somebody with kproxide's token.
struct Thief(Api);

impl Thief {
    async fn patch(&self, node: &str, patch: &Value) -> Result<Value, ApiError> {
        self.0.merge(&format!("{NODES}/{node}"), patch).await
    }
}

fn refused(outcome: Result<Value, ApiError>, why: &str) {
    let error = outcome.expect_err(why);
    assert_eq!(error.status().unwrap(), 403, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}
