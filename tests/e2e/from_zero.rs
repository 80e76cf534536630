//! Pending pods and no Node for them: machines come, exactly as many as needed.

use kproxide_simulator::physics::Quirk;
use serde_json::json;

use crate::bench::on_a_cluster;
use crate::stage::{CORES, MEMORY_MIB, OVERHEAD_MIB, Scene, Stage};

const PODS: u64 = 30;
const POD_CPU_MILLI: u64 = 500;
const POD_MEMORY_MIB: u64 = 512;

/// Machines that the pods need when so much CPU of each is not allocatable.
fn machines_needed(reserved_cpu_milli: u64) -> usize {
    let by_cpu = (CORES * 1_000 - reserved_cpu_milli) / POD_CPU_MILLI;
    let by_memory = (MEMORY_MIB - OVERHEAD_MIB) / POD_MEMORY_MIB;
    PODS.div_ceil(by_cpu.min(by_memory)).try_into().unwrap()
}

/// Nothing is removed, so that one machine too many would stay and be seen.
fn scene() -> Scene {
    Scene::with(json!({ "nodePool": { "scaleDown": { "enabled": false } } }))
}

async fn deploy(stage: &Stage<'_>) {
    let (cpu, memory) = (format!("{POD_CPU_MILLI}m"), format!("{POD_MEMORY_MIB}Mi"));
    stage
        .deploy("web", PODS.try_into().unwrap(), &cpu, &memory, json!({}))
        .await;
    stage.until_running("web", PODS.try_into().unwrap()).await;
}

#[test]
fn thirty_pods_get_exactly_the_machines_that_they_need() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, scene()).await;
        deploy(&stage).await;
        let needed = machines_needed(0);
        assert_eq!(stage.born(), needed, "{}", stage.describe().await);
        assert_eq!(stage.claims().await.len(), needed);
        stage.until_nodes(needed).await;
        stage.end().await;
    });
}

/// What a machine offers is assumed until the first one has shown it.
#[test]
fn machines_that_turn_out_smaller_are_followed_by_as_many_as_are_missing() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, scene()).await;
        for _ in 0..10 {
            stage.served.physics.quirk_of_next(Quirk {
                missing_cpu_milli: 200,
                ..Quirk::default()
            });
        }
        deploy(&stage).await;
        let needed = machines_needed(200);
        assert!(needed > machines_needed(0), "the case shows nothing");
        assert_eq!(stage.born(), needed, "{}", stage.describe().await);
        stage.end().await;
    });
}
