//! Each built-in host-selection policy places as its definition says, and so do three together, on three different hypervisors.

use std::collections::BTreeSet;

use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::HypervisorSpec;
use serde_json::{Value, json};

use crate::bench::on_a_cluster;
use crate::stage::{POOL, Scene, Stage};

const LEDGER: &str = "/apis/kproxide.dev/v1alpha1/ledgers/kproxide";
const GIB: u64 = 1 << 30;

/// - pve1: 48 GiB, of which 36 are free; its CPU is a quarter idle.
/// - pve2: 64 GiB, of which 60 are free; its CPU is nearly half idle.
/// - pve3: 128 GiB, of which 68 are free; its CPU is a quarter idle.
fn hypervisors() -> Vec<HypervisorSpec> {
    let hypervisor = |name: &str, gib: u64, used_gib: u64, busy_threads: f64| HypervisorSpec {
        base_load: busy_threads,
        base_memory: used_gib * GIB,
        ..HypervisorSpec::new(name, 16, gib * GIB)
    };
    vec![
        hypervisor("pve1", 48, 12, 12.0),
        hypervisor("pve2", 64, 4, 9.0),
        hypervisor("pve3", 128, 60, 12.0),
    ]
}

const MACHINES: u32 = 5;

/// How many of five machines of 8 GiB, placed one after the other, go to each of the three, worked out by hand from each policy's definition. No two
/// policies share an outcome. `round-robin` goes on where the one before it stopped.
const EXPECTED: [(&str, &[[usize; 3]]); 6] = [
    // One each, whatever they have; then where most of the memory is left: pve2 with 52/64 and 44/64 before pve3 with 60/128 and pve1 with 28/48.
    ("spread", &[[1, 3, 1]]),
    // Two have had two turns, and one had one.
    ("round-robin", &[[2, 2, 1], [2, 1, 2], [1, 2, 2]]),
    // pve3 with 68, 60 and 52 GiB, pve2 with 60 and 52; after that 44 are left on both.
    ("max-memory", &[[0, 2, 3]]),
    // The idle share as measured: no machine that is just placed changes it.
    ("max-cpu", &[[0, 5, 0]]),
    // Means: pve2 (0.44 + 0.94) / 2 = 0.69, then 0.63, 0.56, 0.50 and 0.44; pve1 (0.25 + 0.75) / 2 = 0.50; pve3 (0.25 + 0.53) / 2 = 0.39.
    ("balanced", &[[1, 4, 0]]),
    // The least free share first: pve3 with 0.53, and less with each.
    ("pack", &[[0, 0, 5]]),
];

/// `spread` and `pack`: with a free share of f the sum of the scores is 1 - f/2, and 0.5 more without a machine. Each gets one, pve3 with 0.53 first; then
/// pve3 with 0.47 has 0.77, pve1 with 0.58 has 0.71 and pve2 with 0.81 has 0.59. What `balanced` says does not count.
const TOGETHER: &[[usize; 3]] = &[[1, 1, 3]];

fn together() -> Value {
    json!({
        "use": null,
        "filters": [{ "use": "balanced" }],
        "scores": [{ "use": "spread", "weight": 2 }, { "use": "pack", "weight": 2 }],
    })
}

#[test]
fn no_two_policies_are_expected_to_place_alike() {
    let allowed = EXPECTED.iter().map(|(_, allowed)| *allowed);
    let all: Vec<_> = allowed.chain([TOGETHER]).flatten().collect();
    let different: BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len());
}

#[test]
#[ignore = "tier: e2e"]
fn each_policy_places_as_its_definition_says() {
    on_a_cluster(async |bench| {
        let mut scene = Scene::default();
        // What Proxmox measures of machines that are gone is forgotten soon.
        scene.topology.timings.broadcast_s = 1.0;
        let stage = Stage::set(
            bench,
            Scene {
                topology: Topology {
                    hypervisors: hypervisors(),
                    ..scene.topology
                },
                ..scene
            },
        )
        .await;
        let used = hypervisors().into_iter();
        let used = used.map(|spec| (spec.name, spec.base_memory)).collect();
        let machines = usize::try_from(MACHINES).unwrap();
        let alone = EXPECTED.map(|(policy, allowed)| (policy, json!({ "use": policy }), allowed));
        let cases = alone
            .into_iter()
            .chain([("together", together(), TOGETHER)]);
        for (policy, asked, expected) in cases {
            // Paused until all wait, so that one plan places them and each knows of those before it.
            let choice =
                json!({ "spec": { "paused": true, "policies": { "hostSelection": asked } } });
            stage.api().merge(POOL, &choice).await.unwrap();
            stage.deploy(policy, MACHINES, "3", "1Gi", json!({})).await;
            stage.until_unschedulable(policy, machines).await;
            // kproxide's watch may be behind the API server: a whole tick begins and ends once they are there.
            stage.until_more_ticks(2).await;
            let go = json!({ "spec": { "paused": false } });
            stage.api().merge(POOL, &go).await.unwrap();
            stage.until_running(policy, machines).await;
            let placed = stage.placed();
            let counts =
                ["pve1", "pve2", "pve3"].map(|name| placed.get(name).copied().unwrap_or(0));
            assert!(expected.contains(&counts), "{policy}: {placed:?}");
            stage.scale(policy, 0).await;
            stage.until_nothing_is_left().await;
            // Policies decide on the last inventory, which may be older than that.
            stage.until_inventory_as_at_first(&used).await;
            // More than twenty removals within ten minutes wait; these are no accident.
            let uncounted = json!({ "spec": { "removals": null } });
            stage.api().merge(LEDGER, &uncounted).await.unwrap();
        }
        // Where a policy fails `spread` decides instead, and says so.
        let mut failed = stage.events("default").await;
        failed.retain(|(reason, _)| reason == "PolicyFallback");
        assert_eq!(failed, []);
        stage.end().await;
    });
}
