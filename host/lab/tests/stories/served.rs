//! Pods that get no machine, and are told why.

use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::NodeSpec;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::degraded::{HOUR, lively};
use super::run;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished, run_with};

/// A pod that only a machine has room for.
fn pod(lab: &Lab, name: &str, spec: Value) {
    let mut pod = fixtures::pod(name, "3", "1Gi");
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    lab.apply([("pods", pod)]);
}

/// The Events about a pod: how often each was said is not counted.
fn told(lab: &Lab, pod: &str) -> Vec<String> {
    let events = lab.kube.list("events.events.k8s.io");
    let about = events
        .iter()
        .filter(|event| event["regarding"]["name"] == pod);
    about
        .map(|event| {
            let text = |field: &str| event[field].as_str().unwrap().to_owned();
            text("reason") + ": " + &text("note")
        })
        .collect()
}

fn launched(lab: &Lab) -> usize {
    lab.kube.list("nodeclaims.kproxide.dev").len()
}

#[tokio::test(start_paused = true)]
async fn r28_a_pod_of_another_scheduler_is_told_once() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    for name in ["n08-volcano", "another"] {
        pod(&lab, name, json!({"schedulerName": "volcano"}));
    }
    run(&lab, HOUR).await;
    assert_eq!(launched(&lab), 0);
    for name in ["n08-volcano", "another"] {
        assert_eq!(
            told(&lab, name),
            [
                "NotTriggerScaleUp: pod didn't trigger scale-up: its scheduler is volcano, and kproxide makes machines for pods of \
                default-scheduler (--scheduler-names)"
            ]
        );
        let events = lab.kube.list("events.events.k8s.io");
        let event = events
            .iter()
            .find(|event| event["regarding"]["name"] == name);
        assert_eq!(event.unwrap()["series"], Value::Null, "said once");
    }
}

#[tokio::test(start_paused = true)]
async fn r28_the_schedulers_whose_pods_are_served_can_be_named() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    pod(&lab, "mine", json!({"schedulerName": "mine"}));
    // It would be bound to the machine that is made for the other.
    let nowhere = json!({"kproxide.dev/pool": "none"});
    pod(&lab, "usual", json!({ "nodeSelector": nowhere }));
    refuse(&lab, "mine");
    let mut config = config("kproxide-0");
    config.served.schedulers = ["mine".into()].into();
    // No such scheduler runs, so nobody binds the pod, and after six minutes the machine does not count for it.
    run_with(&lab, config, MACHINE / 2).await;
    assert_eq!(launched(&lab), 1);
    let told = |pod: &str, what: &str| told(&lab, pod).iter().any(|note| note.contains(what));
    assert!(told("mine", "TriggeredScaleUp"));
    assert!(told("usual", "its scheduler is default-scheduler"));
    assert!(!told("usual", "TriggeredScaleUp"));
}

/// As somebody else's controller writes it, who knows that no Node is large enough.
fn refuse(lab: &Lab, pod: &str) {
    let refused = json!({"status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let patched = lab.kube.patch("pods", "status", "default", pod, refused);
    patched.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r7_a_pod_with_gates_makes_no_machine_until_the_last_is_gone() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    for name in ["queued", "admitted"] {
        pod(
            &lab,
            name,
            json!({"schedulingGates": [{"name": "a"}, {"name": "b"}]}),
        );
        refuse(&lab, name);
    }
    run(&lab, MACHINE).await;
    assert_eq!(launched(&lab), 0);
    for gates in [json!([{"name": "b"}]), json!([])] {
        assert_eq!(launched(&lab), 0);
        let patch = json!({"spec": {"schedulingGates": gates}});
        let patched = lab.kube.patch("pods", "", "default", "admitted", patch);
        patched.unwrap();
        run(&lab, MACHINE).await;
    }
    assert_eq!(launched(&lab), 1);
    assert_eq!(told(&lab, "queued"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn r8_an_expendable_pod_makes_no_machine_and_keeps_none() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    pod(&lab, "n09-expendable", json!({"priority": -1000}));
    run(&lab, MACHINE).await;
    assert_eq!(launched(&lab), 0);
    assert_eq!(
        told(&lab, "n09-expendable"),
        [
            "NotTriggerScaleUp: pod didn't trigger scale-up: its priority is -1000, and kproxide makes no machine for pods \
            below -10 (--least-priority)"
        ]
    );
    // A machine that something else needs takes it in, and goes in spite of it.
    let large =
        json!([{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "3500m"}}}]);
    pod(&lab, "needed", json!({"priority": 5, "containers": large}));
    run(&lab, MACHINE).await;
    assert_eq!(launched(&lab), 1);
    lab.kube.delete("pods", "default", "needed").unwrap();
    sleep(Duration::from_secs(60)).await;
    let runs = |name: &str| {
        let pod = lab.kube.get("pods", "default", name);
        pod.is_some_and(|pod| pod["spec"]["nodeName"].is_string())
    };
    assert!(runs("n09-expendable"), "there is room for it");
    run(&lab, HOUR).await;
    assert_eq!(launched(&lab), 0);
    assert!(!runs("n09-expendable"), "it was evicted");
}

/// The simulated scheduler has no filter for nfs volumes, and never binds a pod with one.
#[tokio::test(start_paused = true)]
async fn r27_a_pod_refused_for_no_reason_that_kproxide_sees_is_told_and_gets_ever_fewer_machines() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    let uuid = "a0000000-0000-4000-8000-000000000009";
    let agent = NodeSpec::new("agent-1", uuid, 16_000, 65_536);
    lab.kubelets.start_node(agent);
    let nfs = json!([{"name": "v", "nfs": {"server": "nas", "path": "/x"}}]);
    pod(&lab, "refused", json!({ "volumes": nfs }));
    pod(&lab, "usual", json!({}));
    // One process: another one begins to count anew.
    run(&lab, HOUR).await;
    let told = told(&lab, "refused");
    let fits = |it: &String| {
        it.starts_with("NotTriggerScaleUp: pod didn't trigger scale-up: fits on Node agent-1 as far as kproxide sees")
    };
    assert!(told.iter().any(fits), "{told:?}");
    let births = lab.pve.snapshot().births;
    let made = births.iter().filter(|birth| birth.vmid < 9_000);
    // One at first, and one after each rest: of 5, 10 and 20 minutes.
    assert!((1..=4).contains(&made.count()));
}
