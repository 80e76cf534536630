//! A whole host in a whole world.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::config::Config;
use crate::lab::{Lab, Setting, config};

mod anchors;
mod away;
mod conditions;
mod credentials;
mod dead;
mod decisions;
mod degraded;
mod drains;
mod dry_run;
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

pub(crate) use degraded::wide;

/// Enough for a machine from nothing to its Node.
pub(crate) const MACHINE: Duration = Duration::from_secs(10 * 60);

/// Two hypervisors and a pool that wants one machine.
fn lab() -> Lab {
    furnished(Setting::new(1, 2), json!({}), json!({}))
}

/// A world with one object of each kind, these fields in place of the class's and the pool's own.
pub(crate) fn furnished(setting: Setting, class: Value, pool: Value) -> Lab {
    let lab = Lab::new(setting);
    let cluster = json!({
        "endpoints": ["https://pve1:8006"], "tls": { "insecureSkipVerify": true }, "credentials": "home",
        "pool": "k8s", "vmidRange": { "first": 500, "last": 599 },
    });
    let usual_class = json!({
        "template": { "name": "k8s-node", "placement": "local" },
        "instanceTypes": [{ "name": "medium", "cores": 4, "memoryMiB": 8192 }],
        "cloudInit": { "dhcp": true },
        "join": { "template": {} },
    });
    let usual_pool = json!({ "nodeClass": "debian", "limits": { "minNodes": 1, "maxNodes": 3 } });
    let object = |kind: &str, name: &str, mut spec: Value, own: Value| {
        for (field, value) in own.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        })
    };
    lab.apply([
        (
            "proxmoxclusters.kproxide.dev",
            object("ProxmoxCluster", "home", cluster, json!({})),
        ),
        (
            "nodeclasses.kproxide.dev",
            object("NodeClass", "debian", usual_class, class),
        ),
        (
            "nodepools.kproxide.dev",
            object("NodePool", "workers", usual_pool, pool),
        ),
    ]);
    lab
}

/// Lets a host run for so long, then stops it.
async fn run(lab: &Lab, time: Duration) {
    run_with(lab, config("kproxide-0"), time).await;
}

pub(crate) async fn run_with(lab: &Lab, config: Config, time: Duration) {
    let (app, host) = lab.host("kproxide-0", config).expect("policies run here");
    let stop = async {
        sleep(time).await;
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(stop, app.run());
    ended.expect("it ends because it was told to");
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
