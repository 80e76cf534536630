//! From zero: pods of five kinds and thirty sizes, and 400 types of machines, as Karpenter's `scheduling_benchmark_test.go` has them: a fifth each of
//! plain pods, spread over zones, spread over hosts, wanting their own kind in their zone, and keeping their own kind off their host. The last kind
//! forces a machine for each of its pods, and the others fit beside them: Karpenter 1.13 makes N/5 Nodes for N pods.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use kproxide_planner::World;
use kproxide_planner::facts::{
    InstanceType, LabelSelector, Labels, Namespaces, PodSpec, PodTerm, SpreadConstraint,
};
use kproxide_planner::fixtures::{Scene, hypervisor, instance_type, pending_pod, spec};
use kproxide_planner::ids::{PodKey, Vmid};
use kproxide_planner::plan::Plan;

/// How many pods. What is not optimized plans only the fewest.
const SIZES: &[usize] = match cfg!(debug_assertions) {
    true => &[500],
    false => &[500, 1_000, 5_000, 10_000],
};
const TYPES: u32 = 400;
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("diverse pods, 400 types");
    group.sample_size(10);
    for &pods in SIZES {
        let world = scene(pods).world();
        check(&planned(&world), pods);
        group.throughput(Throughput::Elements(pods as u64));
        group.bench_function(BenchmarkId::from_parameter(pods), |bencher| {
            bencher.iter(|| planned(black_box(&world)))
        });
    }
    group.finish();
}

/// The same numbers on every machine (Knuth's MMIX constants).
struct Draw(u64);

impl Draw {
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        let Self(state) = self;
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        choices[(*state >> 33) as usize % choices.len()]
    }
}

fn scene(pods: usize) -> Scene {
    let mut scene = Scene::default();
    scene.inventory.hypervisors = ["z1", "z2", "z3"]
        .map(|zone| (zone.into(), hypervisor(4_000_000, 8_000_000)))
        .into();
    scene.cluster.vmid_range.last = Vmid(999_999);
    scene.class.instance_types = (1..=TYPES)
        .map(|cores| InstanceType {
            max_pods: 10 * cores,
            ..instance_type(&format!("fake-it-{cores}"), cores, 2 * u64::from(cores))
        })
        .collect();
    let workers = scene.workers();
    (
        workers.limits.max_nodes,
        workers.limits.cpu_cores,
        workers.limits.memory_mib,
    ) = (10_000, None, None);
    let mut draw = Draw(42);
    for index in 0..pods {
        let (spec, labels) = pod(&mut draw, index * 5 / pods);
        let mut facts = pending_pod(spec);
        facts.labels = labels;
        let key = PodKey::new("default", &format!("pod-{index:05}"));
        scene.pods.insert(key, facts);
    }
    scene
}

fn pod(draw: &mut Draw, kind: usize) -> (PodSpec, Labels) {
    const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    let cpu = draw.of(&[100, 250, 500, 1000, 1500]);
    let memory = draw.of(&[100, 256, 512, 1024, 2048, 4096]);
    let mut spec = spec(&format!("cpu={cpu}m memory={memory}Mi"));
    let label = |key: &str, value: &str| Labels::from([(key.into(), value.into())]);
    let selector = |labels: &Labels| {
        Some(LabelSelector {
            match_labels: labels.clone(),
            match_expressions: vec![],
        })
    };
    let term = |key: &str, labels: &Labels| PodTerm {
        topology_key: key.into(),
        selector: selector(labels),
        namespaces: Namespaces::Own,
    };
    let labels = match kind {
        3 => label("my-affinity", draw.of(&LETTERS)),
        4 => label("app", "nginx"),
        _ => label("my-label", draw.of(&LETTERS)),
    };
    match kind {
        1 | 2 => {
            spec.spread = vec![SpreadConstraint {
                topology_key: [ZONE, HOST][kind - 1].into(),
                selector: selector(&label("my-label", draw.of(&LETTERS))),
                ..SpreadConstraint::default()
            }];
        }
        3 => spec.pod_affinity = vec![term(ZONE, &labels)],
        4 => spec.pod_anti_affinity = vec![term(HOST, &labels)],
        _ => {}
    }
    (spec, labels)
}

fn planned(world: &World) -> Plan {
    crate::planned(world, 5_000, 100)
}

/// Every pod gets a machine, and there are no more of them than Karpenter makes.
fn check(plan: &Plan, pods: usize) {
    crate::check_launching(plan);
    assert!(
        plan.launches.len() <= pods / 5,
        "{} machines",
        plan.launches.len()
    );
}
