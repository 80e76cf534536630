//! Pods that take ports of their Node.

use std::borrow::Cow;

use super::*;
use crate::facts::*;
use crate::ids::{ObjectKey, PodKey};
use crate::plan::report::Misfit;
use crate::planning::pods::fit::Place;

/// A small pod with one port, such as `80/TCP` or `80/TCP 10.0.0.1`.
fn on(port: &str) -> PodSpec {
    let mut spec = spec("cpu=100m memory=128Mi");
    spec.host_ports = vec![host_port(port)];
    spec
}

/// How many machines pods with these ports get, each pod of another workload.
fn machines_for(ports: &[&str]) -> usize {
    let mut scene = Scene::default();
    for (index, port) in ports.iter().enumerate() {
        scene.pending(&format!("p{index}"), 1, on(port));
    }
    launches(&scene)
}

#[test]
fn a_port_is_taken_by_one_pod_of_a_machine() {
    let mut scene = Scene::default();
    scene.pending("edge", 3, on("80/TCP"));
    assert_eq!(launches(&scene), 3, "pods of one workload");
    assert_eq!(machines_for(&["80/TCP", "80/TCP"]), 2);
    assert_eq!(machines_for(&["80/TCP", "81/TCP"]), 1);
    assert_eq!(machines_for(&["80/TCP", "80/UDP"]), 1);
    assert_eq!(machines_for(&["80/TCP 10.0.0.1", "80/TCP 10.0.0.2"]), 1);
    assert_eq!(machines_for(&["80/TCP 10.0.0.1", "80/TCP 10.0.0.1"]), 2);
    assert_eq!(
        machines_for(&["80/TCP 10.0.0.1", "80/TCP"]),
        2,
        "of every address"
    );
    assert_eq!(
        machines_for(&["80/TCP ::", "80/TCP 10.0.0.1"]),
        1,
        "as kube-scheduler"
    );
}

#[test]
fn plain_pods_fill_the_machines_that_ports_need() {
    let mut scene = Scene::default();
    let mut edge = on("80/TCP");
    edge.requests = spec("cpu=1").requests.clone();
    scene
        .pending("a-web", 9, spec("cpu=1"))
        .pending("edge", 3, edge);
    assert_eq!(launches(&scene), 3, "12 cores on machines of 4");
}

#[test]
fn a_port_that_a_pod_on_a_node_takes_is_not_free() {
    let mut scene = Scene::default();
    scene.node("static", node("cpu=8 memory=16Gi"));
    scene.running("old", 1, "static", on("80/TCP 10.0.0.1"));
    for (port, expected) in [
        ("80/TCP 10.0.0.1", 1),
        ("80/TCP", 1),
        ("80/TCP 10.0.0.2", 0),
        ("80/UDP 10.0.0.1", 0),
        ("81/TCP 10.0.0.1", 0),
    ] {
        let mut scene = scene.clone();
        scene.pending("new", 1, on(port));
        assert_eq!(launches(&scene), expected, "{port}");
        scene.pod("old-00000").phase = PodPhase::Succeeded;
        assert_eq!(launches(&scene), 0, "{port} when the pod has ended");
    }
    scene.pending("new", 2, on("443/TCP"));
    assert_eq!(launches(&scene), 1, "one on the Node, one on a machine");
}

#[test]
fn a_machine_on_its_way_gives_each_port_once() {
    let mut scene = Scene::default();
    scene.coming_machine("coming", "alpha", Phase::Launching);
    scene.pending("edge", 1, on("80/TCP"));
    assert_eq!(launches(&scene), 0);
    scene.pending("edge", 3, on("80/TCP"));
    assert_eq!(launches(&scene), 2);
    let plan = scene.plan();
    assert_eq!(launches(&acted(&scene, &plan)), 0, "they are counted on");
}

#[test]
fn a_port_of_a_daemon_set_is_taken_on_machines_to_come() {
    let mut scene = Scene::default();
    scene.coming_machine("coming", "alpha", Phase::Launching);
    let mut exporter = on("9100/TCP");
    exporter.node_selector = labels("topology.kubernetes.io/zone=alpha");
    let key = ObjectKey::new("kube-system", "exporter");
    let set = |spec: &PodSpec| DaemonSetFacts {
        labels: Labels::new(),
        spec: spec.clone(),
        csi_drivers: vec![],
    };
    scene.daemon_sets.insert(key.clone(), set(&exporter));
    scene.pending("web", 2, on("9100/TCP"));
    let on_others = scene.plan();
    let mut places: Vec<&str> = on_others
        .launches
        .iter()
        .map(|launch| &*launch.spec.hypervisor)
        .collect();
    places.sort_unstable();
    assert_eq!(places, ["beta", "gamma"]);

    exporter.node_selector.clear();
    scene.daemon_sets.insert(key, set(&exporter));
    assert_eq!(
        why(&scene).to_string(),
        "host port 9100/TCP is taken by a DaemonSet on every machine of this pool that is large enough"
    );
    let mut big = on("9100/TCP");
    big.requests = spec("cpu=5").requests.clone();
    scene.pods.clear();
    scene.pending("big", 1, big);
    assert_eq!(
        why(&scene).to_string(),
        "asks for 5 of cpu; the largest machine offers 3900m"
    );
}

#[test]
fn a_machine_is_made_no_smaller_than_its_ports_allow() {
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("small", 2, 4), instance_type("large", 8, 16)];
    let mut exporter = on("80/TCP");
    exporter.node_selector = labels("node.kubernetes.io/instance-type=small");
    let key = ObjectKey::new("kube-system", "exporter");
    scene.daemon_sets.insert(
        key,
        DaemonSetFacts {
            labels: Labels::new(),
            spec: exporter,
            csi_drivers: vec![],
        },
    );
    scene
        .pending("edge", 1, on("80/TCP"))
        .pending("other", 1, on("81/TCP"));
    let plan = scene.plan();
    let types: Vec<&str> = plan
        .launches
        .iter()
        .map(|launch| launch.spec.instance_type.as_str())
        .collect();
    assert_eq!(types, ["large"]);
}

/// Two machines that are hardly used, each with a pod that takes a port.
fn two_machines(first: &str, second: &str) -> Scene {
    let mut scene = Scene::default();
    scene.machine("m1", "alpha").machine("m2", "beta");
    scene
        .running("a", 1, "m1", on(first))
        .running("b", 1, "m2", on(second));
    scene
}

#[test]
fn a_pod_moves_only_to_where_its_port_is_free() {
    for (first, second, expected) in [
        ("80/TCP", "80/TCP", 0),
        ("80/TCP", "80/UDP", 1),
        ("80/TCP 10.0.0.1", "80/TCP 10.0.0.2", 1),
    ] {
        let plan = two_machines(first, second).plan();
        check_sound(&plan);
        assert_eq!(removed(&plan).len(), expected, "{first} and {second}");
    }
    let plan = two_machines("80/TCP", "80/TCP").plan();
    assert_eq!(
        kept(&plan, "m1").unwrap(),
        "pod default/a-00000 fits on no other Node"
    );
}

#[test]
fn pods_that_move_take_their_ports_along() {
    // Each of the two pods alone could move to m3; both cannot.
    let mut scene = two_machines("80/TCP", "80/TCP");
    scene.workers().scale_down.budget = 3;
    scene.machine("m3", "gamma");
    scene.running("c", 1, "m3", spec("cpu=100m memory=128Mi"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan).len(), 1);
}

#[test]
fn the_first_port_that_is_not_free_is_found_among_many() {
    let wanted = [
        "80/TCP 10.0.0.1",
        "80/TCP 10.0.0.3",
        "80/UDP",
        "81/TCP",
        "82/TCP 10.0.0.1",
    ];
    for (taken, expected) in [
        ("80/TCP", Some("80/TCP 10.0.0.1")),
        ("80/TCP 10.0.0.3", Some("80/TCP 10.0.0.3")),
        ("80/TCP 10.0.0.2", None),
        ("80/UDP 10.0.0.2", Some("80/UDP")),
        ("81/TCP 10.0.0.2", Some("81/TCP")),
        ("82/TCP 10.0.0.2", None),
        ("82/TCP", Some("82/TCP 10.0.0.1")),
        ("79/TCP", None),
        ("83/TCP", None),
    ] {
        let mut scene = Scene::default();
        scene.node("static", node("cpu=8 memory=16Gi"));
        scene.running("old", 1, "static", on(taken));
        let mut new = on("80/TCP");
        new.host_ports = wanted.map(host_port).into();
        scene.pending("new", 1, new);
        let world = scene.world();
        let place = Place::of(world.nodes().next().expect("a Node"));
        let pod = world
            .pod(&PodKey::new("default", "new-00000"))
            .expect("it waits");
        let expected = expected.map(|port| Misfit::HostPort(Cow::Owned(host_port(port))));
        assert_eq!(place.misfit(pod.spec()), expected, "{taken}");
    }
}
