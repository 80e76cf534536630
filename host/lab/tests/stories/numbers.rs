//! One tenant makes and deletes pods in a loop, against few numbers. Others get their machines, and no number comes back too soon.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use kproxide_simulator::kube::fixtures;
use kproxide_simulator::pve::Birth;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::degraded::{running, told};
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

/// Others get their machines within a minute, no pool pauses, and no number comes back within an hour.
async fn withstands<const N: usize>(floods: [Flood; N]) {
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
    let lab = furnished(setting, json!({}), pool);
    let evil = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "evil" } });
    lab.kube.create("namespaces", evil).unwrap();
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        sleep(MACHINE).await;
        let mut tenants = 0;
        for (flood, from) in floods.iter().zip((0..).step_by(2_000)) {
            for round in 0..100 {
                if round % 25 == 0 {
                    wide(&lab, &format!("tenant-{tenants}"), "workers", 1);
                    tenants += 1;
                }
                let names = from + round * 20..from + (round + 1) * 20;
                flood.make(&lab, names.clone());
                sleep(Duration::from_secs(flood.life)).await;
                drain(&lab, names);
            }
            let deadline = Instant::now() + MACHINE;
            let waits = || (0..tenants).any(|it| running(&lab, &format!("tenant-{it}")) == 0);
            while waits() && Instant::now() < deadline {
                sleep(Duration::from_secs(1)).await;
            }
        }
        let waiting: Vec<u32> = (0..tenants)
            .filter(|it| running(&lab, &format!("tenant-{it}")) == 0)
            .collect();
        assert_eq!(waiting, [] as [u32; 0]);
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
    let paused = told(&lab, "NotTriggerScaleUp");
    let paused: Vec<&String> = paused
        .iter()
        .filter(|it| it.contains("LaunchesPaused"))
        .collect();
    assert_eq!(paused, [] as [&String; 0]);
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
