//! What goes wrong with policies, told to their pools.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{lab, run};
use crate::config::Config;
use crate::lab::{Lab, config};
use crate::policy::PolicyFiles;

/// As [`run`], with these files in the policy directory from the beginning.
async fn run_with_policies(lab: &Lab, files: PolicyFiles, time: Duration) {
    let config = Config {
        policy_dirs: vec!["/policies".into()],
        ..config("kproxide-0")
    };
    let (app, host) = lab.host("kproxide-0", config).unwrap();
    host.policy_files.send(files).await.unwrap();
    let stop = async {
        sleep(time).await;
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(stop, app.run());
    ended.unwrap();
}

fn edit_pool(lab: &Lab, spec: Value) {
    let patch = json!({ "spec": spec });
    lab.kube
        .patch("nodepools.kproxide.dev", "", "", "workers", patch)
        .unwrap();
}

/// The pool's condition `Ready`.
fn pool_ready(lab: &Lab) -> Value {
    let pool = lab.kube.get("nodepools.kproxide.dev", "", "workers");
    pool.unwrap()["status"]["conditions"][0].clone()
}

/// The notes of the Events about the pool with this reason.
fn told(lab: &Lab, reason: &str) -> Vec<String> {
    let events = lab.kube.list("events.events.k8s.io");
    let about_it = events
        .iter()
        .filter(|event| event["regarding"]["kind"] == "NodePool" && event["reason"] == reason);
    about_it
        .map(|event| event["note"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_label_template_that_is_broken_makes_its_pool_not_ready() {
    let lab = lab();
    edit_pool(
        &lab,
        json!({ "labelTemplates": { "example.com/rack": "{{ .TargetHost" } }),
    );
    run(&lab, Duration::from_secs(60)).await;
    let ready = pool_ready(&lab);
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!("PolicyFailed")),
        "{ready}"
    );
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains("example.com/rack"), "{message}");
    let notes = told(&lab, "PolicyFailed");
    assert!(notes.iter().any(|note| note == message), "{notes:?}");

    edit_pool(
        &lab,
        json!({ "labelTemplates": { "example.com/rack": "{{ .TargetHost }}" } }),
    );
    run(&lab, Duration::from_secs(60)).await;
    assert_eq!(pool_ready(&lab)["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_policy_that_traps_is_told_to_its_pool() {
    let lab = lab();
    let hostile = kproxide_builtins::HOSTILE
        .iter()
        .find(|policy| policy.name == "hostile-scale-down")
        .unwrap();
    let files: PolicyFiles = [("down".into(), Ok(hostile.wasm.into()))].into();
    run(&lab, Duration::from_secs(10 * 60)).await;
    let policy = json!({ "use": "down", "settings": { "do": "panic" } });
    edit_pool(
        &lab,
        json!({ "limits": { "minNodes": 0 }, "policies": { "scaleDown": policy } }),
    );
    run_with_policies(&lab, files, Duration::from_secs(60 * 60)).await;
    assert_eq!(lab.kube.list("nodeclaims.kproxide.dev").len(), 1);
    assert_eq!(pool_ready(&lab)["reason"], "PolicyFailed");
    let notes = told(&lab, "PolicyFailed");
    let expected = "scale-down policy down: it failed: ";
    assert!(
        notes.iter().any(|note| note.starts_with(expected)),
        "{notes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_policy_file_that_is_broken_from_the_beginning_is_told_to_its_pools() {
    let lab = lab();
    let files: PolicyFiles = [("spread".into(), Ok(b"not wasm"[..].into()))].into();
    run_with_policies(&lab, files, Duration::from_secs(10 * 60)).await;
    let [note] = &told(&lab, "PolicyRefused")[..] else {
        panic!("{:?}", told(&lab, "PolicyRefused"));
    };
    let expected = "the file of policy spread is refused and the built-in of that name answers: ";
    assert!(note.starts_with(expected), "{note}");
    assert_eq!(pool_ready(&lab)["status"], "True");
}
