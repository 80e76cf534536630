//! Rules that hold for one thing, tried with two: two pods, two removals in a tick, two pools, two sources of free room.

use jiff::SignedDuration;

use super::*;
use crate::facts::*;
use crate::planning::Limits;

#[test]
fn the_scale_up_window_counts_from_the_pod_that_has_waited_longest() {
    let mut scene = Scene::default();
    scene.workers().scale_up.stabilization_window = SignedDuration::from_secs(60).into();
    scene.pending("web", 2, spec("cpu=1"));
    scene.pod("web-00000").unschedulable_since = Some(at(NOW - 60));
    scene.pod("web-00001").unschedulable_since = Some(at(NOW - 1));
    assert_eq!(launches(&scene), 1);
    scene.pod("web-00000").unschedulable_since = Some(at(NOW - 59));
    let plan = scene.plan();
    assert_eq!((plan.launches.len(), plan.wake_at), (0, Some(at(NOW + 1))));
}

#[test]
fn load_headroom_is_held_against_what_the_removals_before_it_have_left() {
    // 7.2 cores × 1.2 < 16 − 4, and not < 16 − 8.
    let mut scene = Scene::default();
    scene.workers().scale_down.budget = 2;
    for (name, requests) in [
        ("a", "cpu=3200m memory=2Gi"),
        ("b", "cpu=3200m memory=2Gi"),
        ("c", "cpu=400m"),
        ("d", "cpu=400m"),
    ] {
        scene.machine(name, "alpha");
        scene.running(&format!("web-{name}"), 1, name, spec(requests));
    }
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["c"]);
    let reason = kept(&plan, "d").unwrap();
    assert!(reason.contains("loadHeadroom"), "{reason}");
    scene.workers().scale_down.load_headroom = 0.1;
    assert_eq!(removed(&scene.plan()), ["c", "d"]);
}

#[test]
fn what_a_machine_for_pods_leaves_free_is_headroom() {
    let mut scene = Scene::default();
    scene.workers().headroom = headroom("cpu=2");
    scene.pending("web", 1, spec("cpu=1"));
    assert_eq!(launches(&scene), 1);
    // Two of them have one core left each.
    scene.pending("web", 6, spec("cpu=1"));
    assert_eq!(launches(&scene), 2);
    scene.pending("web", 7, spec("cpu=1"));
    assert_eq!(launches(&scene), 3);
}

#[test]
fn headroom_is_free_on_machines_in_service_and_on_those_to_come() {
    let mut scene = Scene::default();
    scene.machine("here", "alpha");
    scene.coming_machine("coming", "beta", Phase::Launching);
    scene.running("web", 2, "here", spec("cpu=1"));
    scene.workers().headroom = headroom("cpu=6");
    assert_eq!(launches(&scene), 0);
    scene.workers().headroom = headroom("cpu=6500m");
    assert_eq!(launches(&scene), 1);
}

#[test]
fn every_resource_of_the_headroom_is_made() {
    let mut scene = Scene::default();
    scene.workers().headroom = headroom("cpu=5 memory=17Gi");
    assert_eq!(launches(&scene), 3, "two have the cores, three the memory");
}

#[test]
fn machines_for_pods_are_some_of_min_nodes() {
    let mut scene = Scene::default();
    scene.workers().limits.min_nodes = 3;
    scene.pending("web", 5, spec("cpu=1"));
    assert_eq!(launches(&scene), 3);
}

#[test]
fn pool_headroom_is_held_against_what_the_removals_before_it_have_left() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    scene.machine("c", "gamma");
    scene.workers().scale_down.budget = 3;
    scene.workers().headroom = headroom("cpu=4");
    assert_eq!(removed(&scene.plan()), ["a", "b"]);
    scene.workers().headroom = headroom("cpu=5");
    assert_eq!(removed(&scene.plan()), ["a"]);
}

#[test]
fn a_tick_removes_no_more_than_it_may_of_all_pools_together() {
    let mut scene = Scene::default();
    scene.workers().scale_down.budget = 2;
    let other = scene.workers().clone();
    scene.pools.insert("other".into(), other);
    for name in ["a", "b", "c", "d"] {
        scene.machine(name, "alpha");
    }
    for name in ["c", "d"] {
        scene.claim(name).spec.pool = "other".into();
    }
    for (most, expected) in [(4, 4), (3, 3), (1, 1), (0, 0)] {
        let limits = Limits {
            max_removals_per_tick: most,
            ..Limits::default()
        };
        let plan = plan(&scene.world(), at(NOW), limits, reasonable);
        check_sound(&plan);
        assert_eq!(removed(&plan).len(), expected);
    }
}

#[test]
fn memory_is_limited_and_promised_as_cores_are() {
    // Two pods of each a machine; what the first takes is not there for the second.
    let mut scene = Scene::default();
    scene.pending("web", 3, spec("cpu=3"));
    scene.workers().limits.memory_mib = Some(16 << 10);
    assert_eq!(launches(&scene), 2);
    scene.workers().limits.memory_mib = None;
    scene.inventory.hypervisors = [("alpha".into(), hypervisor(32, 20))].into();
    assert_eq!(launches(&scene), 2);
    scene.cluster.system_reserved.memory = Amount::mib(5 << 10);
    assert_eq!(launches(&scene), 1);
}

#[test]
fn each_cluster_has_its_own_hypervisors_and_numbers() {
    // A second cluster with a hypervisor of the same name; `count` looks a machine up in its own.
    let scene = {
        let mut scene = Scene::default();
        scene.inventory.hypervisors = [("alpha".into(), hypervisor(32, 8))].into();
        scene.pending("web", 2, spec("cpu=3"));
        scene
    };
    assert_eq!(launches(&scene), 1);
    let mut world = scene.world();
    world.apply(Delta::Cluster("second".into(), Some(Box::new(cluster()))));
    let second = Box::new(scene.inventory.clone());
    world.apply(Delta::Inventory("second".into(), Some(second)));
    let plan = plan(&world, at(NOW), Limits::default(), reasonable);
    check_sound(&plan);
    let clusters: Vec<_> = plan
        .launches
        .iter()
        .map(|launch| (launch.spec.cluster.as_str(), launch.spec.vmid.0))
        .collect();
    assert_eq!(clusters.len(), 2);
    assert_ne!(clusters[0].0, clusters[1].0);
    assert_eq!(clusters[0].1, clusters[1].1, "numbers are a cluster's own");
}
