//! Pods that no machine would help get a reason and no machine; pods that one hypervisor's machines would help get one there.

use serde_json::json;

use crate::bench::on_a_cluster;
use crate::stage::{Scene, Stage};

const ZONE: &str = "topology.kubernetes.io/zone";

#[test]
#[ignore = "tier: e2e"]
fn a_pod_that_no_machine_would_help_is_told_why() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        stage.deploy("giant", 1, "8", "1Gi", json!({})).await;
        let nowhere = json!({ "nodeSelector": { "example.com/colour": "blue" } });
        stage.deploy("picky", 1, "500m", "512Mi", nowhere).await;
        // The largest machine of the pool, and the label that none would have.
        stage
            .until_event("giant-", "NotTriggerScaleUp", "the largest machine offers")
            .await;
        stage
            .until_event("picky-", "NotTriggerScaleUp", "example.com/colour")
            .await;
        // A pod that can be helped shows that the loop went on past those two.
        stage.deploy("modest", 1, "500m", "512Mi", json!({})).await;
        stage.until_running("modest", 1).await;
        assert_eq!(stage.born(), 1, "{}", stage.describe().await);
        stage.end().await;
    });
}

#[test]
#[ignore = "tier: e2e"]
fn a_pod_that_selects_a_hypervisor_gets_its_machine_there_from_zero() {
    on_a_cluster(async |bench| {
        let templates = json!({ "nodePools": { "default": { "spec": { "labelTemplates": { ZONE: "{{ .TargetHost }}" } } } } });
        let stage = Stage::set(bench, Scene::with(templates)).await;
        let there = json!({ "nodeSelector": { ZONE: "pve2" } });
        stage.deploy("local", 1, "500m", "512Mi", there).await;
        stage.until_running("local", 1).await;
        assert_eq!(stage.placed(), [("pve2".to_owned(), 1)].into());
        stage.end().await;
    });
}
