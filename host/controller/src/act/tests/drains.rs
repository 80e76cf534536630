//! Drains whose ground gives way: what cannot be read is not empty, and a drain that is no longer wanted leaves no trace.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use kproxide_planner::claim::Phase;
use kproxide_planner::keys::{DRAINING_TAINT, EXCLUDE_FROM_LOAD_BALANCERS, EXCLUDED_BY_US};
use kproxide_planner::plan::{RemovalReason, Verdict};
use kproxide_planner::reasons::on_hold::Hold;
use kproxide_simulator::faults::Fault;
use kproxide_simulator::matcher::Matcher;
use serde_json::json;
use tokio::time::timeout;

use super::breaking::advance;
use super::lab::{CLAIM, Host, Lab, VMID, turn};
use super::lives::{closed, in_service, kept_pod};

async fn draining(lab: &Lab) -> bool {
    lab.claim()
        .await
        .is_some_and(|claim| claim.facts.status.phase == Phase::Draining)
}

/// A machine in service, with a pod that a budget keeps on it.
async fn with_a_kept_pod() -> (Lab, Host) {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    kept_pod(&lab);
    (lab, host)
}

/// kproxide takes a list of pods that failed for what it is, at the API, not only in the planner.
#[tokio::test(start_paused = true)]
async fn b16_pods_that_cannot_be_listed_are_not_gone() {
    let (mut lab, mut host) = with_a_kept_pod().await;
    let down = Verdict::Remove(RemovalReason::Underutilized);
    assert!(turn(&mut lab, &mut host, &down, draining).await);

    // As an API server that is overloaded: every list of pods fails, and the answer to every eviction is lost.
    let pods = Matcher::new(Method::GET, "/api/v1/pods");
    let evictions = Matcher::new(Method::POST, "/pods/*/eviction");
    lab.faults.inject(pods, Fault::Fail, 30);
    lab.faults.inject(evictions, Fault::LoseAnswer, 30);
    let seen = async |lab: &Lab| lab.faults.happened().len() >= 30;
    assert!(turn(&mut lab, &mut host, &down, seen).await);
    assert!(lab.kube.get("pods", "default", "web").is_some());
    assert!(lab.claim().await.unwrap().facts.deleting_since.is_none());
    assert!(lab.pve.snapshot().vms.iter().any(|vm| vm.vmid == VMID));
    assert!(lab.node().await.is_some());

    // It ends, and that is seen.
    let done = json!({"status": {"phase": "Succeeded"}});
    lab.kube
        .patch("pods", "status", "default", "web", done)
        .unwrap();
    assert!(turn(&mut lab, &mut host, &down, closed).await);
}

/// Whether the record of a refusal is written, fails, or meets somebody else's write: a budget is asked again after its pause, not before.
#[tokio::test(start_paused = true)]
async fn f69_a_refused_eviction_rests_even_if_the_refusal_cannot_be_written_down() {
    let (mut lab, mut host) = with_a_kept_pod().await;
    let down = Verdict::Remove(RemovalReason::Underutilized);
    assert!(turn(&mut lab, &mut host, &down, draining).await);
    // The drain has lasted for long enough that a refusal is told.
    let asked = async |lab: &Lab| evictions(lab).len() >= 15;
    assert!(turn(&mut lab, &mut host, &down, asked).await);
    let status = Matcher::new(Method::PATCH, "/nodeclaims/*/status");
    for fault in [Fault::Fail, Fault::LoseAnswer] {
        // What was told before is forgotten, so that it has to be told again.
        forget_what_was_told(&lab);
        let so_far = evictions(&lab).len();
        lab.faults.inject(status.clone(), fault, 5);
        let asked = async |lab: &Lab| evictions(lab).len() >= so_far + 5;
        assert!(turn(&mut lab, &mut host, &down, asked).await);
    }
    assert!(!lab.faults.happened().is_empty());
    let pauses = pauses(&lab);
    assert!(pauses.iter().all(|pause| *pause >= 5), "{pauses:?}");
}

/// A watch that fails for a moment holds the drain, and gives it back with the next plan: at rest after a refusal, and while it is being refused.
#[tokio::test(start_paused = true)]
async fn f69_a_refused_eviction_rests_though_its_drain_is_held_for_a_moment() {
    let (mut lab, mut host) = with_a_kept_pod().await;
    let down = Verdict::Remove(RemovalReason::Underutilized);
    let asked = async |lab: &Lab| !evictions(lab).is_empty();
    assert!(turn(&mut lab, &mut host, &down, asked).await);
    let claim = lab.claim().await.expect("it is being drained");
    let hold = Verdict::Hold(Hold::WatchFailing("pods".into()));
    let plans = [advance(&claim, down), advance(&claim, hold)];
    for late in [false, true] {
        let so_far = evictions(&lab).len();
        if late {
            let asks = Matcher::new(Method::POST, "/pods/*/eviction");
            lab.faults
                .inject(asks, Fault::Delay(Duration::from_millis(1_500)), 100);
        }
        for plan in plans.iter().cycle().take(60) {
            host.actor.start(plan, &host.world, &host.term).await;
            let _ = timeout(Duration::from_secs(1), host.actor.finished()).await;
        }
        assert!(evictions(&lab).len() > so_far + 3);
    }
    let pauses = pauses(&lab);
    assert!(pauses.iter().all(|pause| *pause >= 5), "{pauses:?}");
}

/// The seconds between one attempt to evict and the next.
fn pauses(lab: &Lab) -> Vec<i64> {
    evictions(lab)
        .windows(2)
        .map(|pair| pair[1].duration_since(pair[0]).as_secs())
        .collect()
}

/// When a pod was asked to leave.
fn evictions(lab: &Lab) -> Vec<Timestamp> {
    let audit = lab.kube.audit();
    audit
        .iter()
        .filter(|entry| entry.subresource == "eviction")
        .map(|entry| entry.at)
        .collect()
}

fn forget_what_was_told(lab: &Lab) {
    let mut claim = lab.kube.get("nodeclaims.kproxide.dev", "", CLAIM).unwrap();
    let conditions = claim["status"]["conditions"].as_array_mut().unwrap();
    for condition in conditions {
        if condition["type"] == "Drained" {
            condition["message"] = json!("");
        }
    }
    let status = json!({"status": {"conditions": claim["status"]["conditions"]}});
    lab.kube
        .patch("nodeclaims.kproxide.dev", "status", "", CLAIM, status)
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn b15_a_node_whose_removal_is_no_longer_wanted_takes_pods_again() {
    let (mut lab, mut host) = with_a_kept_pod().await;
    let down = Verdict::Remove(RemovalReason::Underutilized);
    let cordoned = async |lab: &Lab| lab.node().await.is_some_and(|node| node.unschedulable);
    assert!(turn(&mut lab, &mut host, &down, cordoned).await);

    let back = async |lab: &Lab| {
        lab.node().await.is_some_and(|node| {
            !node.unschedulable
                && node
                    .taints
                    .iter()
                    .all(|taint| &*taint.key != DRAINING_TAINT)
        })
    };
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, back).await);
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    assert!(lab.kube.get("pods", "default", "web").is_some());
}

/// Load balancers send no new connections to a Node that goes. An operator's own label is not kproxide's to take off.
#[tokio::test(start_paused = true)]
async fn a_node_leaves_load_balancers_before_its_first_pod_leaves_and_comes_back_if_it_stays() {
    let down = Verdict::Remove(RemovalReason::Underutilized);
    for (theirs, in_drain, after) in [
        (None, Some(EXCLUDED_BY_US), None),
        (Some(""), Some(""), Some("")),
        (Some("true"), Some("true"), Some("true")),
    ] {
        let (mut lab, mut host) = with_a_kept_pod().await;
        if let Some(theirs) = theirs {
            let label = json!({"metadata": {"labels": {EXCLUDE_FROM_LOAD_BALANCERS: theirs}}});
            lab.kube.patch("nodes", "", "", CLAIM, label).unwrap();
        }
        let asked = async |lab: &Lab| !evictions(lab).is_empty();
        assert!(turn(&mut lab, &mut host, &down, asked).await);
        assert_eq!(excluded(&lab).await.as_deref(), in_drain);
        let audit = lab.kube.audit();
        let eviction = audit.iter().position(|it| it.subresource == "eviction");
        let write = audit.iter().rposition(|it| it.resource == "nodes");
        assert!(write < eviction, "the Node was written after an eviction");

        assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
        assert_eq!(excluded(&lab).await.as_deref(), after);
    }
}

async fn excluded(lab: &Lab) -> Option<String> {
    let node = lab.node().await.expect("it stays");
    node.labels.get(EXCLUDE_FROM_LOAD_BALANCERS).cloned()
}

/// What Proxmox does is seen at the VM as well.
#[tokio::test(start_paused = true)]
async fn a_removal_goes_on_though_no_task_can_be_followed() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    let status = Matcher::new(Method::GET, "/nodes/*/tasks/*/status");
    lab.faults.inject(status, Fault::Fail, 1000);
    let down = Verdict::Remove(RemovalReason::Empty);
    assert!(turn(&mut lab, &mut host, &down, closed).await);
    assert!(!lab.faults.happened().is_empty());
}
