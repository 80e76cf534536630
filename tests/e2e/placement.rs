//! Each built-in host-selection policy places as its definition says, on three different hypervisors.

use std::collections::BTreeMap;

use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::HypervisorSpec;
use serde_json::json;

use crate::bench::on_a_cluster;
use crate::stage::{POOL, Scene, Stage};

const GIB: u64 = 1 << 30;

/// - pve1: 32 GiB, of which 30 are free; its CPU is three quarters busy.
/// - pve2: 128 GiB, of which 48 are free; its CPU is a quarter busy.
/// - pve3: 40 GiB, of which 39 are free; its CPU is nearly idle.
///
/// Far enough from each other that what Proxmox still measures of a machine of the round before (up to 6 GiB, for 10 s) changes no order.
fn hypervisors() -> Vec<HypervisorSpec> {
    let hypervisor = |name: &str, gib: u64, used_gib: u64, busy_threads: f64| HypervisorSpec {
        base_load: busy_threads,
        base_memory: used_gib * GIB,
        ..HypervisorSpec::new(name, 16, gib * GIB)
    };
    vec![
        hypervisor("pve1", 32, 2, 12.0),
        hypervisor("pve2", 128, 80, 4.0),
        hypervisor("pve3", 40, 1, 0.5),
    ]
}

/// Where three machines go that are placed one after the other, worked out by hand from each policy's definition.
const EXPECTED: [(&str, [(&str, usize); 3]); 6] = [
    // One each, whatever they have.
    ("spread", [("pve1", 1), ("pve2", 1), ("pve3", 1)]),
    ("round-robin", [("pve1", 1), ("pve2", 1), ("pve3", 1)]),
    // 48 GiB are free, then 40, then 32: pve3 with its 39 takes the third.
    ("max-memory", [("pve1", 0), ("pve2", 2), ("pve3", 1)]),
    // The idle share as measured: the machines' own load does not come near the others'.
    ("max-cpu", [("pve1", 0), ("pve2", 0), ("pve3", 3)]),
    // Means: pve1 (0.25 + 0.94) / 2, pve2 (0.75 + 0.38) / 2, pve3 (0.97 + 0.98) / 2, then 0.87, then 0.77.
    ("balanced", [("pve1", 0), ("pve2", 0), ("pve3", 3)]),
    // The least free share first: pve2 with 0.38, 0.31, 0.25.
    ("pack", [("pve1", 0), ("pve2", 3), ("pve3", 0)]),
];

#[test]
fn each_policy_places_as_its_definition_says() {
    on_a_cluster(async |bench| {
        let scene = Scene::default();
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
        for (policy, expected) in EXPECTED {
            // Paused until all three wait, so that one plan places them and each knows of those before it.
            let choice = json!({ "spec": { "paused": true, "policies": { "hostSelection": { "use": policy } } } });
            stage.api().merge(POOL, &choice).await.unwrap();
            stage.deploy(policy, 3, "3", "1Gi", json!({})).await;
            stage.until_unschedulable(policy, 3).await;
            let go = json!({ "spec": { "paused": false } });
            stage.api().merge(POOL, &go).await.unwrap();
            stage.until_running(policy, 3).await;
            let expected: BTreeMap<String, usize> = expected
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| (name.to_owned(), count))
                .collect();
            assert_eq!(stage.placed(), expected, "{policy}");
            stage.scale(policy, 0).await;
            stage.until_nothing_is_left().await;
            // Policies decide on the last inventory, which may be older than that.
            stage.until_inventory_without_machines().await;
        }
        stage.end().await;
    });
}
