//! What pods prefer: it decides between machines of equal cost, and costs none.

use super::*;
use crate::facts::*;
use crate::ids::HypervisorId;

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

/// A pod of an app that likes to stand with pods of another, or away from them.
fn neighbours(requests: &str, key: &str, preferences: &[(i32, &str)]) -> PodSpec {
    let one = |(weight, app): &(i32, &str)| PreferredNeighbours {
        weight: *weight,
        term: PodTerm {
            topology_key: key.into(),
            selector: Some(LabelSelector {
                match_labels: labels(&format!("app={app}")),
                match_expressions: vec![],
            }),
            namespaces: Namespaces::Own,
        },
        is_spread: false,
    };
    PodSpec {
        preferred_neighbours: preferences.iter().map(one).collect(),
        ..spec(requests)
    }
}

/// Pods whose names begin so have the label `app`.
fn call(scene: &mut Scene, app: &str) {
    let prefix = format!("{app}-");
    for (_, pod) in scene
        .pods
        .iter_mut()
        .filter(|(key, _)| key.name.starts_with(&prefix))
    {
        pod.labels = labels(&format!("app={app}"));
    }
}

/// Full Nodes in alpha and beta: two caches and a database run in alpha, one cache runs in beta.
fn with_neighbours() -> Scene {
    let mut scene = Scene::default();
    scene.workers().limits.max_nodes = 10;
    for (name, zone, caches) in [("a", "alpha", 2), ("b", "beta", 1)] {
        let node = scene.node(name, node("cpu=3 memory=8Gi"));
        node.labels = labels(&format!("{ZONE}={zone}"));
        scene.running(&format!("cache-{name}"), caches, name, spec("cpu=1"));
    }
    scene.running("db", 1, "a", spec("cpu=1"));
    scene.running("other", 1, "b", spec("cpu=2"));
    for app in ["cache", "db", "other"] {
        call(&mut scene, app);
    }
    scene
}

#[test]
fn a_machine_comes_where_its_pods_have_the_neighbours_that_they_prefer() {
    for (preferences, expected) in [
        (vec![(1, "nobody")], "alpha"),
        (vec![(10, "cache")], "alpha"),
        (vec![(-1, "db")], "beta"),
        // Three caches cost 3, and the database gives 2: gamma has neither.
        (vec![(-1, "cache")], "gamma"),
        (vec![(-1, "cache"), (2, "db")], "alpha"),
        (vec![(-100, "db"), (1, "cache")], "beta"),
    ] {
        let mut scene = with_neighbours();
        scene.pending("web", 1, neighbours("cpu=1", ZONE, &preferences));
        let plan = scene.plan();
        let [(_, place)] = places(&plan)[..] else {
            panic!("{:?}", plan.launches);
        };
        assert_eq!(place, expected, "{preferences:?}");
    }
}

#[test]
fn machines_of_one_plan_spread_as_their_pods_prefer() {
    let mut scene = Scene::default();
    scene.workers().limits.max_nodes = 10;
    scene.pending("web", 4, neighbours("cpu=3", ZONE, &[(-100, "web")]));
    call(&mut scene, "web");
    let plan = scene.plan();
    let mut zones: Vec<&str> = places(&plan).into_iter().map(|(_, place)| place).collect();
    assert_eq!(
        zones[..3],
        ["alpha", "beta", "gamma"],
        "one after the other"
    );
    zones.sort_unstable();
    assert_eq!(zones, ["alpha", "alpha", "beta", "gamma"]);

    // On its way it counts as well.
    let mut scene = Scene::default();
    scene.coming_machine("first", "alpha", crate::claim::Phase::Launching);
    scene.pending("web", 2, neighbours("cpu=3", ZONE, &[(-100, "web")]));
    call(&mut scene, "web");
    assert_eq!(places(&scene.plan()), [("medium", "beta")]);
}

#[test]
fn preferred_neighbours_cost_no_machine() {
    // Only alpha has room.
    let mut scene = with_neighbours();
    for name in ["beta", "gamma"] {
        *scene.hypervisor(name) = hypervisor(32, 2);
    }
    scene.pending("web", 1, neighbours("cpu=1", ZONE, &[(-100, "cache")]));
    assert_eq!(places(&scene.plan()), [("medium", "alpha")]);

    // Three that stand away from each other share one machine, and a Node with room takes what would rather stand elsewhere.
    let mut scene = Scene::default();
    scene.pending("web", 3, neighbours("cpu=1", ZONE, &[(-100, "web")]));
    call(&mut scene, "web");
    assert_eq!(places(&scene.plan()).len(), 1);
    let node = scene.node("static", node("cpu=8 memory=16Gi"));
    node.labels = labels(&format!("{ZONE}=alpha"));
    assert_eq!(places(&scene.plan()), []);
}

#[test]
fn a_preference_opens_no_zone_to_pods_that_must_spread() {
    // In beta the machine would be the first of its zone: one of `web` would go there, and `api` would need another machine.
    let mut scene = Scene::default();
    for name in ["beta", "gamma"] {
        *scene.hypervisor(name) = hypervisor(32, 64);
    }
    let mut web = spec("cpu=1");
    web.spread = vec![SpreadConstraint {
        topology_key: ZONE.into(),
        selector: Some(LabelSelector {
            match_labels: labels("app=web"),
            match_expressions: vec![],
        }),
        ..SpreadConstraint::default()
    }];
    scene.pending("web", 2, web);
    scene.pending("api", 1, neighbours("cpu=4", ZONE, &[(-100, "web")]));
    call(&mut scene, "web");
    let plan = scene.plan();
    assert_eq!(places(&plan), [("medium", "alpha"); 2]);
    assert_eq!(acted(&scene, &plan).plan().launches, []);
}

#[test]
fn a_spread_likes_a_server_without_the_label_least_and_does_not_count_pods_that_end() {
    let place = |is_spread: bool, is_deleting: bool| {
        let mut scene = with_neighbours();
        let mut pod = neighbours("cpu=1", "rack", &[(-100, "cache")]);
        pod.preferred_neighbours[0].is_spread = is_spread;
        scene.pending("web", 1, pod);
        for (name, rack) in [("a", "r1"), ("b", "r2")] {
            let node = scene.nodes.get_mut(name).expect("a Node");
            node.labels.extend(labels(&format!("rack={rack}")));
        }
        for (key, pod) in &mut scene.pods {
            pod.deleting = is_deleting && key.name.starts_with("cache-a");
        }
        let racks = |hypervisor: &HypervisorId| match &*hypervisor.name {
            "alpha" => labels("rack=r1"),
            "beta" => labels("rack=r2"),
            _ => Labels::new(),
        };
        let plan = scene.plan_with(|question| decorate(question, racks));
        places(&plan)[0].1.to_owned()
    };
    assert_eq!(place(false, false), "gamma", "no cache stands there");
    assert_eq!(place(false, true), "gamma");
    assert_eq!(
        place(true, false),
        "beta",
        "alpha has two caches, and gamma counts as much"
    );
    assert_eq!(place(true, true), "alpha", "its two caches end");
}
