//! What `/metrics` shows of a world.

mod alerts;
mod dashboard;
mod stage;

use std::collections::BTreeSet;
use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use serde_json::json;
use tokio::time::sleep;

use super::degraded::{HOUR, running, scale};
use kproxide_controller::config::Config;
use kproxide_controller::metrics::Metrics;
use kproxide_lab::MACHINE;
use kproxide_lab::wide;
use kproxide_lab::{Lab, config};
use kproxide_policy::{PolicyFile, PolicyFiles};
use stage::{MINUTE, Samples, Series, Stage, labels, metric, sampled, values};

const CLAIMS: &str = "nodeclaims.kproxide.dev";
/// Labels that have one value in one process.
const ALONE: [(&str, &str); 1] = [("kproxide_build_info", "version")];
/// Series of two Proxmox clusters with two servers each, and of two pools, whatever happens there.
const SERIES_MAX: usize = 1200;
/// Distinct calls to Proxmox's API.
const CALLS_MAX: usize = 30;

/// Most that can happen, in both clusters and pools.
async fn eventful() -> Samples {
    let stage = Stage::new(json!({
        "limits": { "minNodes": 0, "maxNodes": 3, "cpuCores": 64, "memoryMiB": 262_144 },
    }));
    let lab = &stage.lab;
    let mut samples = stage
        .watched(async |host| {
            wide(lab, "here", "workers", 2);
            wide(lab, "there", "spare", 2);
            for pool in ["workers", "spare"] {
                let mut large =
                    fixtures::deployment("default", &format!("large-{pool}"), 1, "64", "1Gi");
                large["spec"]["template"]["spec"]["nodeSelector"] =
                    json!({ "kproxide.dev/pool": pool });
                lab.apply([("deployments.apps", large)]);
            }
            sleep(MACHINE).await;
            assert_eq!((running(lab, "here"), running(lab, "there")), (2, 2));

            // One policy file is taken and fails, another is refused.
            let hostile = kproxide_builtins::HOSTILE.iter();
            let hostile = hostile.clone().find(|it| it.name == "hostile-scale-down");
            let files: PolicyFiles = [
                ("down".into(), PolicyFile::alone(hostile.unwrap().wasm)),
                ("broken".into(), PolicyFile::alone(b"not wasm")),
                ("torn".into(), PolicyFile::alone(b"nor this")),
            ]
            .into();
            host.policy_files.send(files).await.unwrap();
            let policy = json!({ "use": "down", "settings": { "do": "panic" } });
            let spec = json!({ "spec": { "policies": { "scaleDown": policy } } });
            stage.patch("nodepools.kproxide.dev", "spare", spec);
            // More than fit under maxNodes, on machines that fail in both ways.
            lab.pve.set_next_never_boot(1);
            stage
                .away
                .set_starts_fail(Some("start failed: out of luck"));
            scale(lab, "here", 5);
            scale(lab, "there", 5);
            sleep(HOUR / 2).await;
            stage.away.set_starts_fail(None);
            sleep(HOUR / 2).await;

            for pool in ["workers", "spare"] {
                let claims = lab.kube.list(CLAIMS);
                let claim = claims.iter().find(|it| it["spec"]["pool"] == pool);
                let name = claim.unwrap()["metadata"]["name"].as_str();
                lab.kube.delete(CLAIMS, "", name.unwrap()).unwrap();
            }
            sleep(HOUR / 2).await;
            // What nobody needs goes, in one pool not before its policy works.
            scale(lab, "here", 0);
            scale(lab, "there", 0);
            sleep(HOUR / 2).await;
            let reset = json!({ "spec": { "policies": null } });
            stage.patch("nodepools.kproxide.dev", "spare", reset);
            sleep(HOUR).await;
            // All servers are off for a while.
            scale(lab, "here", 3);
            scale(lab, "there", 2);
            sleep(2 * MACHINE).await;
            for online in [false, true] {
                for pve in [&lab.pve, &stage.away] {
                    pve.set_hypervisor_online("pve1", online);
                    pve.set_hypervisor_online("pve2", online);
                }
                sleep(2 * MACHINE).await;
            }
            // A machine loses its claim, and the claims of the others their finalizers.
            let claims = lab.kube.list(CLAIMS);
            let none = json!({ "metadata": { "finalizers": null } });
            for (position, claim) in claims.iter().enumerate() {
                let name = claim["metadata"]["name"].as_str().unwrap();
                if position == 0 {
                    lab.kube.delete(CLAIMS, "", name).unwrap();
                }
                lab.kube.patch(CLAIMS, "", "", name, none.clone()).unwrap();
            }
            sleep(2 * MINUTE).await;
        })
        .await;
    // Those are deleted, and no machine runs. While no kproxide runs, so that it starts none again.
    for claim in lab.kube.list(CLAIMS) {
        let name = claim["metadata"]["name"].as_str().unwrap();
        lab.kube.delete(CLAIMS, "", name).unwrap();
    }
    for pve in [&lab.pve, &stage.away] {
        for vm in pve.snapshot().vms.iter().filter(|vm| !vm.template) {
            pve.human_stops(vm.vmid).unwrap();
        }
    }
    sleep(MACHINE / 2).await;
    let after = stage
        .watched(async |_| {
            sleep(MACHINE).await;
            stage.patch(
                "nodepools.kproxide.dev",
                "spare",
                json!({ "spec": { "paused": true, "limits": { "minNodes": 1 } } }),
            );
            scale(lab, "there", 1);
            lab.pve.set_quorate(false);
            lab.kube
                .create("pods", {
                    let mut pod = fixtures::pod("elsewhere", "1", "1Gi");
                    pod["spec"]["schedulerName"] = json!("volcano");
                    pod
                })
                .unwrap();
            sleep(HOUR / 2).await;
        })
        .await;
    samples.add(after);
    samples.add(copied().await);
    samples
}

/// A copy of the cluster finds a foreign mark on its anchor, after it did not know.
async fn copied() -> Samples {
    let stage = Stage::new(json!({}));
    let with_anchor = |config: Config| Config {
        anchor: true,
        ..config
    };
    let lab = &stage.lab;
    let run = async |time: Duration| {
        let (app, host) = stage.host(with_anchor(stage.config()));
        host.policy_files.send(PolicyFiles::new()).await.unwrap();
        sampled(app, host, async |_| sleep(time).await).await
    };
    run(MACHINE).await;
    let copy: Lab = lab.restored_elsewhere(7);
    run(HOUR).await;
    // The copy reaches one of the two Proxmox clusters, for both of its own.
    let (app, host) = copy
        .host("kproxide-copy", with_anchor(config("kproxide-copy")))
        .unwrap();
    sampled(app, host, async |_| sleep(HOUR).await).await
}

/// The metrics of ours that expressions name, without what a histogram adds.
fn used(expressions: &str) -> Vec<String> {
    let words = expressions.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    let words = words.filter(|word| word.starts_with("kproxide_"));
    words.map(|word| metric(word).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_metric_takes_values_and_two_of_each_label_and_there_are_few_series() {
    let samples = eventful().await;
    takes_values(&samples);
    has_few_series(&samples);
}

fn takes_values(samples: &Samples) {
    let seen: BTreeSet<&str> = samples.series.keys().map(|it| metric(it)).collect();
    let metrics = Metrics::new(true).unwrap();
    let values = values(samples);
    let mut missing = Vec::new();
    for described in metrics.described() {
        let name = &*described.name;
        if !seen.contains(name) {
            missing.push(format!("{name} has no value"));
            continue;
        }
        for label in &described.labels {
            let key = (name, &**label);
            let count = values.get(&key).map_or(0, BTreeSet::len);
            if count < 2 && !ALONE.contains(&key) {
                missing.push(format!("{name}: {label}: {:?}", values.get(&key)));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    let moves = |name: &str| {
        let of_it = samples.series.iter().filter(|(it, _)| metric(it) == name);
        of_it
            .flat_map(|(_, values)| values.values())
            .any(|it| *it != 0.0)
    };
    let still = metrics.described().iter().filter(|it| !moves(&it.name));
    let still: Vec<&str> = still.map(|it| &*it.name).collect();
    assert_eq!(still, [""; 0]);
}

/// And no name of a machine in them.
fn has_few_series(samples: &Samples) {
    let series = samples.series.len();
    assert!(series < SERIES_MAX, "{series} series");
    let values = values(samples);
    let calls = &values[&("kproxide_proxmox_requests_total", "call")];
    assert!(calls.len() < CALLS_MAX, "{calls:?}");
    for call in calls {
        let (_, path) = call.split_once(' ').unwrap();
        let is_word = |part: &str| !part.contains(|it: char| it.is_ascii_digit() || it == '%');
        assert!(path.split('/').all(is_word), "{call}");
    }
    // Of a machine neither VMID nor name, of a pod neither name nor namespace.
    let known = [
        "pool",
        "cluster",
        "hypervisor",
        // Of a pool, class, cluster or server.
        "name",
        "policy",
        "digest",
        "version",
    ];
    for ((name, label), values) in &values {
        if known.contains(label) || *label == "call" {
            continue;
        }
        let is_word = |value: &&str| {
            value
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || it == '-')
        };
        assert!(values.iter().all(is_word), "{name} {label}: {values:?}");
        assert!(values.len() <= 30, "{name} {label}: {values:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_series_of_what_is_gone_disappear() {
    let stage = Stage::new(json!({}));
    let lab = &stage.lab;
    let about = |samples: &Samples, label: &str, value: &str| -> Vec<Series> {
        let now = samples.now().into_keys();
        let now = now.filter(|series| labels(series).contains(&(label, value)));
        now.map(ToOwned::to_owned).collect()
    };
    let before = stage
        .watched(async |_| {
            wide(lab, "here", "workers", 1);
            wide(lab, "there", "spare", 1);
            sleep(MACHINE + MINUTE).await;
        })
        .await;
    for (label, value) in [("pool", "spare"), ("cluster", "away"), ("pool", "workers")] {
        let series = about(&before, label, value).len();
        assert!(series > 5, "{series} of {label} {value}");
    }
    let after = stage
        .watched(async |_| {
            sleep(MACHINE).await;
            lab.kube
                .delete("nodepools.kproxide.dev", "", "spare")
                .unwrap();
            sleep(MACHINE).await;
            lab.kube
                .delete("proxmoxclusters.kproxide.dev", "", "away")
                .unwrap();
            sleep(MACHINE + MINUTE).await;
        })
        .await;
    assert_eq!(about(&after, "pool", "spare"), [""; 0]);
    assert_eq!(about(&after, "cluster", "away"), [""; 0]);
    assert!(about(&after, "pool", "workers").len() > 5);
    assert!(about(&after, "cluster", "home").len() > 5);
}

/// Its last findings would otherwise stand beside those of the leader.
#[tokio::test(start_paused = true)]
async fn a_replica_that_no_longer_leads_shows_nothing_that_it_found() {
    let stage = Stage::new(json!({}));
    let lab = &stage.lab;
    let samples = stage
        .watched(async |_| {
            wide(lab, "here", "workers", 1);
            sleep(MACHINE + MINUTE).await;
            // Somebody else holds the Lease from now on, and renews it.
            for second in 0..90 {
                let time = lab.clock.now();
                let spec = json!({ "spec": { "holderIdentity": "another", "leaseTransitions": 9,
                    "renewTime": format!("{time:.6}") } });
                let lease = "leases.coordination.k8s.io";
                let patched = lab.kube.patch(lease, "", "kube-system", "kproxide", spec);
                patched.unwrap_or_else(|error| panic!("after {second} s: {error}"));
                sleep(Duration::from_secs(1)).await;
            }
        })
        .await;
    let led = samples.series["kproxide_leader"]
        .values()
        .filter(|it| **it > 0.0);
    assert!(led.count() > 5);
    let now = samples.now();
    assert_eq!(now["kproxide_leader"], 0.0);
    let found = [
        "kproxide_claims",
        "kproxide_nodes",
        "kproxide_hypervisor_free_cores",
    ];
    let shown = now.keys().filter(|series| found.contains(&metric(series)));
    assert_eq!(shown.count(), 0);
    assert_eq!(now["kpnodes_running"], 0.0);
    assert!(
        samples
            .series
            .keys()
            .any(|it| metric(it) == "kproxide_nodes")
    );
}
