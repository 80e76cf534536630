//! A machine that never becomes a Node.

use kproxide_simulator::physics::Quirk;
use serde_json::json;

use crate::bench::on_a_cluster;
use crate::stage::{Scene, Stage};

#[test]
fn a_machine_that_never_joins_is_replaced_and_the_reason_said() {
    on_a_cluster(async |bench| {
        let timeouts = json!({ "nodeClass": { "timeouts": { "join": "5s" } } });
        let stage = Stage::set(bench, Scene::with(timeouts)).await;
        stage.served.physics.quirk_of_next(Quirk {
            never_joins: true,
            ..Quirk::default()
        });
        stage.deploy("web", 1, "3", "1Gi", json!({})).await;
        stage.until_running("web", 1).await;
        assert_eq!(stage.born(), 2, "{}", stage.describe().await);
        stage
            .until_event(
                "",
                "FailedToScaleUp",
                "no Node joined within 5s of its start",
            )
            .await;
        stage.until_machines(1).await;
        stage.end().await;
    });
}
