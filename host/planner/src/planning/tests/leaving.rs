//! Nodes that go, or stay, in clusters as people run them.

use jiff::SignedDuration;

use super::*;
use crate::facts::*;

/// Beside the machines `a` and `b`: two control planes of k3s, of which one takes pods.
#[test]
fn r14_a_control_plane_that_takes_pods_counts_as_any_node() {
    let control_planes = |taints: &[&str], busy: &str| {
        let mut scene = Scene::default();
        scene.machine("a", "alpha");
        scene.running("web", 1, "a", spec("cpu=400m memory=64Mi"));
        for name in ["server-1", "server-2"] {
            let server = scene.node(name, node("cpu=2 memory=4Gi"));
            server.labels = labels("node-role.kubernetes.io/control-plane=true");
            if taints.contains(&name) {
                server.taints = vec![taint(
                    "node-role.kubernetes.io/control-plane",
                    TaintEffect::NoSchedule,
                )];
            }
        }
        scene.running("busy", 1, "server-1", spec(busy));
        scene
    };
    assert_eq!(
        removed(&control_planes(&["server-2"], "cpu=200m").plan()),
        ["a"]
    );
    assert_eq!(
        removed(&control_planes(&["server-1"], "cpu=1700m").plan()),
        ["a"]
    );
    // What runs on it counts as well: 2.0 × 1.2 is more than its 2 cores.
    let full = control_planes(&["server-2"], "cpu=1600m").plan();
    assert_eq!(removed(&full), [] as [&str; 0]);
    assert!(kept(&full, "a").unwrap().contains("loadHeadroom"));
    let none = control_planes(&["server-1", "server-2"], "cpu=100m").plan();
    assert_eq!(removed(&none), [] as [&str; 0]);
}

#[test]
fn r20_a_new_machine_holds_up_its_own_pool_alone() {
    let busy = |pool: &str| {
        let mut scene = Scene::default();
        for name in ["workers", "others"] {
            let mut facts = pool_with_stabilization(300);
            facts.scale_down.budget = 2;
            scene.pools.insert(name.into(), facts);
        }
        scene
            .pools
            .get_mut("others")
            .unwrap()
            .scale_down
            .stabilization = SignedDuration::from_secs(60);
        for name in ["a", "b", "new"] {
            scene.machine(name, "alpha");
        }
        scene.claim("b").spec.pool = "others".into();
        scene.claim("new").spec.pool = pool.into();
        scene.claim("new").status.conditions =
            vec![condition(Condition::Initialized, at(NOW - 120))];
        scene
    };
    // The other pool's window is over after a minute, and it does not wait for the longer one.
    assert_eq!(removed(&busy("others").plan()), ["a", "b", "new"]);
    let plan = busy("workers").plan();
    assert_eq!(removed(&plan), ["b"]);
    assert!(kept(&plan, "a").unwrap().contains("stabilization"));
}

fn pool_with_stabilization(seconds: i64) -> PoolFacts {
    let mut pool = pool();
    pool.scale_down.stabilization = SignedDuration::from_secs(seconds);
    pool
}

/// The policies prefer the less loaded machines `a` and `c`, which stand on servers that stay.
#[test]
fn r25_machines_on_a_server_in_maintenance_go_first() {
    let mut scene = Scene::default();
    scene.pools.insert("others".into(), pool());
    scene.workers().scale_down.load_headroom = 0.0;
    for (name, on) in [("a", "alpha"), ("b", "beta"), ("c", "gamma"), ("d", "beta")] {
        scene.machine(name, on);
    }
    scene.claim("c").spec.pool = "others".into();
    scene.claim("d").spec.pool = "others".into();
    scene.running("on-b", 1, "b", spec("cpu=1 memory=1Gi"));
    scene.running("on-d", 1, "d", spec("cpu=1 memory=1Gi"));
    assert_eq!(removed(&scene.plan()), ["a", "c"]);
    scene.hypervisor("beta").maintenance = true;
    assert_eq!(removed(&scene.plan()), ["b", "d"]);
    // Of all pools: there is room for the pods of one of the two, and not for a third Node less.
    scene.pod("on-b-00000").spec.requests = spec("cpu=100m memory=1Gi").requests;
    scene.claim("d").spec.pool = "workers".into();
    scene.claim("a").spec.pool = "others".into();
    scene.workers().scale_down.budget = 2;
    scene.running("on-a", 1, "a", spec("cpu=3500m memory=1Gi"));
    scene.running("on-c", 1, "c", spec("cpu=2800m memory=1Gi"));
    assert_eq!(removed(&scene.plan()), ["b", "d"]);
}

#[test]
fn r25_no_machine_is_made_on_a_server_in_maintenance() {
    let mut scene = Scene::default();
    for name in ["alpha", "beta"] {
        scene.hypervisor(name).maintenance = true;
    }
    scene.pending("web", 2, spec("cpu=3"));
    let plan = scene.plan();
    check_sound(&plan);
    let made_on = plan.launches.iter().map(|launch| &*launch.spec.hypervisor);
    assert_eq!(made_on.collect::<Vec<_>>(), ["gamma", "gamma"]);
}
