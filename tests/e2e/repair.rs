//! A machine that never becomes a Node.

use jiff::SignedDuration;
use kproxide_simulator::physics::Quirk;
use serde_json::json;

use crate::bench::on_a_cluster;
use crate::stage::{Scene, Stage};

/// Counted from the machine's start.
const JOIN_DEADLINE: SignedDuration = SignedDuration::from_secs(5);
/// For the start before it, and for the drain and the plan after it, on a busy computer.
const SLACK: SignedDuration = SignedDuration::from_secs(90);

#[test]
#[ignore = "tier: e2e"]
fn a_machine_that_never_joins_is_replaced_and_the_reason_said() {
    on_a_cluster(async |bench| {
        let timeouts =
            json!({ "nodeClasses": { "default": { "spec": { "timeouts": { "join": "5s" } } } } });
        let stage = Stage::set(bench, Scene::with(timeouts)).await;
        stage.served.physics.quirk_of_next(Quirk {
            never_joins: true,
            ..Quirk::default()
        });
        stage.deploy("web", 1, "3", "1Gi", json!({})).await;
        stage.until_running("web", 1).await;
        stage
            .until_event(
                "",
                "FailedToScaleUpGroup",
                "no Node joined within 5s of its start",
            )
            .await;
        stage.until_machines(1).await;
        let births = stage.births();
        let [first, second] = &births[..] else {
            panic!("{births:?}; {}", stage.describe().await);
        };
        let after = second.at.duration_since(first.at);
        assert!(
            after >= JOIN_DEADLINE && after <= JOIN_DEADLINE + SLACK,
            "the replacement was begun {after:?} after the first"
        );
        assert!(first.destroyed.is_some() && second.destroyed.is_none());
        stage.end().await;
    });
}
