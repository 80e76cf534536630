//! SIGKILL, and SIGTERM, while a request is on its way: one that is lost, one that took effect, one that arrives when the next run is there already. The next run
//! carries on, nothing is made twice and nothing is left.

use kproxide_simulator::holds::{HeldRequest, Hold, Phase};
use kproxide_testkit::eventually;
use serde_json::json;

use crate::bench::{Bench, on_a_cluster};
use crate::install::without_anchor;
use crate::stage::{SOON, Scene, Stage};

/// Of the case with a seed, unless it is told otherwise.
const KILLS: u64 = 5;

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
    let mut stage = Stage::set(bench, Scene::with(without_anchor())).await;
    let foreign = stage.put_up_a_foreign_vm();
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
    stage.assert_untouched(&foreign);
    stage.end().await;
}

/// Kills kproxide while `request` is held on the way down.
async fn killed_on_the_way_down(bench: &Bench, request: &str, fate: Fate) {
    let mut stage = Stage::set(bench, Scene::with(without_anchor())).await;
    stage.deploy("web", 1, "3", "1Gi", json!({})).await;
    stage.until_running("web", 1).await;
    let foreign = stage.put_up_a_copy_of_ours();
    let hold = stage
        .served
        .pve
        .hold(request.parse().unwrap(), fate.phase());
    stage.scale("web", 0).await;
    let held = caught(&hold).await;
    kill(&mut stage, hold, &held, fate).await;
    stage.until_nothing_is_left().await;
    assert_eq!(stage.born(), 1, "{request} {fate:?}");
    stage.assert_untouched(&foreign);
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
    let foreign = stage.put_up_a_copy_of_ours();

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
    stage.assert_untouched(&foreign);
    stage.end().await;
}

/// A request to the API server or to Proxmox, and what becomes of it when its sender dies.
type Point = (&'static str, Fate);

fn hold(stage: &Stage<'_>, (request, fate): Point) -> Hold {
    // Those to Proxmox go by a name.
    if request.contains(' ') {
        stage.front.as_ref().unwrap().hold(request, fate.phase())
    } else {
        stage
            .served
            .pve
            .hold(request.parse().unwrap(), fate.phase())
    }
}

/// Kills kproxide at each of these requests, one after the other. `begin` leads to the first of them.
async fn kill_at_each(
    stage: &mut Stage<'_>,
    points: &[Point],
    begin: impl AsyncFnOnce(&Stage<'_>),
) {
    let Some((first, others)) = points.split_first() else {
        return;
    };
    let mut held = hold(stage, *first);
    begin(stage).await;
    let mut at = *first;
    for next in others.iter().map(Some).chain([None]) {
        let (request, fate) = at;
        tokio::time::timeout(SOON, held.caught())
            .await
            .unwrap_or_else(|_| panic!("{request} does not come"));
        stage.pod.kill9().await.unwrap();
        match fate {
            Fate::Lost => held.discard(),
            Fate::Applied => held.release(),
            Fate::Late => panic!("{request}: late requests have their own cases"),
        }
        let Some(next) = next else { break };
        // Before the next run can send it.
        (held, at) = (hold(stage, *next), *next);
        stage.pod.restart().await.unwrap();
    }
    stage.pod.restart().await.unwrap();
    stage.pod.ready(SOON).await.unwrap();
}

/// Kills kproxide at every one of its own records on the way up and on the way down again.
async fn killed_at_its_records(bench: &Bench, fate: Fate) {
    let scene = Scene {
        fronted: true,
        ..Scene::with(without_anchor())
    };
    let mut stage = Stage::set(bench, scene).await;
    let foreign = stage.put_up_a_foreign_vm();
    let up = [
        "PUT /ledgers/*",
        "POST /nodeclaims",
        "PATCH /nodeclaims/*/status",
        "PATCH /nodes/*",
    ];
    kill_at_each(
        &mut stage,
        &up.map(|request| (request, fate)),
        async |stage| {
            stage.deploy("web", 1, "3", "1Gi", json!({})).await;
        },
    )
    .await;
    stage.until_running("web", 1).await;
    stage.until_in_step(1).await;
    assert_eq!(stage.born(), 1, "{fate:?}: {:?}", stage.births());
    let down = [
        // The taint that keeps new pods away.
        "PATCH /nodes/*",
        "DELETE /nodeclaims/*",
        // The tombstone.
        "config",
        "shutdown",
        "DELETE /nodes/*",
        // The finalizer.
        "PATCH /nodeclaims/*",
    ];
    kill_at_each(
        &mut stage,
        &down.map(|request| (request, fate)),
        async |stage| {
            stage.scale("web", 0).await;
        },
    )
    .await;
    stage.until_nothing_is_left().await;
    assert_eq!(stage.born(), 1, "{fate:?}: {:?}", stage.births());
    stage.assert_untouched(&foreign);
    stage.end().await;
}

/// Numbers that follow from a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// A number from the environment.
fn given(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// Kills kproxide so many times, each time after as many of its requests as the seed says, while the load goes up and down.
async fn killed_at_seeded_moments(bench: &Bench, seed: u64, kills: u64) {
    /// A start alone takes about thirty.
    const REQUESTS_MAX: u64 = 120;
    const PODS_MAX: u64 = 4;
    let scene = Scene {
        fronted: true,
        ..Scene::default()
    };
    let mut stage = Stage::set(bench, scene).await;
    let foreign = stage.put_up_a_foreign_vm();
    let mut draws = Draws(seed);
    stage.deploy("web", 1, "3", "1Gi", json!({})).await;
    for kill in 0..kills {
        let (pods, requests) = (draws.below(PODS_MAX + 1), 1 + draws.below(REQUESTS_MAX));
        stage.scale("web", pods.try_into().unwrap()).await;
        let after = stage
            .front
            .as_ref()
            .unwrap()
            .after(requests.try_into().unwrap());
        tokio::time::timeout(SOON, after)
            .await
            .unwrap_or_else(|_| panic!("seed {seed}, kill {kill}: no {requests} requests"));
        stage.pod.kill9().await.unwrap();
        stage.pod.restart().await.unwrap();
    }
    stage.pod.ready(SOON).await.unwrap();
    stage.scale("web", 2).await;
    stage.until_running("web", 2).await;
    stage.until_in_step(2).await;
    stage.scale("web", 0).await;
    stage.until_nothing_is_left().await;
    // No claim has had two: a number is used once.
    let mut numbers: Vec<_> = stage.births().iter().map(|birth| birth.vmid).collect();
    let born = numbers.len();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), born, "seed {seed}: {:?}", stage.births());
    stage.assert_untouched(&foreign);
    stage.end().await;
}

/// Tells kproxide to stop while `request` is held, which is one of making the first machine or of removing the only one: the step that it belongs to is done to its end, nothing more is begun, and the next run carries on.
async fn told_to_stop(bench: &Bench, request: &'static str, machines: u32) {
    let mut stage = Stage::set(bench, Scene::with(without_anchor())).await;
    let foreign = stage.put_up_a_foreign_vm();
    stage.deploy("web", machines, "3", "1Gi", json!({})).await;
    stage
        .until_running("web", machines.try_into().unwrap())
        .await;
    let hold = hold(&stage, (request, Fate::Late));
    stage.scale("web", 1 - machines).await;
    let held = caught(&hold).await;
    stage.pod.tell_to_stop().await.unwrap();
    eventually(SOON, "the process on its way out", async || {
        let log = std::fs::read_to_string(stage.pod.log_path()).unwrap();
        log.contains("come to a safe point")
            .then_some(())
            .ok_or_else(|| stage.pod.log_tail(20))
    })
    .await;
    assert_eq!(
        stage.pod.ended(),
        None,
        "it ended in the middle of {held:?}"
    );
    let asked = stage.served.pve.audit().len();
    hold.release();
    let status = eventually(SOON, "the process ended", async || {
        stage.pod.ended().ok_or("it runs")
    })
    .await;
    assert!(status.success(), "{status}: {}", stage.pod.log_tail(40));
    let effects = stage.served.pve.audit_since(asked).into_iter();
    let effects: Vec<_> = effects.filter(|asked| asked.method != "GET").collect();
    // The request that was held, alone: what followed it are records in Kubernetes.
    let [effect] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert!(held.path.ends_with(&effect.path), "{effect:?}");
    stage.pod.restart().await.unwrap();
    stage.pod.ready(SOON).await.unwrap();
    stage.scale("web", 1).await;
    stage.until_running("web", 1).await;
    stage.until_in_step(1).await;
    stage.scale("web", 0).await;
    stage.until_nothing_is_left().await;
    assert_eq!(stage.born(), 1 + usize::try_from(machines).unwrap());
    stage.assert_untouched(&foreign);
    stage.end().await;
}

async fn caught(hold: &Hold) -> HeldRequest {
    tokio::time::timeout(SOON, hold.caught())
        .await
        .expect("the request does not come")
}

#[test]
#[ignore = "tier: e2e"]
fn told_to_stop_while_it_clones_it_makes_no_second_machine() {
    on_a_cluster(async |bench| told_to_stop(bench, "clone", 0).await);
}

#[test]
#[ignore = "tier: e2e"]
fn told_to_stop_while_it_removes_the_next_run_removes() {
    on_a_cluster(async |bench| told_to_stop(bench, "shutdown", 1).await);
}

#[test]
#[ignore = "tier: e2e"]
fn killed_at_every_record_before_it_stands() {
    on_a_cluster(async |bench| killed_at_its_records(bench, Fate::Lost).await);
}

#[test]
#[ignore = "tier: e2e"]
fn killed_at_every_record_once_it_stands() {
    on_a_cluster(async |bench| killed_at_its_records(bench, Fate::Applied).await);
}

/// `KPROXIDE_KILLS=50 KPROXIDE_SEED=7` makes it longer, and another one.
#[test]
#[ignore = "tier: e2e"]
fn killed_at_seeded_moments_everything_is_in_step_at_the_end() {
    let (seed, kills) = (given("KPROXIDE_SEED"), given("KPROXIDE_KILLS"));
    let (seed, kills) = (seed.unwrap_or(1), kills.unwrap_or(KILLS));
    on_a_cluster(async |bench| killed_at_seeded_moments(bench, seed, kills).await);
}

#[test]
#[ignore = "tier: e2e"]
fn killed_around_the_clone() {
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "clone", Fate::Lost).await);
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "clone", Fate::Applied).await);
    on_a_cluster(async |bench| killed_on_the_way_up(bench, "clone", Fate::Late).await);
}

#[test]
#[ignore = "tier: e2e"]
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
#[ignore = "tier: e2e"]
fn killed_around_an_eviction() {
    on_a_cluster(async |bench| killed_while_it_evicts(bench, Fate::Lost).await);
    on_a_cluster(async |bench| killed_while_it_evicts(bench, Fate::Applied).await);
}

#[test]
#[ignore = "tier: e2e"]
fn killed_around_the_destruction() {
    on_a_cluster(async |bench| killed_on_the_way_down(bench, "destroy", Fate::Lost).await);
    on_a_cluster(async |bench| killed_on_the_way_down(bench, "destroy", Fate::Applied).await);
    on_a_cluster(async |bench| killed_on_the_way_down(bench, "destroy", Fate::Late).await);
}
