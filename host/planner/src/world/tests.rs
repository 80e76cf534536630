use proptest::prelude::*;

use super::*;
use crate::facts::{
    CsiDriverFacts, LabelSelector, NO_PROVISIONER, Namespaces, NodeFacts, Operator, PodClaim,
    PodFacts, PodPhase, PodTerm, READ_WRITE_ONCE_POD, Requirement, StorageCapacityFacts,
    StorageClassFacts, VolumeClaimFacts, VolumeFacts, VolumeTraits,
};
use crate::fixtures::{NOW, Scene, at, labels, node, owner, pending_pod, running_pod, spec};
use crate::kubernetes::resources::Resources;

/// Everything that a World says, in an order of names: equal for worlds that no reader can tell apart.
fn canonical(world: &World) -> String {
    let nodes: Vec<_> = world
        .nodes()
        .map(|node| {
            let mut pods: Vec<_> = node.pods().map(|pod| pod.key()).collect();
            pods.sort();
            (
                node.name().clone(),
                node.requested(),
                node.movable(),
                node.movable_pods(),
                pods,
            )
        })
        .collect();
    let pending: Vec<_> = world
        .pending()
        .into_iter()
        .map(|(shape, pods)| (shape, pods.iter().map(|pod| pod.key()).collect::<Vec<_>>()))
        .collect();
    let uuids: Vec<_> = world
        .nodes()
        .filter_map(|node| node.facts.system_uuid.clone())
        .map(|uuid| {
            (
                world.node_by_uuid(&uuid).map(|node| node.name().clone()),
                uuid,
            )
        })
        .collect();
    let volumes: Vec<_> = world
        .pods()
        .map(|pod| (pod.key(), &pod.spec().volumes, &pod.spec().volume_wait))
        .collect();
    let snapshot = serde_json::to_string(world).unwrap();
    format!(
        "{snapshot} {volumes:?} {nodes:?} {pending:?} {uuids:?} {} {}",
        world.pod_count(),
        world.shape_count()
    )
}

/// The sums of a Node as they must be, from its pods.
fn check_sums(world: &World) {
    for node in world.nodes() {
        let sum = |wanted: fn(&PodView<'_>) -> bool| {
            let mut sum = Resources::default();
            for pod in node.pods().filter(wanted) {
                sum.add(&pod.spec().requests);
            }
            sum
        };
        assert_eq!(node.requested(), sum(|pod| pod.is_alive()));
        assert_eq!(node.movable(), sum(|pod| pod.is_movable()));
    }
}

fn any_pod() -> impl Strategy<Value = PodFacts> {
    (
        0..3usize,
        0..4usize,
        0..4usize,
        any::<[bool; 3]>(),
        0..3usize,
    )
        .prop_map(|(size, place, label, [deleting, ended, refused], kind)| {
            let spec = spec(["cpu=1", "cpu=2 memory=1Gi", "a/gpu=1"][size]);
            let mut pod = match place {
                0 => pending_pod(spec),
                place => running_pod(["n1", "n2", "n3"][place - 1], spec),
            };
            pod.labels = labels(["app=a", "app=b", "app=a extra=1", ""][label]);
            pod.deleting = deleting;
            if ended {
                pod.phase = PodPhase::Succeeded;
            }
            if !refused {
                pod.unschedulable_since = None;
            }
            pod.claims = ["c0", "c1"][..size]
                .iter()
                .map(|name| PodClaim {
                    name: (*name).into(),
                    is_ephemeral: false,
                })
                .collect();
            pod.owner = [Some(owner("ReplicaSet")), Some(owner("DaemonSet")), None][kind].clone();
            pod
        })
}

fn any_node() -> impl Strategy<Value = NodeFacts> {
    (0..3usize, any::<bool>()).prop_map(|(uuid, ready)| NodeFacts {
        system_uuid: [None, Some("u1".into()), Some("u2".into())][uuid].clone(),
        ready,
        ..node("cpu=4 memory=8Gi")
    })
}

fn any_budget() -> impl Strategy<Value = DisruptionBudgetFacts> {
    prop::option::of(prop_oneof![
        Just("app=a"),
        Just("app=b"),
        Just("extra=1"),
        Just("")
    ])
    .prop_map(|selector| DisruptionBudgetFacts {
        selector: selector.map(|text| LabelSelector {
            match_labels: labels(text),
            match_expressions: vec![],
        }),
        disruptions_allowed: 1,
        ..DisruptionBudgetFacts::default()
    })
}

fn boxed<T>(value: Option<T>) -> Option<Box<T>> {
    value.map(Box::new)
}

fn any_delta() -> impl Strategy<Value = Delta> {
    let pod = (0..5u8, prop::option::weighted(0.8, any_pod())).prop_map(|(name, facts)| {
        Delta::Pod(ObjectKey::new("default", &format!("p{name}")), boxed(facts))
    });
    let node = (1..4u8, prop::option::weighted(0.8, any_node()))
        .prop_map(|(name, facts)| Delta::Node(format!("n{name}").into(), boxed(facts)));
    let budget = (0..2u8, prop::option::weighted(0.8, any_budget())).prop_map(|(name, facts)| {
        Delta::DisruptionBudget(ObjectKey::new("default", &format!("b{name}")), boxed(facts))
    });
    prop_oneof![8 => pod, 4 => node, 2 => budget, 8 => any_storage()]
}

/// Few objects, so that they meet: the pods' claims, a volume for each and one that is free, and what else counts.
fn any_storage() -> impl Strategy<Value = Delta> {
    let claim = (any::<[bool; 6]>(), 0..4u8).prop_map(|(flags, class)| {
        let [is_lost, deleting, named, is_bound, chosen, for_one_pod] = flags;
        let class = ["", "made", "by-hand", "gone"][usize::from(class)];
        let modes = for_one_pod.then(|| READ_WRITE_ONCE_POD.into());
        VolumeClaimFacts {
            is_lost: is_lost && deleting,
            deleting: deleting && named,
            volume: named.then(|| "v0".into()),
            is_bound: is_bound && named,
            class: Some(class.into()),
            selected_node: chosen.then(|| "n1".into()),
            wants: VolumeTraits {
                bytes: 5,
                access_modes: modes.into_iter().collect(),
                ..VolumeTraits::default()
            },
            ..VolumeClaimFacts::default()
        }
    });
    let claim = (0..2u8, prop::option::weighted(0.8, claim)).prop_map(|(name, facts)| {
        Delta::VolumeClaim(ObjectKey::new("default", &format!("c{name}")), boxed(facts))
    });
    let volume = any::<[bool; 4]>().prop_map(|[is_available, is_owned, is_local, is_zonal]| {
        let modes = BTreeSet::from([READ_WRITE_ONCE_POD.into()]);
        let zone = is_zonal.then(|| (crate::keys::ZONE.to_owned(), "a__b".to_owned()));
        VolumeFacts {
            source: "csi".into(),
            driver: Some("driver".into()),
            class: "by-hand".into(),
            offers: VolumeTraits {
                bytes: 5,
                access_modes: modes,
                ..VolumeTraits::default()
            },
            labels: zone.into_iter().collect(),
            nodes: is_local.then(Default::default),
            claim: is_owned.then(|| ObjectKey::new("default", "c0")),
            is_available,
            ..VolumeFacts::default()
        }
    });
    let volume = (0..2u8, prop::option::weighted(0.8, volume))
        .prop_map(|(name, facts)| Delta::Volume(format!("v{name}"), boxed(facts)));
    let class = any::<bool>().prop_map(|waits_for_pod| {
        let made = StorageClassFacts {
            provisioner: "driver".into(),
            waits_for_pod,
            topologies: None,
        };
        Delta::StorageClass("made".to_owned(), boxed(Some(made)))
    });
    let by_hand = any::<bool>().prop_map(|is_there| {
        let facts = StorageClassFacts {
            provisioner: NO_PROVISIONER.into(),
            waits_for_pod: true,
            topologies: None,
        };
        Delta::StorageClass("by-hand".to_owned(), boxed(is_there.then_some(facts)))
    });
    let driver = any::<bool>().prop_map(|storage_capacity| {
        let facts = CsiDriverFacts { storage_capacity };
        Delta::CsiDriver("driver".to_owned(), boxed(Some(facts)))
    });
    let capacity = prop::option::weighted(0.8, 0..10u64).prop_map(|bytes| {
        let facts = bytes.map(|largest_bytes| StorageCapacityFacts {
            class: "made".into(),
            nodes: Some(LabelSelector::default()),
            largest_bytes,
        });
        Delta::StorageCapacity(ObjectKey::new("default", "s"), boxed(facts))
    });
    prop_oneof![3 => claim, 3 => volume, 1 => class, 1 => by_hand, 1 => driver, 1 => capacity]
}

/// Which object a delta is about.
fn object(delta: &Delta) -> String {
    let other = |kind: &str, name: &dyn std::fmt::Display| format!("{kind} {name}");
    match delta {
        Delta::Pod(key, _) => other("pod", key),
        Delta::Node(name, _) => other("node", name),
        Delta::DisruptionBudget(key, _) => other("budget", key),
        Delta::VolumeClaim(key, _) => other("volume claim", key),
        Delta::Volume(name, _) => other("volume", name),
        Delta::StorageClass(name, _) => other("class", name),
        Delta::CsiNode(name, _) => other("CSI node", name),
        Delta::CsiDriver(name, _) => other("driver", name),
        Delta::StorageCapacity(key, _) => other("capacity", key),
        Delta::DaemonSet(..)
        | Delta::Namespace(..)
        | Delta::VolumeAttachment(..)
        | Delta::Cluster(..)
        | Delta::Class(..)
        | Delta::Pool(..)
        | Delta::Claim(..)
        | Delta::Ledger(_)
        | Delta::Inventory(..)
        | Delta::Orphans(..)
        | Delta::Policy(..)
        | Delta::Host(_) => "others".to_owned(),
    }
}

proptest! {
    #[test]
    fn f62_the_order_of_events_does_not_matter(
        deltas in prop::collection::vec(any_delta(), 0..40),
        keys in prop::collection::vec(any::<u32>(), 40),
    ) {
        let mut in_order = World::default();
        for delta in &deltas {
            in_order.apply(delta.clone());
        }
        check_sums(&in_order);

        // Deltas of one object stay in their order, those of different objects are shuffled.
        let mut shuffled: Vec<(u32, usize)> = Vec::new();
        for (index, delta) in deltas.iter().enumerate() {
            let before = deltas[..index].iter().zip(&shuffled);
            let floor = before
                .filter(|(other, _)| object(other) == object(delta))
                .map(|(_, (key, _))| *key)
                .max()
                .unwrap_or(0);
            shuffled.push((keys[index].max(floor), index));
        }
        shuffled.sort();
        let mut another = World::default();
        for (_, index) in shuffled {
            another.apply(deltas[index].clone());
        }
        prop_assert_eq!(canonical(&in_order), canonical(&another));

        let mut last: BTreeMap<String, Delta> = BTreeMap::new();
        for delta in &deltas {
            last.insert(object(delta), delta.clone());
        }
        let mut from_final_state = World::default();
        for delta in last.into_values() {
            from_final_state.apply(delta);
        }
        prop_assert_eq!(canonical(&in_order), canonical(&from_final_state));

        let snapshot = serde_json::to_string(&in_order).unwrap();
        let replayed: World = serde_json::from_str(&snapshot).unwrap();
        prop_assert_eq!(canonical(&in_order), canonical(&replayed));
    }
}

#[test]
fn labels_that_no_selector_reads_do_not_split_shapes() {
    let mut scene = Scene::default();
    scene.pending("web", 10, spec("cpu=1"));
    for (index, pod) in scene.pods.values_mut().enumerate() {
        pod.labels = labels(&format!("app=web index={index}"));
    }
    let mut world = scene.world();
    assert_eq!(world.pending().len(), 1);

    let budget = DisruptionBudgetFacts {
        selector: Some(LabelSelector {
            match_labels: Default::default(),
            match_expressions: vec![Requirement {
                key: "index".into(),
                operator: Operator::Exists,
                values: vec![],
            }],
        }),
        disruptions_allowed: 0,
        ..DisruptionBudgetFacts::default()
    };
    let key = ObjectKey::new("default", "by-index");
    assert_eq!(world.shape_count(), 1);
    world.apply(Delta::DisruptionBudget(key.clone(), Some(Box::new(budget))));
    assert_eq!((world.pending().len(), world.shape_count()), (10, 10));
    world.apply(Delta::DisruptionBudget(key, None));
    assert_eq!((world.pending().len(), world.shape_count()), (1, 1));
    for key in scene.pods.into_keys() {
        world.apply(Delta::Pod(key, None));
    }
    assert_eq!(world.shape_count(), 0);
}

#[test]
fn only_pods_that_a_machine_could_help_are_pending() {
    let mut scene = Scene::default();
    scene.pending("pod", 7, spec("cpu=1"));
    scene.pod("pod-00000").unschedulable_since = None;
    scene.pod("pod-00001").owner = Some(owner("DaemonSet"));
    scene.pod("pod-00002").deleting = true;
    scene.pod("pod-00003").mirror = true;
    scene.pod("pod-00004").spec.scheduler_name = Some("volcano".into());
    scene.pod("pod-00005").spec.scheduler_name = Some("default-scheduler".into());
    let world = scene.world();
    let names: Vec<String> = world
        .pending()
        .iter()
        .flat_map(|(_, pods)| {
            pods.iter()
                .map(|pod| pod.key().name.to_string())
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(names, ["pod-00006", "pod-00005"], "by shape, then by name");
}

#[test]
fn a_node_is_found_by_its_uuid_in_either_byte_order() {
    let mut scene = Scene::default();
    scene.node("n", node("cpu=1")).system_uuid =
        Some("44332211-6655-8877-99aa-bbccddeeff00".into());
    let world = scene.world();
    for uuid in [
        "44332211-6655-8877-99aa-bbccddeeff00",
        "11223344-5566-7788-99aa-bbccddeeff00",
    ] {
        let found = world
            .node_by_uuid(&uuid.into())
            .map(|node| node.name().to_string());
        assert_eq!(found.as_deref(), Some("n"), "{uuid}");
    }
    assert!(world.node_by_uuid(&"nonsense".into()).is_none());
}

#[test]
fn f104_f105_a_uuid_that_two_nodes_claim_identifies_none() {
    let mut scene = Scene::default();
    scene.node("n", node("cpu=1")).system_uuid = Some("u".into());
    scene.node("m", node("cpu=1")).system_uuid = Some("u".into());
    let mut world = scene.world();
    assert!(world.node_by_uuid(&"u".into()).is_none());
    world.apply(Delta::Node("m".into(), None));
    assert!(world.node_by_uuid(&"u".into()).is_some());
}

/// The claim `m` has not joined, and two Nodes say that they are its machine.
#[test]
fn f104_a_node_that_is_older_or_another_machines_or_has_another_name_is_not_taken_for_one_that_joins()
 {
    let mut scene = Scene::default();
    scene.machine("of-another", "alpha");
    scene.coming_machine("m", "alpha", Phase::Launched);
    let claim = scene.claim("m");
    (claim.created, claim.status.smbios_uuid) = (at(100), Some("u".into()));
    let vm_name = claim.spec.vm_name.to_string();
    for name in ["older", "b", "c", &vm_name] {
        let facts = scene.node(name, node("cpu=1"));
        facts.uid = format!("uid-{name}").into();
        facts.system_uuid = Some("u".into());
        facts.created = at(if name == "older" { 99 } else { 100 });
    }
    let copied = scene.nodes.get_mut("of-another").unwrap();
    (copied.created, copied.system_uuid) = (at(200), Some("u".into()));
    let mut world = scene.world();
    let found = |world: &World| -> Vec<String> {
        let nodes = world.nodes_of(&world.claims()["m"]).into_iter();
        nodes.map(|node| node.name().to_string()).collect()
    };
    assert_eq!(found(&world), [&*vm_name]);
    world.apply(Delta::Node(vm_name.as_str().into(), None));
    assert_eq!(found(&world), ["b", "c"]);
    assert!(world.node_of(&world.claims()["m"]).is_none());
    world.apply(Delta::Node("c".into(), None));
    assert_eq!(found(&world), ["b"]);
    world.apply(Delta::Node("b".into(), None));
    assert_eq!(found(&world), [""; 0]);

    // Once it has joined, nothing that others show changes what its Node is.
    let mut claim = world.claims()["m"].clone();
    let older = &world.node(&"older".into()).unwrap().facts.uid;
    claim.status.node_name = Some("older".into());
    claim.status.node_uid = Some(older.clone());
    world.apply(Delta::Claim("m".into(), Some(Box::new(claim))));
    assert_eq!(found(&world), ["older"]);
}

#[test]
fn a_settled_plan_lasts_until_something_changes() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.claim("m").do_not_disrupt = true;
    let mut world = scene.tell_removable().world();
    let plan = scene.plan();
    assert_eq!(plan.settled_at, Some(at(NOW)));
    world.remember(&plan);
    assert!(world.settled_plan(at(NOW + 5)).is_some());
    assert!(world.settled_plan(at(NOW - 5)).is_none());

    let mut again = scene.inventory.clone();
    again.taken_at = Some(at(NOW + 5));
    world.apply(Delta::Inventory(
        "pve".into(),
        Some(Box::new(again.clone())),
    ));
    assert!(
        world.settled_plan(at(NOW + 5)).is_some(),
        "the same inventory is no news"
    );
    again.quorate = false;
    world.apply(Delta::Inventory("pve".into(), Some(Box::new(again))));
    assert!(world.settled_plan(at(NOW + 5)).is_none());
}

#[test]
fn pods_of_one_template_share_it_although_each_has_a_claim() {
    let mut world = World::default();
    for name in ["a", "b"] {
        let mut facts = pending_pod(spec("cpu=1"));
        facts.claims = vec![PodClaim {
            name: name.into(),
            is_ephemeral: false,
        }];
        let key = PodKey::new("default", name);
        world.apply(Delta::Pod(key, boxed(Some(facts))));
    }
    let specs = world.pending().into_iter().map(|(shape, _)| shape.spec);
    let specs: Vec<_> = specs.collect();
    let [a, b] = &specs[..] else {
        panic!("{specs:?}");
    };
    assert!(Arc::ptr_eq(&a.template, &b.template));
    // Written as data, a spec has the fields of its template.
    let data = serde_json::to_value(&**a).unwrap();
    assert_eq!(data["requests"]["milli_cores"], 1000);
    assert_eq!(data.get("template"), None);
}

/// Any pod may bring labels that nobody has read before: 300 of them at once must not have all pods looked at 300 times.
#[test]
fn s12_pods_are_grouped_once_for_many_changes_and_what_nobody_reads_is_forgotten() {
    let mut scene = Scene::default();
    scene.pending("web", 10, spec("cpu=1"));
    for (index, pod) in scene.pods.values_mut().enumerate() {
        pod.labels = labels(&format!("app=web index={index}"));
    }
    let reading = |key: &str| {
        let mut facts = pending_pod(spec("cpu=1"));
        facts.spec.pod_anti_affinity = vec![PodTerm {
            topology_key: "zone".into(),
            selector: Some(LabelSelector {
                match_labels: labels(&format!("{key}=x")),
                match_expressions: vec![],
            }),
            namespaces: Namespaces::Own,
        }];
        boxed(Some(facts))
    };
    let key = PodKey::new("default", "reader");
    let mut world = scene.world();
    world.receive(Delta::Pod(key.clone(), reading("index")));
    assert_eq!(world.shape_count(), 2, "not yet");
    world.regroup();
    assert_eq!(world.shape_count(), 11);
    for index in 0..300 {
        world.receive(Delta::Pod(key.clone(), reading(&format!("key-{index}"))));
    }
    assert_eq!(world.shape_count(), 11, "not yet");
    world.regroup();
    assert_eq!(world.shape_count(), 2, "nobody reads the index any more");
    world.apply(Delta::Pod(key.clone(), reading("index")));
    assert_eq!(world.shape_count(), 11);
    world.apply(Delta::Pod(key, None));
    assert_eq!(world.shape_count(), 1);
}
