//! What goes wrong with policies, told to their pools.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{lab, run};
use kproxide_controller::config::Config;
use kproxide_lab::furnished;
use kproxide_lab::{Lab, Setting, config};
use kproxide_policy::{PolicyFile, PolicyFiles};

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
        (&json!("False"), &json!("InvalidSettings")),
        "{ready}"
    );
    let message = ready["message"].as_str().unwrap();
    let field = "spec.policies.labels.settings or spec.labelTemplates: policy go-template: ";
    assert!(message.starts_with(field), "{message}");
    assert!(message.contains("example.com/rack"), "{message}");
    let notes = told(&lab, "PolicyFailed");
    let is_named = |note: &String| note.contains("example.com/rack");
    assert!(notes.iter().any(is_named), "{notes:?}");

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
    let files: PolicyFiles = [("down".into(), PolicyFile::alone(hostile.wasm))].into();
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
    let files: PolicyFiles = [("spread".into(), PolicyFile::alone(b"not wasm"))].into();
    run_with_policies(&lab, files, Duration::from_secs(10 * 60)).await;
    let [note] = &told(&lab, "PolicyRefused")[..] else {
        panic!("{:?}", told(&lab, "PolicyRefused"));
    };
    let expected = "the file of policy spread is refused and the built-in of that name answers: ";
    assert!(note.starts_with(expected), "{note}");
    // Not only the Event, which may be lost.
    let ready = pool_ready(&lab);
    assert_eq!(ready["status"], "False");
    assert_eq!(ready["reason"], "PolicyRefused");
    let message = ready["message"].as_str().unwrap();
    let field = "spec.policies.hostSelection: ";
    assert!(
        message.starts_with(&format!("{field}{expected}")),
        "{message}"
    );
}

/// Before anything is asked: no machine is wanted.
#[tokio::test(start_paused = true)]
async fn w12_settings_are_checked_when_the_pool_changes() {
    let lab = lab();
    edit_pool(
        &lab,
        json!({ "policies": { "hostSelection": { "use": "max-cpu", "settings": { "measure": "mhz" } } } }),
    );
    run_with_policies(&lab, PolicyFiles::new(), Duration::from_secs(60)).await;
    let ready = pool_ready(&lab);
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!("InvalidSettings"))
    );
    let message = ready["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec.policies.hostSelection.settings: policy max-cpu: its settings are wrong: settings field \"measure\": "),
        "{message}"
    );
    edit_pool(
        &lab,
        json!({ "policies": { "hostSelection": { "use": "max-cpu", "settings": { "measure": "cores" } } } }),
    );
    run_with_policies(&lab, PolicyFiles::new(), Duration::from_secs(60)).await;
    assert_eq!(pool_ready(&lab)["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_pools_status_tells_which_bytes_answer_since_when_and_what_went_wrong_last() {
    let lab = lab();
    let shown = || {
        let pool = lab.kube.get("nodepools.kproxide.dev", "", "workers");
        let policies = pool.unwrap()["status"]["policies"].clone();
        let of = |kind: &str| {
            let mut all = policies.as_array().unwrap().iter();
            all.find(|it| it["kind"] == kind).unwrap().clone()
        };
        (of("hostSelection"), of("scaleDown"))
    };
    let pack = kproxide_builtins::builtin("pack").unwrap();
    let good: PolicyFiles = [("mine".into(), PolicyFile::alone(pack.wasm))].into();
    let bad: PolicyFiles = [("mine".into(), PolicyFile::alone(b"not wasm"))].into();
    edit_pool(
        &lab,
        json!({ "policies": { "hostSelection": { "use": "mine" } } }),
    );
    run_with_policies(&lab, good.clone(), Duration::from_secs(60)).await;
    let (mine, least_loaded) = shown();
    let digest = format!("sha256:{}", pack.sha256);
    let version = env!("CARGO_PKG_VERSION");
    let since = mine["since"].clone();
    assert_eq!(
        mine,
        json!({ "kind": "hostSelection", "name": "mine", "version": version, "digest": digest, "file": "(in memory)", "since": since })
    );
    assert_eq!(
        (&least_loaded["name"], least_loaded.get("file")),
        (&json!("least-loaded"), None)
    );

    // After a restart they answer since as long.
    run_with_policies(&lab, good, Duration::from_secs(60)).await;
    assert_eq!(shown(), (mine, least_loaded.clone()));

    run_with_policies(&lab, bad, Duration::from_secs(60)).await;
    let (mine, unchanged) = shown();
    assert_eq!((mine.get("digest"), mine.get("version")), (None, None));
    assert_ne!(mine["since"], since);
    let error = mine["lastError"].as_str().unwrap();
    assert!(error.contains("it is not WebAssembly"), "{error}");
    assert_eq!(mine["lastErrorTime"], mine["since"]);
    assert_eq!(unchanged, least_loaded);
}

/// An endless loop left `Ready` at True.
#[tokio::test(start_paused = true)]
async fn w5_a_policy_that_is_left_alone_makes_its_pool_not_ready() {
    let small = json!({ "instanceTypes": [{ "name": "small", "cores": 1, "memoryMiB": 2048 }] });
    let lab = furnished(Setting::new(1, 2), small, json!({}));
    let mut hostile = kproxide_builtins::HOSTILE.iter();
    let hostile = hostile.find(|policy| policy.name == "hostile").unwrap();
    let files: PolicyFiles = [("mine".into(), PolicyFile::alone(hostile.wasm))].into();
    let policy = json!({ "use": "mine", "settings": { "do": "nan-score" } });
    edit_pool(
        &lab,
        json!({ "limits": { "minNodes": 6, "maxNodes": 6 }, "policies": { "hostSelection": policy } }),
    );
    // The file comes first and knows no settings: it passes its self-test.
    run_with_policies(&lab, files, Duration::from_secs(10 * 60)).await;
    let ready = pool_ready(&lab);
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!("PolicyFailed"))
    );
    let message = ready["message"].as_str().unwrap();
    let expected = "spec.policies.hostSelection: policy mine: after 5 failures in a row kproxide does not call it";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(
        lab.kube.list("nodeclaims.kproxide.dev").len(),
        6,
        "spread stands in"
    );
}
