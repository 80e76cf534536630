//! Pending pods and no Node for them: machines come, exactly as many as needed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kproxide_simulator::physics::{Join, Quirk};
use kproxide_testkit::eventually;
use serde_json::json;

use crate::bench::on_a_cluster;
use crate::install::merge;
use crate::stage::{CORES, MEMORY_MIB, OVERHEAD_MIB, POOL, Replica, SOON, Scene, Stage};

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
    Scene::with(
        json!({ "nodePools": { "default": { "spec": { "scaleDown": { "enabled": false } } } } }),
    )
}

async fn create(stage: &Stage<'_>) {
    let (cpu, memory) = (format!("{POD_CPU_MILLI}m"), format!("{POD_MEMORY_MIB}Mi"));
    stage
        .deploy("web", PODS.try_into().unwrap(), &cpu, &memory, json!({}))
        .await;
}

async fn deploy(stage: &Stage<'_>) {
    create(stage).await;
    stage.until_running("web", PODS.try_into().unwrap()).await;
}

/// The eight gauges of kproximate's dashboards.
async fn until_counted_as_by_kproximate(stage: &Stage<'_>, machines: usize) {
    const MIB: u64 = 1 << 20;
    let machines = u64::try_from(machines).unwrap();
    let gauges = [
        ("kpnodes_total", machines),
        ("kpnodes_running", machines),
        ("cpu_provisioned_total", machines * CORES),
        ("memory_provisioned_total", machines * MEMORY_MIB * MIB),
        ("cpu_allocatable_total", machines * CORES),
        (
            "memory_allocatable_total",
            machines * (MEMORY_MIB - OVERHEAD_MIB) * MIB,
        ),
        ("cpu_allocated_total", PODS * POD_CPU_MILLI / 1_000),
        ("memory_allocated_total", PODS * POD_MEMORY_MIB * MIB),
    ];
    for (name, expected) in gauges {
        eventually(SOON, &format!("{name} of {expected}"), async || {
            let value = stage.metric(Replica::First, name).await?;
            if value == expected as f64 {
                Ok(())
            } else {
                Err(value.to_string())
            }
        })
        .await;
    }
}

#[test]
#[ignore = "tier: e2e"]
fn thirty_pods_get_exactly_the_machines_that_they_need() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, scene()).await;
        deploy(&stage).await;
        let needed = machines_needed(0);
        stage.until_nodes(needed).await;
        // A machine too many may come late.
        stage.until_more_ticks(3).await;
        assert_eq!(stage.born(), needed, "{}", stage.describe().await);
        assert_eq!(stage.claims().await.len(), needed);
        until_counted_as_by_kproximate(&stage, needed).await;
        let [anchor] = &stage.anchors()[..] else {
            panic!("{:?}", stage.anchors());
        };
        assert!(!anchor.running);
        stage.end().await;
    });
}

/// As many fewer pods per machine are reckoned with from the start.
#[test]
#[ignore = "tier: e2e"]
fn overhead_that_is_declared_is_counted_before_the_first_machine_shows_it() {
    const OVERHEAD_CPU_MILLI: u64 = 300;
    const JOINS_LATER: Duration = Duration::from_secs(40);
    on_a_cluster(async |bench| {
        let mut scene = scene();
        scene.guests.reserved_cpu_milli = OVERHEAD_CPU_MILLI;
        let overhead = json!({ "cpu": format!("{OVERHEAD_CPU_MILLI}m") });
        merge(
            &mut scene.values,
            json!({ "nodeClasses": { "default": { "spec": { "overhead": overhead } } } }),
        );
        let stage = Stage::set(bench, scene).await;
        for _ in 0..10 {
            stage.served.physics.quirk_of_next(Quirk {
                joins_later: JOINS_LATER,
                ..Quirk::default()
            });
        }
        // All wait when the first plan is made.
        let pause = |paused: bool| json!({ "spec": { "paused": paused } });
        stage.api().merge(POOL, &pause(true)).await.unwrap();
        create(&stage).await;
        stage
            .until_unschedulable("web", PODS.try_into().unwrap())
            .await;
        stage.api().merge(POOL, &pause(false)).await.unwrap();
        let needed = machines_needed(OVERHEAD_CPU_MILLI);
        assert!(needed > machines_needed(0), "the case shows nothing");
        stage.until_running("web", PODS.try_into().unwrap()).await;
        let births = stage.births();
        assert_eq!(births.len(), needed, "{births:?}");
        stage.until_nodes(needed).await;
        // No Node had shown anything when the last machine was begun. (Objects know seconds.)
        let nodes = stage.nodes().await;
        let joined = nodes.iter().filter_map(|node| {
            let created = node["metadata"]["creationTimestamp"].as_str()?;
            created.parse::<Timestamp>().ok()
        });
        let first_joined = joined.min().unwrap() + SignedDuration::from_secs(1);
        assert!(births[needed - 1].at < first_joined, "{births:?}");
        stage.end().await;
    });
}

/// As the README recommends it: the script is in a Secret that the chart mounts, and each machine runs it through its guest agent. Its kubelet registers with
/// the startup taint.
#[test]
#[ignore = "tier: e2e"]
fn machines_that_join_by_a_script_run_it_once_each() {
    const SCRIPT: &str = "k3s agent --server https://k3s.example:6443\n";
    on_a_cluster(async |bench| {
        let mut scene = scene();
        scene.guests.join = Join::OnExec;
        scene.guests.taints =
            vec![json!({ "key": "kproxide.dev/unregistered", "effect": "NoExecute" })];
        let script = json!({ "command": SCRIPT });
        merge(
            &mut scene.values,
            json!({ "nodeClasses": { "default": { "joinScript": script } } }),
        );
        let stage = Stage::set(bench, scene).await;
        // Each pod needs a machine of its own.
        stage.deploy("wide", 2, "3", "1Gi", json!({})).await;
        stage.until_running("wide", 2).await;
        stage.until_nodes(2).await;
        let mut requests = stage.served.pve.audit();
        requests.retain(|request| {
            let parameter = |wanted: &str| {
                let mut all = request.params.iter();
                all.find_map(|(name, value)| (name == wanted).then_some(value.as_str()))
            };
            let mut command = parameter("command").unwrap_or_default().lines();
            request.path.ends_with("/agent/exec")
                && command.any(|part| part == "kproxide-join")
                && parameter("input-data") == Some(SCRIPT)
        });
        let mut paths: Vec<String> = requests.into_iter().map(|request| request.path).collect();
        paths.sort();
        let mut expected: Vec<String> = stage
            .births()
            .iter()
            .map(|birth| format!("/nodes/{}/qemu/{}/agent/exec", birth.hypervisor, birth.vmid))
            .collect();
        expected.sort();
        assert_eq!(paths, expected, "{}", stage.describe().await);
        stage.end().await;
    });
}

/// What a machine offers is assumed until the first one has shown it.
#[test]
#[ignore = "tier: e2e"]
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
