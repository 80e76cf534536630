//! A whole host in a whole world.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use kproxide_lab::{Lab, MACHINE, Setting, config, furnished, run_with};

mod anchors;
mod away;
mod conditions;
mod credentials;
mod dead;
mod decisions;
mod degraded;
mod drains;
mod dry_run;
mod emptied;
mod explained;
mod kept;
mod labels;
mod learned;
mod loops;
mod machines;
mod measured;
mod moved;
mod numbers;
mod orphans;
mod policies;
mod proxmox;
mod readiness;
mod recorded;
mod replacing;
mod served;
mod strangers;
mod unfit;
mod unrest;
mod versions;

/// Two hypervisors and a pool that wants one machine.
fn lab() -> Lab {
    furnished(Setting::new(1, 2), json!({}), json!({}))
}

/// Lets a host run for so long, then stops it.
async fn run(lab: &Lab, time: Duration) {
    run_with(lab, config("kproxide-0"), time).await;
}

fn cluster_status(lab: &Lab) -> Value {
    lab.kube
        .get("proxmoxclusters.kproxide.dev", "", "home")
        .expect("nobody deletes it")["status"]
        .clone()
}

#[tokio::test(start_paused = true)]
async fn a_lost_key_is_never_replaced() {
    let lab = lab();
    run(&lab, MACHINE).await;
    assert_eq!(lab.kube.list("nodeclaims.kproxide.dev").len(), 1);
    let fingerprint = cluster_status(&lab)["keyFingerprint"].clone();
    assert!(fingerprint.is_string(), "{fingerprint}");

    lab.kube
        .delete("secrets", "kube-system", "kproxide-ownership-key")
        .unwrap();
    run(&lab, MACHINE).await;
    assert!(lab.kube.list("secrets").is_empty());
    let status = cluster_status(&lab);
    assert_eq!(status["keyFingerprint"], fingerprint);
    let ready = &status["conditions"][0];
    assert_eq!(ready["reason"], "OwnershipKeyUnusable", "{status}");
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains("Restore the Secret"), "{message}");
    let told = |event: &Value| event["reason"] == "OwnershipKeyUnusable";
    assert!(lab.kube.list("events.events.k8s.io").iter().any(told));
}
