//! One tenant makes and deletes pods in a loop, against few numbers. Others get their machines, and no number comes back too soon.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use kproxide_simulator::kube::fixtures;
use kproxide_simulator::pve::Birth;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::degraded::{HOUR, running, scale, told};
use kproxide_lab::wide;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};

/// 2,000 pods of one tenant. The CPU of each is one of so many shapes, and fills more than half of a machine.
struct Flood {
    /// In seconds.
    life: u64,
    shapes: u32,
    /// Each names a controller of its own that there is not.
    is_owned: bool,
}

impl Flood {
    fn make(&self, lab: &Lab, names: std::ops::Range<u32>) {
        for number in names {
            let cpu = format!("{}m", 2500 + number % self.shapes);
            let mut pod = fixtures::pod(&format!("p{number}"), &cpu, "1Gi");
            pod["metadata"]["namespace"] = json!("evil");
            if self.is_owned {
                pod["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "batch/v1", "kind": "Job", "controller": true,
                    "name": format!("job-{number}"), "uid": format!("job-{number}"),
                }]);
            }
            lab.kube.create("pods", pod).unwrap();
        }
    }
}

fn drain(lab: &Lab, names: std::ops::Range<u32>) {
    for number in names {
        // It may be on its way out with its Node.
        _ = lab.kube.delete("pods", "evil", &format!("p{number}"));
    }
}

/// How long after its machine was gone each number was used again, at the least.
fn shortest_rest(births: &[Birth]) -> Option<SignedDuration> {
    let mut last: BTreeMap<u32, &Birth> = BTreeMap::new();
    let mut shortest = None;
    for birth in births {
        let before = last.insert(birth.vmid, birth);
        let rest = before.and_then(|before| Some(birth.at.duration_since(before.destroyed?)));
        shortest = shortest.into_iter().chain(rest).min();
    }
    shortest
}

#[tokio::test(start_paused = true)]
async fn s3_a_tenant_whose_pods_come_and_go_uses_up_no_numbers_and_stops_nobody() {
    let bare = |life, shapes| Flood {
        life,
        shapes,
        is_owned: false,
    };
    withstands([bare(1, 1), bare(15, 300)]).await;
}

#[tokio::test(start_paused = true)]
async fn s3_a_controller_of_its_own_for_each_pod_gets_a_tenant_no_more_numbers() {
    withstands([Flood {
        life: 15,
        shapes: 1,
        is_owned: true,
    }])
    .await;
}

/// Servers with room for all numbers, of which each machine that is not needed goes soon.
fn large() -> Lab {
    let mut setting = Setting::new(1, 3);
    for server in &mut setting.topology.hypervisors {
        (server.threads, server.memory) = (256, 1 << 40);
    }
    let pool = json!({
        "limits": { "minNodes": 0, "maxNodes": 100 },
        "scaleDown": {
            "stabilization": "1m", "minNodeAge": "1m", "unneededTime": "30s", "loadHeadroom": 0.0, "budget": 100,
        },
    });
    furnished(setting, json!({}), pool)
}

/// Why pods get no machine, as far as this text is in it.
fn refused(lab: &Lab, text: &str) -> Vec<String> {
    let mut notes = told(lab, "NotTriggerScaleUp");
    notes.retain(|note| note.contains(text));
    notes
}

/// Others get their machines within a minute, no pool pauses, and no number comes back within an hour.
async fn withstands<const N: usize>(floods: [Flood; N]) {
    let lab = large();
    let evil = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "evil" } });
    lab.kube.create("namespaces", evil).unwrap();
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        sleep(MACHINE).await;
        let mut tenants: Vec<Instant> = Vec::new();
        // The flood goes on while they wait.
        let look = |tenants: &[Instant]| {
            let waiting = (0..)
                .zip(tenants)
                .filter(|(it, _)| running(&lab, &format!("tenant-{it}")) == 0);
            let longest = waiting.map(|(_, since)| since.elapsed()).max();
            assert!(longest <= Some(Duration::from_secs(60)), "{longest:?}");
            longest.is_some()
        };
        for (flood, from) in floods.iter().zip((0..).step_by(2_000)) {
            for round in 0..100 {
                if round % 25 == 0 {
                    wide(&lab, &format!("tenant-{}", tenants.len()), "workers", 1);
                    tenants.push(Instant::now());
                }
                let names = from + round * 20..from + (round + 1) * 20;
                flood.make(&lab, names.clone());
                sleep(Duration::from_secs(flood.life)).await;
                drain(&lab, names);
                look(&tenants);
            }
        }
        while look(&tenants) {
            sleep(Duration::from_secs(1)).await;
        }
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
    assert_eq!(refused(&lab, "LaunchesPaused"), [] as [String; 0]);
    let births = lab.pve.snapshot().births;
    let shortest = shortest_rest(&births);
    let hour = SignedDuration::from_hours(1);
    assert!(shortest.is_none_or(|rest| rest >= hour), "{shortest:?}");
    let ledger = lab
        .kube
        .get("ledgers.kproxide.dev", "", "kproxide")
        .unwrap();
    let rows: Vec<&Value> = ledger["spec"]["tries"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let of_evil = rows.iter().filter(|row| {
        let workload = row["workload"].as_str().unwrap();
        workload.ends_with(" evil") || workload.contains(" evil/")
    });
    assert!(of_evil.count() <= 32);
}

/// Autoscalers of pods let a Deployment flap, and its pods are ever new shapes: only the workload can be known again. Beside it
/// one grows in its namespace, and one in another.
#[tokio::test(start_paused = true)]
async fn s3_a_deployment_that_flaps_rests_for_a_while_and_the_one_beside_it_never() {
    let lab = large();
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" } });
    lab.kube.create("namespaces", namespace).unwrap();
    let other = fixtures::deployment("other", "other", 0, "3", "1Gi");
    lab.apply([("deployments.apps", other)]);
    let flap = |number: u32| {
        let cpu = format!("{}m", 2500 + number);
        let deployment = fixtures::deployment("default", "flaps", 6, &cpu, "1Gi");
        let patch = json!({ "spec": deployment["spec"] });
        lab.kube
            .patch("deployments.apps", "", "default", "flaps", patch)
            .unwrap();
    };
    let rest = "in an hour kproxide made more than 20 machines for Deployment default/flaps";
    let story = async {
        sleep(MACHINE).await;
        wide(&lab, "steady", "workers", 0);
        wide(&lab, "flaps", "workers", 0);
        let mut wanted = 0;
        for round in 0..20 {
            flap(round);
            // While the other makes machines, and while it rests.
            if round % 5 == 2 {
                wanted += 1;
                scale(&lab, "steady", wanted);
                let patch = json!({ "spec": { "replicas": wanted } });
                lab.kube
                    .patch("deployments.apps", "", "other", "other", patch)
                    .unwrap();
            }
            sleep(Duration::from_secs(15)).await;
            scale(&lab, "flaps", 0);
            sleep(Duration::from_secs(45)).await;
            let served = (running(&lab, "steady"), running(&lab, "other"));
            assert_eq!(served, (wanted as usize, wanted as usize), "after a minute");
            // What nobody needs is gone before the pods are back.
            sleep(Duration::from_secs(120)).await;
        }
        assert_ne!(refused(&lab, rest), [] as [String; 0]);
        for text in ["default/steady", "LaunchesPaused"] {
            assert_eq!(refused(&lab, text), [] as [String; 0]);
        }
        let births = lab.pve.snapshot().births;
        let made = births.iter().filter(|vm| vm.vmid < 9_000).count();
        // Of 120 that its pods ask for. Eight are of the others, and where one of these takes a machine of its, it was none in vain.
        assert!((29..=60).contains(&made), "{made}");
        flap(20);
        let since = Instant::now();
        while running(&lab, "flaps") < 6 {
            sleep(Duration::from_secs(1)).await;
            assert!(since.elapsed() < 2 * HOUR, "{:?}", refused(&lab, "flaps"));
        }
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
