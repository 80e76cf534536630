//! From zero: 51,000 pods of two sizes on machines of one core, which the fewest machines hold without a gap (the Cluster Autoscaler's `BinpackingEstimate`).

use std::hint::black_box;

use criterion::Criterion;
use kproxide_planner::World;
use kproxide_planner::fixtures::{Scene, hypervisor, instance_type, pending_pod, spec};
use kproxide_planner::ids::{PodKey, Vmid};
use kproxide_planner::plan::Plan;

/// How many pods, and what each of them asks for.
const PODS: [(usize, &str); 2] = [(50_000, "cpu=50m"), (1_000, "cpu=95m")];
/// 2,595 cores in all.
const MACHINES: usize = 2_595;

pub(crate) fn benches(criterion: &mut Criterion) {
    let world = scene().world();
    check(&planned(&world));
    let mut group = criterion.benchmark_group("51000 pods of two sizes");
    group.sample_size(10);
    group.bench_function("to 2595 nodes", |bencher| {
        bencher.iter(|| planned(black_box(&world)))
    });
    group.finish();
}

fn scene() -> Scene {
    let mut scene = Scene::default();
    scene.inventory.hypervisors = (0..20)
        .map(|index| (format!("pve{index:02}").into(), hypervisor(512, 1024)))
        .collect();
    scene.cluster.overcommit.cpu = 1.0;
    scene.cluster.vmid_range.last = Vmid(9_999);
    scene.class.instance_types = vec![instance_type("small", 1, 2)];
    let workers = scene.workers();
    workers.limits.max_nodes = 3_000;
    (workers.limits.cpu_cores, workers.limits.memory_mib) = (None, None);
    for (index, (count, requests)) in PODS.into_iter().enumerate() {
        let pod = pending_pod(spec(requests));
        for number in 0..count {
            let key = PodKey::new("default", &format!("kind-{index}-{number:05}"));
            scene.pods.insert(key, pod.clone());
        }
    }
    scene
}

fn planned(world: &World) -> Plan {
    crate::planned(world, 3_000, 100)
}

/// Every pod gets a machine, and no machine has room for one more.
fn check(plan: &Plan) {
    crate::check_launching(plan);
    assert_eq!(plan.launches.len(), MACHINES);
}
