//! Pods that ask which others are near them: the real scheduler binds them to the machines that kproxide makes for them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::bench::on_a_cluster;
use crate::stage::{Scene, Stage};

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn required(kind: &str, app: &str, key: &str) -> Value {
    let selector = json!({ "matchLabels": { "app": app } });
    let terms = json!([{ "topologyKey": key, "labelSelector": selector }]);
    json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": terms } } })
}

/// How many of an app's pods run on the Nodes of each value of the label.
/// Pods may run on a Node before it has its claim's label, by which `nodes` lists it.
async fn pods_per(stage: &Stage<'_>, app: &str, key: &str) -> BTreeMap<String, usize> {
    let nodes = stage.nodes().await;
    let mut pods = BTreeMap::new();
    for pod in stage.ready_pods(app).await {
        let node = nodes
            .iter()
            .find(|node| node["metadata"]["name"] == pod["spec"]["nodeName"]);
        let value = node.unwrap()["metadata"]["labels"][key].as_str().unwrap();
        *pods.entry(value.to_owned()).or_default() += 1;
    }
    pods
}

#[test]
#[ignore = "tier: e2e"]
fn replicas_that_keep_each_other_away_get_a_machine_each_from_zero() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        let spec = required("podAntiAffinity", "db", HOST);
        stage.deploy("db", 3, "500m", "256Mi", spec).await;
        stage.until_running("db", 3).await;
        stage.until_nodes(3).await;
        let hosts = pods_per(&stage, "db", HOST).await;
        assert_eq!(hosts.into_values().collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(stage.born(), 3);
        stage.scale("db", 1).await;
        stage.until_machines(1).await;
        stage.until_running("db", 1).await;
        stage.end().await;
    });
}

#[test]
#[ignore = "tier: e2e"]
fn replicas_stand_on_as_many_hypervisors_as_they_ask_for() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        let selector = json!({ "matchLabels": { "app": "web" } });
        let spread = json!({ "topologySpreadConstraints": [{
            "maxSkew": 1, "minDomains": 3, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }] });
        stage.deploy("web", 6, "500m", "256Mi", spread).await;
        stage.until_running("web", 6).await;
        stage.until_nodes(3).await;
        let zones = pods_per(&stage, "web", ZONE).await;
        assert_eq!(zones.into_values().collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(stage.born(), 3);
        stage.end().await;
    });
}

#[test]
#[ignore = "tier: e2e"]
fn a_group_that_wants_one_zone_comes_to_one_hypervisor() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        let spec = required("podAffinity", "group", ZONE);
        stage.deploy("group", 3, "3", "256Mi", spec).await;
        stage.until_running("group", 3).await;
        stage.until_nodes(3).await;
        let zones = pods_per(&stage, "group", ZONE).await;
        assert_eq!(zones.into_values().collect::<Vec<_>>(), [3]);
        assert_eq!(stage.born(), 3);
        stage.end().await;
    });
}
