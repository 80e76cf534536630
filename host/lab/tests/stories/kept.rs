//! The last machine of a class whose launch failed (`join.keepFailed`).

use std::fs;
use std::time::Duration;

use kproxide_simulator::physics::Join;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::conditions::while_told;
use super::degraded::{claims, condition, lively, running, scale, told};
use kproxide_controller::config::Config;
use kproxide_lab::furnished;
use kproxide_lab::wide;
use kproxide_lab::{Lab, Setting, config};

/// NodeClaims whose machines are kept, each with its VM and whether that runs.
fn kept(lab: &Lab) -> Vec<(Value, Option<bool>)> {
    let all = lab.kube.list("nodeclaims.kproxide.dev").into_iter();
    let kept = all.filter(|claim| condition(claim, "Ready")["reason"] == "KeptFailed");
    let vms = lab.pve.snapshot().vms;
    kept.map(|claim| {
        let mut vms = vms.iter();
        let vm = vms.find(|vm| claim["spec"]["vmid"] == vm.vmid);
        let runs = vm.map(|vm| vm.running);
        (claim, runs)
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn the_last_failed_machine_is_kept_until_another_needs_its_place() {
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("debian"), "join\n").unwrap();
    let mut setting = Setting::new(1, 2);
    setting.guests.join = Join::OnExec;
    let class = json!({
        "join": { "guestExec": { "commandSecretFile": "debian" }, "keepFailed": "2h" },
    });
    let mut pool = lively();
    pool["limits"] = json!({ "minNodes": 0, "maxNodes": 2 });
    let lab = furnished(setting, class, pool);
    lab.pve
        .set_agents_refuse(Some("Command guest-exec has been disabled"));
    wide(&lab, "web", "workers", 1);
    let config = Config {
        join_dir: secret.path().to_owned(),
        ..config("kproxide-0")
    };
    while_told(&lab, config, async {
        sleep(Duration::from_secs(10 * 60)).await;
        // The next one that fails takes the place of the one before, and none is kept between the two.
        for _ in 0..60 {
            if kept(&lab).is_empty() {
                sleep(Duration::from_secs(5)).await;
            }
        }
        let [(claim, runs)] = &kept(&lab)[..] else {
            panic!("{:?}", kept(&lab));
        };
        assert_eq!(*runs, Some(false), "{claim}");
        let vmid = &claim["spec"]["vmid"];
        let message = condition(claim, "Ready")["message"].to_string();
        assert!(
            message.contains(&format!("qm terminal {vmid}")),
            "{message}"
        );
        let failures = told(&lab, "FailedToScaleUpGroup").len();
        assert!(failures > 1, "the older ones have gone: {failures}");
        assert!(told(&lab, "KeptFailed").len() > 1);

        // It stays when the next machine works, which has room beside it.
        lab.pve.set_agents_refuse(None);
        sleep(Duration::from_secs(30 * 60)).await;
        assert_eq!((claims(&lab).len(), running(&lab, "web")), (1, 1));
        assert_eq!(kept(&lab).len(), 1);

        // The limit of two machines counts it.
        scale(&lab, "web", 2);
        sleep(Duration::from_secs(5 * 60)).await;
        assert_eq!((claims(&lab).len(), running(&lab, "web")), (2, 2));
        assert_eq!(kept(&lab), []);
    })
    .await;
}
