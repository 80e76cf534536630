//! Nodes that go, or stay, in clusters as people run them.

use jiff::SignedDuration;

use super::*;
use crate::claim::{Condition, unneeded};
use crate::facts::*;
use crate::ids::{ObjectKey, Uid};
use crate::plan::Standing;
use crate::planning::{Limits, ends_with_machine};

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
            .stabilization = SignedDuration::from_secs(60).into();
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
    pool.scale_down.stabilization = SignedDuration::from_secs(seconds).into();
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
    // Where the VM is now counts, not where it was made.
    let mut moved = scene.clone();
    let others = moved.pools.get_mut("others").expect("the other pool");
    others.scale_down.enabled = false;
    assert_eq!(removed(&moved.plan()), ["b"]);
    for (name, to) in [("a", "beta"), ("b", "alpha")] {
        moved.claim(name).status.hypervisor = Some(to.into());
    }
    assert_eq!(removed(&moved.plan()), ["a"]);
    // Of all pools: there is room for the pods of one of the two, and not for a third Node less.
    scene.pod("on-b-00000").spec.requests = spec("cpu=100m memory=1Gi").requests.clone();
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

/// The pods of `a` and `b` should have ended; agent-1 is nearly full.
#[test]
fn r18_a_pod_that_should_have_ended_carries_no_load() {
    let mut scene = Scene::default();
    scene.node("agent-1", node("cpu=4 memory=8Gi"));
    scene.running("full", 1, "agent-1", spec("cpu=3"));
    for name in ["a", "b"] {
        scene.machine(name, "alpha");
        scene.running(&format!("stuck-{name}"), 1, name, spec("cpu=3500m"));
        scene.pod(&format!("stuck-{name}-00000")).deleting = true;
        scene.pod(&format!("stuck-{name}-00000")).grace_ends = Some(at(NOW - 30));
    }
    scene.workers().scale_down.budget = 2;
    assert_eq!(removed(&scene.plan()), ["a", "b"]);
    for name in ["a", "b"] {
        scene.pod(&format!("stuck-{name}-00000")).grace_ends = Some(at(NOW - 29));
    }
    let plan = scene.plan();
    assert_eq!((removed(&plan), plan.wake_at), (vec![], Some(at(NOW + 1))));
}

/// Both pods on `b` tolerate every taint. `old` stood there before the drain began, and `new` has come since.
fn tolerant(change: impl FnOnce(&mut Scene)) -> (Plan, Vec<Uid>) {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    let mut tolerant = spec("cpu=100m");
    tolerant.tolerations = vec![Toleration {
        exists: true,
        ..Toleration::default()
    }];
    for name in ["new", "old"] {
        scene.running(name, 1, "b", tolerant.clone());
        scene.pod(&format!("{name}-00000")).uid = name.into();
    }
    scene.pod("new-00000").created = at(NOW - 5);
    scene.pod("new-00000").labels = labels("app=new");
    change(&mut scene);
    let claim = scene.claim("b");
    claim.status.phase = Phase::Draining;
    claim.status.draining_since = Some(at(NOW - 10));
    claim.status.conditions.push(ClaimCondition {
        status: false,
        reason: "Underutilized".to_owned(),
        ..condition(Condition::Drained, at(NOW - 10))
    });
    let ends = ends_with_machine(&scene.world(), &scene.claims["b"]);
    (scene.plan(), ends.into_iter().collect())
}

#[test]
fn r16_a_pod_that_came_back_ends_with_the_machine_or_keeps_it() {
    let (plan, ends) = tolerant(|_| ());
    assert_eq!((removed(&plan), ends), (vec!["b"], vec!["new".into()]));

    let volume = |scene: &mut Scene| {
        super::volumes::attached(scene, "new", "data");
    };
    let budget = |allowed| {
        move |scene: &mut Scene| {
            let facts = DisruptionBudgetFacts {
                selector: Some(LabelSelector {
                    match_labels: labels("app=new"),
                    ..LabelSelector::default()
                }),
                disruptions_allowed: allowed,
                ..DisruptionBudgetFacts::default()
            };
            scene
                .budgets
                .insert(ObjectKey::new("default", "new"), facts);
        }
    };
    assert_eq!(removed(&tolerant(budget(1)).0), ["b"]);
    for (plan, why) in [
        (tolerant(volume).0, "uses PersistentVolume data"),
        (
            tolerant(budget(0)).0,
            "is protected by PodDisruptionBudget new",
        ),
    ] {
        let Verdict::GiveUp(given_up) = verdict(&plan, "b") else {
            panic!("{:?}", verdict(&plan, "b"));
        };
        let text = given_up.to_string();
        assert!(
            text.starts_with("pod default/new-00000 came back"),
            "{text}"
        );
        assert!(
            text.contains(why) && text.contains("{operator: Exists}"),
            "{text}"
        );
    }
}

#[test]
fn r23_a_cordoned_node_without_pods_is_told_of_with_the_next_step() {
    let mut scene = Scene::default();
    for name in ["empty", "busy"] {
        scene.machine(name, "alpha");
        scene.nodes.get_mut(name).unwrap().unschedulable = true;
    }
    scene.running("web", 1, "busy", spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    let [told] = &plan.unneeded[..] else {
        panic!("{:?}", plan.unneeded);
    };
    assert_eq!(
        (told.claim.as_str(), &told.standing),
        ("empty", &Standing::Cordoned("empty".into()))
    );
    let change = unneeded(&told.standing, at(NOW));
    let note = change.note.clone().expect("an Event").message;
    assert!(
        note.contains("kubectl uncordon empty") && note.contains("delete this NodeClaim"),
        "{note}"
    );
    // Said once, and taken back when the cordon is.
    change.apply(&mut scene.claim("empty").status, "", "");
    assert_eq!(scene.plan().unneeded, []);
    scene.nodes.get_mut("empty").unwrap().unschedulable = false;
    let [told] = &scene.plan().unneeded[..] else {
        panic!("it could go now");
    };
    assert_eq!(told.standing, Standing::CouldGo);
}

/// Two machines are in service. Their pods wait since before they were made.
fn tainted(key: &str) -> Scene {
    let mut scene = Scene::default();
    for name in ["a", "b"] {
        scene.machine(name, "alpha");
        scene.claim(name).created = at(NOW - 40);
        scene.nodes.get_mut(name).unwrap().taints = vec![taint(key, TaintEffect::NoSchedule)];
    }
    scene.pending("web", 2, spec("cpu=3"));
    scene
}

#[test]
fn r4_a_taint_that_passes_may_stay_for_five_minutes_on_a_node_in_service() {
    let scene = tainted("node.cilium.io/agent-not-ready");
    let mut world = scene.world();
    let mut launches_at = |now: i64| {
        let plan = plan(&world, at(now), Limits::default(), reasonable);
        check_sound(&plan);
        world.remember(&plan);
        plan.launches.len()
    };
    assert_eq!([NOW, NOW + 299].map(&mut launches_at), [0, 0]);
    assert_eq!(launches_at(NOW + 300), 2);
    // No pods are sent there before it is gone.
    let mut moving = tainted("node.cilium.io/agent-not-ready");
    moving.pods.clear();
    moving.running("web", 1, "a", spec("cpu=1"));
    moving.nodes.get_mut("a").unwrap().taints = vec![];
    assert_eq!(removed(&moving.plan()), ["b"]);
    moving.claim("b").do_not_disrupt = true;
    assert_eq!(removed(&moving.plan()), [] as [&str; 0]);
    // The pool's own such taints as well.
    let mut own = tainted("example.com/booting");
    own.workers().startup_taints = vec![taint("example.com/booting", TaintEffect::NoSchedule)];
    assert_eq!(launches(&own), 0);
}

#[test]
fn r4_another_taint_on_a_fresh_machine_is_named_and_makes_no_second_one() {
    let scene = tainted("example.com/storage-not-ready");
    let Why::UnexpectedTaint { node, taint } = why(&scene) else {
        panic!("{}", why(&scene));
    };
    assert_eq!(
        (node.as_str(), &*taint.key),
        ("a", "example.com/storage-not-ready")
    );
    // Pods that came later, pods that tolerate it, and a machine that is in use make one.
    let mut later = scene.clone();
    for name in ["web-00000", "web-00001"] {
        later.pod(name).created = at(NOW - 39);
    }
    assert_eq!(launches(&later), 2);
    let mut used = scene.clone();
    used.running("job-a", 1, "a", spec("cpu=100m"));
    used.running("job-b", 1, "b", spec("cpu=100m"));
    assert_eq!(launches(&used), 2);
    let mut named = scene;
    let pool = named.workers();
    pool.taints = vec![taint.clone()];
    for name in ["a", "b"] {
        named.claim(name).spec.taints = vec![taint.clone()];
    }
    assert!(matches!(why(&named), Why::Misfit(_)));
}

/// Idle machines that could go for that many seconds, in a pool that waits for five minutes.
fn spared(machines: usize, seconds: i64) -> Scene {
    let mut scene = Scene::default();
    scene.workers().limits.max_nodes = 20;
    scene.workers().scale_down.unneeded_time = SignedDuration::from_mins(5).into();
    for index in 0..machines {
        let name = format!("m{index:02}");
        scene.machine(&name, "alpha");
        let unneeded = condition(Condition::Unneeded, at(NOW - seconds));
        scene.claim(&name).status.conditions.push(unneeded);
    }
    scene
}

fn preferences(plan: &Plan) -> Vec<(&str, bool)> {
    let changes = plan.preferences.iter();
    changes
        .map(|it| (it.claim.as_str(), it.is_unneeded))
        .collect()
}

#[test]
fn r21_nodes_that_go_next_are_left_to_pods_that_fit_nowhere_else() {
    let plan = spared(2, 30).plan();
    check_sound(&plan);
    assert_eq!(preferences(&plan), [("m00", true), ("m01", true)]);
    let young = spared(2, 29).plan();
    assert_eq!(
        (preferences(&young), young.wake_at),
        (vec![], Some(at(NOW + 1)))
    );
    // No more than may go, and no more than ten in one tick.
    let mut least = spared(2, 30);
    least.workers().limits.min_nodes = 1;
    assert_eq!(preferences(&least.plan()), [("m00", true)]);
    assert_eq!(preferences(&spared(12, 30).plan()).len(), 10);
}

#[test]
fn r21_a_node_that_does_not_go_next_loses_the_taint_at_once() {
    let tainted = |change: fn(&mut Scene)| {
        let mut scene = spared(2, 60);
        for node in scene.nodes.values_mut() {
            node.taints = vec![taint(
                "kproxide.dev/unneeded",
                TaintEffect::PreferNoSchedule,
            )];
        }
        change(&mut scene);
        scene
    };
    assert_eq!(preferences(&tainted(|_| ()).plan()), []);
    for (why, change) in [
        (
            "paused",
            (|scene| scene.workers().paused = true) as fn(&mut Scene),
        ),
        ("off", |scene| scene.workers().scale_down.enabled = false),
        ("a new leader", |scene| scene.host.armed_at = None),
    ] {
        let plan = tainted(change).plan();
        assert_eq!(
            preferences(&plan),
            [("m00", false), ("m01", false)],
            "{why}"
        );
    }
    // A pod came to one of the two. Once it is gone, the taint rests for a minute.
    let busy: fn(&mut Scene) = |scene| {
        scene.running("web", 1, "m01", spec("cpu=100m"));
    };
    let plan = tainted(busy).plan();
    assert_eq!(preferences(&plan), [("m01", false)]);
    let mut world = spared(2, 60).world();
    world.remember(&plan);
    let later = |now: i64| {
        let plan = crate::fixtures::plan(&world, at(now), Limits::default(), reasonable);
        preferences(&plan).len()
    };
    assert_eq!([NOW + 59, NOW + 60].map(later), [1, 2]);
}

/// A Job of 20 s every 45 s on the emptiest Node would keep it for ever.
#[test]
fn r21_short_jobs_that_come_one_after_the_other_are_sent_elsewhere() {
    let mut scene = spared(3, 10);
    scene.running("job", 1, "m01", spec("cpu=100m"));
    scene.pod("job-00000").owner = Some(owner("Job"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(preferences(&plan), [("m01", true)]);
    // Not on a Node that has just come into service for it.
    let mut young = scene.clone();
    let conditions = young.claim("m01").status.conditions.iter_mut();
    for condition in conditions.filter(|it| it.kind == Condition::Initialized) {
        condition.since = at(NOW - 29);
    }
    assert_eq!(preferences(&young.plan()), []);
    // Nor where the pod has no other place.
    let mut alone = scene.clone();
    let mut tied = spec("cpu=100m");
    tied.node_selector = [("kubernetes.io/hostname".to_owned(), "m01".to_owned())].into();
    alone.pod("job-00000").spec = tied;
    assert_eq!(preferences(&alone.plan()), []);

    // It has just ended, and the claim does not say so yet.
    let mut ended = scene.clone();
    ended.pods.clear();
    ended.nodes.get_mut("m01").unwrap().taints = vec![taint(
        "kproxide.dev/unneeded",
        TaintEffect::PreferNoSchedule,
    )];
    let conditions = &mut ended.claim("m01").status.conditions;
    conditions.retain(|it| it.kind != Condition::Unneeded);
    assert_eq!(preferences(&ended.plan()), []);
}
