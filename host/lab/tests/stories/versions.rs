//! A rolling upgrade: processes of two versions lead by turns, on the same records.

use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use serde_json::{Value, json};

use super::run;
use kproxide_lab::furnished;
use kproxide_lab::{Lab, Setting};

const TURN: Duration = Duration::from_secs(4 * 60);

/// What the Ledger of the first version had no fields for. Such a version writes the whole specification, and so forgets them.
const UNKNOWN_BEFORE: [&str; 4] = ["removals", "freeze", "orphans", "anchors"];

/// As a process of the version before leaves the Ledger.
fn forget(lab: &Lab) {
    let unknown = UNKNOWN_BEFORE.map(|field| (field.to_owned(), Value::Null));
    let spec: serde_json::Map<String, Value> = unknown.into_iter().collect();
    let mut patch = json!({ "spec": spec });
    let ledger = lab
        .kube
        .get("ledgers.kproxide.dev", "", "kproxide")
        .unwrap();
    // Rows of back-off said which class of error it was, and not in words.
    let rows = ledger["spec"]["backoff"].as_array().cloned();
    let rows = rows.into_iter().flatten().map(|mut row| {
        row.as_object_mut().unwrap().remove("message");
        row
    });
    patch["spec"]["backoff"] = rows.collect();
    lab.kube
        .patch("ledgers.kproxide.dev", "", "", "kproxide", patch)
        .unwrap();
}

/// As a process of the version after leaves an annotation that we do not know.
fn add(lab: &Lab) {
    for (resource, name) in [
        ("ledgers.kproxide.dev", "kproxide"),
        ("nodepools.kproxide.dev", "workers"),
    ] {
        let patch = json!({ "metadata": { "annotations": { "kproxide.dev/of-tomorrow": "1" } } });
        lab.kube.patch(resource, "", "", name, patch).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn f79_versions_that_forget_what_they_do_not_know_lead_by_turns() {
    let pool = json!({
        "limits": { "minNodes": 0, "maxNodes": 3 },
        "scaleDown": { "stabilization": "1m", "minNodeAge": "1m", "unneededTime": "30s", "loadHeadroom": 0.0 },
    });
    let lab = furnished(Setting::new(1, 2), json!({}), pool);
    lab.apply([(
        "deployments.apps",
        fixtures::deployment("default", "web", 3, "3", "1Gi"),
    )]);
    let by_turns = async || {
        for _ in 0..4 {
            run(&lab, TURN).await;
            forget(&lab);
            run(&lab, TURN).await;
            add(&lab);
        }
    };
    by_turns().await;
    let snapshot = lab.pve.snapshot();
    let machines = snapshot.vms.iter().filter(|vm| !vm.template);
    assert_eq!(machines.count(), 3);
    let births = snapshot.births.iter().filter(|vm| vm.vmid < 9_000);
    assert_eq!(births.count(), 3, "none is made twice");
    assert_eq!(lab.kube.list("nodeclaims.kproxide.dev").len(), 3);

    let none = json!({ "spec": { "replicas": 0 } });
    lab.kube
        .patch("deployments.apps", "", "default", "web", none)
        .unwrap();
    by_turns().await;
    let left = lab.pve.snapshot().vms;
    assert!(left.iter().all(|vm| vm.template), "{left:?}");
    assert_eq!(lab.kube.list("nodeclaims.kproxide.dev").len(), 0);
    let ledger = lab
        .kube
        .get("ledgers.kproxide.dev", "", "kproxide")
        .unwrap();
    let entries = ledger["spec"]["entries"].as_array().unwrap();
    let is_resting = |entry: &Value| entry["state"] == "quarantined";
    assert!(
        entries.len() == 3 && entries.iter().all(is_resting),
        "{entries:?}"
    );
}
