//! Which Nodes may go although their pods have volumes, and where the pods come next.

use super::*;
use crate::claim::{KeepsZone, Moved};
use crate::keys::BETA_ZONE;
use crate::planning::moved;

/// Two machines, one of which is not needed.
fn two_machines() -> Scene {
    let mut scene = Scene::default();
    scene.machine("m", "alpha").machine("n", "beta");
    scene.workers().scale_down.load_headroom = 0.0;
    scene
}

#[test]
fn pods_move_if_their_volumes_can() {
    let mut scene = two_machines();
    scene.claim("n").do_not_disrupt = true;
    claim(&mut scene, "a", PROXMOX, Some("pv"));
    running(&mut scene, "a", "m");
    running_full(&mut scene, "n");
    volume(&mut scene, "pv", PROXMOX_CSI, Some("a"), "");
    assert_eq!(removed(&scene.plan()), ["m"]);
    volume(
        &mut scene,
        "pv",
        PROXMOX_CSI,
        Some("a"),
        &format!("{ZONE}=alpha"),
    );
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(
        kept(&plan, "m").unwrap(),
        "pod default/a-00000 fits on no other Node: PersistentVolume pv can be reached only from Nodes with topology.kubernetes.io/zone in (alpha)"
    );
}

/// Pods that leave half of the Node.
fn running_full(scene: &mut Scene, node: &str) {
    scene.running("full", 1, node, spec("cpu=2"));
}

#[test]
fn a_volume_that_only_its_node_reaches_keeps_it() {
    let mut scene = two_machines();
    running_full(&mut scene, "n");
    scene.claim("n").do_not_disrupt = true;
    volume(&mut scene, "pv", "d", Some("a"), &format!("{HOSTNAME}=m"));
    volume(
        &mut scene,
        "other",
        "d",
        Some("b"),
        &format!("{HOSTNAME}=elsewhere"),
    );
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    let reason = kept(&plan, "m").unwrap();
    assert!(
        reason.starts_with("only this Node reaches PersistentVolume pv."),
        "{reason}"
    );
    scene.claim("m").replace = true;
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
    scene.claim("m").discard_local_volumes = true;
    assert_eq!(removed(&scene.plan()), ["m"]);
    scene.claim("m").replace = false;
    assert_eq!(removed(&scene.plan()), ["m"]);
    // Nobody has it.
    scene.claim("m").discard_local_volumes = false;
    volume(&mut scene, "pv", "d", None, &format!("{HOSTNAME}=m"));
    assert_eq!(removed(&scene.plan()), ["m"]);
}

#[test]
fn a_replica_of_each_stateful_pod_comes_from_zero() {
    let mut scene = Scene::default();
    class(&mut scene, LOCAL, "rancher.io/local-path", true);
    for name in ["db-0", "db-1", "db-2"] {
        claim(&mut scene, name, LOCAL, None);
        let mut db = spec("cpu=1");
        db.pod_anti_affinity = vec![PodTerm {
            topology_key: HOSTNAME.into(),
            selector: Some(LabelSelector {
                match_labels: labels("app=db"),
                match_expressions: vec![],
            }),
            namespaces: Namespaces::Own,
        }];
        scene.pending(name, 1, db);
        uses(&mut scene, name, name);
        scene.pod(&format!("{name}-00000")).labels = labels("app=db");
    }
    assert_eq!(launched(&scene), 3);
}

/// An administrator has migrated the VM of `m` from alpha to beta.
fn migrated() -> Scene {
    let mut scene = two_machines();
    scene.claim("m").status.hypervisor = Some("beta".into());
    scene
}

fn told(scene: &Scene) -> Option<Moved> {
    let world = scene.world();
    let claim = &world.claims()["m"];
    moved(&world, claim, &world.node_of(claim).unwrap())
}

#[test]
fn r37_the_zone_of_a_machine_that_moved_follows_unless_a_volume_or_a_controller_keeps_it() {
    assert_eq!(told(&two_machines()), None);
    let mut scene = migrated();
    let keeps = |scene: &Scene| told(scene).unwrap().keeps;
    assert_eq!(keeps(&scene), None);
    claim(&mut scene, "a", PROXMOX, Some("pv"));
    running(&mut scene, "a", "m");
    volume(&mut scene, "pv", PROXMOX_CSI, Some("a"), "");
    assert_eq!(keeps(&scene), None);
    let zone = format!("{ZONE}=alpha");
    volume(&mut scene, "pv", PROXMOX_CSI, Some("a"), &zone);
    assert_eq!(keeps(&scene), Some(KeepsZone::Volume("pv".into())));
    let node = scene.nodes.get_mut("m").unwrap();
    node.labels.insert(BETA_ZONE.to_owned(), "alpha".to_owned());
    assert_eq!(keeps(&scene), Some(KeepsZone::CloudController));
    // What a label policy or a controller calls a zone is no server.
    for rack in ["rack-1", "beta"] {
        let node = scene.nodes.get_mut("m").unwrap();
        node.labels.insert(ZONE.to_owned(), rack.to_owned());
        assert_eq!(told(&scene), None, "{rack}");
    }
}

#[test]
fn r37_volumes_of_one_server_find_no_place_on_a_machine_that_left_it() {
    let goes = |mut scene: Scene, zone: &str| {
        claim(&mut scene, "b", PROXMOX, Some("pv"));
        running(&mut scene, "b", "n");
        running_full(&mut scene, "m");
        scene.claim("m").do_not_disrupt = true;
        let labels = scene.nodes.get_mut("n").unwrap();
        labels.labels.insert(ZONE.to_owned(), zone.to_owned());
        volume(
            &mut scene,
            "pv",
            PROXMOX_CSI,
            Some("b"),
            &format!("{ZONE}={zone}"),
        );
        removed(&scene.plan()).contains(&"n")
    };
    // The label of `m` says alpha, and the volume is there.
    assert!(goes(two_machines(), "alpha"));
    assert!(!goes(migrated(), "alpha"));
    assert!(!goes(migrated(), "beta"));
}
