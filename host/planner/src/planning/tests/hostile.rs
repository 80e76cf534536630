//! What one namespace asks of planning does not stop it for the others.

use std::collections::BTreeSet;

use super::scale_down::idle;
use super::*;
use crate::facts::{
    LabelSelector, MOST_REQUIREMENTS, MOST_TERMS, Namespaces, NodeSelectorTerm, Operator, PodSpec,
    PodTerm, PreferredNeighbours, PreferredTerm, Requirement, SpreadConstraint, Toleration,
    TooMany,
};
use crate::kubernetes::eviction::Blocker;
use crate::planning::pods::topology::{MOST_STEPS, Topology, Turns, steps};
use crate::reasons::kept::Kept;
use crate::world::{Id, World};

/// What becomes of the pods of this namespace.
fn outcomes<'p>(plan: &'p Plan, namespace: &str) -> Vec<&'p PendingOutcome> {
    let rows = plan.report.pending.iter();
    let rows = rows.filter(|row| &*row.example.namespace == namespace);
    rows.map(|row| &row.outcome).collect()
}

#[test]
fn s12_a_pod_with_more_terms_than_kproxide_looks_at_gets_no_machine_and_the_reason() {
    let mut scene = Scene::default();
    at_odds(&mut scene, 1, MOST_TERMS + 1);
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches, []);
    assert_eq!(
        outcomes(&plan, "hostile"),
        [&PendingOutcome::TooMany(TooMany::Terms(51))]
    );

    let mut scene = Scene::default();
    at_odds(&mut scene, 1, MOST_TERMS);
    assert_eq!(launches(&scene), 1);
}

#[test]
fn s12_a_node_with_such_a_pod_stays_and_the_reason_says_so() {
    let mut scene = idle();
    let node = scene.nodes.keys().next().cloned().expect("idle has a Node");
    let (key, mut pod) = {
        let mut hostile = Scene::default();
        at_odds(&mut hostile, 1, MOST_TERMS + 1);
        hostile.pods.pop_first().expect("one pod")
    };
    pod.node = Some(node.clone());
    pod.phase = crate::facts::PodPhase::Running;
    pod.unschedulable_since = None;
    scene.pods.insert(key.clone(), pod);
    let plan = scene.plan();
    let rows = plan.report.nodes.iter();
    let kept = rows.filter(|row| row.node == node).map(|row| &row.outcome);
    let blocked = Kept::Pod(key, Blocker::TooMany(TooMany::Terms(51)));
    assert_eq!(
        kept.collect::<Vec<_>>(),
        [&NodeOutcome::Kept(blocked.clone())]
    );
    assert!(blocked.to_string().contains("51 terms"), "{blocked}");
}

/// Pods and terms of each, as an attacker has tried them.
const WORLDS: [(usize, usize); 4] = [(100, 1_500), (1_500, 20), (300, 200), (60, 500)];

#[test]
fn s12_another_namespace_gets_its_machine_whatever_one_asks() {
    for (pods, terms) in WORLDS {
        let mut scene = Scene::default();
        at_odds(&mut scene, pods, terms);
        scene.pending("web", 1, spec("cpu=1"));
        let workers = scene.workers();
        (workers.limits.max_nodes, workers.limits.cpu_cores) = (10_000, None);
        workers.limits.memory_mib = None;
        let servers = ["alpha", "beta"];
        scene.inventory.hypervisors = servers
            .map(|name| (name.into(), hypervisor(4_000_000, 8_000_000)))
            .into();
        scene.cluster.vmid_range.last = crate::ids::Vmid(999_999);
        let world = scene.world();
        let before = steps();
        let plan = plan(&world, at(NOW), Limits::default(), reasonable);
        let walked = steps() - before;
        check_sound(&plan);
        let web = outcomes(&plan, "default");
        assert!(
            matches!(web[..], [PendingOutcome::Launching(_)]),
            "{pods} × {terms}: {web:?}"
        );
        assert!(walked <= MOST_STEPS, "{pods} × {terms}: {walked} steps");
    }
}

/// One namespace whose pods take more steps than there are, and two others.
fn crowded() -> Scene {
    let mut scene = Scene::default();
    at_odds(&mut scene, 60, 20);
    scene.pending("web", 1, {
        let mut spec = spec("cpu=1");
        spec.pod_anti_affinity = scene
            .pods
            .values()
            .next()
            .expect("pods")
            .spec
            .pod_anti_affinity
            .clone();
        spec
    });
    scene
}

#[test]
fn s12_each_namespace_has_its_share_and_the_rest_of_a_later_tick() {
    let scene = crowded();
    let world = scene.world();
    let web = world
        .shapes()
        .find(|(_, shape)| shape.namespace == "default");
    let (web, _) = web.expect("web waits");
    let all = Turns::of(&world, at(NOW), MOST_STEPS);
    assert!(all.later.is_empty(), "there are steps for all");
    let mut unheard = BTreeSet::new();
    for second in 0..40 {
        let turns = Turns::of(&world, at(NOW + second), 10_000);
        assert!(turns.steps <= 10_000, "{}", turns.steps);
        assert!(!turns.later.contains_key(&web), "its share is enough");
        assert!(!turns.later.is_empty(), "not all have a turn");
        let later: BTreeSet<Id> = turns.later.into_keys().collect();
        unheard = match second {
            0 => later,
            _ => unheard.intersection(&later).copied().collect(),
        };
    }
    assert!(unheard.is_empty(), "{unheard:?} never have a turn");
}

/// A condition of a Node that holds everywhere: a term, a requirement, a value.
fn unlike(key: String) -> NodeSelectorTerm {
    NodeSelectorTerm {
        match_expressions: vec![Requirement {
            key: key.into(),
            operator: Operator::NotIn,
            values: vec!["x".into()],
        }],
        match_fields: vec![],
    }
}

#[test]
fn s12_a_pod_with_more_node_affinity_than_kproxide_looks_at_gets_no_machine_and_the_reason() {
    let terms = |count: usize| (0..count).map(|number| unlike(format!("key-{number}")));
    let required = |count: usize| {
        let mut spec = spec("cpu=1");
        spec.node_affinity = Some(terms(count).collect());
        spec
    };
    let preferred = |count: usize| {
        let mut spec = spec("cpu=1");
        let liked = terms(count).map(|preference| PreferredTerm {
            weight: 1,
            preference,
        });
        spec.preferred_node_affinity = liked.collect();
        spec
    };
    for (index, asks) in [&required as &dyn Fn(usize) -> PodSpec, &preferred]
        .iter()
        .enumerate()
    {
        let mut scene = Scene::default();
        scene.pending("web", 1, asks(MOST_REQUIREMENTS / 3));
        assert_eq!(launches(&scene), 1, "{index}");
        let mut scene = Scene::default();
        scene.pending("web", 1, asks(20_000));
        let plan = scene.plan();
        assert_eq!(plan.launches, [], "{index}");
        let expected = PendingOutcome::TooMany(TooMany::Requirements(60_000));
        assert_eq!(outcomes(&plan, "default"), [&expected], "{index}");
    }
}

#[test]
fn s12_a_large_selector_takes_more_steps_than_a_small_one() {
    let later = |values: usize| {
        let mut scene = Scene::default();
        for number in 0..10 {
            let mut spec = spec(&format!("cpu={}m", 1000 + number));
            let selector = LabelSelector {
                match_expressions: vec![Requirement {
                    key: "app".into(),
                    operator: Operator::NotIn,
                    values: (0..values)
                        .map(|it| format!("{number}-{it}").into())
                        .collect(),
                }],
                ..LabelSelector::default()
            };
            spec.pod_anti_affinity = vec![PodTerm {
                topology_key: "kubernetes.io/hostname".into(),
                selector: Some(selector),
                namespaces: Namespaces::Own,
            }];
            scene.pending(&format!("web-{number}"), 1, spec);
        }
        Turns::of(&scene.world(), at(NOW), 20_000).later.len()
    };
    assert_eq!(later(1), 0);
    assert!((1..10).contains(&later(400)), "{}", later(400));
}

#[test]
fn s12_what_pods_ask_of_nodes_takes_steps_too() {
    let ask = |spec: &mut PodSpec, number: usize| {
        spec.requests.milli_cores += number as i64;
        let terms = (0..150).map(|it| unlike(format!("{number}-{it}")));
        spec.node_affinity = Some(terms.collect());
    };
    let prefer = |spec: &mut PodSpec, number: usize| {
        ask(spec, number);
        let terms = spec.node_affinity.take().into_iter().flatten();
        let liked = terms.map(|preference| PreferredTerm {
            weight: 1,
            preference,
        });
        spec.preferred_node_affinity = liked.collect();
    };
    for ask in [&ask as &dyn Fn(&mut PodSpec, usize), &prefer] {
        let mut scene = Scene::default();
        for number in 0..10 {
            let mut spec = spec("cpu=1");
            ask(&mut spec, number);
            scene.pending(&format!("web-{number}"), 1, spec);
        }
        scene.pending("plain", 1, spec("cpu=1"));
        let world = scene.world();
        let of_one = 450 * Turns::nodes(&world);
        for (most, later) in [(10 * of_one, 0), (10 * of_one - 1, 1), (of_one - 1, 10)] {
            assert_eq!(Turns::of(&world, at(NOW), most).later.len(), later);
        }
    }
}

/// Pods that spread from so many others each, by labels that several have in common. `own`: each has a toleration of its own.
fn spreading(pods: usize, terms: usize, own: bool) -> World {
    let mut scene = Scene::default();
    at_odds(&mut scene, pods, terms);
    for (number, pod) in scene.pods.values_mut().enumerate() {
        let terms = std::mem::take(&mut pod.spec.pod_anti_affinity);
        let spreads = terms.into_iter().map(|term| SpreadConstraint {
            topology_key: term.topology_key,
            selector: term.selector,
            ..SpreadConstraint::default()
        });
        pod.spec.spread = spreads.collect();
        if own {
            pod.spec.tolerations = vec![Toleration {
                key: Some(format!("key-{number}").into()),
                ..Toleration::default()
            }];
        }
    }
    scene.world()
}

#[test]
fn s12_spreads_that_many_pods_have_are_counted_once() {
    let counts = |own| Topology::of(&spreading(40, 20, own), &Turns::default()).counts();
    assert_eq!(counts(false), 40);
    assert_eq!(counts(true), 800);
}

#[test]
fn s12_what_a_spread_counts_takes_steps_at_each_place() {
    let later = |own| {
        let turns = Turns::of(&spreading(40, 20, own), at(NOW), 1_000_000);
        assert!(turns.steps <= 1_000_000, "{}", turns.steps);
        turns.later.len()
    };
    assert_eq!(later(false), 0);
    // 800 counts look for 20 labels and a toleration on 40 machines, and write their domains down.
    assert!((1..40).contains(&later(true)), "{}", later(true));
}

/// A pod that asks for so much of one kind, of each kind that there is.
fn asking_much() -> Vec<PodSpec> {
    let many = 20_000;
    let keys = || (0..many).map(|number| format!("key-{number}"));
    let selector = LabelSelector {
        match_expressions: keys()
            .flat_map(|key| unlike(key).match_expressions)
            .collect(),
        ..LabelSelector::default()
    };
    let term = |selector: &LabelSelector| PodTerm {
        topology_key: "zone".into(),
        selector: Some(selector.clone()),
        namespaces: Namespaces::Own,
    };
    let small = LabelSelector::default();
    let spread = |selector: &LabelSelector| SpreadConstraint {
        selector: Some(selector.clone()),
        ..SpreadConstraint::default()
    };
    let liked = |selector: &LabelSelector| PreferredNeighbours {
        weight: 1,
        term: term(selector),
        is_spread: false,
    };
    let asks: [&dyn Fn(&mut PodSpec); 14] = [
        &|it| it.node_affinity = Some(keys().map(unlike).collect()),
        &|it| {
            let mut wide = unlike("key".to_owned());
            wide.match_expressions[0].values = vec!["x".into(); many];
            it.node_affinity = Some(vec![wide]);
        },
        &|it| {
            let terms = keys().map(unlike).map(|preference| PreferredTerm {
                weight: 1,
                preference,
            });
            it.preferred_node_affinity = terms.collect();
        },
        &|it| it.node_selector = keys().map(|key| (key, String::new())).collect(),
        &|it| it.tolerations = vec![Toleration::default(); many],
        &|it| {
            let ports = (1..many as u16).map(|port| host_port(&format!("{port}/TCP")));
            it.host_ports = ports.collect();
        },
        &|it| it.pod_affinity = vec![term(&small); many],
        &|it| it.pod_affinity = vec![term(&selector)],
        &|it| it.pod_anti_affinity = vec![term(&small); many],
        &|it| it.pod_anti_affinity = vec![term(&selector)],
        &|it| it.spread = vec![spread(&small); many],
        &|it| it.spread = vec![spread(&selector)],
        &|it| it.preferred_neighbours = vec![liked(&small); many],
        &|it| it.preferred_neighbours = vec![liked(&selector)],
    ];
    let specs = asks.iter().map(|asks| {
        let mut spec = spec("cpu=1 memory=1Gi");
        asks(&mut spec);
        spec
    });
    specs.collect()
}

#[test]
fn s12_of_what_nobody_looks_at_only_how_much_it_was_is_kept_and_what_the_pod_requests() {
    for (index, mut spec) in asking_much().into_iter().enumerate() {
        spec.forget_surplus();
        assert!(spec.too_many.is_some(), "{index}");
        assert_eq!(spec.requests, super::spec("cpu=1 memory=1Gi").requests);
        let size = serde_json::to_string(&spec).unwrap().len();
        assert!(size < 40_000, "{index}: {size}");
    }
}

#[test]
fn s12_a_pod_that_has_too_much_keeps_its_node_after_the_surplus_is_forgotten() {
    for (index, mut spec) in asking_much().into_iter().enumerate() {
        spec.forget_surplus();
        let too_many = spec.too_many.expect("much");
        let mut scene = idle();
        let node = scene.nodes.keys().next().cloned().expect("idle has a Node");
        scene.running("much", 1, node.as_str(), spec);
        let plan = scene.plan();
        let mut rows = plan.report.nodes.iter();
        let row = rows.find(|row| row.node == node).expect("a row");
        assert!(
            matches!(&row.outcome, NodeOutcome::Kept(Kept::Pod(_, Blocker::TooMany(what))) if *what == too_many),
            "{index}: {:?}",
            row.outcome
        );
    }
}

#[test]
fn s12_terms_of_running_pods_have_their_turns_too() {
    let mut scene = idle();
    running_at_odds(&mut scene, 40, 10, "kubernetes.io/hostname");
    scene.pending("web", 1, spec("cpu=1"));
    let world = scene.world();
    let all = Turns::of(&world, at(NOW), MOST_STEPS);
    assert!(all.unsettled.is_empty(), "there are steps for all");
    let hostile = world.shapes().filter(|(_, it)| it.namespace == "hostile");
    let hostile: BTreeSet<Id> = hostile.map(|(id, _)| id).collect();
    let mut rules = BTreeSet::new();
    for second in 0..40 {
        let turns = Turns::of(&world, at(NOW + second), 200_000);
        assert!(turns.steps <= 200_000, "{}", turns.steps);
        assert!(turns.later.is_empty(), "web has no terms");
        assert_eq!(turns.unsettled, hostile, "they select each other");
        let topology = Topology::of(&world, &turns);
        let heard = hostile.iter().filter(|it| !turns.is_unheard(**it));
        rules.extend(heard.copied());
        assert!(
            (1..=200_000 / 20).contains(&topology.rules()),
            "{}",
            topology.rules()
        );
    }
    assert_eq!(rules, hostile, "each has its turn");
}

#[test]
fn s12_running_pods_with_many_terms_keep_their_nodes_and_stop_nobody() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    // No Node has the label, so kube-scheduler lets them all run, and anywhere.
    running_at_odds(&mut scene, 800, MOST_TERMS, "nowhere");
    let plan = scene.plan();
    check_sound(&plan);
    let rows = plan.report.nodes.iter();
    let kept = rows.filter(|row| {
        matches!(
            &row.outcome,
            NodeOutcome::Kept(Kept::Pod(_, Blocker::LaterTick))
        )
    });
    assert_eq!(kept.count(), 2, "{:?}", plan.report.nodes);
    scene.running("busy", 1, "a", spec("cpu=2"));
    scene.running("busier", 1, "b", spec("cpu=2"));
    scene.pending("web", 1, spec("cpu=3"));
    let plan = scene.plan();
    check_sound(&plan);
    let web = outcomes(&plan, "default");
    assert!(matches!(web[..], [PendingOutcome::Launching(_)]), "{web:?}");
}
