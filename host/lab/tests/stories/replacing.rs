//! Machines that are replaced, by processes that live or that die again and again.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::degraded::{claims, lively, running, told};
use super::run;
use kproxide_lab::wide;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};

fn made(lab: &Lab) -> usize {
    let births = lab.pve.snapshot().births;
    births.iter().filter(|vm| vm.vmid < 9_000).count()
}

fn replaced(lab: &Lab) -> Vec<Value> {
    let claims = lab.kube.list("nodeclaims.kproxide.dev");
    let replaced = claims.iter().map(|claim| claim["spec"]["replaces"].clone());
    replaced.filter(|old| !old.is_null()).collect()
}

/// Each process dies shortly after its cold start, a little later each time: between the Ledger and the claim, between the
/// claims, in the launch, in the drain.
#[tokio::test(start_paused = true)]
async fn however_often_kproxide_dies_each_machine_gets_one_replacement() {
    let lab = furnished(Setting::new(1, 3), json!({}), lively());
    wide(&lab, "web", "workers", 2);
    run(&lab, MACHINE).await;
    assert_eq!((running(&lab, "web"), made(&lab)), (2, 2));
    let old: Vec<Value> = claims(&lab);
    let patch = json!({ "metadata": { "annotations": { "kproxide.dev/replace": "true" } } });
    for claim in &old {
        let name = claim["metadata"]["name"].as_str().unwrap();
        let patched = lab
            .kube
            .patch("nodeclaims.kproxide.dev", "", "", name, patch.clone());
        patched.unwrap();
    }
    let mut names: Vec<Value> = Vec::new();
    for process in 0..40 {
        let (app, _host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
        let lives = timeout(Duration::from_millis(60_500 + 400 * process), app.run()).await;
        assert!(lives.is_err(), "it ended by itself: {lives:?}");
        assert!(
            made(&lab) <= 4,
            "process {process}: {} machines",
            made(&lab)
        );
        names.extend(replaced(&lab));
    }
    names.sort_by_key(Value::to_string);
    names.dedup();
    assert_eq!(names.len(), 2, "each of the two is named");
    assert_eq!(made(&lab), 4);

    run(&lab, 3 * MACHINE).await;
    assert_eq!((running(&lab, "web"), made(&lab)), (2, 4));
    let left: Vec<Value> = claims(&lab);
    assert_eq!(left.len(), 2);
    for claim in &left {
        assert!(
            !old.iter()
                .any(|old| old["metadata"]["uid"] == claim["metadata"]["uid"])
        );
    }
    assert!(!told(&lab, "AwaitsReplacement").is_empty());
}
