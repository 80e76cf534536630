//! From zero: 50,000 equal pods that want 1000 machines at once (the Cluster Autoscaler's `RunOnceScaleUp`: pods of 200 m on machines of 10 cores).

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion};
use kproxide_planner::World;
use kproxide_planner::facts::Delta;
use kproxide_planner::fixtures::{Scene, hypervisor, instance_type, spec};
use kproxide_planner::ids::Vmid;
use kproxide_planner::plan::Plan;
use kproxide_planner::plan::report::{PendingOutcome, Severity};

const PODS: usize = 50_000;
const MACHINES: usize = 1_000;
const HYPERVISORS: usize = 20;

pub(crate) fn benches(criterion: &mut Criterion) {
    let scene = scene();
    let world = scene.world();
    check(&planned(&world));

    let mut group = criterion.benchmark_group("50000 pods to 1000 nodes");
    group.sample_size(20);
    group.bench_function("warm", |bencher| {
        bencher.iter(|| planned(black_box(&world)))
    });
    group.bench_function("cold", |bencher| {
        bencher.iter_batched(
            || scene.deltas(),
            |deltas| {
                let world = built(deltas);
                let plan = planned(&world);
                (world, plan)
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn scene() -> Scene {
    let mut scene = Scene::default();
    scene.inventory.hypervisors = (0..HYPERVISORS)
        .map(|index| (format!("pve{index:02}").into(), hypervisor(512, 1024)))
        .collect();
    scene.cluster.overcommit.cpu = 1.0;
    scene.cluster.vmid_range.last = Vmid(2999);
    scene.class.instance_types = vec![instance_type("large", 10, 20)];
    scene.workers().limits.max_nodes = 2 * MACHINES as u32;
    scene.pending("burst", PODS, spec("cpu=200m memory=400Mi"));
    scene
}

fn built(deltas: Vec<Delta>) -> World {
    let mut world = World::default();
    for delta in deltas {
        world.apply(delta);
    }
    world
}

fn planned(world: &World) -> Plan {
    crate::planned(world, MACHINES as u32, 100)
}

/// Each machine takes 50 pods, each hypervisor 50 machines, and every pod gets one.
fn check(plan: &Plan) {
    assert_eq!(plan.launches.len(), MACHINES);
    let mut placed: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for launch in &plan.launches {
        *placed.entry(launch.spec.hypervisor.clone()).or_default() += 1;
    }
    assert!(
        placed.len() == HYPERVISORS
            && placed
                .values()
                .all(|count| *count == MACHINES / HYPERVISORS),
        "{placed:?}"
    );
    let [row] = &plan.report.pending[..] else {
        panic!("{} shapes", plan.report.pending.len());
    };
    assert!(
        row.count as usize == PODS && matches!(row.outcome, PendingOutcome::Launching(_)),
        "{row:?}"
    );
    assert!(
        plan.report
            .findings
            .iter()
            .all(|finding| finding.severity != Severity::Defect)
    );
}
