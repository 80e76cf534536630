//! One namespace asks for as much as it can: pods with many terms about their neighbours, each pod a shape of its own. Another
//! namespace has one pod, and gets its machine nevertheless.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion};
use kproxide_planner::fixtures::{at_odds, instance_type, pending_pod, spec};
use kproxide_planner::ids::PodKey;
use kproxide_planner::plan::report::PendingOutcome;
use kproxide_planner::{World, fixtures::Scene};

/// Pods, and terms of each. What is not optimized plans only a small one.
const WORLDS: &[(usize, usize)] = match cfg!(debug_assertions) {
    true => &[(60, 20)],
    false => &[(100, 1_500), (1_500, 20), (300, 200), (60, 500)],
};

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("terms of one namespace");
    group.sample_size(10);
    for &(pods, terms) in WORLDS {
        let name = format!("{pods} pods of {terms} terms");
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            let world = world(pods, terms);
            check(&world);
            bencher.iter(|| crate::planned(black_box(&world), 20, 100))
        });
    }
    group.finish();
}

fn world(pods: usize, terms: usize) -> World {
    let mut scene = Scene::default();
    scene.class.instance_types = (1..=8)
        .map(|size| instance_type(&format!("size-{size}"), 4 * size, 8 * u64::from(size)))
        .collect();
    at_odds(&mut scene, pods, terms);
    let pod = pending_pod(spec("cpu=100m memory=100Mi"));
    scene.pods.insert(PodKey::new("other", "web"), pod);
    scene.world()
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
