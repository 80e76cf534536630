use std::collections::BTreeSet;

use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{named, render, required_values, the, values};

/// All that kproxide may do anywhere: a verb, an API group, a resource and, if there is only one, its name. A line more here is a decision.
const EVERYWHERE: &str = "
    create / pods/eviction
    delete / nodes
    get / namespaces kube-system
    get / nodes
    list / namespaces
    list / nodes
    list / persistentvolumeclaims
    list / persistentvolumes
    list / pods
    patch / nodes
    watch / namespaces
    watch / nodes
    watch / persistentvolumeclaims
    watch / persistentvolumes
    watch / pods
    get apiextensions.k8s.io/ customresourcedefinitions ledgers.kproxide.dev
    get apiextensions.k8s.io/ customresourcedefinitions nodeclaims.kproxide.dev
    get apiextensions.k8s.io/ customresourcedefinitions nodeclasses.kproxide.dev
    get apiextensions.k8s.io/ customresourcedefinitions nodepools.kproxide.dev
    get apiextensions.k8s.io/ customresourcedefinitions proxmoxclusters.kproxide.dev
    list apps/ daemonsets
    watch apps/ daemonsets
    list policy/ poddisruptionbudgets
    watch policy/ poddisruptionbudgets
    list storage.k8s.io/ csidrivers
    list storage.k8s.io/ csinodes
    list storage.k8s.io/ csistoragecapacities
    list storage.k8s.io/ storageclasses
    list storage.k8s.io/ volumeattachments
    watch storage.k8s.io/ csidrivers
    watch storage.k8s.io/ csinodes
    watch storage.k8s.io/ csistoragecapacities
    watch storage.k8s.io/ storageclasses
    watch storage.k8s.io/ volumeattachments
    create events.k8s.io/ events
    patch events.k8s.io/ events
    create kproxide.dev/ ledgers
    create kproxide.dev/ nodeclaims
    delete kproxide.dev/ nodeclaims
    get kproxide.dev/ ledgers
    get kproxide.dev/ nodeclaims
    get kproxide.dev/ nodeclasses
    get kproxide.dev/ nodepools
    get kproxide.dev/ proxmoxclusters
    list kproxide.dev/ ledgers
    list kproxide.dev/ nodeclaims
    list kproxide.dev/ nodeclasses
    list kproxide.dev/ nodepools
    list kproxide.dev/ proxmoxclusters
    patch kproxide.dev/ nodeclaims
    patch kproxide.dev/ nodeclaims/status
    patch kproxide.dev/ nodeclasses
    patch kproxide.dev/ nodeclasses/status
    patch kproxide.dev/ nodepools
    patch kproxide.dev/ nodepools/status
    patch kproxide.dev/ proxmoxclusters
    patch kproxide.dev/ proxmoxclusters/status
    update kproxide.dev/ ledgers
    watch kproxide.dev/ ledgers
    watch kproxide.dev/ nodeclaims
    watch kproxide.dev/ nodeclasses
    watch kproxide.dev/ nodepools
    watch kproxide.dev/ proxmoxclusters
";

/// What it may do in its own namespace besides.
const AT_HOME: &str = "
    create / secrets
    get / secrets kproxide-ownership-key
    create coordination.k8s.io/ leases
    get coordination.k8s.io/ leases kproxide
    update coordination.k8s.io/ leases kproxide
";

#[tokio::test]
async fn the_permissions_are_exactly_these() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let objects = render(&programs, &required_values()).await.unwrap();
    assert_eq!(
        granted(named(&objects, "ClusterRole", "kproxide")),
        listed(EVERYWHERE)
    );
    let role = the(&objects, "Role");
    assert_eq!(granted(role), listed(AT_HOME));
    assert_eq!(role["metadata"]["namespace"], "autoscaling");
}

#[tokio::test]
async fn the_roles_go_to_the_service_account_of_the_pod() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    for (account, expected) in [
        (json!({}), "kproxide"),
        (json!({ "name": "mine" }), "mine"),
        (json!({ "create": false, "name": "given" }), "given"),
    ] {
        let objects = render(&programs, &values(json!({ "serviceAccount": account })))
            .await
            .unwrap();
        let subject =
            json!([{ "kind": "ServiceAccount", "name": expected, "namespace": "autoscaling" }]);
        assert_eq!(the(&objects, "ClusterRoleBinding")["subjects"], subject);
        assert_eq!(the(&objects, "RoleBinding")["subjects"], subject);
        assert_eq!(
            the(&objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"],
            expected
        );
        let made = objects
            .iter()
            .any(|object| object["kind"] == "ServiceAccount");
        assert_eq!(made, account["create"] != false, "{account}");
    }
}

#[tokio::test]
async fn another_name_moves_the_lease_the_key_and_the_flag_together() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let objects = render(&programs, &values(json!({ "fullnameOverride": "scaler" })))
        .await
        .unwrap();
    let granted = granted(the(&objects, "Role"));
    assert!(
        granted.contains("get / secrets scaler-ownership-key"),
        "{granted:?}"
    );
    assert!(
        granted.contains("update coordination.k8s.io/ leases scaler"),
        "{granted:?}"
    );
    let args = &the(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(
        args.as_array().unwrap().contains(&json!("--name=scaler")),
        "{args}"
    );
}

fn listed(lines: &str) -> BTreeSet<String> {
    lines
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

fn granted(role: &Value) -> BTreeSet<String> {
    let strings = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        assert!(rule["nonResourceURLs"].is_null(), "{rule}");
        let names = strings(&rule["resourceNames"]);
        let names = if names.is_empty() {
            vec![String::new()]
        } else {
            names
        };
        for verb in strings(&rule["verbs"]) {
            for group in strings(&rule["apiGroups"]) {
                for resource in strings(&rule["resources"]) {
                    for name in &names {
                        granted.insert(
                            format!("{verb} {group}/ {resource} {name}")
                                .trim_end()
                                .to_owned(),
                        );
                    }
                }
            }
        }
    }
    granted
}
