//! A machine is made only where the bridges are that its class names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::check::violations;
use crate::facts::{BridgeKind, Interface};
use crate::reasons::broken_plan::Violation;

fn bridges(names: &[&str]) -> Option<Arc<BTreeMap<Arc<str>, BridgeKind>>> {
    let all = names.iter().map(|name| ((*name).into(), BridgeKind::Plain));
    Some(Arc::new(all.collect()))
}

/// Three pods, each of which fills a machine with two networks, and what each server says of its bridges.
fn scene(alpha: Option<&[&str]>, beta: Option<&[&str]>, gamma: Option<&[&str]>) -> Scene {
    let mut scene = Scene::default();
    for (name, told) in [("alpha", alpha), ("beta", beta), ("gamma", gamma)] {
        scene.hypervisor(name).bridges = told.and_then(bridges);
    }
    let interface = |name: &str, bridge: Option<&str>| Interface {
        name: name.into(),
        bridge: bridge.map(Into::into),
        ..Interface::default()
    };
    scene.class.machine.network = vec![
        interface("net0", None),
        interface("net1", Some("vmbr1")),
        interface("net2", Some("storage")),
    ];
    scene.pending("web", 3, spec("cpu=3"));
    scene
}

/// Where machines are made, and why not elsewhere.
fn made(scene: &Scene) -> (Vec<String>, Vec<String>) {
    let plan = scene.plan();
    check_sound(&plan);
    let servers = plan
        .launches
        .iter()
        .map(|it| it.spec.hypervisor.to_string());
    let mut servers: Vec<String> = servers.collect();
    servers.sort();
    servers.dedup();
    let rejected = plan.report.rejected.iter();
    let rejected = rejected.map(|row| format!("{}: {}", row.hypervisor.name, row.reason));
    let mut rejected: Vec<String> = rejected.collect();
    rejected.sort();
    rejected.dedup();
    (servers, rejected)
}

#[test]
fn a_server_without_a_bridge_of_the_class_gets_no_machine_and_its_reason_names_the_bridge() {
    let both = Some(&["storage", "vmbr0", "vmbr1"][..]);
    let one = Some(&["vmbr0", "vmbr1"][..]);
    let (servers, rejected) = made(&scene(both, one, None));
    assert_eq!(servers, ["alpha"]);
    assert_eq!(
        rejected,
        [
            "beta: it has no bridge or VNet storage, or the token has no SDN.Use there",
            "gamma: its bridges could not be read yet",
        ]
    );
    let (servers, rejected) = made(&scene(one, None, None));
    assert_eq!(servers, [""; 0]);
    assert_eq!(rejected.len(), 3, "{rejected:?}");
}

#[test]
fn a_class_that_names_no_bridge_asks_for_none() {
    let mut scene = scene(None, None, None);
    scene.class.machine.network.truncate(1);
    assert_eq!(made(&scene).0, ["alpha", "beta", "gamma"]);
}

#[test]
fn a_launch_where_a_bridge_is_missing_is_no_sound_plan() {
    let both = Some(&["storage", "vmbr1"][..]);
    let plan = scene(both, both, both).plan();
    assert_eq!(plan.launches.len(), 3);
    let world = scene(both, Some(&["vmbr1"]), both).world();
    let wrong = violations(&world, at(NOW), &Limits::default(), &plan);
    let wrong = wrong.iter().filter(|(_, violation)| {
        matches!(violation, Violation::Hypervisor(reason) if reason.contains("bridge"))
    });
    let on_beta = plan.launches.iter();
    let on_beta = on_beta.filter(|it| &*it.spec.hypervisor == "beta");
    assert_eq!(wrong.count(), on_beta.count());
}
