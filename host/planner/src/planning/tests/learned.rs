//! What Nodes have shown stays known when they are gone.

use super::*;
use crate::facts::*;
use crate::ids::{ClassName, PodKey};
use crate::learned::{KEPT, kept, shown};
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
    scene.claim(name).status.conditions = vec![condition(Condition::Initialized, at(since))];
}

/// A scene without these machines, and with what was kept of them.
fn after(scene: &Scene) -> Scene {
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
    served(&mut scene, "one", 60, 3_500);
    served(&mut scene, "two", 70, 3_900);
    let mut later = after(&scene);
    later.pending("web", 1, spec("cpu=3600m"));
    assert_eq!(launches(&later), 0, "one of the last Nodes offered less");
    let mut anew = later.clone();
    anew.class.digest = "other settings".into();
    assert_eq!(launches(&anew), 1, "the class was changed");
    let mut rebuilt = later.clone();
    let templates = rebuilt.inventory.templates.get_mut("debian").unwrap();
    templates[0].digest = "rebuilt".into();
    assert_eq!(launches(&rebuilt), 1, "the template was rebuilt");
    later.class.instance_types = vec![instance_type("medium", 8, 8)];
    assert_eq!(launches(&later), 1, "the type has another size now");
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
