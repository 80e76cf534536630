//! Machines without pods for them yet: `minNodes`, and headroom beside the pods that wait.

use super::*;
use crate::claim::Phase;
use crate::facts::*;

#[test]
fn min_nodes_are_made_without_pods() {
    let mut scene = Scene::default();
    scene.workers().limits.min_nodes = 3;
    scene.coming_machine("coming", "alpha", Phase::Launching);
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 2);
    assert_eq!(
        plan.launches[0].reason,
        "NodePool workers has fewer than 3 machines (minNodes)"
    );
}

#[test]
fn pools_that_make_no_machines_are_named_while_no_pod_is_pending() {
    let mut scene = Scene::default();
    let usable = scene.workers().clone();
    let (mut broken, mut paused) = (usable.clone(), usable);
    broken.node_class = "gone".into();
    paused.paused = true;
    scene.pools.insert("broken".into(), broken);
    scene.pools.insert("paused".into(), paused);
    let said = scene.plan().report.unusable.into_iter();
    let said: Vec<_> = said.map(|(_, why)| why.to_string()).collect();
    assert_eq!(
        said,
        [
            "NodePool broken names NodeClass gone, which does not exist",
            "NodePool paused is paused"
        ]
    );
}

#[test]
fn headroom_is_kept_free_beyond_the_pods() {
    let mut scene = Scene::default();
    scene.workers().headroom = headroom("cpu=3");
    assert_eq!(launches(&scene), 1);
    scene.pending("web", 1, spec("cpu=2"));
    assert_eq!(
        launches(&scene),
        2,
        "the machine of the pod has 2 cores left"
    );
}

#[test]
fn headroom_that_no_machine_offers_makes_no_machine() {
    let mut scene = Scene::default();
    scene.class.overhead.memory = Amount::mib(8 << 10);
    scene.workers().headroom = headroom("memory=1Gi");
    let plan = scene.plan();
    assert_eq!(plan.launches, []);
    assert_eq!(
        plan.report.findings[0].message,
        "kproxide can make no more machines for the pool's headroom: its machines offer no memory"
    );
    scene.workers().limits.min_nodes = 1;
    assert_eq!(launches(&scene), 1, "minNodes asks for any machine");
}

#[test]
fn headroom_is_made_with_the_smallest_type_that_offers_it() {
    let mut scene = Scene::default();
    scene.class.overhead.memory = Amount::mib(4 << 10);
    scene.class.instance_types = vec![
        instance_type("none", 4, 4),
        instance_type("large", 8, 16),
        instance_type("small", 4, 8),
    ];
    scene.workers().headroom = headroom("memory=1Gi");
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 1);
    assert_eq!(plan.launches[0].spec.instance_type.as_str(), "small");
}

#[test]
fn pods_wait_for_the_same_machines_while_others_come_for_headroom() {
    // The name of a machine for headroom comes first; counting the pods on it would ask for one more in every tick.
    let mut scene = Scene::default();
    scene.coming_machine("older", "alpha", Phase::Launching);
    scene.pending("web", 4, spec("cpu=1"));
    let mut extra = pool();
    extra.headroom = headroom("cpu=2");
    scene.pools.insert("extra".into(), extra);
    let first = scene.plan();
    assert_eq!(first.launches.len(), 1);
    assert_eq!(acted(&scene, &first).plan().launches, []);
}

#[test]
fn pods_wait_for_the_machine_that_was_made_for_them_where_others_need_theirs() {
    // The small pod fits both machines, the large one only that of `workers`: in the next tick too.
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("small", 2, 4), instance_type("medium", 4, 8)];
    let mut extra = pool();
    (extra.limits.max_nodes, extra.headroom) = (1, headroom("cpu=2"));
    extra.taints = vec![taint("dedicated", TaintEffect::NoSchedule)];
    scene.pools.insert("extra".into(), extra);
    scene.pending("large", 1, spec("cpu=2 memory=3Gi"));
    let mut small = spec("cpu=100m memory=128Mi");
    small.node_selector = labels("topology.kubernetes.io/zone=beta");
    small.tolerations = vec![Toleration {
        key: Some("dedicated".into()),
        exists: true,
        ..Toleration::default()
    }];
    scene.pending("small", 1, small);
    let first = scene.plan();
    assert_eq!(first.launches.len(), 2);
    assert_eq!(acted(&scene, &first).plan().launches, []);
}

#[test]
fn pods_that_fit_elsewhere_do_not_use_up_the_headroom() {
    let mut scene = Scene::default();
    scene.machine("a-first-by-name", "alpha");
    scene.node("static", node("cpu=4 memory=8Gi"));
    scene.workers().headroom = headroom("cpu=2");
    scene.pending("web", 3, spec("cpu=1"));
    assert_eq!(launches(&scene), 0);
}

#[test]
fn pods_wait_for_their_machine_and_not_for_the_one_made_for_headroom_with_it() {
    let mut scene = Scene::default();
    scene.workers().weight = 1;
    scene.pending("web", 4, spec("cpu=1"));
    let mut extra = pool();
    extra.headroom = headroom("cpu=2");
    scene.pools.insert("extra".into(), extra);
    let first = scene.plan();
    let pools: Vec<_> = first
        .launches
        .iter()
        .map(|launch| launch.spec.pool.as_str())
        .collect();
    assert_eq!(pools, ["workers", "extra"]);
    assert_eq!(acted(&scene, &first).plan().launches, []);

    // Both keep headroom, and the first has none to give any more: the second's must not be counted for the pods.
    let workers = scene.workers();
    (workers.headroom, workers.limits.max_nodes) = (headroom("cpu=2"), 1);
    let first = scene.plan();
    assert_eq!(first.launches.len(), 2);
    assert_eq!(acted(&scene, &first).plan().launches, []);
}
