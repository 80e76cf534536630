//! A dry run plans as a real one would, and nobody learns of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{lab, run};
use kproxide_controller::config::Config;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};

const NAME: &str = "kproxide-dry";

/// The plan at the end of a dry run of this length, which wrote nothing anywhere.
async fn planned(lab: &Lab, time: Duration) -> Value {
    let proxmox_before = lab.pve.audit().len();
    let config = Config {
        dry_run: true,
        ..config(NAME)
    };
    let (app, host) = lab.host(NAME, config).unwrap();
    let vitals = app.vitals();
    let look = async {
        sleep(time).await;
        let (ask, answer) = oneshot::channel();
        vitals.debug_plan.send(ask).await.unwrap();
        let shown: Value = serde_json::from_slice(&answer.await.unwrap()).unwrap();
        host.stop.cancel();
        shown
    };
    let (mut shown, ended) = tokio::join!(look, app.run());
    ended.unwrap();
    let mut writes = lab.kube.audit();
    writes.retain(|write| &*write.user == NAME);
    assert_eq!(writes, []);
    assert_eq!(lab.pve.audit_since(proxmox_before), []);
    shown["plan"].take()
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_before_the_first_real_one_plans() {
    let lab = lab();
    let plan = planned(&lab, Duration::from_secs(30)).await;
    assert_eq!(plan["launches"][0]["spec"]["pool"], "workers");
    for resource in ["secrets", "nodeclaims.kproxide.dev"] {
        assert!(lab.kube.list(resource).is_empty(), "{resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_removes_nothing_that_it_plans_to_remove() {
    let scale_down = json!({ "stabilization": "1s", "minNodeAge": "1s", "unneededTime": "1s" });
    let lab = furnished(
        Setting::new(1, 2),
        json!({}),
        json!({ "scaleDown": scale_down }),
    );
    run(&lab, MACHINE).await;
    // Only the minimum has kept it.
    let limits = json!({ "spec": { "limits": { "minNodes": 0 } } });
    lab.kube
        .patch("nodepools.kproxide.dev", "", "", "workers", limits)
        .unwrap();

    let plan = planned(&lab, MACHINE).await;
    assert_eq!(plan["advances"][0]["verdict"], json!({ "Remove": "Empty" }));
}
