//! SIGKILL while a request is on its way, before or after it took effect: the next run carries on, nothing is made
//! twice and nothing is left.

use kproxide_simulator::holds::{HeldRequest, Hold, Phase};
use serde_json::json;

use crate::bench::{Bench, on_a_cluster};
use crate::stage::{SOON, Scene, Stage};

/// Kills kproxide while `request` is held on the way up, and lets the restarted one finish.
async fn killed_on_the_way_up(bench: &Bench, request: &str, phase: Phase) {
    let mut stage = Stage::set(bench, Scene::default()).await;
    let hold = stage.served.pve.hold(request.parse().unwrap(), phase);
    stage.deploy("web", 1, "3", "1Gi", json!({})).await;
    caught(&hold).await;
    stage.pod.kill9().await.unwrap();
    // What was held before its effect takes effect now, when nobody waits for the answer any more.
    hold.release();
    stage.pod.restart().await.unwrap();
    stage.pod.ready(SOON).await.unwrap();
    stage.until_running("web", 1).await;
    assert_eq!(
        stage.machines().len(),
        1,
        "{request} {phase:?}: {}",
        stage.describe().await
    );
    stage.scale("web", 0).await;
    stage.until_nothing_is_left().await;
    stage.end().await;
}

/// Kills kproxide while `request` is held on the way down.
async fn killed_on_the_way_down(bench: &Bench, request: &str, phase: Phase) {
    let mut stage = Stage::set(bench, Scene::default()).await;
    stage.deploy("web", 1, "3", "1Gi", json!({})).await;
    stage.until_running("web", 1).await;
    let hold = stage.served.pve.hold(request.parse().unwrap(), phase);
    stage.scale("web", 0).await;
    caught(&hold).await;
    stage.pod.kill9().await.unwrap();
    hold.release();
    stage.pod.restart().await.unwrap();
    stage.pod.ready(SOON).await.unwrap();
    stage.until_nothing_is_left().await;
    assert_eq!(stage.born(), 1, "{request} {phase:?}");
    stage.end().await;
}

/// Kills kproxide while a pod's eviction is held: the API server's request, so a stand-in before it holds.
async fn killed_while_it_evicts(bench: &Bench, phase: Phase) {
    let scene = Scene {
        fronted: true,
        ..Scene::default()
    };
    let mut stage = Stage::set(bench, scene).await;
    stage.join_static_node("static-1");
    stage.deploy("full", 3, "1200m", "1Gi", json!({})).await;
    stage.until_running("full", 3).await;
    stage.deploy("small", 1, "500m", "512Mi", json!({})).await;
    stage.until_running("small", 1).await;
    let moved = stage.ready_pods("small").await.remove(0);
    assert_eq!(stage.nodes().await.len(), 1, "{}", stage.describe().await);

    let hold = stage.front.as_ref().unwrap().hold("evict", phase);
    // Now there is room for it on the static Node.
    stage.scale("full", 0).await;
    let held = caught(&hold).await;
    let name = moved["metadata"]["name"].as_str().unwrap();
    assert!(
        held.path.ends_with(&format!("/pods/{name}/eviction")),
        "{}",
        held.path
    );
    stage.pod.kill9().await.unwrap();
    hold.release();
    stage.pod.restart().await.unwrap();
    stage.pod.ready(SOON).await.unwrap();
    stage.until_nothing_is_left().await;
    stage.until_running("small", 1).await;
    assert_eq!(
        stage.ready_pods("small").await[0]["spec"]["nodeName"],
        "static-1"
    );
    assert_eq!(stage.born(), 1, "{phase:?}");
    stage.end().await;
}

async fn caught(hold: &Hold) -> HeldRequest {
    tokio::time::timeout(SOON, hold.caught())
        .await
        .expect("the request does not come")
}

#[test]
fn killed_around_the_clone() {
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "clone", Phase::Before).await);
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "clone", Phase::After).await);
}

#[test]
fn killed_around_the_configuration() {
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "config", Phase::Before).await);
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "config", Phase::After).await);
}

#[test]
fn killed_around_the_start() {
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "start", Phase::Before).await);
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "start", Phase::After).await);
}

#[test]
fn killed_around_an_eviction() {
    on_a_cluster(async |bench| killed_while_it_evicts(bench, Phase::Before).await);
    on_a_cluster(async |bench| killed_while_it_evicts(bench, Phase::After).await);
}

#[test]
fn killed_around_the_destruction() {
    on_a_cluster(async |bench| killed_on_the_way_down(bench, "destroy", Phase::Before).await);
    on_a_cluster(async |bench| killed_on_the_way_down(bench, "destroy", Phase::After).await);
}
