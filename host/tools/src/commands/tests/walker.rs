//! A walker: hostile words in every text that may be in an answer of Kubernetes, of Proxmox, of a guest or of a policy, with the whole program on top. All
//! that leaves it is looked at: what it writes to Kubernetes of itself, its log, its admin port, and what commands print.

mod wires;

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Body;
use clap::Parser as _;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::time::sleep;
use tower::ServiceExt as _;

use self::wires::{SECRET, STRINGS, Walker};
use crate::args::tests::{Cli, Command};
use crate::commands::{plan, status};
use kproxide_common::captured::heard;
use kproxide_common::foreign::Out;
use kproxide_common::lines::Form;
use kproxide_controller::admin;
use kproxide_controller::config::Config;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished, wide};
use kproxide_policy::{PolicyFile, PolicyFiles};

/// Each place is hostile in one of so many runs: from the beginning, and in a second run once there is a machine, since hostile words may keep one from being
/// made. What the other runs say is what is said when the place is harmless. In the last run guests alone are hostile.
const PARTS: u64 = 4;
/// Where words come in, by their last part: all of these are hostile in some run.
const ENTRANCES: [&str; 9] = [
    "pods.spec.schedulerName",
    "pods.metadata.ownerReferences[].name",
    ".nodeSelectorTerms[].matchExpressions[].values[]",
    "nodes.status.conditions[].message",
    "nodes.metadata.annotations.*",
    "/agent/exec-status.data.out-data",
    "/tasks/*/status.data.exitstatus",
    "cluster/resources.data[].name",
    "/config.data.description",
];

#[test]
fn s5_s6_hostile_words_in_any_answer_leave_nowhere() {
    let (mut places, mut hostile, mut drawn) = (BTreeSet::new(), BTreeSet::new(), 0);
    let mut said = Vec::new();
    for run in 0..=2 * PARTS {
        let walker = match run < 2 * PARTS {
            true => Walker::new(run % PARTS, PARTS, run < PARTS, drawn),
            false => Walker::new(PARTS, PARTS, true, drawn),
        };
        let form = match run % 2 {
            0 => Form::Text,
            _ => Form::Json,
        };
        // With one subscriber alone, what another test's thread reaches first would be switched off for this thread too.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let (log, guard) = heard(form);
        let mut shown = left(run, &walker);
        drop(guard);
        shown.push(("log".to_owned(), log.text()));
        let seen = walker.seen();
        shown.extend(seen.sent);
        for (place, text) in &shown {
            clean(&format!("run {run}, {place}"), text);
        }
        said.extend(shown);
        places.extend(seen.places);
        hostile.extend(seen.hostile);
        drawn += seen.drawn.len();
    }
    // It was said, and it was said often: without this, all of it would be silence. Some is asked in passing, such as what went wrong, and not again.
    let spared: Vec<_> = places.difference(&hostile).collect();
    assert!(
        spared.len() * 5 < places.len(),
        "{spared:?} of {}",
        places.len()
    );
    for entrance in ENTRANCES {
        let is_it = |place: &String| place.ends_with(entrance);
        assert!(hostile.iter().any(is_it), "{entrance}: {hostile:?}");
    }
    assert!(drawn >= STRINGS, "{drawn} of {STRINGS} strings");
    for kind in [
        "log",
        "note",
        "message",
        "/debug/plan",
        "/metrics",
        "status",
        "explain",
    ] {
        let marks = said.iter().filter(|(place, text)| {
            place.contains(kind) && (kind == "/metrics" || text.contains('\u{fffd}'))
        });
        assert!(marks.count() > 0, "nothing was taken out of {kind}");
    }
}

/// By the ranges of the issue, not by those of the module.
fn clean(place: &str, text: &str) {
    let acts = |c: &char| {
        let is_control = matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}') && *c != '\n';
        let turns = matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        is_control || turns
    };
    if let Some(at) = text.find(|c| acts(&c)) {
        let (from, to) = (
            text.floor_char_boundary(at.saturating_sub(300)),
            text.ceil_char_boundary((at + 100).min(text.len())),
        );
        panic!("{place}: {:?}", &text[from..to]);
    }
    assert!(!text.contains(&SECRET[..16]), "{place} tells the secret");
}

/// All that a run says, with where it was said.
fn left(run: u64, walker: &Walker) -> Vec<(String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let mut said = runtime.block_on(ran(run, walker));
    drop(runtime);
    let (_, plan) = said
        .iter()
        .find(|(place, _)| place == "/debug/plan")
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    std::fs::write(&file, plan).unwrap();
    let file = file.display().to_string();
    for words in [
        "status",
        "status -o json",
        "status -o yaml",
        "plan",
        "plan -o json",
        "explain pool workers",
        "explain pod tenant-0 -n default",
        "explain pod tenant-1 -n default -o json",
    ] {
        let command = words.split(' ').chain(["-f", &file]);
        let text = printed(["kproxide"].into_iter().chain(command));
        said.push((words.to_owned(), text));
    }
    said
}

fn printed<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let mut out = Out::new(Vec::new());
    let ended = match Cli::try_parse_from(words).unwrap().command {
        Command::Status(args) => status::run(&args, &mut out),
        Command::Plan(args) => plan::run(&args, &mut out),
        Command::Explain(args) => plan::explain(&args, &mut out),
        _ => panic!("no command of these"),
    };
    let mut text = String::from_utf8(std::mem::take(out.raw())).unwrap();
    // What `tell` writes to standard error.
    if let Err(error) = ended {
        text += &kproxide_common::foreign::shown(&kproxide_common::chain::chain(error.as_ref()));
    }
    text
}

/// A controller with a tenant's pods and a Node of somebody else, in a world whose every answer the walker changes.
async fn ran(run: u64, walker: &Walker) -> Vec<(String, String)> {
    let class = json!({ "join": { "guestExec": { "commandSecretFile": "debian" } } });
    let lab = furnished(Setting::new(run, 2), class, json!({}));
    let join = tempfile::tempdir().unwrap();
    let script =
        format!("K3S_TOKEN={SECRET} ./install --node-taint kproxide.dev/unregistered=:NoExecute\n");
    std::fs::write(join.path().join("debian"), script).unwrap();
    populate(&lab);
    let config = Config {
        join_dir: join.path().to_owned(),
        policy_dirs: vec!["/policies".into()],
        ..config("kproxide-0")
    };
    let (app, host) = lab
        .host_over(
            "kproxide-0",
            config,
            walker.kube(&lab),
            walker.proxmox(&lab),
        )
        .unwrap();
    let mut hostile = kproxide_builtins::HOSTILE.iter();
    let hostile = hostile.find(|policy| policy.name == "hostile").unwrap();
    let files: PolicyFiles = [("mine".into(), PolicyFile::alone(hostile.wasm))].into();
    host.policy_files.send(files).await.unwrap();
    let router = admin::router(app.vitals(), app.metrics());
    let mut said = Vec::new();
    let story = async {
        sleep(MACHINE).await;
        walker.begin();
        for replicas in [3, 0] {
            let patch = json!({ "spec": { "replicas": replicas } });
            let patched = lab
                .kube
                .patch("deployments.apps", "", "default", "web", patch);
            patched.unwrap();
            sleep(MACHINE).await;
        }
        for path in [
            "/debug/plan",
            "/debug/decisions",
            "/metrics",
            "/healthz",
            "/readyz",
        ] {
            said.push((path.to_owned(), asked(&router, path).await));
        }
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
    said
}

async fn asked(router: &Router, path: &str) -> String {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = router.clone().oneshot(request).await.unwrap();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn populate(lab: &Lab) {
    let policy = json!({ "use": "mine", "settings": { "do": "unprintable-reason" } });
    let patch = json!({ "spec": { "policies": { "hostSelection": policy } } });
    let patched = lab
        .kube
        .patch("nodepools.kproxide.dev", "", "", "workers", patch);
    patched.unwrap();
    wide(lab, "web", "workers", 2);
    let term = |values: [&str; 2]| json!({ "matchExpressions": [{ "key": "example.com/zone", "operator": "In", "values": values }] });
    for number in 0..3 {
        lab.apply([(
            "pods",
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": format!("tenant-{number}"), "namespace": "default", "labels": { "app": "tenant" },
                    "annotations": { "example.com/note": "one" },
                },
                "spec": {
                    "schedulerName": "default-scheduler",
                    "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [term(["a", "b"]), term(["c", "d"])] } } },
                    "containers": [{ "name": "a", "image": "a", "command": ["a", "b"],
                        "resources": { "requests": { "cpu": format!("{}m", 100 + number) } } }],
                },
            }),
        )]);
    }
    lab.apply([(
        "nodes",
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "static-1", "annotations": { "example.com/note": "one" } },
            "spec": { "providerID": "k3s://static-1", "taints": [{ "key": "example.com/a", "value": "b", "effect": "NoSchedule" }] },
            "status": {
                "conditions": [{ "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no network" }],
                "nodeInfo": { "systemUUID": "a", "kernelVersion": "6.8" },
            },
        }),
    )]);
}
