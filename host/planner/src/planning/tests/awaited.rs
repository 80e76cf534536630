//! Pods that the scheduler should bind without a machine of ours, and what follows when it does not.

use super::*;
use crate::facts::{Delta, LabelSelector, PodSpec, PodTerm};
use crate::planning::Limits;
use crate::world::World;

fn of_priority(priority: i32, requests: &str) -> PodSpec {
    let mut spec = spec(requests);
    spec.priority = priority;
    spec
}

/// Two full Nodes, on each of which a pod of a low priority is ending for a pod that has its nomination there.
fn preempted() -> Scene {
    let mut scene = Scene::default();
    scene.pending("urgent", 2, of_priority(1000, "cpu=1500m memory=64Mi"));
    for (index, name) in ["agent-1", "agent-2"].into_iter().enumerate() {
        scene.node(name, node("cpu=2 memory=4Gi"));
        let victim = format!("low-{name}");
        scene.running(&victim, 1, name, of_priority(-100, "cpu=1800m"));
        scene.pod(&format!("{victim}-00000")).deleting = true;
        scene.pod(&format!("urgent-{index:05}")).nominated = Some(name.into());
    }
    scene
}

fn outcomes(plan: &Plan) -> Vec<(u32, String)> {
    let rows = plan.report.pending.iter();
    rows.map(|row| (row.count, row.outcome.to_string()))
        .collect()
}

#[test]
fn r6_a_pod_with_a_nomination_counts_as_placed() {
    let scene = preempted();
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches, []);
    let fits = "fits on Node agent-1; the scheduler will find it".to_owned();
    assert_eq!(outcomes(&plan), [(2, fits)]);
    let launched = |change: fn(&mut Scene)| {
        let mut scene = preempted();
        change(&mut scene);
        launches(&scene)
    };
    let victim = "low-agent-2-00000";
    for (change, expected, why) in [
        (
            (|scene| scene.pod("urgent-00001").nominated = None) as fn(&mut Scene),
            1,
            "no nomination",
        ),
        (
            |scene| scene.pod("low-agent-2-00000").deleting = false,
            1,
            "nothing ends there",
        ),
        (
            |scene| scene.pod("low-agent-2-00000").spec.priority = 1000,
            1,
            "what ends there was not preempted for it",
        ),
        (
            |scene| scene.pod("low-agent-2-00000").spec.priority = 999,
            0,
            "a lower priority, if only just",
        ),
        (
            |scene| {
                scene.nodes.remove("agent-2");
            },
            1,
            "no such Node",
        ),
        (
            |scene| scene.nodes.get_mut("agent-2").unwrap().ready = false,
            1,
            "a Node that takes no pods",
        ),
        (
            |scene| scene.pod("urgent-00001").nominated = Some("agent-1".into()),
            1,
            "room for one alone",
        ),
    ] {
        assert_eq!(launched(change), expected, "{why}");
    }
    let mut scene = preempted();
    scene
        .pods
        .remove(&crate::ids::PodKey::new("default", victim));
    assert_eq!(launches(&scene), 0, "it has ended");
}

#[test]
fn r6_the_room_of_a_nomination_is_not_given_to_others() {
    let mut scene = preempted();
    scene.pending("other", 2, of_priority(0, "cpu=1500m memory=64Mi"));
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 1, "both others on one machine");
    for name in ["low-agent-1-00000", "low-agent-2-00000"] {
        scene.pods.remove(&crate::ids::PodKey::new("default", name));
    }
    assert_eq!(scene.plan().launches.len(), 1, "now the room is free");
    for pod in scene.pods.values_mut() {
        pod.nominated = None;
    }
    assert_eq!(
        scene.plan().launches.len(),
        1,
        "and goes to the urgent ones"
    );
}

#[test]
fn r6_ports_and_neighbours_that_end_are_not_in_the_way() {
    let away = |spec: &mut PodSpec| {
        spec.pod_anti_affinity = vec![PodTerm {
            topology_key: "kubernetes.io/hostname".into(),
            selector: Some(LabelSelector {
                match_labels: labels("app=low"),
                match_expressions: vec![],
            }),
            ..PodTerm::default()
        }];
    };
    let mut scene = preempted();
    for name in ["agent-1", "agent-2"] {
        let facts = scene.nodes.get_mut(name).unwrap();
        facts.labels = labels(&format!("kubernetes.io/hostname={name}"));
        let victim = scene.pod(&format!("low-{name}-00000"));
        victim.labels = labels("app=low");
        victim.spec.requests = amounts("cpu=100m");
        victim.spec.host_ports = vec![host_port("80/TCP")];
    }
    scene.pod("urgent-00000").spec.host_ports = vec![host_port("80/TCP")];
    away(&mut scene.pod("urgent-00001").spec);
    assert_eq!(launches(&scene), 0);
    for name in ["low-agent-1-00000", "low-agent-2-00000"] {
        scene.pod(name).deleting = false;
    }
    assert_eq!(launches(&scene), 1, "both on one machine");
}

/// The plan at this moment, which the next ones know.
fn plan_at(world: &mut World, seconds: i64) -> Plan {
    let plan = plan(world, at(NOW + seconds), Limits::default(), reasonable);
    world.remember(&plan);
    plan
}

#[test]
fn r6_after_two_minutes_without_a_binding_the_pod_is_pending_again() {
    let scene = preempted();
    let mut world = scene.world();
    assert_eq!(plan_at(&mut world, 0).wake_at, Some(at(NOW + 120)));
    // The second gets its nomination, or another one, a minute later.
    let key = crate::ids::PodKey::new("default", "urgent-00001");
    let mut pod = scene.pods[&key].clone();
    pod.nominated = Some("agent-1".into());
    world.apply(Delta::Pod(key.clone(), Some(Box::new(pod.clone()))));
    assert_eq!(plan_at(&mut world, 30).launches.len(), 1);
    pod.nominated = Some("agent-2".into());
    world.apply(Delta::Pod(key, Some(Box::new(pod))));
    assert_eq!(plan_at(&mut world, 60).launches, []);
    let plan = plan_at(&mut world, 119);
    assert_eq!(
        (plan.launches.len(), plan.wake_at),
        (0, Some(at(NOW + 120)))
    );
    let plan = plan_at(&mut world, 120);
    assert_eq!(plan.launches.len(), 1, "for the first");
    assert_eq!(plan_at(&mut world, 179).launches.len(), 1);
    let two = outcomes(&plan_at(&mut world, 180));
    assert!(two[0].0 == 2 && two[0].1.contains("being made"), "{two:?}");
}

#[test]
fn r6_a_nomination_is_remembered_in_a_world_that_is_read_back() {
    let mut world = preempted().world();
    assert_eq!(plan_at(&mut world, 0).launches, []);
    let text = serde_json::to_string(&world).unwrap();
    let mut world: World = serde_json::from_str(&text).unwrap();
    assert_eq!(plan_at(&mut world, 120).launches.len(), 1);
}

/// Two Nodes with room, and pods of two shapes that fit there.
fn expected() -> Scene {
    let mut scene = Scene::default();
    for name in ["agent-1", "agent-2"] {
        scene.node(name, node("cpu=1 memory=4Gi"));
    }
    scene.pending("refused", 2, spec("cpu=500m memory=64Mi"));
    scene
}

const REFUSED: &str =
    "as far as kproxide sees, but the scheduler has not put it there for 6 minutes";

#[test]
fn r27_a_node_that_the_scheduler_refuses_for_six_minutes_is_no_place_for_such_pods() {
    let scene = expected();
    let mut world = scene.world();
    let fits = |node: &str| {
        [(
            2,
            format!("fits on Node {node}; the scheduler will find it"),
        )]
    };
    for seconds in [0, 359] {
        let plan = plan_at(&mut world, seconds);
        assert_eq!(outcomes(&plan), fits("agent-1"));
        assert_eq!(plan.wake_at, Some(at(NOW + 360)));
    }
    let plan = plan_at(&mut world, 360);
    check_sound(&plan);
    let told = outcomes(&plan);
    assert!(
        told[0].0 == 2 && told[0].1.contains(&format!("Node agent-1 {REFUSED}")),
        "{told:?}"
    );
    assert_eq!(
        (plan.launches.len(), plan.wake_at),
        (0, Some(at(NOW + 361)))
    );
    // The other Node has as much time, and other pods still go to the first.
    let key = crate::ids::PodKey::new("default", "other");
    let mut other = pending_pod(spec("cpu=600m memory=64Mi"));
    other.unschedulable_since = Some(at(NOW + 360));
    world.apply(Delta::Pod(key, Some(Box::new(other))));
    for seconds in [361, 361 + 359] {
        let told = outcomes(&plan_at(&mut world, seconds));
        assert_eq!(
            told[0].1,
            "fits on Node agent-1; the scheduler will find it"
        );
        assert_eq!(told[1..], fits("agent-2"));
    }
    let plan = plan_at(&mut world, 361 + 360);
    assert!(outcomes(&plan)[1].1.contains("Node agent-2"));
    let plan = plan_at(&mut world, 361 + 361);
    check_sound(&plan);
    assert_eq!(plan.launches.len(), 1);
    // After an hour it is tried again.
    let told = outcomes(&plan_at(&mut world, 360 + 3600));
    assert_eq!(told.last(), fits("agent-1").last());
}

#[test]
fn r27_pods_that_come_while_others_are_bound_refuse_no_node() {
    let scene = expected();
    let mut world = scene.world();
    for minute in 0..30 {
        // Each of them is bound within two minutes.
        for (key, pod) in &scene.pods {
            let mut pod = pod.clone();
            pod.unschedulable_since = Some(at(NOW + minute / 2 * 120));
            world.apply(Delta::Pod(key.clone(), Some(Box::new(pod))));
        }
        let told = outcomes(&plan_at(&mut world, minute * 60));
        assert_eq!(
            told[0].1,
            "fits on Node agent-1; the scheduler will find it"
        );
    }
}

#[test]
fn r27_an_empty_machine_that_the_scheduler_refuses_is_not_made_again() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha").machine("n", "beta");
    scene.running("web", 1, "n", spec("cpu=3500m memory=1Gi"));
    scene.pending("refused", 1, spec("cpu=1 memory=64Mi"));
    super::loops::made_for_pod(&mut scene, "refused-00000", "m");
    // The pod has waited since before the machine was in service.
    scene.claim("m").status.conditions[0].since = at(NOW - 20);
    let refused = |scene: &Scene| {
        let mut world = scene.world();
        assert!(plan_at(&mut world, 0).report.pending.len() == 1);
        let told = outcomes(&plan_at(&mut world, 360));
        assert!(told[0].1.contains(&format!("Node m {REFUSED}")), "{told:?}");
        world
    };
    let mut world = refused(&scene);
    let plan = plan_at(&mut world, 361);
    assert_eq!(plan.launches, []);
    let told = outcomes(&plan);
    assert!(
        told[0]
            .1
            .contains("did not use the last machine of type medium")
            && told[0].1.contains("while machine m stands unused"),
        "{told:?}"
    );
    // A machine with other pods says nothing of those that could be made.
    scene.running("on-it", 1, "m", spec("cpu=1 memory=64Mi"));
    let mut world = refused(&scene);
    assert_eq!(plan_at(&mut world, 361).launches.len(), 1);
}

#[test]
fn r27_what_was_expected_goes_with_the_last_pod() {
    let scene = expected();
    let mut world = scene.world();
    assert_eq!(plan_at(&mut world, 0).awaited.shapes.len(), 1);
    for key in scene.pods.keys() {
        world.apply(Delta::Pod(key.clone(), None));
    }
    assert_eq!(plan_at(&mut world, 1).awaited, Default::default());
}
