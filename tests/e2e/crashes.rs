//! SIGKILL while a request is on its way: one that is lost, one that took effect, one that arrives when the next run is there already. The next run
//! carries on, nothing is made twice and nothing is left.

use kproxide_simulator::holds::{HeldRequest, Hold, Phase};
use kproxide_testkit::eventually;
use serde_json::json;

use crate::bench::{Bench, on_a_cluster};
use crate::stage::{SOON, Scene, Stage};

/// What becomes of the request that was on its way when its sender died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It never takes effect.
    Lost,
    /// It took effect, and nobody heard the answer.
    Applied,
    /// It takes effect after the next run has begun.
    Late,
}

impl Fate {
    fn phase(self) -> Phase {
        match self {
            Self::Lost | Self::Late => Phase::Before,
            Self::Applied => Phase::After,
        }
    }
}

/// Kills kproxide while `hold` holds its request, and starts it again.
async fn kill(stage: &mut Stage<'_>, hold: Hold, held: &HeldRequest, fate: Fate) {
    stage.pod.kill9().await.unwrap();
    let mut late = None;
    match fate {
        Fate::Lost => hold.discard(),
        Fate::Applied => hold.release(),
        Fate::Late => late = Some(hold),
    }
    stage.pod.restart().await.unwrap();
    stage.pod.ready(SOON).await.unwrap();
    if let Some(hold) = late {
        hold.release();
        eventually(SOON, "the late request decided", async || {
            // The restarted process may have sent the same one: that it was sent is not enough.
            let waits = stage.served.pve.holds().held().contains(held);
            let requests = stage.served.pve.audit();
            let sent = requests
                .iter()
                .any(|request| request.method == held.method && held.path.ends_with(&request.path));
            if sent && !waits {
                Ok(())
            } else {
                Err("not yet")
            }
        })
        .await;
    }
}

/// Kills kproxide while `request` is held on the way up, and lets the restarted one finish.
async fn killed_on_the_way_up(bench: &Bench, request: &str, fate: Fate) {
    let mut stage = Stage::set(bench, Scene::default()).await;
    let hold = stage
        .served
        .pve
        .hold(request.parse().unwrap(), fate.phase());
    stage.deploy("web", 1, "3", "1Gi", json!({})).await;
    let held = caught(&hold).await;
    kill(&mut stage, hold, &held, fate).await;
    stage.until_running("web", 1).await;
    stage.until_machines(1).await;
    stage.until_nodes(1).await;
    // The claim goes on with the machine that it has, whoever asked for it: none is made in vain.
    let births = stage.births();
    assert_eq!(births.len(), 1, "{request} {fate:?}: {births:?}");
    stage.scale("web", 0).await;
    stage.until_nothing_is_left().await;
    assert_eq!(stage.born(), 1, "{request} {fate:?}");
    stage.end().await;
}

/// Kills kproxide while `request` is held on the way down.
async fn killed_on_the_way_down(bench: &Bench, request: &str, fate: Fate) {
    let mut stage = Stage::set(bench, Scene::default()).await;
    stage.deploy("web", 1, "3", "1Gi", json!({})).await;
    stage.until_running("web", 1).await;
    let hold = stage
        .served
        .pve
        .hold(request.parse().unwrap(), fate.phase());
    stage.scale("web", 0).await;
    let held = caught(&hold).await;
    kill(&mut stage, hold, &held, fate).await;
    stage.until_nothing_is_left().await;
    assert_eq!(stage.born(), 1, "{request} {fate:?}");
    stage.end().await;
}

/// Kills kproxide while a pod's eviction is held: the API server's request, so a stand-in before it holds.
async fn killed_while_it_evicts(bench: &Bench, fate: Fate) {
    let scene = Scene {
        fronted: true,
        ..Scene::default()
    };
    let mut stage = Stage::set(bench, scene).await;
    stage.join_static_node("static-1").await;
    stage.deploy("full", 3, "1200m", "1Gi", json!({})).await;
    stage.until_running("full", 3).await;
    assert_eq!(stage.born(), 0, "{}", stage.describe().await);
    stage.deploy("small", 1, "500m", "512Mi", json!({})).await;
    stage.until_running("small", 1).await;
    let moved = stage.ready_pods("small").await.remove(0);
    stage.until_nodes(1).await;

    let hold = stage.front.as_ref().unwrap().hold("evict", fate.phase());
    // Now there is room for it on the static Node.
    stage.scale("full", 0).await;
    let held = caught(&hold).await;
    let name = moved["metadata"]["name"].as_str().unwrap();
    assert!(
        held.path.ends_with(&format!("/pods/{name}/eviction")),
        "{}",
        held.path
    );
    kill(&mut stage, hold, &held, fate).await;
    stage.until_nothing_is_left().await;
    stage.until_running("small", 1).await;
    assert_eq!(
        stage.ready_pods("small").await[0]["spec"]["nodeName"],
        "static-1"
    );
    assert_eq!(stage.born(), 1, "{fate:?}");
    stage.end().await;
}

async fn caught(hold: &Hold) -> HeldRequest {
    tokio::time::timeout(SOON, hold.caught())
        .await
        .expect("the request does not come")
}

#[test]
fn killed_around_the_clone() {
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "clone", Fate::Lost).await);
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "clone", Fate::Applied).await);
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "clone", Fate::Late).await);
}

#[test]
fn killed_around_the_configuration() {
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "config", Fate::Lost).await);
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "config", Fate::Applied).await);
}

#[test]
fn killed_around_the_start() {
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "start", Fate::Lost).await);
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "start", Fate::Applied).await);
}

#[test]
fn killed_around_an_eviction() {
    on_a_cluster(async |bench| killed_while_it_evicts(bench, Fate::Lost).await);
    on_a_cluster(async |bench| killed_while_it_evicts(bench, Fate::Applied).await);
}

#[test]
fn killed_around_the_destruction() {
    on_a_cluster(async |bench| killed_on_the_way_down(bench, "destroy", Fate::Lost).await);
    on_a_cluster(async |bench| killed_on_the_way_down(bench, "destroy", Fate::Applied).await);
    on_a_cluster(async |bench| killed_on_the_way_down(bench, "destroy", Fate::Late).await);
}
