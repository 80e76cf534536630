//! What Proxmox's own daemons were seen to do, and this program once took badly. The numbers are those of the records.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use kproxide_simulator::physics::Join;
use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::VmSpec;
use kproxide_simulator::rng::Spread;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::degraded::{HOUR, claims, condition, lively, running, told};
use super::explained::{self, Pods, person, value};
use kproxide_controller::admin;
use kproxide_controller::config::Config;
use kproxide_lab::wide;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};
use kproxide_tools::whatif::Subject;

const SECOND: Duration = Duration::from_secs(1);

/// Beside the pool `workers`, whose machines lie on each server's own storage, the pool `shared`, whose machines lie on `ceph`.
fn with_shared_storage() -> Lab {
    let mut topology = Topology::of(2);
    let shared = VmSpec::template(9010, "k8s-shared", "pve1", "ceph", 10 << 30);
    topology.vms.push(shared);
    let setting = Setting {
        topology: topology.least_privileged(),
        ..Setting::new(1, 2)
    };
    let lab = furnished(setting, json!({}), lively());
    for (kind, from, to) in [
        ("nodeclasses.kproxide.dev", "debian", "shared"),
        ("nodepools.kproxide.dev", "workers", "shared"),
    ] {
        let mut copy = lab.kube.get(kind, "", from).unwrap();
        copy["metadata"] = json!({ "name": to });
        copy["status"] = Value::Null;
        match kind {
            "nodepools.kproxide.dev" => copy["spec"]["nodeClass"] = json!("shared"),
            _ => copy["spec"]["template"] = json!({ "name": "k8s-shared", "placement": "shared" }),
        }
        lab.apply([(kind, copy)]);
    }
    lab
}

/// Clones of the shared template that run now.
fn tries(lab: &Lab) -> usize {
    let tasks = lab.pve.snapshot().tasks;
    let clones = tasks
        .iter()
        .filter(|it| it.kind == "qmclone" && it.id == "9010");
    clones.filter(|it| it.exit.is_none()).count()
}

/// Those that have ended, by how.
fn ended(lab: &Lab) -> BTreeMap<String, usize> {
    let mut ended = BTreeMap::new();
    for task in lab.pve.snapshot().tasks {
        if let Some(exit) = task
            .exit
            .filter(|_| task.kind == "qmclone" && task.id == "9010")
        {
            *ended.entry(exit).or_default() += 1;
        }
    }
    ended
}

const JAMMED: &str = "clone failed: cfs-lock 'storage-ceph' error: got lock request timeout";

/// A task has died under the lock of `ceph`. Three machines are to be made there, and one elsewhere.
#[tokio::test(start_paused = true)]
async fn n6_while_a_storage_is_locked_one_clone_at_a_time_is_tried_there() {
    let lab = with_shared_storage();
    let pods = Pods::default();
    let client = person(&lab, &pods, true);
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let router = admin::router(app.vitals(), app.metrics());
    pods.lock().unwrap().insert("kproxide-0", router);
    let story = async {
        sleep(MACHINE).await;
        lab.pve.lose_lock("ceph");
        wide(&lab, "web", "shared", 3);
        wide(&lab, "other", "workers", 1);
        // Nobody knows before the first tries have failed.
        while ended(&lab).is_empty() {
            sleep(SECOND).await;
        }
        sleep(SECOND).await;
        let mut named = 0;
        for second in 0..100 {
            assert!(tries(&lab) <= 1, "{} at {second} s", tries(&lab));
            if second == 60 {
                let claims = lab.kube.list("nodeclaims.kproxide.dev");
                let launched = claims.iter().map(|it| (it, condition(it, "Launched")));
                let failed: Vec<_> = launched
                    .filter(|(_, it)| it["reason"] == "CloneFailed")
                    .collect();
                named = failed.len();
                for (claim, condition) in failed {
                    let message = condition["message"].as_str().unwrap();
                    assert!(message.contains(JAMMED), "{message}");
                    let name = claim["metadata"]["name"].as_str().unwrap();
                    let (_, told) = explained::told(&client).await.unwrap();
                    let said = explained::explained(told, Subject::Claim(name.into())).await;
                    assert!(value(&said, "Launched").contains(JAMMED), "{said}");
                }
            }
            sleep(SECOND).await;
        }
        assert_eq!(named, 3, "each says why, at its first try");
        assert_eq!(running(&lab, "other"), 1, "another storage is as before");
        sleep(MACHINE).await;
        assert_eq!(running(&lab, "web"), 3);
        let ended = ended(&lab);
        assert_eq!(ended["OK"], 3, "{ended:?}");
        // Three at first, and then one each ten seconds, at most, for two minutes.
        assert!(ended[JAMMED] <= 15 && ended.len() == 2, "{ended:?}");
        assert_eq!(told(&lab, "FailedToScaleUpGroup"), [] as [String; 0]);
        let ledger = lab.kube.get("ledgers.kproxide.dev", "", "kproxide");
        assert_eq!(ledger.unwrap()["spec"]["backoff"], Value::Null);
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

/// Proxmox removes a VM whose disks it cannot lock, and the disks stay. One machine of two lies elsewhere.
#[tokio::test(start_paused = true)]
async fn n6_while_a_storage_is_locked_no_disk_there_is_removed() {
    let lab = with_shared_storage();
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let of = |pool: &str| {
        let mut claims = lab.kube.list("nodeclaims.kproxide.dev");
        claims.retain(|it| it["spec"]["pool"] == pool);
        claims
    };
    let story = async {
        wide(&lab, "web", "shared", 2);
        wide(&lab, "other", "workers", 1);
        sleep(MACHINE).await;
        assert_eq!(claims(&lab).len(), 3);
        let gone = [of("shared").remove(0), of("workers").remove(0)];
        lab.pve.lose_lock("ceph");
        wide(&lab, "more", "shared", 1);
        while !ended(&lab).contains_key(JAMMED) {
            sleep(SECOND).await;
        }
        for claim in &gone {
            let name = claim["metadata"]["name"].as_str().unwrap();
            lab.kube
                .delete("nodeclaims.kproxide.dev", "", name)
                .unwrap();
        }
        sleep(HOUR).await;
        for claim in &gone {
            let vmid = &claim["spec"]["vmid"];
            let volumes = lab.pve.snapshot().volumes;
            let left = volumes.iter().filter(|it| vmid == it.vmid);
            assert_eq!(left.count(), 0, "{claim}");
        }
        assert_eq!(told(&lab, "LeakedVolume"), [] as [String; 0]);
        assert_eq!((running(&lab, "web"), running(&lab, "more")), (2, 1));
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

/// Two machines boot, and kproxide asks their guests, while the token may not see VMs.
#[tokio::test(start_paused = true)]
async fn n3_a_machine_that_was_not_visible_is_trusted_again_at_the_next_look() {
    let mut setting = Setting::new(1, 2);
    setting.guests.join = Join::OnExec;
    setting.guests.boot = Spread::exactly(170.0);
    let granted = setting.topology.acl.clone();
    let mut blind = granted.clone();
    for entry in blind.iter_mut().filter(|entry| entry.path == "/pool/k8s") {
        entry.privileges.retain(|privilege| privilege != "VM.Audit");
    }
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("debian"), "join\n").unwrap();
    let class = json!({ "join": { "guestExec": { "commandSecretFile": "debian" } } });
    let lab = furnished(setting, class, lively());
    let config = Config {
        join_dir: secret.path().to_owned(),
        ..config("kproxide-0")
    };
    let (app, host) = lab.host("kproxide-0", config).unwrap();
    let refused = || {
        let claims = lab.kube.list("nodeclaims.kproxide.dev");
        let mismatch = claims.iter().map(|it| condition(it, "OwnershipMismatch"));
        mismatch.filter(|it| it["status"] == "True").count()
    };
    let story = async {
        wide(&lab, "web", "workers", 2);
        sleep(40 * SECOND).await;
        lab.pve.set_acl(blind);
        sleep(40 * SECOND).await;
        assert_eq!(refused(), 2);
        lab.pve.set_acl(granted);
        sleep(65 * SECOND).await;
        assert_eq!(refused(), 0);
        assert_eq!(claims(&lab).len(), 0, "they are on their way");
        sleep(MACHINE).await;
        assert_eq!(running(&lab, "web"), 2);
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
