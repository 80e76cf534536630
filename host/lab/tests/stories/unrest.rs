//! What changes faster than anything is decided: the process itself, and the demand.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::degraded::{HOUR, claims, lively, running, scale};
use super::run;
use kproxide_lab::wide;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};

/// Machines that were ever made.
fn made(lab: &Lab) -> usize {
    let births = lab.pve.snapshot().births;
    births.iter().filter(|vm| vm.vmid < 9_000).count()
}

/// Machines that are there.
fn there(lab: &Lab) -> usize {
    let vms = lab.pve.snapshot().vms;
    vms.iter().filter(|vm| !vm.template).count()
}

/// Nodes that somebody keeps new pods off.
fn cordoned(lab: &Lab) -> usize {
    let nodes = lab.kube.list("nodes");
    let is_cordoned = |node: &&Value| node["spec"]["unschedulable"] == true;
    nodes.iter().filter(is_cordoned).count()
}

/// Each process dies before its cold start is over, however long that goes on: without notice, and with its Lease in its hands.
#[tokio::test(start_paused = true)]
async fn f78_a_process_that_dies_every_forty_seconds_removes_nothing_and_still_launches() {
    let lab = furnished(Setting::new(1, 3), json!({}), lively());
    wide(&lab, "web", "workers", 2);
    run(&lab, MACHINE).await;
    assert_eq!((running(&lab, "web"), made(&lab)), (2, 2));

    // Nobody needs them any more: a process that lived would remove them within minutes.
    scale(&lab, "web", 0);
    let audited = lab.pve.audit().len();
    for process in 0..90 {
        if process == 30 {
            wide(&lab, "more", "workers", 3);
        }
        let (app, _host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
        let lives = timeout(Duration::from_secs(40), app.run()).await;
        assert!(lives.is_err(), "it ended by itself: {lives:?}");
        assert_eq!(cordoned(&lab), 0, "process {process}");
        assert_eq!(there(&lab), made(&lab), "process {process}");
    }
    let irrevocable = |entry: &&kproxide_simulator::pve::AuditEntry| {
        entry.method == "DELETE" || entry.path.ends_with("/status/shutdown")
    };
    let asked = lab.pve.audit_since(audited);
    assert_eq!(asked.iter().find(irrevocable), None);
    assert_eq!(running(&lab, "more"), 3, "what is needed is made");
    assert_eq!(made(&lab), 3);

    // And one that lives does remove what is not needed.
    scale(&lab, "more", 0);
    run(&lab, HOUR).await;
    assert_eq!((there(&lab), claims(&lab).len()), (0, 0));
}

/// With the settings that a pool has by itself.
#[tokio::test(start_paused = true)]
async fn f114_a_pod_that_comes_and_goes_every_minute_has_one_machine_all_the_while() {
    let limits = json!({ "limits": { "minNodes": 0, "maxNodes": 5 } });
    let lab = furnished(Setting::new(1, 3), json!({}), limits);
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        wide(&lab, "web", "workers", 0);
        let mut ran = 0;
        for _ in 0..60 {
            scale(&lab, "web", 1);
            sleep(Duration::from_secs(60)).await;
            ran += running(&lab, "web");
            scale(&lab, "web", 0);
            sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(made(&lab), 1, "the demand is one machine's");
        assert_eq!(there(&lab), 1, "it is needed every other minute");
        assert!(ran >= 50, "it ran in {ran} of 60 minutes");

        // Once it stays away the machine goes, and none comes.
        sleep(2 * HOUR).await;
        assert_eq!((made(&lab), there(&lab)), (1, 0));
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
