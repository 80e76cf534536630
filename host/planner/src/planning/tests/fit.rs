//! What holds of every place and pod.

use proptest::prelude::*;

use super::drawn::{any_scene, racks};
use super::*;
use crate::facts::{NodeFacts, PodSpec};
use crate::planning::machines::shape;
use crate::planning::pods::fit::{NodeProfile, Place};
use crate::planning::{Limits, Planning};
use crate::world::World;

fn specs(scene: &Scene) -> Vec<&PodSpec> {
    let mut specs: Vec<&PodSpec> = scene.pods.values().map(|pod| &pod.spec).collect();
    specs.dedup();
    specs
}

/// One pod of each kind after the other.
fn one_by_one(place: &mut Place<'_>, spec: &PodSpec, most: u32) -> u32 {
    let mut count = 0;
    while count < most && place.misfit(spec).is_none() {
        place.free.put(spec, 1);
        count += 1;
    }
    count
}

/// A place of a machine that could be made, and the machine when it is there: its Node, its DaemonSets' pods.
fn made(world: &World, place: &Place<'_>) -> World {
    let name = &*place.profile.name;
    let sets = world.daemon_sets().values().map(|set| &set.spec);
    let runs = |spec: &&PodSpec| place.profile.misfit(spec).is_none();
    let daemons: Vec<&PodSpec> = sets.filter(runs).collect();
    let asked = shape::sum(daemons.iter().copied());
    let facts = NodeFacts {
        labels: place.profile.labels.clone().into_owned(),
        taints: place.profile.taints.clone().into_owned(),
        allocatable: place.free.resources.plus(&asked),
        ..node("")
    };
    let mut scene = Scene::default();
    scene.node(name, facts);
    for (index, spec) in daemons.into_iter().enumerate() {
        scene.running(&format!("daemon{index}"), 1, name, spec.clone());
    }
    scene.world()
}

proptest! {
    #[test]
    fn as_many_fit_as_one_by_one(scene in any_scene(), most in 0..12u32) {
        let world = scene.world();
        for node in world.nodes() {
            for spec in specs(&scene) {
                let mut place = Place::of(node);
                let many = place.how_many(spec, most);
                prop_assert_eq!(many, one_by_one(&mut Place::of(node), spec, most));
                prop_assert_eq!(many == 0, most == 0 || place.misfit(spec).is_some());
                // The next kind of pods finds what these have left.
                let mut slow = place.clone();
                place.free.put(spec, many);
                one_by_one(&mut slow, spec, most);
                prop_assert_eq!(&place.free, &slow.free);
                if many < most {
                    prop_assert!(place.misfit(spec).is_some(), "one more fits");
                }
            }
        }
    }

    #[test]
    fn what_is_taken_back_was_never_put(scene in any_scene(), reverse in any::<bool>()) {
        let world = scene.world();
        for node in world.nodes() {
            let before = Place::of(node);
            let mut place = before.clone();
            let mut put = Vec::new();
            for spec in specs(&scene) {
                let count = place.how_many(spec, 2);
                place.free.put(spec, count);
                put.push((spec, count));
            }
            if reverse {
                put.reverse();
            }
            for (spec, count) in put {
                place.free.take_back(spec, count);
            }
            prop_assert_eq!(&place.free, &before.free);
            for spec in specs(&scene) {
                prop_assert_eq!(place.misfit(spec), before.misfit(spec));
            }
        }
    }

    #[test]
    fn a_machine_that_could_be_made_takes_what_its_node_will(scene in any_scene()) {
        let world = scene.world();
        let mut planning = Planning::new(&world, at(NOW), Limits::default());
        while let Some(question) = planning.question() {
            planning.answer(racks(&question));
        }
        for offer in planning.pools.iter().flat_map(|pool| &pool.offers) {
            for (_, profile) in offer.looks() {
                let place = Place { profile: profile.clone(), free: offer.free.clone(), node: None };
                let made = made(&world, &place);
                let node = made.nodes().next().unwrap();
                let as_node = Place::of(node);
                let as_made = NodeProfile { room: None, ..place.profile.clone() };
                prop_assert_eq!(&as_node.profile, &as_made);
                for spec in specs(&scene) {
                    prop_assert_eq!(place.misfit(spec), as_node.misfit(spec));
                    prop_assert_eq!(place.how_many(spec, 9), as_node.how_many(spec, 9));
                }
            }
        }
    }
}

/// No machine to come has the name of a Node that is there.
#[test]
fn a_pod_that_names_its_node_gets_no_machine() {
    use crate::facts::{NodeSelectorTerm, Operator, Requirement};
    let named = |operator, names: &[&str]| {
        let mut named = spec("cpu=3");
        named.node_affinity = Some(vec![NodeSelectorTerm {
            match_expressions: vec![],
            match_fields: vec![Requirement {
                key: "metadata.name".into(),
                operator,
                values: names.iter().map(|name| (*name).into()).collect(),
            }],
        }]);
        named
    };
    let launched = |spec: PodSpec| {
        let mut scene = Scene::default();
        for name in ["a", "b"] {
            scene.node(name, node("cpu=4 memory=8Gi"));
        }
        scene.running("full", 1, "a", super::spec("cpu=3"));
        scene.pending("named", 2, spec);
        launches(&scene)
    };
    assert_eq!(launched(named(Operator::In, &["a"])), 0);
    assert_eq!(launched(named(Operator::In, &["a", "b"])), 0);
    assert_eq!(launched(named(Operator::NotIn, &["a", "b"])), 2);
    assert_eq!(launched(named(Operator::NotIn, &["a"])), 1, "one fits on b");
}

#[test]
fn huge_pages_are_given_once() {
    let mut scene = Scene::default();
    scene.node("plain", node("cpu=8 memory=16Gi"));
    scene.node("huge", node("cpu=8 memory=16Gi hugepages-2Mi=64Mi"));
    scene.pending("db", 3, spec("cpu=1 hugepages-2Mi=64Mi"));
    let reason = "asks for 67108864 of hugepages-2Mi; the largest machine offers 0";
    let plan = scene.plan();
    assert_eq!(plan.launches, []);
    let told = plan.report.pending.iter();
    let told: Vec<_> = told
        .map(|row| (row.count, row.outcome.to_string()))
        .collect();
    assert_eq!(told[0].0, 1, "on Node huge");
    assert!(told[1].0 == 2 && told[1].1.ends_with(reason), "{told:?}");
    scene.class.instance_types[0].extended_resources = devices("hugepages-2Mi=128Mi");
    assert_eq!(launches(&scene), 1, "two on one machine");
}

/// Each filter by itself keeps a pod away, in its own words.
#[test]
fn each_filter_has_its_reason() {
    let mut scene = Scene::default();
    scene.node("n", node("cpu=2 memory=4Gi"));
    scene.running("db", 1, "n", spec("cpu=500m"));
    let mut picky = spec("cpu=1");
    picky.node_selector = labels("disk=ssd");
    let plain = spec("cpu=1");
    let check = |scene: &Scene, spec: &PodSpec, expected: Option<&str>| {
        let world = scene.world();
        let place = Place::of(world.nodes().next().unwrap());
        let text = place.misfit(spec).map(|misfit| misfit.to_string());
        assert_eq!(text.as_deref(), expected);
    };
    check(&scene, &plain, None);
    check(&scene, &picky, Some("nodeSelector disk=ssd"));
    check(&scene, &spec("cpu=1600m"), Some("it offers too little cpu"));
    let mut edge = plain.clone();
    edge.host_ports = vec![host_port("80/TCP")];
    check(&scene, &edge, None);
    let change = |change: fn(&mut Scene)| {
        let mut scene = scene.clone();
        change(&mut scene);
        scene
    };
    let cordoned = change(|scene| {
        scene
            .nodes
            .values_mut()
            .for_each(|node| node.unschedulable = true)
    });
    check(&cordoned, &plain, Some("it is cordoned"));
    let tainted = change(|scene| {
        let taints = vec![taint("dedicated", crate::facts::TaintEffect::NoSchedule)];
        scene
            .nodes
            .values_mut()
            .for_each(|node| node.taints = taints.clone());
    });
    check(&tainted, &plain, Some("taint dedicated:NoSchedule"));
    let taken = change(|scene| {
        scene.pod("db-00000").spec.host_ports = vec![host_port("80/TCP 10.0.0.1")];
    });
    check(&taken, &plain, None);
    check(&taken, &edge, Some("host port 80/TCP is taken"));
    edge.host_ports[0].address = "10.0.0.1".into();
    check(&taken, &edge, Some("host port 80/TCP of 10.0.0.1 is taken"));
}
