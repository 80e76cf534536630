//! A cluster in service: building the World from the first lists, and what a tick costs that has little or nothing to do.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkGroup, Criterion, measurement::WallTime};
use kproxide_planner::World;
use kproxide_planner::facts::{Delta, InventoryFacts, Owner, PodFacts};
use kproxide_planner::fixtures::{
    NOW, Scene, at, hypervisor, labels, node, pending_pod, plan, running_pod, spec,
};
use kproxide_planner::ids::{ClusterName, PodKey, Vmid};
use kproxide_planner::plan::question::Question;
use kproxide_planner::plan::report::NodeOutcome;
use kproxide_planner::plan::{Plan, Verdict};
use kproxide_planner::planning::Limits;
use kproxide_planner::reasons::kept::Kept;

use crate::spread::spread;

/// How many pods one workload has: a workload is a shape.
const PODS_PER_WORKLOAD: usize = 100;

/// Pods that change at once.
const MANY: usize = 1_000;

/// What a size is measured at.
struct Size {
    nodes: usize,
    pods: usize,
    samples: usize,
}

pub(crate) fn benches(criterion: &mut Criterion) {
    for size in [
        Size {
            nodes: 1_000,
            pods: 30_000,
            samples: 30,
        },
        Size {
            nodes: 5_000,
            pods: 100_000,
            samples: 10,
        },
    ] {
        let name = format!("{} nodes with {} pods", size.nodes, size.pods);
        let mut group = criterion.benchmark_group(name);
        group.sample_size(size.samples);
        measure(&mut group, &scene(&size));
        group.finish();
    }
}

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, scene: &Scene) {
    group.bench_function("build", |bencher| {
        bencher.iter_batched(|| scene.deltas(), built, BatchSize::LargeInput);
    });

    let mut world = scene.world();
    // The first tick notes since when it has the reason why each Node stays: nothing is settled before that.
    let first = quietly(&world);
    world.remember(&first);
    let quiet = quietly(&world);
    check_quiet(&quiet, scene);
    world.remember(&quiet);
    let again = quietly(&world);
    assert_eq!(again, quiet);
    group.bench_function("tick, nothing changed", |bencher| {
        bencher.iter(|| quietly(black_box(&world)));
    });

    // What every few seconds brings: the same machines, other measurements.
    let mut turn = 0;
    group.bench_function("tick, a new inventory", |bencher| {
        bencher.iter_batched(
            || {
                turn += 1;
                measured(scene, turn)
            },
            |inventory| {
                world.apply(inventory);
                let plan = quietly(&world);
                world.remember(&plan);
                plan
            },
            BatchSize::SmallInput,
        );
    });
    assert_eq!(quietly(&world), quiet);

    let (key, running) = scene.pods.first_key_value().expect("there are pods");
    let mut is_ready = running.ready;
    group.bench_function("tick, one pod changed", |bencher| {
        bencher.iter_batched(
            || {
                is_ready = !is_ready;
                changed(
                    key,
                    PodFacts {
                        ready: is_ready,
                        ..running.clone()
                    },
                )
            },
            |pod| {
                world.apply(pod);
                let plan = quietly(&world);
                world.remember(&plan);
                plan
            },
            BatchSize::SmallInput,
        );
    });

    let many: Vec<_> = scene.pods.iter().take(MANY).collect();
    group.bench_function("tick, 1000 pods changed", |bencher| {
        bencher.iter_batched(
            || {
                is_ready = !is_ready;
                let ready = |(key, pod): &(&PodKey, &PodFacts)| {
                    let pod = PodFacts {
                        ready: is_ready,
                        ..(*pod).clone()
                    };
                    changed(key, pod)
                };
                many.iter().map(ready).collect::<Vec<_>>()
            },
            |pods| {
                for pod in pods {
                    world.apply(pod);
                }
                let plan = quietly(&world);
                world.remember(&plan);
                plan
            },
            BatchSize::SmallInput,
        );
    });

    let new = PodKey::new("default", "one-more");
    let arrived = || changed(&new, pending_pod(spec("cpu=1 memory=1Gi")));
    world.apply(arrived());
    check_one(&planned(&world));
    group.bench_function("tick, one pod pending", |bencher| {
        bencher.iter_batched(
            arrived,
            |pod| {
                world.apply(Delta::Pod(new.clone(), None));
                world.apply(pod);
                planned(&world)
            },
            BatchSize::SmallInput,
        );
    });
}

/// Nodes of 4 cores and 8 GiB, nine of ten of them ours, each nine tenths full: none to spare, and none to make.
fn scene(size: &Size) -> Scene {
    let hypervisors = size.nodes / 50;
    let mut scene = Scene::default();
    scene.inventory.hypervisors = (0..hypervisors)
        .map(|index| (hypervisor_name(index).into(), hypervisor(256, 512)))
        .collect();
    scene.cluster.overcommit.cpu = 1.0;
    scene.cluster.vmid_range.last = Vmid(20_000);
    scene.workers().limits.max_nodes = 2 * size.nodes as u32;
    for index in 0..size.nodes {
        let name = name("node", index);
        if index % 10 == 0 {
            scene.node(&name, node("cpu=4 memory=8Gi"));
        } else {
            scene.machine(&name, &hypervisor_name(index % hypervisors));
        }
    }
    let pods_per_node = size.pods / size.nodes;
    let cpu = 3_600 / pods_per_node;
    let memory = 7_200 / pods_per_node;
    for index in 0..size.pods {
        let workload = name("app", index / PODS_PER_WORKLOAD);
        // Workloads differ in what they ask, as they do, by a little.
        let requests = format!(
            "cpu={cpu}m memory={}Mi",
            memory - index / PODS_PER_WORKLOAD % 10
        );
        let pod = PodFacts {
            uid: name("uid", index).into(),
            labels: labels(&format!("app={workload} pod-template-hash=5d4f8c7b9")),
            owner: Some(Owner {
                kind: "ReplicaSet".into(),
                name: workload.as_str().into(),
                uid: workload.as_str().into(),
            }),
            ..running_pod(&name("node", index % size.nodes), spec(&requests))
        };
        let key = PodKey::new("default", &format!("{workload}-{index:06}"));
        scene.pods.insert(key, pod);
    }
    scene
}

fn hypervisor_name(index: usize) -> String {
    name("pve", index)
}

fn name(kind: &str, index: usize) -> String {
    format!("{kind}-{index:05}")
}

fn built(deltas: Vec<Delta>) -> World {
    let mut world = World::default();
    for delta in deltas {
        world.apply(delta);
    }
    world
}

fn changed(key: &PodKey, facts: PodFacts) -> Delta {
    Delta::Pod(key.clone(), Some(Box::new(facts)))
}

/// The inventory with every hypervisor a little busier than before.
fn measured(scene: &Scene, turn: u32) -> Delta {
    let mut inventory: InventoryFacts = scene.inventory.clone();
    for facts in inventory.hypervisors.values_mut() {
        facts.cpu_usage = f64::from(turn % 100) / 200.0;
    }
    Delta::Inventory(ClusterName::from("pve"), Some(Box::new(inventory)))
}

/// No policy is asked: there is nothing to choose.
fn quietly(world: &World) -> Plan {
    plan(world, at(NOW), Limits::default(), |question: &Question| {
        panic!("asked {question:?}")
    })
}

fn planned(world: &World) -> Plan {
    plan(world, at(NOW), Limits::default(), spread)
}

/// Every claim is kept, every Node has its reason, and nothing is to be written.
fn check_quiet(plan: &Plan, scene: &Scene) {
    assert!(plan.launches.is_empty() && plan.ledger.is_none() && plan.unneeded.is_empty());
    assert_eq!(plan.advances.len(), scene.claims.len());
    assert!(
        plan.advances
            .iter()
            .all(|advance| advance.verdict == Verdict::Keep)
    );
    let kept = |outcome: &NodeOutcome| {
        matches!(
            outcome,
            NodeOutcome::Kept(Kept::LoadHeadroom { .. } | Kept::Stuck(..))
        )
    };
    assert_eq!(plan.report.nodes.len(), scene.claims.len());
    assert!(
        plan.report.nodes.iter().all(|row| kept(&row.outcome)),
        "{:?}",
        plan.report.nodes[0]
    );
    assert!(
        plan.report.findings.is_empty(),
        "{:?}",
        plan.report.findings
    );
}

/// No Node has room for the pod: it gets a machine.
fn check_one(plan: &Plan) {
    assert_eq!(plan.launches.len(), 1);
    assert!(
        plan.report.findings.is_empty(),
        "{:?}",
        plan.report.findings
    );
}
