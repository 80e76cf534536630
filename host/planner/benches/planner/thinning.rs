//! Too many Nodes: 2000 with 40 pods each that need 800 (the Cluster Autoscaler's `RunOnceScaleDown`: 100 m of 10 cores a pod, no headroom kept).

use std::hint::black_box;

use criterion::Criterion;
use kproxide_planner::World;
use kproxide_planner::fixtures::{Scene, hypervisor, instance_type, running_pod, spec};
use kproxide_planner::ids::{PodKey, Vmid};
use kproxide_planner::plan::report::Severity;
use kproxide_planner::plan::{Plan, Verdict};

const NODES: usize = 2_000;
const PODS_PER_NODE: usize = 40;
/// The headroom leaves 1,199 to spare: its rule is strict, which takes one Node more than the 800 that would be full. The breaker lets half of all
/// machines begin to go within its window.
const REMOVED: usize = NODES / 2;

pub(crate) fn benches(criterion: &mut Criterion) {
    let world = scene().world();
    check(&planned(&world));
    let mut group = criterion.benchmark_group("2000 nodes with 80000 pods");
    group.sample_size(10);
    group.bench_function("tick, half of the nodes removed", |bencher| {
        bencher.iter(|| planned(black_box(&world)))
    });
    group.finish();
}

fn scene() -> Scene {
    let mut scene = Scene::default();
    scene.inventory.hypervisors = (0..40)
        .map(|index| (format!("pve{index:02}").into(), hypervisor(512, 1024)))
        .collect();
    scene.cluster.vmid_range.last = Vmid(20_000);
    scene.class.instance_types = vec![instance_type("large", 10, 20)];
    let pool = scene.workers();
    pool.limits.max_nodes = NODES as u32;
    pool.scale_down.load_headroom = 0.0;
    pool.scale_down.budget = NODES as u32;
    for index in 0..NODES {
        scene.machine(
            &format!("node-{index:04}"),
            &format!("pve{:02}", index % 40),
        );
    }
    for index in 0..NODES * PODS_PER_NODE {
        let pod = running_pod(
            &format!("node-{:04}", index % NODES),
            spec("cpu=100m memory=100Mi"),
        );
        scene
            .pods
            .insert(PodKey::new("default", &format!("pod-{index:05}")), pod);
    }
    scene
}

fn planned(world: &World) -> Plan {
    crate::planned(world, 20, NODES as u32)
}

fn check(plan: &Plan) {
    let removed = plan
        .advances
        .iter()
        .filter(|advance| matches!(advance.verdict, Verdict::Remove(_)));
    assert_eq!(removed.count(), REMOVED);
    assert!(
        plan.report
            .findings
            .iter()
            .all(|finding| finding.severity != Severity::Defect)
    );
}
