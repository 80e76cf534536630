//! Which Nodes may go although their pods have volumes, and where the pods come next.

use super::*;

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
