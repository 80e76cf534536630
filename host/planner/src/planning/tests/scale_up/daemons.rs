//! DaemonSets take room on a machine before its pods do.

use super::*;

fn daemon_set(scene: &mut Scene, name: &str, requests: &str) {
    let set = DaemonSetFacts {
        labels: Labels::new(),
        spec: spec(requests),
        csi_drivers: vec![],
    };
    let key = crate::ids::ObjectKey::new("kube-system", name);
    scene.daemon_sets.insert(key, set);
}

#[test]
fn r38_daemon_sets_that_fill_a_machine_are_named() {
    let mut scene = Scene::default();
    daemon_set(&mut scene, "cni", "cpu=600m");
    daemon_set(&mut scene, "logs", "cpu=3");
    let text = |scene: &Scene, requests: &str| {
        let mut scene = scene.clone();
        scene.pending("web", 1, spec(requests));
        why(&scene).to_string()
    };
    let named =
        "DaemonSets ask for 3600m of the machine's 4 (kube-system/logs 3, kube-system/cni 600m)";
    assert_eq!(
        text(&scene, "cpu=500m"),
        format!("asks for 500m of cpu; the largest machine offers 400m: {named}")
    );
    // It would be too large without them.
    assert_eq!(
        text(&scene, "cpu=5"),
        "asks for 5 of cpu; the largest machine offers 400m"
    );
    // Nor is it for what a Node of that type has shown.
    let mut taught = scene.clone();
    taught.machine("first", "alpha");
    let first = taught.nodes.get_mut("first").unwrap();
    first.allocatable.milli_cores = 3900;
    let conditions = &mut taught.claim("first").status.conditions;
    *conditions = vec![condition(
        crate::claim::Condition::Initialized,
        at(NOW - 60),
    )];
    taught.running("full", 1, "first", spec("cpu=3900m"));
    let why = text(&taught, "cpu=500m");
    assert!(
        why.contains("ask for 3600m of the machine's 3900m"),
        "{why}"
    );
    let why = text(&taught, "cpu=350m");
    assert!(why.contains("as Node first has shown"), "{why}");

    for (name, requests) in [("a", "cpu=100m"), ("b", "cpu=200m")] {
        daemon_set(&mut scene, name, requests);
    }
    let why = text(&scene, "cpu=500m");
    let of_four = "ask for 3900m of the machine's 4 (kube-system/logs 3, kube-system/cni 600m, kube-system/b 200m, others 100m)";
    assert!(why.ends_with(of_four), "{why}");
}

#[test]
fn r38_daemon_sets_that_leave_nothing_for_headroom_are_named() {
    let mut scene = Scene::default();
    daemon_set(&mut scene, "logs", "cpu=4");
    scene.workers().headroom = headroom("cpu=1");
    let plan = scene.plan();
    assert_eq!(plan.launches, []);
    assert_eq!(
        plan.report.findings[0].message,
        "kproxide can make no more machines for the pool's headroom: its machines offer no cpu: DaemonSets ask for 4 of the machine's 4 (kube-system/logs 4)"
    );
}
