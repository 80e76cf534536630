use super::*;
use crate::planning::{Outdated, outdated};

fn found(scene: &Scene) -> Outdated {
    outdated(&scene.world(), &"workers".into())
}

fn of(machines: usize, labels: usize, sizes: usize, either: usize) -> Outdated {
    Outdated {
        machines,
        labels,
        sizes,
        either,
    }
}

#[test]
fn r40_machines_with_the_labels_and_sizes_of_before_are_counted() {
    let mut scene = Scene::default();
    for name in ["a", "b", "c"] {
        scene.machine(name, "alpha");
    }
    assert_eq!(found(&scene), of(3, 0, 0, 0));
    scene.workers().labels = labels("tier=web");
    let claim = scene.claim("a");
    claim.spec.labels.insert("tier".into(), "web".into());
    let claim = scene.claim("b");
    claim.spec.labels.insert("tier".into(), "db".into());
    assert_eq!(found(&scene), of(3, 2, 0, 2));
    let size = scene.claim("a").spec.instance_type.clone();
    let mut types = scene.class.instance_types.iter_mut();
    types.find(|it| it.name == size).unwrap().memory_mib += 1;
    assert_eq!(found(&scene), of(3, 2, 3, 3));
    // What goes is replaced by what is right.
    scene.claim("c").deleting_since = Some(at(NOW));
    assert_eq!(found(&scene), of(2, 1, 2, 2));
}

#[test]
fn r40_what_a_label_policy_sets_and_a_type_that_is_gone_do_not_count() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha");
    scene.workers().labels = labels("tier=web");
    scene.workers().policies.labels.settings = r#"{"labels":{"tier":"{{ .TargetHost }}"}}"#.into();
    scene.claim("a").spec.instance_type = "gone".into();
    assert_eq!(found(&scene), of(1, 0, 0, 0));
}
