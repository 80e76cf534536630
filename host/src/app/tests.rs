//! A whole host in a whole world.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::config::Config;
use crate::lab::{Lab, Setting, config};

/// Two hypervisors and a pool that wants one machine.
fn lab() -> Lab {
    let lab = Lab::new(Setting::new(1, 2));
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        })
    };
    let cluster = json!({
        "endpoints": ["https://pve1:8006"], "tls": { "insecureSkipVerify": true }, "credentials": "home",
        "pool": "k8s", "vmidRange": { "first": 500, "last": 599 },
    });
    let class = json!({
        "template": { "name": "k8s-node", "placement": "local" },
        "instanceTypes": [{ "name": "medium", "cores": 4, "memoryMiB": 8192 }],
        "cloudInit": { "dhcp": true },
        "join": { "template": {} },
    });
    let pool = json!({ "nodeClass": "debian", "limits": { "minNodes": 1, "maxNodes": 3 } });
    lab.apply([
        (
            "proxmoxclusters.kproxide.dev",
            object("ProxmoxCluster", "home", cluster),
        ),
        (
            "nodeclasses.kproxide.dev",
            object("NodeClass", "debian", class),
        ),
        (
            "nodepools.kproxide.dev",
            object("NodePool", "workers", pool),
        ),
    ]);
    lab
}

/// Lets a host run for so long, then stops it.
async fn run(lab: &Lab, time: Duration) {
    let (app, host) = lab
        .host("kproxide-0", config("kproxide-0"))
        .expect("policies run here");
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
    const MACHINE: Duration = Duration::from_secs(10 * 60);
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

#[tokio::test(start_paused = true)]
async fn a_dry_run_before_the_first_real_one_plans() {
    let lab = lab();
    let config = Config {
        dry_run: true,
        ..config("kproxide-0")
    };
    let (app, host) = lab.host("kproxide-0", config).unwrap();
    let vitals = app.vitals();
    let look = async {
        sleep(Duration::from_secs(30)).await;
        let (ask, answer) = oneshot::channel();
        vitals.debug_plan.send(ask).await.unwrap();
        let shown: Value = serde_json::from_slice(&answer.await.unwrap()).unwrap();
        host.stop.cancel();
        shown
    };
    let (shown, ended) = tokio::join!(look, app.run());
    ended.unwrap();
    assert_eq!(shown["plan"]["launches"][0]["spec"]["pool"], "workers");
    for resource in ["secrets", "nodeclaims.kproxide.dev"] {
        assert!(lab.kube.list(resource).is_empty(), "{resource}");
    }
}
