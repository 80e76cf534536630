//! Machines to come, as pods will see them.

use super::*;
use crate::facts::*;
use crate::kubernetes::resources::Resources;
use crate::plan::RemovalReason;

/// A machine whose kubelet has registered and that is not in service yet.
fn joining(scene: &mut Scene, name: &str) {
    scene.machine(name, "alpha");
    let claim = scene.claim(name);
    claim.status.phase = Phase::Registered;
    claim.created = at(NOW - 60);
    claim.status.started_at = Some(at(NOW - 50));
    claim.status.conditions.clear();
}

#[test]
fn f116_a_joining_node_teaches_what_its_type_offers() {
    let mut scene = Scene::default();
    joining(&mut scene, "first");
    scene
        .nodes
        .get_mut("first")
        .unwrap()
        .allocatable
        .milli_cores = 3_500;
    scene.pending("web", 9, spec("cpu=1"));
    assert_eq!(launches(&scene), 2, "three pods each");
}

#[test]
fn an_edited_type_is_learned_anew_beside_its_old_machines() {
    let mut scene = Scene::default();
    scene.machine("old", "alpha");
    scene.class.instance_types = vec![instance_type("medium", 8, 16)];
    scene.machine("new", "alpha");
    for (name, cores) in [("old", 3), ("new", 6)] {
        scene.nodes.get_mut(name).unwrap().allocatable.milli_cores = cores * 1000;
        scene.running(name, 1, name, spec(&format!("cpu={cores}")));
    }
    scene.pending("web", 12, spec("cpu=1"));
    assert_eq!(launches(&scene), 2, "six pods each");
}

#[test]
fn a_machine_on_its_way_keeps_its_size_when_its_type_goes() {
    let mut scene = Scene::default();
    scene.coming_machine("m", "alpha", Phase::Launching);
    scene.class.instance_types = vec![instance_type("other", 4, 8)];
    scene.pending("web", 4, spec("cpu=1"));
    assert_eq!(launches(&scene), 0);
    scene.class.instance_types = vec![instance_type("medium", 2, 2)];
    assert_eq!(launches(&scene), 0, "nor when it is made smaller");
}

#[test]
fn a_node_that_never_loses_its_startup_taint_is_no_capacity() {
    let mut scene = Scene::default();
    let startup = taint("cni.example.com/not-ready", TaintEffect::NoExecute);
    scene.workers().startup_taints = vec![startup.clone()];
    joining(&mut scene, "m");
    scene.nodes.get_mut("m").unwrap().taints = vec![startup];
    scene.pending("web", 1, spec("cpu=1"));
    assert_eq!(launches(&scene), 0);
    scene.claim("m").status.started_at = Some(at(NOW - 600));
    assert_eq!(launches(&scene), 1);
    scene.nodes.get_mut("m").unwrap().taints.clear();
    assert_eq!(launches(&scene), 0, "it comes into service now");
}

#[test]
fn a_device_that_registers_late_is_expected() {
    let mut scene = Scene::default();
    scene.class.instance_types[0].extended_resources = devices("example.com/gpu=2");
    joining(&mut scene, "m");
    scene.pending("train", 2, spec("example.com/gpu=1"));
    assert_eq!(launches(&scene), 0);
    assert_eq!(
        scene.nodes["m"].allocatable.extended,
        Resources::default().extended
    );
}

#[test]
fn machines_carry_the_old_names_of_architecture_and_system() {
    let mut scene = Scene::default();
    let mut old = spec("cpu=1");
    old.node_selector = labels("beta.kubernetes.io/os=linux beta.kubernetes.io/arch=amd64");
    scene.pending("web", 1, old);
    assert_eq!(launches(&scene), 1);
}

#[test]
fn f89_a_label_policy_may_give_a_role_that_is_no_control_planes() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan_with(|question| {
        decorate(question, |_| {
            labels(
                "node-role.kubernetes.io/worker=true node-role.kubernetes.io/control-plane=true x.kproxide.dev/y=z",
            )
        })
    });
    let labels = &plan.launches[0].spec.labels;
    assert!(labels.contains_key("node-role.kubernetes.io/worker"));
    assert!(!labels.contains_key("node-role.kubernetes.io/control-plane"));
    assert!(!labels.contains_key("x.kproxide.dev/y"));
}

#[test]
fn f29_lost_machines_take_their_part_of_the_budget() {
    let mut scene = Scene::default();
    scene.machine("lost", "alpha").machine("worn", "alpha");
    scene.nodes.get_mut("lost").unwrap().ready = false;
    scene.guest("lost", None);
    scene.claim("worn").replace = true;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["lost"]);
    assert_eq!(verdict(&plan, "lost"), Verdict::Remove(RemovalReason::Lost));
}

#[test]
fn names_are_dns_labels_whatever_the_pool_is_called() {
    let mut scene = Scene::default();
    let pool = scene.workers().clone();
    scene.pools = [(format!("gpu.{}", "x".repeat(80)).as_str().into(), pool)].into();
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches[0].claim.as_str().len(), 63);
}

#[test]
fn a_machine_to_come_is_shown_with_its_labels_its_taints_and_its_daemon_sets() {
    let mut scene = Scene::default();
    let dedicated = taint("dedicated", TaintEffect::NoSchedule);
    scene.workers().taints = vec![dedicated.clone()];
    scene.workers().labels = [("disk".to_owned(), "ssd".to_owned())].into();
    for (name, tolerates) in [("agent", true), ("other", false)] {
        let mut spec = spec("cpu=500m");
        if tolerates {
            spec.tolerations = vec![Toleration {
                exists: true,
                key: None,
                value: "".into(),
                effect: None,
            }];
        }
        let set = DaemonSetFacts {
            labels: Labels::new(),
            spec,
            csi_drivers: vec![],
        };
        let key = crate::ids::ObjectKey::new("kube-system", name);
        scene.daemon_sets.insert(key, set);
    }
    scene.pending("web", 1, spec("cpu=1"));
    let world = scene.world();
    let expected =
        crate::planning::Planning::machines_to_come(&world, at(NOW), Limits::default(), reasonable);
    assert_eq!(expected.len(), scene.inventory.hypervisors.len());
    for machine in expected {
        assert_eq!(machine.taints(), std::slice::from_ref(&dedicated));
        let labels = machine.labels("new-one");
        assert_eq!(labels["disk"], "ssd");
        assert_eq!(labels["kubernetes.io/hostname"], "new-one");
        let daemons: Vec<&str> = machine.daemons.iter().map(|key| &*key.name).collect();
        assert_eq!(daemons, ["agent"]);
        assert_eq!(machine.allocatable.milli_cores, 4_000);
    }
}
