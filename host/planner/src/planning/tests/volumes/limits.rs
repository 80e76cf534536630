//! How many volumes a Node holds, by what its drivers say.

use super::*;

#[test]
fn a_node_holds_as_many_volumes_as_its_driver_says() {
    let mut scene = Scene::default();
    scene.class.instance_types[0].cores = 64;
    scene.hypervisor("alpha").threads = 256;
    class(&mut scene, PROXMOX, PROXMOX_CSI, true);
    let names: Vec<String> = (0..30).map(|index| format!("c{index:02}")).collect();
    for name in &names {
        claim(&mut scene, name, PROXMOX, None);
        pending(&mut scene, &[name]);
    }
    assert_eq!(launched(&scene), 2, "24 each");
    scene.class.csi = vec![CsiSetting {
        driver: PROXMOX_CSI.into(),
        limit: Some(10),
        capacity: None,
        topology: std::collections::BTreeMap::new(),
    }];
    assert_eq!(launched(&scene), 3);
    // A Node that is there says it itself. What is attached without a pod counts.
    server(&mut scene, "n1", "alpha");
    csi_node(&mut scene, "n1", PROXMOX_CSI, 4);
    volume(&mut scene, "left", PROXMOX_CSI, Some("other"), "");
    let attachment = VolumeAttachmentFacts {
        node: "n1".into(),
        volume: Some("left".into()),
    };
    scene
        .storage
        .push(Delta::VolumeAttachment("x".to_owned(), Some(attachment)));
    scene.pods.retain(|key, _| *key.name < *"c04");
    let plan = scene.plan();
    let outcomes = whys(&plan);
    assert_eq!(plan.launches.len(), 1, "3 of 4 fit: {outcomes}");
    assert!(outcomes.contains("fits on Node n1"), "{outcomes}");
    // Room for one more is room.
    csi_node(&mut scene, "n1", PROXMOX_CSI, 2);
    scene.pods.retain(|key, _| *key.name < *"c01");
    assert_eq!(launched(&scene), 0);
}

#[test]
fn the_nodes_of_a_class_show_what_a_driver_will_say_of_the_next_one() {
    let mut scene = Scene::default();
    scene.class.instance_types[0].cores = 64;
    scene.hypervisor("alpha").threads = 1024;
    class(&mut scene, "theirs", "csi.example.com", true);
    let names: Vec<String> = (0..12).map(|index| format!("c{index:02}")).collect();
    for name in &names {
        claim(&mut scene, name, "theirs", None);
        pending(&mut scene, &[name]);
    }
    assert_eq!(launched(&scene), 1, "kproxide knows no limit");
    // Of Nodes that take no pods what two of them show, at least.
    for (name, limit) in [("m1", 5), ("m2", 4), ("m3", 1)] {
        scene.machine(name, "alpha");
        let node = scene.nodes.get_mut(name).unwrap();
        node.unschedulable = true;
        node.labels.insert("room".into(), "attic".into());
        csi_node_of(&mut scene, name, "csi.example.com", limit, &["room"]);
    }
    assert_eq!(launched(&scene), 3, "4 each");
    // It stays known when both are gone.
    let mut later = super::learned::after(&scene);
    assert!(later.nodes.is_empty() && later.class.learned.len() == 3);
    (later.pods, later.storage) = (scene.pods.clone(), scene.storage.clone());
    later.hypervisor("alpha").threads = 1024;
    assert_eq!(launched(&later), 3, "4 each");
    // The driver will give the next Node the label that it gave to both.
    scene.pods.clear();
    for room in ["attic", "cellar"] {
        let mut spec = spec("cpu=1");
        spec.node_selector = [("room".to_owned(), room.to_owned())].into();
        scene.pending(room, 1, spec);
    }
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 1);
    assert_eq!(
        plan.launches[0].reason,
        "for the pending pod default/attic-00000"
    );
}

#[test]
fn s1_one_node_does_not_say_alone_how_many_volumes_the_next_one_holds_nor_where_it_stands() {
    let driver = "csi.example.com";
    let mut scene = Scene::default();
    class(&mut scene, "theirs", driver, true);
    let shows = |scene: &mut Scene, name: &str, limit: u32, room: &str| {
        if !scene.nodes.contains_key(name) {
            scene.machine(name, "alpha");
        }
        let node = scene.nodes.get_mut(name).unwrap();
        node.unschedulable = true;
        node.labels.insert("room".into(), room.into());
        csi_node_of(scene, name, driver, limit, &["room"]);
    };
    let said = |scene: &Scene| -> Vec<String> {
        let doubts = scene.plan().report.doubts;
        doubts.iter().map(ToString::to_string).collect()
    };
    let wants = |scene: &Scene, room: &str| {
        let mut scene = scene.clone();
        claim(&mut scene, "c", "theirs", None);
        pending(&mut scene, &["c"]);
        scene.pod("c-00000").spec.node_selector = [("room".to_owned(), room.to_owned())].into();
        launched(&scene)
    };
    // Alone it says no less than the NodeClass, and never that there is no room at all.
    shows(&mut scene, "bad", 0, "attic");
    assert_eq!(wants(&scene, "attic"), 1);
    let mut known = scene.clone();
    known.class.csi = vec![CsiSetting {
        driver: driver.into(),
        limit: Some(10),
        capacity: None,
        topology: std::collections::BTreeMap::new(),
    }];
    let text = |nominal| {
        format!(
            "Node bad offers 0 of attachable-volumes-csi-{driver}, and a machine of type medium has {nominal}"
        )
    };
    assert_eq!(said(&known), [text(10)]);
    // Nor beside others. Two that show the same are believed.
    shows(&mut scene, "bad", 0, "cellar");
    shows(&mut scene, "m1", 5, "attic");
    assert_eq!(said(&scene), [text(5)]);
    assert_eq!(
        wants(&scene, "attic"),
        0,
        "who knows which of the two is right"
    );
    shows(&mut scene, "m2", 5, "attic");
    assert_eq!((wants(&scene, "attic"), wants(&scene, "cellar")), (1, 0));
    shows(&mut scene, "m2", 0, "attic");
    assert_eq!((wants(&scene, "attic"), said(&scene).len()), (0, 0));
}

#[test]
fn a_volume_that_pods_share_is_attached_once() {
    let mut scene = Scene::default();
    class(&mut scene, PROXMOX, PROXMOX_CSI, true);
    claim(&mut scene, "shared", PROXMOX, Some("pv"));
    volume(&mut scene, "pv", PROXMOX_CSI, Some("shared"), "");
    server(&mut scene, "n1", "alpha");
    csi_node(&mut scene, "n1", PROXMOX_CSI, 1);
    scene.pending("web", 3, spec("cpu=1"));
    for index in 0..3 {
        let pod = scene.pod(&format!("web-{index:05}"));
        pod.claims = vec![PodClaim {
            name: "shared".into(),
            is_ephemeral: false,
        }];
    }
    assert_eq!(launched(&scene), 0);
    claim(&mut scene, "another", PROXMOX, Some("pv2"));
    volume(&mut scene, "pv2", PROXMOX_CSI, Some("another"), "");
    pending(&mut scene, &["another"]);
    assert_eq!(launched(&scene), 1, "the Node can hold one volume");
}

#[test]
fn two_volumes_of_one_handle_are_attached_once() {
    let mut scene = Scene::default();
    server(&mut scene, "n1", "alpha");
    csi_node(&mut scene, "n1", PROXMOX_CSI, 2);
    for name in ["a", "b"] {
        let facts = VolumeFacts {
            driver: Some(PROXMOX_CSI.into()),
            handle: Some("share".into()),
            ..VolumeFacts::default()
        };
        let attachment = VolumeAttachmentFacts {
            node: "n1".into(),
            volume: Some(name.into()),
        };
        scene.storage.extend([
            Delta::Volume(name.to_owned(), Some(Box::new(facts))),
            Delta::VolumeAttachment(name.to_owned(), Some(attachment)),
        ]);
    }
    claim(&mut scene, "own", PROXMOX, Some("own"));
    volume(&mut scene, "own", PROXMOX_CSI, Some("own"), "");
    pending(&mut scene, &["own"]);
    assert_eq!(launched(&scene), 0, "n1 can hold one more");
}
