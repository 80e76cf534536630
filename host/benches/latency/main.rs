//! How long a pod waits for its machine to be begun: from the moment at which the API server shows that the scheduler has refused the pod to the moment
//! at which Proxmox VE is asked for the clone. The release binary, installed by the chart with its default timings, on a real control plane.
//!
//! What lies between: the watch, the batch window of 50 ms, an inventory, a plan with its policies, and the writes that must stand before anything is
//! created: the reservation, the claim, the intent.
//!
//! As a test (`cargo verify`) it goes through one run.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its figures and panics where a set-up fails"
)]
#![allow(dead_code, reason = "the end-to-end tests ask more of their stage")]

#[path = "../../../tests/e2e/bench.rs"]
mod bench;
#[path = "../../../tests/e2e/binary.rs"]
mod binary;
#[path = "../../../tests/e2e/front.rs"]
mod front;
#[path = "../../../tests/e2e/install.rs"]
mod install;
#[path = "../../../tests/e2e/stage/mod.rs"]
mod stage;

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kproxide_testkit::{ControlPlane, eventually, is_bench, require_controlplane};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config};
use serde_json::json;

use bench::on_a_cluster;
use stage::{SOON, Scene, Stage};

const APP: &str = "web";

fn main() {
    let measures = is_bench();
    assert!(
        !measures || require_controlplane().is_some(),
        "nothing to measure without the real control plane"
    );
    let runs = if measures { 20 } else { 1 };
    on_a_cluster(async |bench| {
        // The stage's own timings are faster than production's.
        let production = json!({ "extraArgs": ["--cold-start=0s"] });
        let stage = Stage::set(bench, Scene::with(production)).await;
        stage.deploy(APP, 0, "500m", "512Mi", json!({})).await;
        let mut latencies = Vec::new();
        for run in 1..=runs {
            let latency = measure(&stage).await;
            println!("run {run}: {} ms", latency.as_millis());
            latencies.push(latency);
        }
        stage.end().await;
        latencies.sort();
        println!(
            "unschedulable to clone request, {runs} runs: p50 {} ms, max {} ms",
            latencies[runs / 2].as_millis(),
            latencies[runs - 1].as_millis()
        );
    });
}

/// From nothing to one machine and back.
async fn measure(stage: &Stage<'_>) -> Duration {
    let mut pods = pin!(pods(stage.cluster).await);
    let seen = stage.served.pve.audit().len();
    stage.scale(APP, 1).await;
    let refused = refused(&mut pods, stage).await;
    let asked = eventually(SOON, "a clone request", async || cloned(stage, seen)).await;
    stage.until_running(APP, 1).await;
    stage.until_machines(1).await;
    assert_eq!(clones(stage, seen).len(), 1, "one pod takes one machine");
    stage.scale(APP, 0).await;
    stage.until_nothing_is_left().await;
    // The watch may be late on a busy computer: a clone request before it showed the refusal would answer another question than the one that is
    // asked here.
    let latency = asked.duration_since(refused);
    assert!(
        !latency.is_negative(),
        "the clone was asked for {latency:#} before the watch showed the refusal"
    );
    latency.unsigned_abs()
}

/// When a watch showed that the scheduler has refused the pod.
async fn refused(pods: &mut (impl Stream<Item = Pod> + Unpin), stage: &Stage<'_>) -> Timestamp {
    let refusal = async {
        while let Some(pod) = pods.next().await {
            let conditions = pod.status.and_then(|status| status.conditions);
            let is_refused = conditions.iter().flatten().any(|condition| {
                condition.type_ == "PodScheduled"
                    && condition.status == "False"
                    && condition.reason.as_deref() == Some("Unschedulable")
            });
            if is_refused {
                return stage.served.pve.clock().now();
            }
        }
        panic!("the watch of pods ended")
    };
    tokio::time::timeout(SOON, refusal).await.unwrap()
}

fn cloned(stage: &Stage<'_>, seen: usize) -> Option<Timestamp> {
    clones(stage, seen).first().copied()
}

/// When Proxmox VE was asked for clones.
fn clones(stage: &Stage<'_>, seen: usize) -> Vec<Timestamp> {
    let requests = stage.served.pve.audit_since(seen);
    requests
        .iter()
        .filter(|request| request.method == "POST" && request.path.ends_with("/clone"))
        .map(|request| request.at)
        .collect()
}

/// The app's pods whenever they change, by the watch that kproxide has too. It has begun: what happens from now on is seen when it happens.
async fn pods(cluster: &ControlPlane) -> impl Stream<Item = Pod> {
    let read = Kubeconfig::read_from(cluster.admin_kubeconfig_path()).unwrap();
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config).unwrap(), "default");
    let selection = watcher::Config::default().labels(&format!("app={APP}"));
    let mut events = watcher(pods, selection).boxed();
    let begun =
        async { while !matches!(events.next().await.unwrap().unwrap(), Event::InitDone) {} };
    tokio::time::timeout(SOON, begun).await.unwrap();
    events.applied_objects().map(|pod| pod.unwrap()).boxed()
}
