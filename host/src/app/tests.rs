//! A whole host in a whole world.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::config::Config;
use crate::lab::{Lab, Setting, config};
use crate::policy::PolicyFiles;

/// Two hypervisors and a pool that wants one machine.
fn lab() -> Lab {
    let lab = Lab::new(Setting::new(1, 2));
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        })
    };
    let cluster = json!({
        "endpoints": ["https://pve1:8006"], "tls": { "insecureSkipVerify": true }, "credentials": "home",
        "pool": "k8s", "vmidRange": { "first": 500, "last": 599 },
    });
    let class = json!({
        "template": { "name": "k8s-node", "placement": "local" },
        "instanceTypes": [{ "name": "medium", "cores": 4, "memoryMiB": 8192 }],
        "cloudInit": { "dhcp": true },
        "join": { "template": {} },
    });
    let pool = json!({ "nodeClass": "debian", "limits": { "minNodes": 1, "maxNodes": 3 } });
    lab.apply([
        (
            "proxmoxclusters.kproxide.dev",
            object("ProxmoxCluster", "home", cluster),
        ),
        (
            "nodeclasses.kproxide.dev",
            object("NodeClass", "debian", class),
        ),
        (
            "nodepools.kproxide.dev",
            object("NodePool", "workers", pool),
        ),
    ]);
    lab
}

/// Lets a host run for so long, then stops it.
async fn run(lab: &Lab, time: Duration) {
    let (app, host) = lab
        .host("kproxide-0", config("kproxide-0"))
        .expect("policies run here");
    let stop = async {
        sleep(time).await;
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(stop, app.run());
    ended.expect("it ends because it was told to");
}

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

fn cluster_status(lab: &Lab) -> Value {
    lab.kube
        .get("proxmoxclusters.kproxide.dev", "", "home")
        .expect("nobody deletes it")["status"]
        .clone()
}

#[tokio::test(start_paused = true)]
async fn a_lost_key_is_never_replaced() {
    const MACHINE: Duration = Duration::from_secs(10 * 60);
    let lab = lab();
    run(&lab, MACHINE).await;
    assert_eq!(lab.kube.list("nodeclaims.kproxide.dev").len(), 1);
    let fingerprint = cluster_status(&lab)["keyFingerprint"].clone();
    assert!(fingerprint.is_string(), "{fingerprint}");

    lab.kube
        .delete("secrets", "kube-system", "kproxide-ownership-key")
        .unwrap();
    run(&lab, MACHINE).await;
    assert!(lab.kube.list("secrets").is_empty());
    let status = cluster_status(&lab);
    assert_eq!(status["keyFingerprint"], fingerprint);
    let ready = &status["conditions"][0];
    assert_eq!(ready["reason"], "OwnershipKeyUnusable", "{status}");
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains("Restore the Secret"), "{message}");
    let told = |event: &Value| event["reason"] == "OwnershipKeyUnusable";
    assert!(lab.kube.list("events.events.k8s.io").iter().any(told));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_before_the_first_real_one_plans() {
    let lab = lab();
    let config = Config {
        dry_run: true,
        ..config("kproxide-0")
    };
    let (app, host) = lab.host("kproxide-0", config).unwrap();
    let vitals = app.vitals();
    let look = async {
        sleep(Duration::from_secs(30)).await;
        let (ask, answer) = oneshot::channel();
        vitals.debug_plan.send(ask).await.unwrap();
        let shown: Value = serde_json::from_slice(&answer.await.unwrap()).unwrap();
        host.stop.cancel();
        shown
    };
    let (shown, ended) = tokio::join!(look, app.run());
    ended.unwrap();
    assert_eq!(shown["plan"]["launches"][0]["spec"]["pool"], "workers");
    for resource in ["secrets", "nodeclaims.kproxide.dev"] {
        assert!(lab.kube.list(resource).is_empty(), "{resource}");
    }
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
