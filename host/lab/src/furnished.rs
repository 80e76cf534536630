//! A small world that many stories begin with.

use std::time::Duration;

use kproxide_controller::config::Config;
use kproxide_simulator::kube::fixtures;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{Lab, Setting};

/// Enough for a machine from nothing to its Node.
pub const MACHINE: Duration = Duration::from_secs(10 * 60);

/// A world with one object of each kind, these fields in place of the class's and the pool's own.
pub fn furnished(setting: Setting, class: Value, pool: Value) -> Lab {
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
///
/// # Panics
/// It ends with an error.
pub async fn run_with(lab: &Lab, config: Config, time: Duration) {
    let (app, host) = lab.host("kproxide-0", config).expect("policies run here");
    let stop = async {
        sleep(time).await;
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(stop, app.run());
    ended.expect("it ends because it was told to");
}

/// So many pods, each of which takes most of a machine, on machines of the pool.
pub fn wide(lab: &Lab, name: &str, pool: &str, replicas: u32) {
    let mut deployment = fixtures::deployment("default", name, replicas, "3", "1Gi");
    deployment["spec"]["template"]["spec"]["nodeSelector"] = json!({ "kproxide.dev/pool": pool });
    lab.apply([("deployments.apps", deployment)]);
}
