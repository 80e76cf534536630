//! What a NodePool requires of its machines: a site or a size that does not match is no candidate.

use super::*;
use crate::check::violations;
use crate::facts::{Operator, Requirement};
use crate::keys;
use crate::plan::question::Question;
use crate::reasons::broken_plan::Violation;

fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement {
        key: key.into(),
        operator,
        values: values.iter().map(|value| (*value).into()).collect(),
    }
}

/// Three pods, each of which fills a machine, and sizes of 4 and 8 cores of two families.
fn scene(requirements: Vec<Requirement>) -> Scene {
    let mut scene = Scene::default();
    for (name, cores, family) in [("small", 4, "general"), ("large", 8, "compute")] {
        let mut size = instance_type(name, cores, 16);
        size.family = Some(family.into());
        scene.class.instance_types.push(size);
    }
    scene.class.instance_types.remove(0);
    scene.workers().requirements = requirements;
    scene.pending("web", 3, spec("cpu=3"));
    scene
}

/// Servers and sizes of what is made, each once.
fn made(plan: &Plan) -> (Vec<&str>, Vec<&str>) {
    let once = |mut all: Vec<_>| {
        all.sort_unstable();
        all.dedup();
        all
    };
    let specs = || plan.launches.iter().map(|launch| &launch.spec);
    let servers = specs().map(|spec| &*spec.hypervisor).collect();
    (
        once(servers),
        once(specs().map(|spec| spec.instance_type.as_str()).collect()),
    )
}

#[test]
fn c1_8_each_operator_leaves_only_the_sites_and_sizes_that_match() {
    use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
    let servers = |requirement| made(&planned(vec![requirement])).0.join(" ");
    let planned_sizes = |requirement| made(&planned(vec![requirement])).1.join(" ");
    fn planned(requirements: Vec<Requirement>) -> Plan {
        let plan = scene(requirements).plan();
        check_sound(&plan);
        plan
    }
    for (operator, values, expected) in [
        (In, &["beta"][..], "beta"),
        (NotIn, &["alpha", "beta"], "gamma"),
    ] {
        assert_eq!(servers(requirement(keys::ZONE, operator, values)), expected);
    }
    for (key, operator, values, expected) in [
        (keys::REGION, In, &["pve"][..], true),
        (keys::REGION, NotIn, &["pve"], false),
        (keys::ARCH, In, &["arm64"], false),
        (keys::OS, Exists, &[], true),
        (keys::OS, DoesNotExist, &[], false),
    ] {
        let is_made = !planned(vec![requirement(key, operator, values)])
            .launches
            .is_empty();
        assert_eq!(is_made, expected, "{key} {operator:?}");
    }
    for (key, operator, values, expected) in [
        (keys::INSTANCE_CPU, Gt, "4", "large"),
        (keys::INSTANCE_CPU, Lt, "8", "small"),
        (keys::INSTANCE_CPU, Gt, "8", ""),
        (keys::INSTANCE_MEMORY, Lt, "16384", ""),
        (keys::INSTANCE_FAMILY, In, "compute", "large"),
        (keys::INSTANCE_TYPE, NotIn, "large", "small"),
    ] {
        let found = planned_sizes(requirement(key, operator, &[values]));
        assert_eq!(found, expected, "{key} {operator:?} {values}");
    }
    // All of them must hold.
    let both = vec![
        requirement(keys::ZONE, NotIn, &["alpha"]),
        requirement(keys::INSTANCE_CPU, Gt, &["4"]),
    ];
    assert_eq!(made(&planned(both)), (vec!["beta", "gamma"], vec!["large"]));
}

#[test]
fn a_pod_without_a_machine_is_told_what_its_pool_requires() {
    let scene = scene(vec![requirement(keys::ZONE, Operator::In, &["delta"])]);
    let said = topology::whys(&scene.plan());
    let expected = "its NodePool requires topology.kubernetes.io/zone in (delta)";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn the_zone_that_a_label_policy_gives_counts() {
    let racks = |question: &Question| {
        decorate(question, |hypervisor| {
            let rack = if hypervisor.name.starts_with("alpha") {
                "one"
            } else {
                "two"
            };
            labels(&format!("topology.kubernetes.io/zone={rack}"))
        })
    };
    let scene = scene(vec![requirement(keys::ZONE, Operator::In, &["one"])]);
    assert_eq!(made(&scene.plan_with(racks)).0, ["alpha"]);
}

#[test]
fn c1_8_a_launch_that_does_not_match_is_refused_by_the_last_check() {
    let mut scene = scene(Vec::new());
    let plan = scene.plan();
    let refused = |scene: &Scene| {
        let found = violations(&scene.world(), at(NOW), &Limits::default(), &plan);
        let required = found.iter().filter(|(_, it)| *it == Violation::Requirement);
        required.count()
    };
    assert_eq!((plan.launches.is_empty(), refused(&scene)), (false, 0));
    scene.workers().requirements = vec![requirement(keys::ARCH, Operator::In, &["arm64"])];
    assert_eq!(refused(&scene), plan.launches.len());
}

#[test]
fn a_pod_chooses_its_size_by_labels_before_there_is_any_machine() {
    let mut scene = scene(Vec::new());
    for (pod, key, operator, value) in [
        ("web-00000", keys::INSTANCE_CPU, Operator::Gt, "4"),
        ("web-00001", keys::INSTANCE_MEMORY, Operator::Lt, "16384"),
        ("web-00002", keys::INSTANCE_FAMILY, Operator::In, "general"),
    ] {
        let term = crate::facts::NodeSelectorTerm {
            match_expressions: vec![requirement(key, operator, &[value])],
            match_fields: Vec::new(),
        };
        scene.pod(pod).spec.node_affinity = Some(vec![term]);
    }
    let plan = scene.plan();
    check_sound(&plan);
    let mut sizes: Vec<_> = plan
        .launches
        .iter()
        .map(|it| it.spec.instance_type.as_str())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, ["large", "small"], "none has less than 16 GiB");
    let labels = &plan.launches[0].spec.labels;
    assert_eq!(labels[keys::INSTANCE_MEMORY], "16384");
}
