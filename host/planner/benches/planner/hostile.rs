//! One namespace asks for as much as it can: pods with many terms about their neighbours or about Nodes, each pod a shape of its
//! own. Another namespace has one pod, and gets its machine nevertheless.

use std::hint::black_box;
use std::mem;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};
use kproxide_planner::facts::{
    NodeSelectorTerm, Operator, PodSpec, Requirement, SpreadConstraint, Toleration,
};
use kproxide_planner::fixtures::{
    at_odds, hypervisor, instance_type, node, pending_pod, running_at_odds, spec,
};
use kproxide_planner::ids::{PodKey, Vmid};
use kproxide_planner::plan::report::PendingOutcome;
use kproxide_planner::{World, fixtures::Scene};

/// Pods, and terms of each, as they were tried: three have more than is looked at. The last are the most of it. What is not
/// optimized plans only a small one.
const WORLDS: &[(usize, usize)] = match cfg!(debug_assertions) {
    true => &[(60, 20)],
    false => &[
        (100, 1_500),
        (1_500, 20),
        (300, 200),
        (60, 500),
        (1_500, 50),
    ],
};

/// Gives the pod of this number what it asks for.
type Asks = fn(&mut PodSpec, usize);

/// Pods, terms of each about Nodes, and Nodes.
const OF_NODES: &[(usize, usize, usize)] = match cfg!(debug_assertions) {
    true => &[(60, 100, 10)],
    false => &[(1_500, 160, 1_000), (10_000, 160, 100)],
};

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("terms of one namespace");
    group.sample_size(10);
    for &(pods, terms) in WORLDS {
        let name = format!("{pods} pods of {terms} terms");
        measure(&mut group, name, &|scene| at_odds(scene, pods, terms));
    }
    let (pods, terms) = WORLDS[1 % WORLDS.len()];
    let others: [(&str, Asks); 3] = [
        ("affinity", beside),
        ("spread", spread),
        ("spread of its own", spread_alone),
    ];
    for (kind, change) in others {
        let name = format!("{pods} pods of {terms} terms of {kind}");
        measure(&mut group, name, &|scene| {
            at_odds(scene, pods, terms);
            for (number, pod) in scene.pods.values_mut().enumerate() {
                change(&mut pod.spec, number);
            }
        });
    }
    measure(
        &mut group,
        format!("{pods} running pods of {terms} terms"),
        &|scene| {
            running_at_odds(scene, pods, terms, "kubernetes.io/hostname");
        },
    );
    for &(pods, terms, nodes) in OF_NODES {
        let name = format!("{pods} pods of {terms} terms about {nodes} Nodes");
        measure(&mut group, name, &|scene| {
            of_nodes(scene, pods, terms, nodes)
        });
    }
    group.finish();
}

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, name: String, fill: &dyn Fn(&mut Scene)) {
    group.bench_function(name, |bencher| {
        let mut scene = Scene::default();
        scene.class.instance_types = (1..=8)
            .map(|size| instance_type(&format!("size-{size}"), 4 * size, 8 * u64::from(size)))
            .collect();
        let workers = scene.workers();
        (workers.limits.max_nodes, workers.limits.cpu_cores) = (10_000, None);
        workers.limits.memory_mib = None;
        let large = hypervisor(4_000_000, 8_000_000);
        scene.inventory.hypervisors = [("alpha".into(), large)].into();
        scene.cluster.vmid_range.last = Vmid(999_999);
        fill(&mut scene);
        // More than is left on any Node.
        let pod = pending_pod(spec("cpu=2 memory=100Mi"));
        scene.pods.insert(PodKey::new("other", "web"), pod);
        let world = scene.world();
        check(&world);
        bencher.iter(|| crate::planned(black_box(&world), 20, 100))
    });
}

fn beside(spec: &mut PodSpec, _: usize) {
    spec.pod_affinity = mem::take(&mut spec.pod_anti_affinity);
}

fn spread(spec: &mut PodSpec, _: usize) {
    let terms = mem::take(&mut spec.pod_anti_affinity);
    let constraints = terms.into_iter().map(|term| SpreadConstraint {
        topology_key: term.topology_key,
        selector: term.selector,
        ..SpreadConstraint::default()
    });
    spec.spread = constraints.collect();
}

/// No two pods count the same, because they could stand on other Nodes.
fn spread_alone(spec: &mut PodSpec, number: usize) {
    spread(spec, number);
    spec.tolerations = vec![Toleration {
        key: Some(format!("key-{number}").into()),
        ..Toleration::default()
    }];
}

/// Terms that no Node matches, and of each pod others.
fn of_nodes(scene: &mut Scene, pods: usize, terms: usize, nodes: usize) {
    for number in 0..nodes {
        let name = format!("node-{number:04}");
        let mut node = node("cpu=1 memory=8Gi");
        // A Node has some 20 labels.
        let labels = (0..20).map(|it| (format!("node.kubernetes.io/label-{it}"), "a".to_owned()));
        node.labels.extend(labels);
        scene.node(&name, node);
    }
    for pod in 0..pods {
        let term = |number: usize| NodeSelectorTerm {
            match_expressions: vec![Requirement {
                key: "kubernetes.io/hostname".into(),
                operator: Operator::In,
                values: vec![format!("{pod}-{number}").into()],
            }],
            match_fields: vec![],
        };
        let mut spec = spec("cpu=100m memory=100Mi");
        spec.node_affinity = Some((0..terms).map(term).collect());
        let key = PodKey::new("hostile", &format!("pod-{pod:04}"));
        scene.pods.insert(key, pending_pod(spec));
    }
}

fn check(world: &World) {
    let plan = crate::planned(world, 20, 100);
    let mut rows = plan.report.pending.iter();
    let other = rows.find(|row| &*row.example.namespace == "other");
    assert!(
        other.is_some_and(|row| matches!(row.outcome, PendingOutcome::Launching(_))),
        "{other:?}"
    );
}
