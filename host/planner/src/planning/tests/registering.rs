//! Which CSI drivers a new Node waits for.

use super::*;
use crate::claim::Registering;
use crate::facts::*;
use crate::ids::ObjectKey;
use crate::keys::UNREGISTERED_TAINT;

const DRIVERS: [&str; 2] = ["a.example.com", "b.example.com"];

/// A DaemonSet of each driver, on a Node with the taint. `tolerates`: any taint.
fn scene(tolerates: [bool; 2]) -> Scene {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    let node = scene.nodes.get_mut("m").unwrap();
    node.taints = vec![taint(UNREGISTERED_TAINT, TaintEffect::NoExecute)];
    node.ready_since = at(NOW - 10);
    for (driver, tolerates) in DRIVERS.into_iter().zip(tolerates) {
        let mut spec = spec("cpu=10m");
        let any = Toleration {
            key: None,
            exists: true,
            value: "".into(),
            effect: None,
        };
        spec.tolerations.extend(tolerates.then_some(any));
        let set = DaemonSetFacts {
            labels: Labels::new(),
            spec,
            csi_drivers: vec![driver.into(), "no-driver".into()],
        };
        let key = ObjectKey::new("kube-system", driver);
        scene.daemon_sets.insert(key, set);
        let facts = Box::new(CsiDriverFacts::default());
        scene
            .storage
            .push(Delta::CsiDriver(driver.into(), Some(facts)));
    }
    scene
}

fn registering(scene: &Scene) -> Registering {
    let world = scene.world();
    crate::planning::registering(&world, &world.node(&"m".into()).unwrap())
}

fn drivers(scene: &Scene) -> Vec<String> {
    let drivers = registering(scene).drivers;
    drivers.iter().map(|driver| driver.to_string()).collect()
}

#[test]
fn each_driver_with_a_pod_on_the_node_is_awaited_until_it_registers() {
    let mut scene = scene([true, true]);
    assert_eq!(drivers(&scene), DRIVERS);
    assert!(registering(&scene).is_awaited(at(NOW)));
    assert_eq!(registering(&scene).until, Some(at(NOW + 50)));
    assert!(!registering(&scene).is_awaited(at(NOW + 50)));
    let csi = CsiNodeFacts {
        drivers: [(DRIVERS[0].into(), CsiNodeDriver::default())].into(),
    };
    let csi = Delta::CsiNode("m".into(), Some(Box::new(csi)));
    scene.storage.push(csi);
    assert_eq!(drivers(&scene), [DRIVERS[1]]);
}

#[test]
fn a_driver_whose_pod_waits_for_the_taint_to_go_is_not_awaited() {
    let mut scene = scene([true, false]);
    assert_eq!(drivers(&scene), [DRIVERS[0]]);
    scene.nodes.get_mut("m").unwrap().ready = false;
    assert_eq!(
        drivers(&scene),
        [""; 0],
        "perhaps the Node cannot be Ready without that pod"
    );
}

#[test]
fn before_the_node_is_ready_drivers_are_awaited_where_nothing_waits_for_the_taint() {
    let mut scene = scene([true, true]);
    scene.nodes.get_mut("m").unwrap().ready = false;
    assert_eq!(registering(&scene).until, None);
    assert!(registering(&scene).is_awaited(at(NOW + 1000)));
}

#[test]
fn r9_a_machine_promises_the_devices_of_its_type_before_it_has_a_node() {
    let mut scene = Scene::default();
    scene.class.instance_types[0].extended_resources =
        devices("a.example.com/gpu=2 b.example.com/nic=1 c.example.com/none=0");
    scene.machine("m", "alpha");
    let mut claim = scene.claims["m"].spec.clone();
    let world = scene.world();
    let promised = |claim: &ClaimSpec| super::super::promised_devices(&world, claim);
    assert_eq!(
        promised(&claim),
        ["a.example.com/gpu".into(), "b.example.com/nic".into()]
    );
    claim.instance_type = "another".into();
    assert_eq!(promised(&claim), []);
}
