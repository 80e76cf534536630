//! A machine that is replaced: the new one first.

use kproxide_testkit::controlplane::condition;
use kproxide_testkit::eventually;
use serde_json::{Value, json};

use crate::bench::on_a_cluster;
use crate::stage::{CLAIMS, SOON, Scene, Stage};
use crate::witness::Witness;

/// Both of the Deployment's pods run on one machine, and nowhere else is room.
#[test]
#[ignore = "tier: e2e"]
fn a_replaced_machine_is_drained_once_the_new_node_is_in_service_and_a_pod_is_always_ready() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        stage.deploy("web", 2, "1500m", "1Gi", json!({})).await;
        stage.until_running("web", 2).await;
        stage.until_in_step(1).await;
        stage.budget("web", 1).await;
        let old = stage.claims().await.remove(0);
        let name = old["metadata"]["name"].as_str().unwrap();
        let path = format!("{CLAIMS}/{name}");
        let witness = Witness::start(stage.api(), "web").await;
        let replace = json!({ "metadata": { "annotations": { "kproxide.dev/replace": "true" } } });
        stage.api().merge(&path, &replace).await.unwrap();

        let is_new = |claim: &&Value| claim["spec"]["replaces"] == name;
        let (began, new) = eventually(SOON, "the drain of the old machine", async || {
            let claims = stage.claims().await;
            let old = claims
                .iter()
                .find(|claim| claim["metadata"]["name"] == name);
            let began = old.and_then(|old| old["status"]["drainingSince"].as_str());
            match (began, claims.iter().find(is_new)) {
                (Some(began), Some(new)) => Ok((began.to_owned(), new.clone())),
                _ => Err(stage.describe().await),
            }
        })
        .await;
        assert_eq!(condition(&new, "Initialized"), Some("True"), "{new}");
        let conditions = new["status"]["conditions"].as_array().unwrap();
        let mut conditions = conditions.iter();
        let served = conditions.find(|it| it["type"] == "Initialized").unwrap();
        let served = served["lastTransitionTime"].as_str().unwrap();
        let time = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        assert!(time(served) <= time(&began), "{served}, {began}");

        eventually(
            SOON,
            "the old machine gone and both pods Ready",
            async || {
                let is_there = stage.api().find(&path).await.unwrap().is_some();
                match (is_there, stage.ready_pods("web").await.len()) {
                    (false, 2) => Ok(()),
                    _ => Err(stage.describe().await),
                }
            },
        )
        .await;
        assert!(witness.fewest_ready().await >= 1);
        let births = stage.births();
        assert_eq!(births.len(), 2, "one for the pods, and one instead of it");
        stage.until_in_step(1).await;
        stage.end().await;
    });
}
