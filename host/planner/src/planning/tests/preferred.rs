//! Preferred node affinity: it decides between machines of equal cost, and costs none.

use super::*;
use crate::facts::*;

/// A pod that prefers Nodes with this label.
fn preferring(requests: &str, preferences: &[(i32, &str, &str)]) -> PodSpec {
    let term = |(weight, key, value): &(i32, &str, &str)| PreferredTerm {
        weight: *weight,
        preference: NodeSelectorTerm {
            match_expressions: vec![Requirement {
                key: (*key).into(),
                operator: Operator::In,
                values: vec![(*value).into()],
            }],
            match_fields: vec![],
        },
    };
    PodSpec {
        preferred_node_affinity: preferences.iter().map(term).collect(),
        ..spec(requests)
    }
}

const ZONE: &str = "topology.kubernetes.io/zone";
const TYPE: &str = "node.kubernetes.io/instance-type";

fn places(plan: &Plan) -> Vec<(&str, &str)> {
    let launches = plan.launches.iter();
    launches
        .map(|launch| (launch.spec.instance_type.as_str(), &*launch.spec.hypervisor))
        .collect()
}

#[test]
fn a_machine_comes_to_the_hypervisor_that_its_pods_prefer_most() {
    for (preferences, expected) in [
        (vec![], "alpha"),
        (vec![(1, ZONE, "gamma")], "gamma"),
        (vec![(20, ZONE, "beta"), (80, ZONE, "gamma")], "gamma"),
        (vec![(80, ZONE, "beta"), (20, ZONE, "gamma")], "beta"),
        (vec![(100, ZONE, "elsewhere")], "alpha"),
    ] {
        let mut scene = Scene::default();
        scene.pending("web", 2, preferring("cpu=1", &preferences));
        let plan = scene.plan();
        let [(_, place)] = places(&plan)[..] else {
            panic!("{:?}", plan.launches);
        };
        assert_eq!(place, expected, "{preferences:?}");
        let rejected = &plan.report.placements[0].rejected;
        let texts = rejected
            .iter()
            .map(|(it, why)| format!("{}: {why}", it.name));
        let texts: Vec<String> = texts.collect();
        let prefers = "alpha: the pods of this machine prefer another hypervisor".to_owned();
        assert_eq!(texts.contains(&prefers), expected != "alpha", "{texts:?}");
    }
}

#[test]
fn a_preference_costs_no_machine_and_makes_none_dearer() {
    // gamma has no room: the pod runs elsewhere.
    let mut scene = Scene::default();
    *scene.hypervisor("gamma") = hypervisor(32, 2);
    scene.pending("web", 1, preferring("cpu=1", &[(100, ZONE, "gamma")]));
    assert_eq!(places(&scene.plan()), [("medium", "alpha")]);

    // Two pods that prefer different hypervisors share one machine.
    let mut scene = Scene::default();
    scene.pending("a", 1, preferring("cpu=1", &[(100, ZONE, "beta")]));
    scene.pending("b", 1, preferring("cpu=1", &[(50, ZONE, "gamma")]));
    assert_eq!(places(&scene.plan()), [("medium", "beta")]);

    // The preferred type is dearer.
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("large", 8, 16), instance_type("small", 2, 4)];
    scene.pending("web", 1, preferring("cpu=1", &[(100, TYPE, "large")]));
    assert_eq!(places(&scene.plan()), [("small", "alpha")]);

    // No Node has the label: no machine is made, since the pod fits a Node.
    let mut scene = Scene::default();
    scene.node("static", node("cpu=2 memory=8Gi"));
    scene.pending("web", 1, preferring("cpu=1", &[(100, ZONE, "gamma")]));
    assert_eq!(places(&scene.plan()), []);
}

#[test]
fn of_types_of_equal_cost_pods_get_the_one_that_they_prefer() {
    for preferred in ["one", "two"] {
        let mut scene = Scene::default();
        scene.class.instance_types = vec![instance_type("one", 4, 8), instance_type("two", 4, 8)];
        scene.pending("web", 1, preferring("cpu=1", &[(1, TYPE, preferred)]));
        assert_eq!(places(&scene.plan()), [(preferred, "alpha")]);
    }
}

#[test]
fn a_hypervisor_that_pods_prefer_leaves_room_for_later_machines() {
    // Large machines fit on alpha alone, and the small one, which comes first, would like alpha.
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("large", 16, 32), instance_type("small", 2, 4)];
    *scene.hypervisor("alpha") = hypervisor(32, 34);
    for other in ["beta", "gamma"] {
        *scene.hypervisor(other) = hypervisor(32, 8);
    }
    // Two that share no machine: the first must not count on the second's place.
    scene.pending("small", 2, preferring("cpu=1500m", &[(100, ZONE, "alpha")]));
    let mut big = spec("cpu=16 memory=30Gi");
    big.priority = -1;
    scene.pending("big", 1, big);
    let plan = scene.plan();
    let mut places = places(&plan);
    places.sort_unstable();
    let others = [("small", "beta"), ("small", "gamma")];
    assert_eq!(places, [("large", "alpha"), others[0], others[1]]);
}
