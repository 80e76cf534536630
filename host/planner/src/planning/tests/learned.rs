//! What Nodes have shown stays known when they are gone.

use super::*;
use crate::check::learned::{KEPT, kept, shown};
use crate::facts::*;
use crate::ids::{ClassName, PodKey};
use crate::plan::report::PendingShape;
use crate::world::World;

fn rows(world: &World) -> Vec<LearnedNode> {
    let name: ClassName = "standard".into();
    let class = &world.classes()[&name];
    kept(class.learned.clone(), class, shown(world, &name, class))
}

/// A Node in service since then that offers less than its VM has.
fn served(scene: &mut Scene, name: &str, since: i64, milli_cores: i64) {
    scene.machine(name, "alpha");
    let node = scene.nodes.get_mut(name).unwrap();
    node.allocatable.milli_cores = milli_cores;
    node.allocatable.ephemeral_bytes = 18 << 30;
    scene.claim(name).status.conditions = vec![condition(Condition::Initialized, at(since))];
}

/// A scene without these machines, and with what was kept of them.
pub(super) fn after(scene: &Scene) -> Scene {
    let mut later = Scene {
        class: scene.class.clone(),
        ..Scene::default()
    };
    later.class.learned = rows(&scene.world());
    later
}

#[test]
fn r1_what_a_node_offers_is_known_when_the_last_one_is_gone() {
    let mut scene = Scene::default();
    served(&mut scene, "one", NOW - 3600, 3_500);
    served(&mut scene, "two", NOW - 3590, 3_900);
    let mut later = after(&scene);
    later.pending("web", 1, spec("cpu=3600m"));
    assert_eq!(launches(&later), 0, "one of the last Nodes offered less");
    let mut anew = later.clone();
    anew.class.digest = "other settings".into();
    assert_eq!(launches(&anew), 1, "the class was changed");
    let mut rebuilt = later.clone();
    let templates = rebuilt
        .inventory
        .templates
        .get_mut(&"debian".into())
        .unwrap();
    templates[0].digest = "rebuilt".into();
    assert_eq!(launches(&rebuilt), 1, "the template was rebuilt");
    later.class.instance_types = vec![instance_type("medium", 8, 8)];
    assert_eq!(launches(&later), 1, "the type has another size now");
}

#[test]
fn a_node_that_does_not_say_yet_what_it_offers_teaches_nothing() {
    for (phase, made) in [(Phase::Registered, 1), (Phase::Initialized, 2)] {
        let mut scene = Scene::default();
        served(&mut scene, "one", NOW - 60, 0);
        scene.claim("one").status.phase = phase;
        scene.pending("web", 2, spec("cpu=3500m"));
        assert_eq!(launches(&scene), made, "{phase:?}");
    }
}

#[test]
fn r2_static_pods_of_most_nodes_count_on_the_next_one() {
    let mut scene = Scene::default();
    for (name, since) in [("one", 60), ("two", 70), ("three", 80)] {
        served(&mut scene, name, since, 4_000);
        let statics = [("kube-proxy", true), ("debug", name == "two")];
        for (of, _) in statics.iter().filter(|(_, is_there)| *is_there) {
            let mut pod = running_pod(name, spec("cpu=500m"));
            pod.mirror = true;
            let key = PodKey::new("kube-system", &format!("{of}-{name}"));
            scene.pods.insert(key, pod);
        }
    }
    let later = after(&scene);
    let with = |cpu: &str| {
        let mut scene = later.clone();
        scene.pending("web", 1, spec(cpu));
        launches(&scene)
    };
    assert_eq!(with("cpu=3500m"), 1);
    assert_eq!(with("cpu=3501m"), 0, "kube-proxy takes its part");
}

#[test]
fn r2_static_pods_count_as_soon_as_the_first_node_shows_them() {
    for phase in [Phase::Registered, Phase::Initialized] {
        let mut scene = Scene::default();
        scene.machine("one", "alpha");
        let claim = scene.claim("one");
        claim.status.phase = phase;
        claim.status.started_at = Some(at(NOW - 60));
        if phase == Phase::Registered {
            let conditions = &mut claim.status.conditions;
            conditions.retain(|it| it.kind != Condition::Initialized);
            scene.nodes.get_mut("one").unwrap().ready = false;
        }
        scene.pending("web", 1, spec("cpu=3900m"));
        assert_eq!(launches(&scene), 0, "the machine is there");
        for of in ["kube-proxy", "debug"] {
            let mut pod = running_pod("one", spec("cpu=150m"));
            pod.mirror = true;
            let key = PodKey::new("kube-system", &format!("{of}-one"));
            scene.pods.insert(key, pod);
        }
        let text = why(&scene).to_string();
        assert_eq!(
            text, "asks for 3900m of cpu; the largest machine offers 3700m",
            "{phase:?}"
        );
    }
}

#[test]
fn static_pods_of_every_node_on_its_way_count_on_the_next_one() {
    let mut scene = Scene::default();
    for number in 0..=KEPT {
        let name = format!("m{number}");
        scene.machine(&name, "alpha");
        scene.nodes.get_mut(&*name).unwrap().ready = false;
        let claim = scene.claim(&name);
        claim.status.phase = Phase::Registered;
        claim.status.started_at = Some(at(NOW - 60));
        claim.status.conditions.clear();
    }
    let mut pod = running_pod(&format!("m{KEPT}"), spec("cpu=150m"));
    pod.mirror = true;
    let key = PodKey::new("kube-system", "kube-proxy");
    scene.pods.insert(key, pod);
    // One for each machine that has room, and one more.
    scene.workers().limits.max_nodes = 20;
    scene.pending("web", KEPT + 1, spec("cpu=3900m"));
    assert_eq!(launches(&scene), 0, "the next machine offers 3850m");
}

#[test]
fn the_last_five_nodes_of_each_type_are_kept() {
    let mut scene = Scene::default();
    for number in 0..7 {
        served(&mut scene, &format!("m{number}"), 60 + number, 4_000);
    }
    scene
        .class
        .instance_types
        .push(instance_type("large", 8, 16));
    let world = scene.world();
    let mut all = rows(&world);
    let nodes: Vec<&str> = all.iter().map(|row| row.node.as_str()).collect();
    assert_eq!(nodes, ["m6", "m5", "m4", "m3", "m2"]);
    all[0].instance_type = "large".into();
    (all[0].cores, all[0].memory_bytes) = (8, 16 << 30);
    let name: ClassName = "standard".into();
    let class = &world.classes()[&name];
    let again = kept(all, class, shown(&world, &name, class));
    assert_eq!(again.len(), KEPT, "m6 shows what it is now");
}

#[test]
fn a_node_that_is_not_ready_or_says_nothing_yet_teaches_nothing() {
    let mut scene = Scene::default();
    for (number, name) in ["broken", "silent", "one", "two"].into_iter().enumerate() {
        served(&mut scene, name, 70 - number as i64, 4_000);
    }
    scene.nodes.get_mut("broken").unwrap().ready = false;
    let silent = scene.nodes.get_mut("silent").unwrap();
    silent.allocatable.milli_cores = 0;
    let rows = rows(&scene.world());
    let nodes: Vec<&str> = rows.iter().map(|row| row.node.as_str()).collect();
    assert_eq!(nodes, ["one", "two"]);
}

#[test]
fn a_row_keeps_the_digests_of_the_time_when_its_node_came() {
    let mut scene = Scene::default();
    served(&mut scene, "one", 60, 3_500);
    scene.class.learned = rows(&scene.world());
    scene.class.digest = "other settings".into();
    served(&mut scene, "two", 70, 3_900);
    let nodes: Vec<_> = rows(&scene.world())
        .into_iter()
        .map(|row| row.node)
        .collect();
    assert_eq!(
        nodes,
        ["two".into()],
        "the other one was made by the old settings"
    );
}

#[test]
fn nothing_is_forgotten_while_the_class_cannot_be_read() {
    let mut scene = Scene::default();
    served(&mut scene, "one", 60, 3_500);
    served(&mut scene, "two", 70, 3_900);
    let mut later = after(&scene);
    later.class.instance_types.clear();
    later.class.problem = Some("instanceTypes is empty".into());
    assert_eq!(rows(&later.world()).len(), 2);
    later.class.problem = None;
    assert_eq!(rows(&later.world()).len(), 0);
}

#[test]
fn drivers_that_nodes_had_are_known_when_they_are_gone() {
    let mut scene = Scene::default();
    served(&mut scene, "one", 60, 4_000);
    let node = scene.nodes.get_mut("one").unwrap();
    node.labels
        .insert("topology.example.com/host".into(), "one".into());
    node.labels
        .insert("topology.example.com/room".into(), "attic".into());
    let driver = CsiNodeDriver {
        limit: Some(3),
        topology_keys: ["topology.example.com/host", "topology.example.com/room"]
            .map(Into::into)
            .into(),
    };
    let csi = CsiNodeFacts {
        drivers: [("csi.example.com".into(), driver)].into(),
    };
    scene
        .storage
        .push(Delta::CsiNode("one".into(), Some(Box::new(csi))));
    let learned = rows(&scene.world());
    let driver = &learned[0].csi["csi.example.com"];
    assert_eq!(driver.limit, Some(3));
    let said: Vec<&str> = driver.topology.values().map(String::as_str).collect();
    assert_eq!(said, ["node", "=attic"]);
}

#[test]
fn r1_the_least_of_the_last_three_nodes_counts_whether_they_are_there_or_gone() {
    let mut scene = Scene::default();
    for (name, since, milli_cores) in [("a", 10, 3_000), ("b", 20, 3_500), ("c", 30, 3_900)] {
        served(&mut scene, name, NOW - 3600 + since, milli_cores);
    }
    let with = |scene: &Scene, cpu: &str| {
        let mut scene = scene.clone();
        scene.workers().scale_down.enabled = false;
        for name in scene.nodes.keys().cloned().collect::<Vec<_>>() {
            scene.running(&format!("on-{name}"), 1, name.as_str(), spec("cpu=2900m"));
        }
        scene.pending("web", 1, spec(cpu));
        launches(&scene)
    };
    assert_eq!((with(&scene, "cpu=3"), with(&scene, "cpu=3001m")), (1, 0));
    served(&mut scene, "d", NOW - 3560, 3_800);
    for scene in [scene.clone(), after(&scene)] {
        assert_eq!(
            with(&scene, "cpu=3500m"),
            1,
            "the first is not among the last three"
        );
        assert_eq!(with(&scene, "cpu=3501m"), 0);
    }
}

/// How many machines are made for a pod that asks so much, beside Nodes that are full.
fn made(scene: &Scene, cpu: &str) -> usize {
    let mut scene = scene.clone();
    scene.workers().scale_down.enabled = false;
    for node in scene.nodes.values_mut() {
        node.unschedulable = true;
    }
    scene.pending("web", 1, spec(cpu));
    launches(&scene)
}

fn doubted(scene: &Scene) -> Vec<String> {
    let doubts = scene.plan().report.doubts;
    doubts.iter().map(ToString::to_string).collect()
}

/// Of two Nodes and of one alone, whether they are there or gone. Whoever is root on one writes it.
#[test]
fn s1_what_one_node_offers_alone_is_not_what_its_type_offers() {
    let mut scene = Scene::default();
    served(&mut scene, "one", NOW - 3600, 3_900);
    served(&mut scene, "bad", NOW - 3500, 100);
    for scene in [scene.clone(), after(&scene)] {
        assert_eq!(
            (made(&scene, "cpu=3900m"), made(&scene, "cpu=3901m")),
            (1, 0)
        );
        let said = ["Node bad offers 100m of cpu, and a machine of type medium has 4"];
        assert_eq!(doubted(&scene), said);
    }
    let mut alone = Scene::default();
    served(&mut alone, "bad", NOW - 3500, 1_999);
    for scene in [alone.clone(), after(&alone)] {
        assert_eq!(made(&scene, "cpu=4"), 1);
        assert_eq!(doubted(&scene).len(), 1);
    }
    // Half of the size is believed of one alone, and so is what a second Node shows too.
    served(&mut alone, "bad", NOW - 3500, 2_000);
    assert_eq!((made(&alone, "cpu=2"), made(&alone, "cpu=2001m")), (1, 0));
    assert_eq!(doubted(&alone), [""; 0]);
    served(&mut scene, "one", NOW - 3600, 110);
    assert_eq!((made(&scene, "cpu=100m"), made(&scene, "cpu=101m")), (1, 0));
    assert_eq!(doubted(&scene), [""; 0]);
}

/// Most of such a machine is reserved, and both Nodes say so. A third one that says more makes them no liars.
#[test]
fn s1_small_machines_of_which_little_is_left_are_known_by_two_nodes() {
    let mut scene = Scene::default();
    served(&mut scene, "one", NOW - 3600, 1_400);
    served(&mut scene, "two", NOW - 3500, 1_500);
    assert_eq!(
        (made(&scene, "cpu=1400m"), made(&scene, "cpu=1401m")),
        (1, 0)
    );
    served(&mut scene, "loud", NOW - 3400, 4_000_000);
    for scene in [scene.clone(), after(&scene)] {
        assert_eq!(
            (made(&scene, "cpu=1400m"), made(&scene, "cpu=1401m")),
            (1, 0)
        );
    }
}

/// A Node that has joined and is not in service yet is no better a witness.
#[test]
fn s1_a_node_on_its_way_does_not_speak_for_its_type_either() {
    let mut scene = Scene::default();
    served(&mut scene, "one", NOW - 3600, 3_900);
    scene.machine("bad", "alpha");
    let claim = scene.claim("bad");
    claim.status.phase = Phase::Registered;
    claim.status.started_at = Some(at(NOW - 60));
    let conditions = &mut claim.status.conditions;
    conditions.retain(|it| it.kind != Condition::Initialized);
    let node = scene.nodes.get_mut("bad").unwrap();
    (node.ready, node.allocatable.milli_cores) = (false, 100);
    assert_eq!(
        (made(&scene, "cpu=3900m"), made(&scene, "cpu=3901m")),
        (1, 0)
    );
}

/// Mirror pods, on a Node in service, one on its way, and one that is gone.
#[test]
fn s1_static_pods_of_one_node_alone_count_up_to_a_quarter() {
    let with = |nodes: &[(&str, &str)]| {
        let mut scene = Scene::default();
        for (place, (name, cpu)) in nodes.iter().enumerate() {
            served(&mut scene, name, NOW - 3600 + place as i64, 4_000);
            let mut pod = running_pod(name, spec(&format!("cpu={cpu}")));
            pod.mirror = true;
            let key = PodKey::new("kube-system", &format!("agent-{name}"));
            scene.pods.insert(key, pod);
        }
        scene
    };
    let alone = with(&[("bad", "3500m")]);
    for scene in [alone.clone(), after(&alone)] {
        assert_eq!((made(&scene, "cpu=3"), made(&scene, "cpu=3001m")), (1, 0));
        let said =
            ["static pods of Node bad ask for 3500m of cpu, and a machine of type medium has 4"];
        assert_eq!(doubted(&scene), said);
    }
    // The newest asks for more than the other: under the name of a pod that stands on both.
    let two = with(&[("one", "300m"), ("bad", "3500m")]);
    let gone = after(&two);
    assert_eq!((made(&gone, "cpu=3700m"), made(&gone, "cpu=3701m")), (1, 0));
    assert_eq!(made(&two, "cpu=3"), 1);
    // Two Nodes have them.
    let both = with(&[("one", "1500m"), ("two", "1600m")]);
    for scene in [both.clone(), after(&both)] {
        assert_eq!(
            (made(&scene, "cpu=2500m"), made(&scene, "cpu=2501m")),
            (1, 0)
        );
        assert_eq!(doubted(&scene), [""; 0]);
    }
}

/// After six hours a machine is tried as if it had its nominal size, and what one Node alone asks for static pods does not forbid it.
#[test]
fn s1_what_one_node_shows_does_not_forbid_to_try_again() {
    let mut scene = Scene::default();
    let old = NOW - 7 * 3600;
    for (name, since) in [("one", old), ("two", old + 10)] {
        served(&mut scene, name, since, 2_500);
    }
    let mut pod = running_pod("two", spec("cpu=2500m"));
    pod.mirror = true;
    scene
        .pods
        .insert(PodKey::new("kube-system", "agent-two"), pod);
    for scene in [scene.clone(), after(&scene)] {
        assert_eq!(made(&scene, "cpu=3"), 1);
    }
}

#[test]
fn r1_what_a_node_has_taught_is_tried_again_by_one_machine_every_six_hours() {
    let since = |since: i64| {
        let mut scene = Scene::default();
        served(&mut scene, "one", since - 10, 3_500);
        served(&mut scene, "two", since, 3_900);
        let mut later = after(&scene);
        later.pending("web", 2, spec("cpu=3600m"));
        later.pending("other", 2, spec("cpu=3700m"));
        later
    };
    let young = since(NOW - 6 * 3600 + 1);
    let plan = young.plan();
    assert_eq!((plan.launches.len(), plan.wake_at), (0, Some(at(NOW + 1))));
    let PendingOutcome::Unhelped(whys) = &plan.report.pending[0].outcome else {
        panic!("{:?}", plan.report.pending);
    };
    let text = whys[0].1.to_string();
    for word in [
        "Node one",
        "2027-01-16",
        "nodeclass standard kproxide.dev/forget-learned=",
    ] {
        assert!(text.contains(word), "{text}");
    }
    let mut old = since(NOW - 6 * 3600);
    let plan = old.plan();
    check_sound(&plan);
    assert_eq!(plan.launches.len(), 1);
    let unhelped = |row: &PendingShape| {
        let PendingOutcome::Unhelped(whys) = &row.outcome else {
            return None;
        };
        Some(whys.len())
    };
    let reasons: Vec<usize> = plan.report.pending.iter().filter_map(unhelped).collect();
    assert_eq!(reasons, [1, 1], "the others hear why they wait");
    old.coming_machine("tried", "alpha", Phase::Launching);
    assert_eq!(launches(&old), 0, "one is on its way");
    old.pods.clear();
    old.pending("small", 2, spec("cpu=3500m"));
    assert_eq!(launches(&old), 1, "and what others hold needs no trial");
}

#[test]
fn r9_a_node_that_has_lost_its_devices_unlearns_nothing() {
    let devices = |scene: &mut Scene, count: i64| {
        let node = scene.nodes.get_mut("one").unwrap();
        node.allocatable
            .set_extended("example.com/gpu".into(), count);
        node.allocatable.set_extended("example.com/nic".into(), 1);
    };
    let mut scene = Scene::default();
    scene.class.instance_types[0].extended_resources =
        crate::fixtures::devices("example.com/gpu=2 example.com/nic=1");
    served(&mut scene, "one", NOW - 3600, 4_000);
    devices(&mut scene, 2);
    scene.class.learned = rows(&scene.world());
    devices(&mut scene, 0);
    scene.class.learned = rows(&scene.world());
    assert_eq!(scene.class.learned[0].allocatable["example.com/gpu"], "2");
    scene.pending("web", 1, spec("cpu=1 example.com/gpu=2"));
    assert_eq!(launches(&scene), 1);
}

/// A DaemonSet that runs where a label is that others give.
fn labelled(scene: &mut Scene, cpu: &str) {
    let mut spec = spec(cpu);
    spec.node_selector = [("feature.example.com/nvme".to_owned(), "true".to_owned())].into();
    let set = DaemonSetFacts {
        labels: Labels::new(),
        spec,
        csi_drivers: vec![],
    };
    scene
        .daemon_sets
        .insert(crate::ids::ObjectKey::new("kube-system", "agent"), set);
}

#[test]
fn r3_daemon_sets_run_where_most_nodes_have_the_label_that_comes_later() {
    for (labels, counts) in [([true, true, false], true), ([true, false, false], false)] {
        let mut scene = Scene::default();
        labelled(&mut scene, "cpu=1");
        for (name, has_it) in ["a", "b", "c"].into_iter().zip(labels) {
            served(&mut scene, name, NOW - 3600, 4_000);
            let node = scene.nodes.get_mut(name).unwrap();
            let value = if has_it { "true" } else { "false" };
            node.labels
                .insert("feature.example.com/nvme".into(), value.into());
            node.labels
                .insert("other.example.com/label".into(), "x".into());
        }
        let mut later = after(&scene);
        labelled(&mut later, "cpu=1");
        assert_eq!(
            later.class.learned[0].labels.len(),
            1,
            "what no DaemonSet reads is not kept"
        );
        later.pending("web", 1, spec("cpu=3001m"));
        assert_eq!(launches(&later), usize::from(!counts), "{labels:?}");
    }
}

#[test]
fn r3_daemon_sets_ask_what_their_pods_of_the_newest_revision_ask() {
    let mut scene = Scene::default();
    let key = crate::ids::ObjectKey::new("kube-system", "agent");
    let set = DaemonSetFacts {
        labels: Labels::new(),
        spec: spec("cpu=500m memory=1Gi"),
        csi_drivers: vec![],
    };
    scene.daemon_sets.insert(key, set);
    scene.node("static", node("cpu=4 memory=8Gi"));
    let mut pod = |name: &str, revision: &str, created: i64, requests: &str| {
        let mut pod = running_pod("static", spec(requests));
        pod.owner = Some(Owner {
            kind: "DaemonSet".into(),
            name: "agent".into(),
            uid: "agent".into(),
        });
        pod.created = at(created);
        pod.labels
            .insert("controller-revision-hash".into(), revision.into());
        scene.pods.insert(PodKey::new("kube-system", name), pod);
    };
    pod("agent-old", "1", 10, "cpu=3");
    pod("agent-new", "2", 20, "cpu=1 memory=512Mi");
    let with = |cpu: &str| {
        let mut scene = scene.clone();
        scene.pending("web", 1, spec(cpu));
        launches(&scene)
    };
    assert_eq!(
        with("cpu=3 memory=7Gi"),
        1,
        "a sidecar is in the pod of the newest revision"
    );
    assert_eq!((with("cpu=3001m"), with("cpu=1 memory=7169Mi")), (0, 0));
}

#[test]
fn static_pods_of_one_old_node_do_not_count_on_the_next_one() {
    for (count, has_status) in [(KEPT, true), (KEPT + 2, true), (KEPT + 2, false)] {
        let mut scene = Scene::default();
        for number in 0..count {
            let name = format!("m{number}");
            served(
                &mut scene,
                &name,
                60 + i64::try_from(number).unwrap(),
                4_000,
            );
            scene.running(&format!("on-{name}"), 1, &name, spec("cpu=2500m"));
        }
        scene.workers().limits.max_nodes = 20;
        if has_status {
            scene.class.learned = rows(&scene.world());
        }
        let mut pod = running_pod("m0", spec("cpu=1"));
        pod.mirror = true;
        scene
            .pods
            .insert(PodKey::new("kube-system", "debug-m0"), pod);
        scene.pending("web", 1, spec("cpu=3500m"));
        assert_eq!(
            launches(&scene),
            1,
            "{count} Nodes, has_status: {has_status}"
        );
    }
}
