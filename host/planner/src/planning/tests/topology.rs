//! Affinity and anti-affinity between pods, and topology spread: which Node takes a pod, how many machines are made for
//! the rest, and on which hypervisors.

mod zones;

use super::*;
use crate::facts::*;
use crate::ids::{ObjectKey, PodKey};
use crate::plan::report::{PendingOutcome, PendingShape};

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn selector(text: &str) -> LabelSelector {
    LabelSelector {
        match_labels: labels(text),
        match_expressions: vec![],
    }
}

fn term(key: &str, selects: &str) -> PodTerm {
    PodTerm {
        topology_key: key.into(),
        selector: Some(selector(selects)),
        namespaces: Namespaces::Own,
    }
}

fn spread(key: &str, selects: &str) -> SpreadConstraint {
    SpreadConstraint {
        topology_key: key.into(),
        selector: Some(selector(selects)),
        ..SpreadConstraint::default()
    }
}

fn away_from(key: &str, selects: &str) -> PodSpec {
    let mut spec = spec("cpu=1");
    spec.pod_anti_affinity = vec![term(key, selects)];
    spec
}

fn beside(key: &str, selects: &str) -> PodSpec {
    let mut spec = spec("cpu=1");
    spec.pod_affinity = vec![term(key, selects)];
    spec
}

fn spreading(constraint: SpreadConstraint) -> PodSpec {
    let mut spec = spec("cpu=1");
    spec.spread = vec![constraint];
    spec
}

/// Gives the label `app` to all pods whose names begin so.
fn call(scene: &mut Scene, name: &str, app: &str) {
    let prefix = format!("{name}-");
    for (key, pod) in &mut scene.pods {
        if key.name.starts_with(&prefix) {
            pod.labels = labels(&format!("app={app}"));
        }
    }
}

fn pending(scene: &mut Scene, app: &str, count: usize, spec: PodSpec) {
    scene.pending(app, count, spec);
    call(scene, app, app);
}

fn running(scene: &mut Scene, app: &str, node: &str, spec: PodSpec) {
    let name = format!("{app}-{node}");
    scene.running(&name, 1, node, spec);
    call(scene, &name, app);
}

/// A Node that is not ours, of 8 cores.
pub(super) fn server(scene: &mut Scene, name: &str, zone: &str) {
    let node = scene.node(name, node("cpu=8 memory=16Gi"));
    node.labels = labels(&format!("{HOST}={name} {ZONE}={zone}"));
}

/// The hypervisors of the machines that are made, sorted.
pub(super) fn places(plan: &Plan) -> Vec<&str> {
    let mut places: Vec<&str> = plan
        .launches
        .iter()
        .map(|it| &*it.spec.hypervisor)
        .collect();
    places.sort_unstable();
    places
}

pub(super) fn whys(plan: &Plan) -> String {
    let whys = plan
        .report
        .pending
        .iter()
        .map(|row| row.outcome.to_string());
    whys.collect::<Vec<_>>().join("; ")
}

#[test]
fn pods_find_their_place_beside_one_that_is_placed_after_them() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    let mut beside = spec("cpu=200m");
    beside.pod_affinity = vec![term(HOST, "app=cache")];
    pending(&mut scene, "web", 3, beside.clone());
    beside.pod_affinity = vec![term(HOST, "app=web")];
    pending(&mut scene, "log", 2, beside);
    pending(&mut scene, "cache", 1, spec("cpu=100m"));
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 0, "{}", whys(&plan));
    let places = plan
        .report
        .pending
        .iter()
        .map(|row| row.outcome.to_string());
    let places: Vec<_> = places.collect();
    assert!(
        places.iter().all(|place| place.contains("Node m")),
        "{places:?}"
    );
    scene.nodes.clear();
    scene.claims.clear();
    scene.ledger.entries.clear();
    scene.inventory.guests.clear();
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 1, "{}", whys(&plan));
    let launching = |row: &PendingShape| matches!(row.outcome, PendingOutcome::Launching(_));
    assert!(plan.report.pending.iter().all(launching), "{}", whys(&plan));
}

#[test]
fn pods_that_keep_their_own_kind_away_get_a_machine_each() {
    let mut scene = Scene::default();
    pending(&mut scene, "db", 3, away_from(HOST, "app=db"));
    pending(&mut scene, "web", 3, spec("cpu=1"));
    assert_eq!(scene.plan().launches.len(), 3, "the others share the room");
    server(&mut scene, "a", "alpha");
    running(&mut scene, "db", "a", spec("cpu=1"));
    assert_eq!(scene.plan().launches.len(), 3, "one stands on Node a");
    server(&mut scene, "b", "alpha");
    assert_eq!(scene.plan().launches.len(), 2);
}

#[test]
fn a_pod_keeps_away_what_its_term_selects_and_nothing_else() {
    let launches = |term: PodTerm| {
        let mut scene = Scene::default();
        server(&mut scene, "a", "alpha");
        running(&mut scene, "other", "a", spec("cpu=1"));
        let mut db = spec("cpu=1");
        db.pod_anti_affinity = vec![term];
        running(&mut scene, "db", "a", db);
        pending(&mut scene, "web", 2, spec("cpu=1"));
        let plan = scene.plan();
        plan.launches.len()
    };
    assert_eq!(launches(term(HOST, "app=web")), 1);
    assert_eq!(launches(term(HOST, "app=db")), 0);
    assert_eq!(launches(term(HOST, "")), 1, "an empty selector selects all");
    let nothing = PodTerm {
        selector: None,
        ..term(HOST, "")
    };
    assert_eq!(launches(nothing), 0);
    let elsewhere = Namespaces::Named(vec!["kube-system".into()]);
    assert_eq!(
        launches(PodTerm {
            namespaces: elsewhere,
            ..term(HOST, "app=web")
        }),
        0
    );
    let here = Namespaces::Named(vec!["default".into(), "kube-system".into()]);
    assert_eq!(
        launches(PodTerm {
            namespaces: here,
            ..term(HOST, "app=web")
        }),
        1
    );
    assert_eq!(
        launches(PodTerm {
            namespaces: Namespaces::All,
            ..term(HOST, "app=web")
        }),
        1
    );
    assert_eq!(
        launches(term("rack", "app=web")),
        0,
        "Node a is in no domain of that key"
    );
}

#[test]
fn a_term_means_namespaces_by_their_labels() {
    let mut scene = Scene::default();
    server(&mut scene, "a", "alpha");
    let mut db = spec("cpu=1");
    db.pod_anti_affinity = vec![PodTerm {
        namespaces: Namespaces::Selected(selector("team=a"), vec!["named".into()]),
        ..term(HOST, "app=web")
    }];
    running(&mut scene, "db", "a", db);
    for name in ["of-a", "of-b", "named", "unlabelled", "unknown"] {
        let mut web = pending_pod(spec("cpu=1"));
        web.labels = labels("app=web");
        scene.pods.insert(PodKey::new(name, "web"), web);
    }
    for (name, of) in [("of-a", "team=a"), ("of-b", "team=b"), ("unlabelled", "")] {
        scene.namespaces.insert(name.into(), labels(of));
    }
    let kept_away = |scene: &Scene| -> Vec<String> {
        let plan = scene.plan();
        let rows = plan.report.pending.iter();
        let launching = rows.filter(|row| matches!(row.outcome, PendingOutcome::Launching(_)));
        launching
            .map(|row| row.example.namespace.to_string())
            .collect()
    };
    assert_eq!(kept_away(&scene), ["named", "of-a"]);
    scene.namespaces.insert("of-b".into(), labels("team=a"));
    assert_eq!(kept_away(&scene), ["named", "of-a", "of-b"]);
    scene.namespaces.remove("of-a");
    assert_eq!(kept_away(&scene), ["named", "of-b"]);
}

#[test]
fn a_pod_stands_beside_pods_of_other_namespaces_by_their_labels() {
    let mut scene = Scene::default();
    for (node, namespace) in [("a", "of-a"), ("b", "of-b")] {
        server(&mut scene, node, node);
        let mut web = running_pod(node, spec("cpu=1"));
        web.labels = labels("app=web");
        scene.pods.insert(PodKey::new(namespace, "web"), web);
    }
    scene.namespaces.insert("of-b".into(), labels("team=b"));
    let mut cache = spec("cpu=1");
    cache.pod_affinity = vec![PodTerm {
        namespaces: Namespaces::Selected(selector("team=b"), vec![]),
        ..term(HOST, "app=web")
    }];
    scene.pending("cache", 1, cache);
    assert_eq!(
        whys(&scene.plan()),
        "fits on Node b; the scheduler will find it"
    );
}

#[test]
fn a_zone_that_is_kept_free_has_its_machine_on_another_hypervisor() {
    let mut scene = Scene::default();
    server(&mut scene, "a", "alpha");
    server(&mut scene, "b", "beta");
    running(&mut scene, "db", "a", spec("cpu=1"));
    running(&mut scene, "db", "b", spec("cpu=1"));
    pending(&mut scene, "db", 2, away_from(ZONE, "app=db"));
    let plan = scene.plan();
    assert_eq!(places(&plan), ["gamma"]);
    let why = whys(&plan);
    assert!(why.contains("excludes"), "{why}");
}

#[test]
fn a_pod_goes_where_the_pods_are_that_it_asks_for() {
    let mut scene = Scene::default();
    server(&mut scene, "a", "alpha");
    server(&mut scene, "b", "beta");
    running(&mut scene, "web", "b", spec("cpu=1"));
    pending(&mut scene, "cache", 2, beside(HOST, "app=web"));
    assert_eq!(
        whys(&scene.plan()),
        "fits on Node b; the scheduler will find it"
    );
    // Node b is full now, and no other host has such a pod.
    running(&mut scene, "other", "b", spec("cpu=6500m"));
    let plan = scene.plan();
    assert_eq!(places(&plan), [] as [&str; 0]);
    let why = whys(&plan);
    assert!(
        why.contains("no pod that its podAffinity asks for is in the same kubernetes.io/hostname"),
        "{why}"
    );
    scene.pods.retain(|key, _| !key.name.starts_with("cache"));
    pending(&mut scene, "cache", 2, beside(ZONE, "app=web"));
    assert_eq!(places(&scene.plan()), ["beta"], "the zone will do");
}

#[test]
fn the_first_of_a_group_goes_anywhere_and_the_rest_follow() {
    let mut scene = Scene::default();
    scene.workers().limits.max_nodes = 10;
    let mut group = beside(ZONE, "app=group");
    group.requests = amounts("cpu=3");
    pending(&mut scene, "group", 4, group);
    let plan = scene.plan();
    let places = places(&plan);
    assert_eq!(places.len(), 4);
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    // Who is not of the group waits for it.
    pending(&mut scene, "other", 1, beside(ZONE, "app=nobody"));
    assert_eq!(scene.plan().launches.len(), 4);
}

#[test]
fn replicas_are_spread_over_hypervisors() {
    let places_of = |count: usize, cores: u32, constraint: SpreadConstraint| {
        let mut scene = Scene::default();
        scene.workers().limits.max_nodes = 10;
        let mut web = spreading(constraint);
        web.requests = amounts(&format!("cpu={cores}"));
        pending(&mut scene, "web", count, web);
        places(&scene.plan()).join(" ")
    };
    let over_zones = spread(ZONE, "app=web");
    // The scheduler knows one domain when the first machine has joined, so that one machine will do.
    assert_eq!(places_of(3, 1, over_zones.clone()), "alpha");
    assert_eq!(places_of(3, 3, over_zones.clone()), "alpha beta gamma");
    assert_eq!(
        places_of(4, 3, over_zones.clone()),
        "alpha alpha beta gamma"
    );
    let three = SpreadConstraint {
        min_domains: 3,
        ..over_zones.clone()
    };
    assert_eq!(places_of(3, 1, three.clone()), "alpha beta gamma");
    assert_eq!(places_of(6, 1, three), "alpha beta gamma", "two in each");
    let others = SpreadConstraint {
        min_domains: 3,
        ..spread(ZONE, "app=other")
    };
    assert_eq!(places_of(3, 1, others), "alpha", "they count none of them");
}

#[test]
fn a_machine_that_is_made_opens_nodes_to_the_next_pods() {
    let mut scene = Scene::default();
    for (name, zone) in [("a", "alpha"), ("b", "beta")] {
        server(&mut scene, name, zone);
    }
    running(&mut scene, "other", "b", spec("cpu=8"));
    // One on a; then beta must have one, which takes a machine; then one more on a, and one more on the machine.
    pending(&mut scene, "web", 4, spreading(spread(ZONE, "app=web")));
    let plan = scene.plan();
    assert_eq!(places(&plan), ["beta"], "{}", whys(&plan));

    // Too large for either Node; what wants to be in its zone is not.
    let mut scene = Scene::default();
    for (name, zone) in [("a", "alpha"), ("b", "alpha")] {
        server(&mut scene, name, zone);
        running(&mut scene, "other", name, spec("cpu=6"));
    }
    scene
        .inventory
        .hypervisors
        .retain(|name, _| **name == *"alpha");
    pending(&mut scene, "db", 1, spec("cpu=4"));
    pending(&mut scene, "web", 4, beside(ZONE, "app=db"));
    let plan = scene.plan();
    assert_eq!(places(&plan), ["alpha"], "{}", whys(&plan));
}

#[test]
fn a_domain_without_pods_takes_the_next_one() {
    let mut scene = Scene::default();
    for (name, zone) in [("a", "alpha"), ("b", "beta"), ("c", "gamma")] {
        server(&mut scene, name, zone);
    }
    running(&mut scene, "web", "a", spec("cpu=1"));
    running(&mut scene, "web", "b", spec("cpu=1"));
    pending(&mut scene, "web", 1, spreading(spread(ZONE, "app=web")));
    assert_eq!(
        whys(&scene.plan()),
        "fits on Node c; the scheduler will find it"
    );
    // A domain whose only Node is full still counts: the pod waits for room there.
    running(&mut scene, "other", "c", spec("cpu=8"));
    assert_eq!(places(&scene.plan()), ["gamma"]);
    scene.inventory.hypervisors.remove("gamma");
    let plan = scene.plan();
    assert_eq!(places(&plan), [] as [&str; 0]);
    let why = whys(&plan);
    assert!(why.contains("gamma has the fewest"), "{why}");
}

#[test]
fn with_fewer_domains_than_min_domains_the_least_is_none() {
    let mut scene = Scene::default();
    for (name, zone) in [("a", "alpha"), ("b", "beta")] {
        server(&mut scene, name, zone);
        running(&mut scene, "web", name, spec("cpu=1"));
    }
    let three = SpreadConstraint {
        min_domains: 3,
        ..spread(ZONE, "app=web")
    };
    pending(&mut scene, "web", 1, spreading(three));
    assert_eq!(places(&scene.plan()), ["gamma"]);
    scene.pods.retain(|_, pod| pod.node.is_some());
    pending(&mut scene, "web", 1, spreading(spread(ZONE, "app=web")));
    assert_eq!(places(&scene.plan()), [] as [&str; 0], "Node a takes it");
}

#[test]
fn policies_say_which_nodes_have_domains() {
    let outcome = |change: fn(&mut Scene, &mut PodSpec)| {
        let mut scene = Scene::default();
        server(&mut scene, "a", "alpha");
        server(&mut scene, "b", "beta");
        running(&mut scene, "web", "a", spec("cpu=1"));
        let mut web = spreading(spread(ZONE, "app=web"));
        change(&mut scene, &mut web);
        pending(&mut scene, "web", 1, web);
        let plan = scene.plan();
        (whys(&plan), places(&plan).join(" "))
    };
    let on_a = (
        "fits on Node a; the scheduler will find it".to_owned(),
        String::new(),
    );
    fn tainted(scene: &mut Scene, _: &mut PodSpec) {
        let taints = vec![taint("dedicated", TaintEffect::NoSchedule)];
        scene.nodes.get_mut("b").unwrap().taints = taints;
    }
    // Node b takes nothing and its zone counts: only a machine there helps.
    assert_eq!(outcome(tainted).1, "beta");
    let honored = outcome(|scene, web| {
        tainted(scene, web);
        web.spread[0].honors_taints = true;
    });
    assert_eq!(honored, on_a);
    fn elsewhere(_: &mut Scene, web: &mut PodSpec) {
        web.node_selector = labels(&format!("{HOST}=a"));
    }
    assert_eq!(outcome(elsewhere), on_a, "Node b is none of its Nodes");
    let counted = outcome(|scene, web| {
        elsewhere(scene, web);
        web.spread[0].any_affinity = true;
    });
    assert_eq!(counted.1, "");
    assert!(counted.0.contains("nodeSelector"), "{}", counted.0);
}

#[test]
fn pods_move_only_where_their_neighbours_let_them() {
    let kept_b = |change: fn(&mut Scene)| {
        let mut scene = Scene::default();
        scene.workers().scale_down.load_headroom = 0.0;
        scene.machine("a", "alpha").machine("b", "beta");
        for name in ["a", "b"] {
            running(&mut scene, "web", name, away_from(HOST, "app=web"));
        }
        scene.claim("a").do_not_disrupt = true;
        running(&mut scene, "big", "a", spec("cpu=1"));
        change(&mut scene);
        kept(&scene.plan(), "b")
    };
    let stuck = Ok("pod default/web-b-00000 fits on no other Node".to_owned());
    assert_eq!(kept_b(|_| {}), stuck);
    let apart = kept_b(|scene| scene.pod("web-b-00000").labels = labels("app=other"));
    assert_eq!(apart, stuck, "it says that it wants none of them beside it");
    let gone = kept_b(|scene| scene.pod("web-a-00000").labels = labels("app=other"));
    assert_eq!(gone, stuck, "the pod on Node a keeps it away");
    let free = kept_b(|scene| {
        for name in ["web-a-00000", "web-b-00000"] {
            scene.pod(name).labels = labels("app=other");
        }
    });
    assert!(free.is_err(), "{free:?}");
}

#[test]
fn a_selector_of_all_pods_spreads_from_none_as_in_kube_scheduler() {
    let mut scene = Scene::default();
    server(&mut scene, "a", "alpha");
    server(&mut scene, "b", "beta");
    scene
        .nodes
        .get_mut("b")
        .expect("it was just made")
        .unschedulable = true;
    running(&mut scene, "web", "a", spec("cpu=1"));
    pending(&mut scene, "web", 1, spreading(spread(ZONE, "app=web")));
    assert_eq!(scene.plan().launches.len(), 1);
    pending(&mut scene, "web", 1, spreading(spread(ZONE, "")));
    assert_eq!(scene.plan().launches.len(), 0);
}

#[test]
fn a_machine_to_come_brings_the_pods_of_its_daemon_sets() {
    let machines = |asks: PodSpec, daemon: PodSpec| {
        let mut scene = Scene::default();
        pending(&mut scene, "web", 2, asks);
        for (name, spec) in [("agent", daemon), ("driver", spec("cpu=100m"))] {
            let labels = labels(&format!("app={name}"));
            let facts = DaemonSetFacts {
                labels,
                spec,
                csi_drivers: vec![],
            };
            scene
                .daemon_sets
                .insert(ObjectKey::new("default", name), facts);
        }
        scene.plan().launches.len()
    };
    let quiet = || spec("cpu=100m");
    assert_eq!(machines(beside(HOST, "app=agent"), quiet()), 1);
    assert_eq!(machines(beside(HOST, "app=none"), quiet()), 0);
    assert_eq!(machines(away_from(HOST, "app=agent"), quiet()), 0);
    assert_eq!(machines(away_from(HOST, "app=none"), quiet()), 1);
    assert_eq!(machines(spec("cpu=1"), away_from(HOST, "app=web")), 0);
    assert_eq!(machines(spec("cpu=1"), away_from(HOST, "app=none")), 1);
}

/// kube-scheduler gives a host with one pod no second one while another host has none, even if that one is full.
#[test]
fn pods_that_spread_find_a_place_when_all_machines_stand() {
    let machines_for = |web: usize, db: &str, max_skew: u32| {
        let mut scene = Scene::default();
        scene.workers().limits.max_nodes = 100;
        let over_hosts = SpreadConstraint {
            max_skew,
            ..spread(HOST, "app=web")
        };
        pending(&mut scene, "web", web, spreading(over_hosts));
        pending(&mut scene, "db", 2, spec(db));
        let plan = scene.plan();
        let next = acted(&scene, &plan).plan();
        assert_eq!(next.launches, [], "{}", whys(&next));
        plan.launches.len()
    };
    let beside = machines_for(3, "cpu=2500m", 1);
    assert_eq!(beside, 3, "one on each, beside the databases");
    let alone = machines_for(3, "cpu=3500m", 1);
    assert_eq!(alone, 5, "one on each of three more");
    assert_eq!(machines_for(3, "cpu=3500m", 3), 3, "all on one more");
    assert_eq!(machines_for(12, "cpu=3500m", 1), 14);
}

#[test]
fn a_pod_that_a_limit_leaves_stuck_is_told_so() {
    let mut scene = Scene::default();
    pending(&mut scene, "web", 4, spreading(spread(HOST, "app=web")));
    pending(&mut scene, "db", 3, spec("cpu=4"));
    scene.workers().limits.max_nodes = 7;
    assert_eq!(scene.plan().launches.len(), 7);
    scene.workers().limits.max_nodes = 6;
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 6);
    let unhelped = |row: &&PendingShape| matches!(row.outcome, PendingOutcome::Unhelped(_));
    let unhelped: Vec<_> = plan.report.pending.iter().filter(unhelped).collect();
    let [one] = unhelped[..] else {
        panic!("{}", whys(&plan));
    };
    assert_eq!(one.count, 1, "{}", whys(&plan));
    // Of a higher priority, the spread pods do not give their machines away.
    for (key, pod) in &mut scene.pods {
        let mut spec = pod.spec.clone();
        spec.priority = i32::from(key.name.starts_with("web"));
        pod.spec = spec;
    }
    assert_eq!(scene.plan().launches.len(), 4);
}
