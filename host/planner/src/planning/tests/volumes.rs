//! Pods with PersistentVolumeClaims: which Nodes reach their volumes, when a machine helps, and which Nodes stay for the
//! sake of a volume.

mod limits;
mod moving;

use super::topology::{places, server, whys};
use super::*;
use crate::facts::*;
use crate::ids::ObjectKey;
use crate::keys::{HOSTNAME, PROXMOX_CSI, ZONE};

const LOCAL: &str = "local-path";
const PROXMOX: &str = "proxmox";

fn class(scene: &mut Scene, name: &str, provisioner: &str, waits_for_pod: bool) {
    let facts = StorageClassFacts {
        provisioner: provisioner.into(),
        waits_for_pod,
        topologies: None,
    };
    let class = Delta::StorageClass(name.to_owned(), Some(Box::new(facts)));
    scene.storage.push(class);
}

/// Of the class's volumes, 1 GiB; bound to a volume if one is named.
fn claim(scene: &mut Scene, name: &str, class: &str, volume: Option<&str>) {
    change_claim(scene, name, |facts| {
        facts.class = Some(class.into());
        facts.volume = volume.map(Into::into);
        facts.is_bound = volume.is_some();
        facts.wants = wants(1);
    });
}

fn change_claim(scene: &mut Scene, name: &str, change: impl Fn(&mut VolumeClaimFacts)) {
    let key = ObjectKey::new("default", name);
    let known = scene.storage.iter().rev().find_map(|delta| {
        let Delta::VolumeClaim(other, Some(facts)) = delta else {
            return None;
        };
        (*other == key).then(|| (**facts).clone())
    });
    let mut facts = known.unwrap_or_default();
    change(&mut facts);
    scene
        .storage
        .push(Delta::VolumeClaim(key, Some(Box::new(facts))));
}

fn wants(gib: u64) -> VolumeTraits {
    VolumeTraits {
        bytes: gib << 30,
        access_modes: ["ReadWriteOnce".into()].into(),
        ..VolumeTraits::default()
    }
}

/// A volume of 1 GiB that Nodes with this label reach (`key=value`), or all Nodes (``).
fn volume(scene: &mut Scene, name: &str, driver: &str, of: Option<&str>, nodes: &str) {
    let nodes = nodes.split_once('=').map(|(key, value)| {
        vec![NodeSelectorTerm {
            match_expressions: vec![Requirement {
                key: key.into(),
                operator: Operator::In,
                values: vec![value.into()],
            }],
            match_fields: vec![],
        }]
    });
    let facts = VolumeFacts {
        source: "csi".into(),
        driver: Some(driver.into()),
        class: LOCAL.into(),
        offers: wants(1),
        nodes: nodes.map(Into::into),
        claim: of.map(|claim| ObjectKey::new("default", claim)),
        is_available: of.is_none(),
        ..VolumeFacts::default()
    };
    let volume = Delta::Volume(name.to_owned(), Some(Box::new(facts)));
    scene.storage.push(volume);
}

fn csi_node(scene: &mut Scene, node: &str, driver: &str, limit: u32) {
    csi_node_of(scene, node, driver, limit, &[]);
}

/// The driver says of its Node how many volumes it holds, and where it stands by these labels.
fn csi_node_of(scene: &mut Scene, node: &str, driver: &str, limit: u32, labels: &[&str]) {
    let driver_facts = CsiNodeDriver {
        limit: Some(limit),
        topology_keys: labels.iter().map(|&label| label.into()).collect(),
    };
    let facts = CsiNodeFacts {
        drivers: [(driver.into(), driver_facts)].into(),
    };
    let node = Delta::CsiNode(node.into(), Some(Box::new(facts)));
    scene.storage.push(node);
}

/// A pod of 1 core for each of these claims.
fn pending(scene: &mut Scene, claims: &[&str]) {
    for name in claims {
        scene.pending(name, 1, spec("cpu=1"));
        uses(scene, name, name);
    }
}

fn running(scene: &mut Scene, claim: &str, node: &str) {
    scene.running(claim, 1, node, spec("cpu=1"));
    uses(scene, claim, claim);
}

fn uses(scene: &mut Scene, pod: &str, claim: &str) {
    scene.pod(&format!("{pod}-00000")).claims.push(PodClaim {
        name: claim.into(),
        is_ephemeral: false,
    });
}

/// A volume that a CSI driver attaches to any Node, for this pod.
pub(super) fn attached(scene: &mut Scene, pod: &str, name: &str) {
    claim(scene, name, PROXMOX, Some(name));
    volume(scene, name, "csi.example.com", Some(name), "");
    uses(scene, pod, name);
}

fn launched(scene: &Scene) -> usize {
    let plan = scene.plan();
    check_sound(&plan);
    plan.launches.len()
}

#[test]
fn volumes_that_wait_for_their_pod_come_with_the_machine() {
    let mut scene = Scene::default();
    class(&mut scene, LOCAL, "rancher.io/local-path", true);
    for name in ["a", "b", "c", "d", "e"] {
        claim(&mut scene, name, LOCAL, None);
    }
    pending(&mut scene, &["a", "b", "c", "d", "e"]);
    assert_eq!(launched(&scene), 2, "4 cores each");
    // They are of one shape: only the names of their claims differ.
    assert_eq!(scene.world().pending().len(), 1);
}

#[test]
fn a_pod_whose_volume_is_on_a_node_waits_for_that_node() {
    let mut scene = Scene::default();
    class(&mut scene, LOCAL, "rancher.io/local-path", true);
    for (name, node) in [("a", "n1"), ("b", "n2")] {
        server(&mut scene, node, "alpha");
        claim(&mut scene, name, LOCAL, Some(&format!("pv-{name}")));
        let nodes = format!("{HOSTNAME}={node}");
        volume(
            &mut scene,
            &format!("pv-{name}"),
            "rancher.io/local-path",
            Some(name),
            &nodes,
        );
    }
    pending(&mut scene, &["a"]);
    assert_eq!(
        whys(&scene.plan()),
        "fits on Node n1; the scheduler will find it"
    );
    scene.running("full", 1, "n1", spec("cpu=8"));
    let text = whys(&scene.plan());
    assert!(
        text.contains("PersistentVolume pv-a can be reached only from Nodes with kubernetes.io/hostname in (n1)"),
        "{text}"
    );
    // Its Node is gone: no machine brings the volume back.
    scene.nodes.remove("n1");
    scene.pods.retain(|key, _| !key.name.starts_with("full"));
    assert_eq!(launched(&scene), 0);
    assert!(whys(&scene.plan()).contains("(n1)"));
}

#[test]
fn a_volume_of_a_zone_gets_its_machine_on_that_hypervisor() {
    let mut scene = Scene::default();
    class(&mut scene, PROXMOX, PROXMOX_CSI, true);
    for (name, zone) in [("a", "beta"), ("b", "gamma")] {
        claim(&mut scene, name, PROXMOX, Some(&format!("pv-{name}")));
        let nodes = format!("{ZONE}={zone}");
        volume(
            &mut scene,
            &format!("pv-{name}"),
            PROXMOX_CSI,
            Some(name),
            &nodes,
        );
    }
    pending(&mut scene, &["a", "b"]);
    assert_eq!(places(&scene.plan()), ["beta", "gamma"]);
    // Old volumes have labels in place of the affinity.
    for delta in &mut scene.storage {
        if let Delta::Volume(_, Some(facts)) = delta {
            facts.nodes = None;
            facts.labels = labels(&format!("{ZONE}=alpha__gamma"));
        }
    }
    scene.hypervisor("alpha").online = false;
    assert_eq!(places(&scene.plan()), ["gamma"], "one machine for both");
}

#[test]
fn claims_that_no_node_helps_are_named() {
    let text = |change: fn(&mut Scene)| {
        let mut scene = Scene::default();
        class(&mut scene, LOCAL, "rancher.io/local-path", true);
        class(&mut scene, "at-once", "rancher.io/local-path", false);
        class(&mut scene, "by-hand", NO_PROVISIONER, true);
        claim(&mut scene, "a", LOCAL, None);
        pending(&mut scene, &["a"]);
        change(&mut scene);
        assert_eq!(launched(&scene), 0);
        whys(&scene.plan())
    };
    let says = |change: fn(&mut Scene), part: &str| {
        let text = text(change);
        assert!(text.contains(part), "{text}");
    };
    says(
        |scene| {
            scene
                .storage
                .retain(|it| !matches!(it, Delta::VolumeClaim(..)))
        },
        "does not exist",
    );
    says(
        |scene| change_claim(scene, "a", |it| it.deleting = true),
        "is being deleted",
    );
    says(
        |scene| change_claim(scene, "a", |it| it.is_lost = true),
        "has lost its PersistentVolume",
    );
    says(|scene| claim(scene, "a", "at-once", None), "is not bound");
    says(
        |scene| claim(scene, "a", "at-once", None),
        "waits for its provisioner rancher.io/local-path (StorageClass at-once binds at once",
    );
    says(|scene| claim(scene, "a", "", None), "is not bound");
    says(
        |scene| claim(scene, "a", "gone", None),
        "StorageClass gone, which does not exist",
    );
    says(
        |scene| claim(scene, "a", "by-hand", None),
        "none that is available fits",
    );
    says(
        |scene| claim(scene, "a", LOCAL, Some("pv")),
        "PersistentVolume pv, which does not exist",
    );
    says(
        |scene| {
            claim(scene, "a", LOCAL, Some("pv"));
            change_claim(scene, "a", |it| it.is_bound = false);
        },
        "names PersistentVolume pv, which does not exist. A new Node does not change that",
    );
    says(
        |scene| {
            volume(scene, "pv", "d", Some("a"), "");
            claim(scene, "a", LOCAL, Some("pv"));
            let Some(Delta::Volume(_, Some(facts))) = scene.storage.iter_mut().rev().nth(1) else {
                panic!("the volume was just made");
            };
            facts.source = "azureDisk".into();
        },
        "of kind azureDisk",
    );
    says(
        |scene| scene.pod("a-00000").claims[0].is_ephemeral = true,
        "was not made for this pod",
    );
}

#[test]
fn an_ephemeral_volume_is_the_one_that_was_made_for_the_pod() {
    let mut scene = Scene::default();
    class(&mut scene, LOCAL, "rancher.io/local-path", true);
    claim(&mut scene, "a", LOCAL, None);
    pending(&mut scene, &["a"]);
    scene.pod("a-00000").claims[0].is_ephemeral = true;
    let uid = scene.pod("a-00000").uid.clone();
    change_claim(&mut scene, "a", |facts| facts.owner = Some(uid.clone()));
    assert_eq!(launched(&scene), 1);
}

#[test]
fn a_claim_for_one_pod_serves_one_pod() {
    let mut scene = Scene::default();
    class(&mut scene, LOCAL, "rancher.io/local-path", true);
    claim(&mut scene, "a", LOCAL, None);
    change_claim(&mut scene, "a", |facts| {
        facts.wants.access_modes = [READ_WRITE_ONCE_POD.into()].into();
    });
    pending(&mut scene, &["a"]);
    scene.pending("b", 1, spec("cpu=4"));
    uses(&mut scene, "b", "a");
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 1, "pod a comes first by name");
    assert!(whys(&plan).contains("is ReadWriteOncePod, and pod default/a-00000 uses it"));
    // One that stands on a Node has it, whatever its name.
    scene.pod("b-00000").node = Some("elsewhere".into());
    let plan = scene.plan();
    assert!(whys(&plan).contains("pod default/b-00000 uses it"));
    scene.pod("b-00000").node = None;
    change_claim(&mut scene, "a", |facts| facts.wants = wants(1));
    assert_eq!(launched(&scene), 2);
}

#[test]
fn volumes_made_by_hand_decide_where_their_pod_goes() {
    let mut scene = Scene::default();
    class(&mut scene, LOCAL, NO_PROVISIONER, true);
    claim(&mut scene, "a", LOCAL, None);
    pending(&mut scene, &["a"]);
    server(&mut scene, "n1", "alpha");
    server(&mut scene, "n2", "alpha");
    volume(&mut scene, "on-n2", "d", None, &format!("{HOSTNAME}=n2"));
    assert_eq!(
        whys(&scene.plan()),
        "fits on Node n2; the scheduler will find it"
    );
    change_claim(&mut scene, "a", |facts| facts.wants.bytes = 2 << 30);
    assert!(
        whys(&scene.plan()).contains("none that is available fits"),
        "it is too small"
    );
    // One that names a claim is for that claim.
    change_claim(&mut scene, "a", |facts| facts.wants.bytes = 1);
    let named = |claim: &str| {
        let mut scene = scene.clone();
        for delta in &mut scene.storage {
            if let Delta::Volume(_, Some(volume)) = delta {
                volume.claim = Some(ObjectKey::new("default", claim));
            }
        }
        whys(&scene.plan())
    };
    assert_eq!(named("a"), "fits on Node n2; the scheduler will find it");
    let said = named("b");
    assert!(said.contains("none that is available fits"), "{said}");
}

#[test]
fn the_scheduler_has_chosen_a_node_for_a_volume() {
    let mut scene = Scene::default();
    class(&mut scene, LOCAL, "rancher.io/local-path", true);
    claim(&mut scene, "a", LOCAL, None);
    server(&mut scene, "n1", "alpha");
    server(&mut scene, "n2", "alpha");
    pending(&mut scene, &["a"]);
    change_claim(&mut scene, "a", |facts| {
        facts.selected_node = Some("n2".into())
    });
    assert_eq!(
        whys(&scene.plan()),
        "fits on Node n2; the scheduler will find it"
    );
    // Larger pods that fit only some Nodes do not take its place.
    let mut others = scene.clone();
    for node in ["n1", "n2"] {
        others.running(&format!("almost-{node}"), 1, node, spec("cpu=6"));
    }
    let mut large = spec("cpu=2");
    large.node_selector = labels("topology.kubernetes.io/zone=alpha");
    others.pending("large", 2, large);
    let said = whys(&others.plan());
    assert!(said.contains("fits on Node n2"), "{said}");
    assert!(!said.contains("is being made for"), "{said}");
    scene.running("full", 1, "n2", spec("cpu=8"));
    assert!(whys(&scene.plan()).contains("is being made for Node n2"));
}

#[test]
fn a_class_may_be_for_some_zones() {
    let mut scene = Scene::default();
    let facts = StorageClassFacts {
        provisioner: PROXMOX_CSI.into(),
        waits_for_pod: true,
        topologies: Some(
            [NodeSelectorTerm {
                match_expressions: vec![Requirement {
                    key: ZONE.into(),
                    operator: Operator::In,
                    values: vec!["beta".into(), "gamma".into()],
                }],
                match_fields: vec![],
            }]
            .into(),
        ),
    };
    let class = Delta::StorageClass(PROXMOX.to_owned(), Some(Box::new(facts)));
    scene.storage.push(class);
    claim(&mut scene, "a", PROXMOX, None);
    pending(&mut scene, &["a"]);
    scene.hypervisor("beta").online = false;
    assert_eq!(places(&scene.plan()), ["gamma"]);
}

#[test]
fn a_driver_that_tells_its_room_is_asked() {
    let mut scene = Scene::default();
    class(&mut scene, "topolvm", "topolvm.io", true);
    let publishes = CsiDriverFacts {
        storage_capacity: true,
    };
    let driver = Delta::CsiDriver("topolvm.io".to_owned(), Some(Box::new(publishes)));
    scene.storage.push(driver);
    for node in ["n1", "n2"] {
        server(&mut scene, node, "alpha");
    }
    let room = |scene: &mut Scene, node: &str, gib: u64| {
        let facts = StorageCapacityFacts {
            class: "topolvm".into(),
            nodes: Some(LabelSelector {
                match_labels: labels(&format!("{HOSTNAME}={node}")),
                match_expressions: vec![],
            }),
            largest_bytes: gib << 30,
        };
        let key = ObjectKey::new("kube-system", node);
        scene
            .storage
            .push(Delta::StorageCapacity(key, Some(Box::new(facts))));
    };
    claim(&mut scene, "a", "topolvm", None);
    pending(&mut scene, &["a"]);
    room(&mut scene, "n1", 0);
    room(&mut scene, "n2", 5);
    assert_eq!(
        whys(&scene.plan()),
        "fits on Node n2; the scheduler will find it"
    );
    room(&mut scene, "n2", 0);
    assert_eq!(launched(&scene), 1, "a new machine may have room");
    let setting = |capacity| CsiSetting {
        driver: "topolvm.io".into(),
        limit: None,
        capacity: Some(Amount::mib(capacity)),
        topology: std::collections::BTreeMap::new(),
    };
    scene.class.csi = vec![setting((1 << 10) - 1)];
    assert_eq!(launched(&scene), 0, "its class says that it will not");
    assert!(
        whys(&scene.plan()).contains("too little room for a new volume of StorageClass topolvm")
    );
    scene.class.csi = vec![setting(1 << 10)];
    // A Node that has just come has not said yet how much it has.
    scene.node("n3", node("cpu=8 memory=16Gi")).created = at(NOW - 60);
    assert_eq!(
        whys(&scene.plan()),
        "fits on Node n3; the scheduler will find it"
    );
    scene.node("n3", node("cpu=8 memory=16Gi")).created = at(NOW - 600);
    assert_eq!(launched(&scene), 1);
}

/// A free volume of this class that Nodes with this label reach.
fn free(scene: &mut Scene, name: &str, class: &str, node: &str, gib: u64) {
    volume(scene, name, "d", None, &format!("{HOSTNAME}={node}"));
    let Some(Delta::Volume(_, Some(facts))) = scene.storage.last_mut() else {
        panic!("the volume was just made");
    };
    facts.class = class.into();
    facts.offers = wants(gib);
}

#[test]
fn v4_where_no_volume_is_free_the_class_says_whether_one_can_be_made() {
    let mut scene = Scene::default();
    let zone = NodeSelectorTerm {
        match_expressions: vec![Requirement {
            key: ZONE.into(),
            operator: Operator::In,
            values: vec!["beta".into()],
        }],
        match_fields: vec![],
    };
    let facts = StorageClassFacts {
        provisioner: PROXMOX_CSI.into(),
        waits_for_pod: true,
        topologies: Some([zone].into()),
    };
    let class = Delta::StorageClass(PROXMOX.to_owned(), Some(Box::new(facts)));
    scene.storage.push(class);
    claim(&mut scene, "a", PROXMOX, None);
    pending(&mut scene, &["a"]);
    server(&mut scene, "n1", "alpha");
    free(&mut scene, "v", PROXMOX, "n1", 1);
    let said = whys(&scene.plan());
    assert_eq!(said, "fits on Node n1; the scheduler will find it");
    free(&mut scene, "v", PROXMOX, "n2", 1);
    assert_eq!(places(&scene.plan()), ["beta"]);
}

#[test]
fn v6_the_smallest_claim_takes_the_smallest_volume() {
    let mut scene = Scene::default();
    class(&mut scene, LOCAL, NO_PROVISIONER, true);
    server(&mut scene, "n1", "alpha");
    claim(&mut scene, "a", LOCAL, None);
    change_claim(&mut scene, "a", |facts| facts.wants = wants(5));
    claim(&mut scene, "b", LOCAL, None);
    pending(&mut scene, &["a"]);
    uses(&mut scene, "a", "b");
    // Claim a has use for the large one alone.
    free(&mut scene, "large", LOCAL, "n1", 9);
    free(&mut scene, "small", LOCAL, "n1", 2);
    let fits = "fits on Node n1; the scheduler will find it";
    assert_eq!(whys(&scene.plan()), fits);
    free(&mut scene, "small", LOCAL, "n2", 2);
    let said = whys(&scene.plan());
    let expected = "needs a free PersistentVolume of its own, which only Nodes with kubernetes.io/hostname in (n2) or kubernetes.io/hostname in (n1) reach";
    assert!(said.contains(expected), "{said}");
    // One that every Node reaches serves one claim too.
    for delta in &mut scene.storage {
        if let Delta::Volume(_, Some(facts)) = delta {
            facts.nodes = None;
        }
    }
    assert_eq!(whys(&scene.plan()), fits);
    scene.storage.push(Delta::Volume("small".to_owned(), None));
    assert_eq!(launched(&scene), 0);
    let said = whys(&scene.plan());
    let expected =
        "a new volume of StorageClass local-path needs a free PersistentVolume of its own";
    assert!(said.contains(expected) && !said.contains("reach"), "{said}");
}
