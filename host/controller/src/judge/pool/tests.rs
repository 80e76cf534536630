use std::sync::Arc;

use kproxide_planner::facts::{ClaimCondition, Delta};
use kproxide_planner::plan::report::Frozen;
use serde_json::{Value, json};

use super::*;
use crate::judge::tests::Quiet;
use kproxide_kube::convert::{class_facts, cluster_facts, pool_facts};
use kproxide_policy::Unfit;

/// What is wrong with a pool that names these things.
fn said(change: &Value) -> String {
    let refusal = |policy: &str, instead| Refusal {
        policy: policy.into(),
        reason: "it is not WebAssembly".to_owned(),
        instead,
    };
    let refusals: BTreeMap<Arc<str>, Refusal> = [
        refusal("broken", Instead::Nothing),
        refusal("balanced", Instead::Builtin),
        refusal("spread", Instead::LastGood),
    ]
    .map(|refusal| (refusal.policy.clone(), refusal))
    .into();
    let mut world = World::default();
    let class = json!({"template": {"name": "t"}, "instanceTypes": [{"name": "m", "cores": 1, "memoryMiB": 1024}]});
    let class = class_facts(&serde_json::from_value(class).unwrap());
    world.apply(Delta::Class("standard".into(), Some(Box::new(class))));
    let cluster = json!({"endpoints": ["https://pve1"], "credentials": "c", "pool": "p", "vmidRange": {"first": 200, "last": 299}});
    let (cluster, _) = cluster_facts(&serde_json::from_value(cluster).unwrap());
    world.apply(Delta::Cluster("home".into(), Some(Box::new(cluster))));
    let engine = kproxide_policy::Engine::new(kproxide_policy::Execution::Inline).unwrap();
    for (policy, facts) in kproxide_policy::Library::new(engine).facts() {
        world.apply(Delta::Policy(policy, Some(facts)));
    }
    let mut spec = json!({"nodeClass": "standard", "clusters": ["home"]});
    let of = |kind| {
        let text = change.get("wrong").map(Value::to_string);
        let name = match kind {
            PolicyKind::Labels => "go-template",
            PolicyKind::HostSelection | PolicyKind::ScaleDown => "least-loaded",
        };
        let policy = PolicyRef {
            kind,
            name: name.into(),
        };
        text.map(|text| (("workers".into(), policy), text))
    };
    let unfit = Unfit {
        settings: of(PolicyKind::Labels).into_iter().collect(),
        given_up: of(PolicyKind::ScaleDown).into_iter().collect(),
        loading: [("slow".into(), "its file is being compiled".to_owned())].into(),
    };
    for (field, value) in change
        .as_object()
        .unwrap()
        .iter()
        .filter(|it| it.0 != "wrong")
    {
        spec[field] = value.clone();
    }
    let meta = kube::api::ObjectMeta::default();
    let pool = pool_facts(&meta, &serde_json::from_value(spec).unwrap());
    let quiet = Quiet::default();
    let known = Known {
        refusals: &refusals,
        unfit: &unfit,
        ..quiet.known()
    };
    let judged = settings(
        &"workers".into(),
        &pool,
        &Around {
            world: &world,
            known: &known,
            classes: &BTreeMap::new(),
            clusters: &BTreeMap::new(),
            offers: &[],
            failing: &BTreeMap::new(),
            failures: &BTreeMap::new(),
            kept_waiting: &BTreeSet::new(),
        },
    );
    judged.map_or_else(String::new, |it| {
        format!("{}: {}", it.reason.word, it.message)
    })
}

#[test]
fn f97_a_pool_that_names_what_nobody_has_is_not_ready() {
    assert_eq!(said(&json!({})), "");
    for (change, expected) in [
        (json!({"nodeClass": "other"}), "there is no NodeClass other"),
        (
            json!({"clusters": ["typo"]}),
            "there is no ProxmoxCluster typo",
        ),
        (
            json!({"policies": {"hostSelection": {"use": "mine"}}}),
            "there is no host-selection policy mine; mount mine.wasm",
        ),
        (
            json!({"policies": {"scaleDown": {"use": "broken"}}}),
            "PolicyRefused: spec.policies.scaleDown: the file of policy broken is refused",
        ),
        (
            json!({"policies": {"hostSelection": {"use": "balanced"}}}),
            "PolicyRefused: spec.policies.hostSelection: the file of policy balanced is refused and the built-in of that name answers: it is not",
        ),
    ] {
        let text = said(&change);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn r41_a_pool_whose_only_cluster_is_not_ready_does_not_say_that_its_clusters_are() {
    let quiet = Quiet::default();
    let reason = |clusters: &[(&str, Finding)]| {
        let clusters = clusters.iter().cloned();
        let clusters = clusters.map(|(name, judged)| (name.into(), judged));
        let around = Around {
            world: &World::default(),
            known: &quiet.known(),
            classes: &BTreeMap::new(),
            clusters: &clusters.collect(),
            offers: &[],
            failing: &BTreeMap::new(),
            failures: &BTreeMap::new(),
            kept_waiting: &BTreeSet::new(),
        };
        let judged = degraded(
            &"workers".into(),
            &kproxide_planner::fixtures::pool(),
            &around,
        );
        (is_down(&judged), judged.reason.word)
    };
    let object = || named("ProxmoxCluster", "a");
    let down = || Finding::error(Group::Proxmox, object(), &reasons::NO_QUORUM, "no quorum");
    let ready = |text: &str| Finding::ok(Group::Proxmox, object(), text);
    assert_eq!(reason(&[("a", down())]), (true, "NotDegraded"));
    assert_eq!(reason(&[("a", ready(""))]), (true, "NotDegraded"));
    let several = [("a", down()), ("b", ready(""))];
    assert_eq!(reason(&several), (false, "ClusterNotReady"));
}

#[test]
fn of_several_things_that_are_wrong_with_a_pool_the_one_that_stops_most_is_said() {
    let reason = |class: bool, frozen: bool, fails: bool, policy: bool| {
        let mut quiet = Quiet::default();
        quiet.report.frozen = frozen.then(|| Frozen {
            message: "too many".to_owned(),
            commands: vec!["go on".to_owned()],
        });
        let mut world = World::default();
        let engine = kproxide_policy::Engine::new(kproxide_policy::Execution::Inline).unwrap();
        for (policy, facts) in kproxide_policy::Library::new(engine).facts() {
            world.apply(Delta::Policy(policy, Some(facts)));
        }
        let mut pool = kproxide_planner::fixtures::pool();
        if class {
            let facts = kproxide_planner::fixtures::class();
            world.apply(Delta::Class(pool.node_class.clone(), Some(Box::new(facts))));
        }
        if policy {
            pool.policies.host_selection.policy.name = "nobody".into();
        }
        let home = named("ProxmoxCluster", "home");
        let clusters = [("home".into(), Finding::ok(Group::Proxmox, home, ""))];
        let fails = fails.then(|| ("workers".into(), "no answer".to_owned()));
        let around = Around {
            world: &world,
            known: &quiet.known(),
            classes: &BTreeMap::new(),
            clusters: &clusters.into(),
            offers: &[],
            failing: &fails.into_iter().collect(),
            failures: &BTreeMap::new(),
            kept_waiting: &BTreeSet::new(),
        };
        let said = ready_of(&"workers".into(), &pool, &around);
        assert_eq!(said.message.contains("too many"), frozen);
        assert_eq!(said.commands.contains(&"go on".to_owned()), frozen);
        said.reason.word
    };
    assert_eq!(reason(true, false, false, false), "Ready");
    assert_eq!(reason(true, true, false, false), "Frozen");
    assert_eq!(reason(false, true, false, false), "ClassMissing");
    assert_eq!(reason(true, true, true, false), "LaunchesFail");
    assert_eq!(reason(false, true, true, true), "ClassMissing");
    // Without that policy the built-in one decides.
    assert_eq!(reason(true, false, false, true), "PolicyMissing");
    assert_eq!(reason(true, false, true, true), "LaunchesFail");
}

#[test]
fn a_pool_whose_policy_is_being_loaded_says_so_and_no_other_does() {
    assert_eq!(
        said(&json!({"policies": {"hostSelection": {"use": "slow"}}})),
        "PolicyLoading: spec.policies.hostSelection: policy slow: its file is being compiled"
    );
    assert_eq!(
        said(&json!({"policies": {"hostSelection": {"use": "pack"}}})),
        ""
    );
}

#[test]
fn what_is_wrong_with_one_of_several_policies_is_told_with_its_place() {
    let together = json!({"policies": {"hostSelection": {
        "filters": [{"use": "mine"}, {"use": "broken"}],
        "scores": [{"use": "pack", "weight": 2}, {"use": "least-loaded"}],
    }}});
    assert_eq!(
        said(&together),
        "PolicyMissing: spec.policies.hostSelection.filters[mine]: there is no host-selection policy mine; mount mine.wasm or correct the name in NodePool workers; \
         spec.policies.hostSelection.filters[broken]: the file of policy broken is refused and nothing else has that name: it is not WebAssembly; \
         spec.policies.hostSelection.scores[least-loaded]: least-loaded is a scale-down policy; name a host-selection policy in NodePool workers. \
         Meanwhile the built-in spread chooses the hypervisors"
    );
}

#[test]
fn w11_the_kind_of_a_policy_is_told_and_all_that_is_wrong_at_once() {
    let both = json!({"policies": {"hostSelection": {"use": "least-loaded"}, "scaleDown": {"use": "mine"}}});
    assert_eq!(
        said(&both),
        "PolicyMissing: spec.policies.hostSelection: least-loaded is a scale-down policy; name a host-selection policy in NodePool workers; \
         spec.policies.scaleDown: there is no scale-down policy mine; mount mine.wasm or correct the name in NodePool workers. \
         Meanwhile the built-in spread chooses the hypervisors; scale-down removes nothing"
    );
}

#[test]
fn w18_a_pool_whose_policy_decides_nothing_says_what_decides_instead() {
    for (place, policy, expected) in [
        (
            "hostSelection",
            "mine",
            ". Meanwhile the built-in spread chooses the hypervisors",
        ),
        (
            "hostSelection",
            "broken",
            ". Meanwhile the built-in spread chooses the hypervisors",
        ),
        (
            "scaleDown",
            "mine",
            ". Meanwhile scale-down removes nothing",
        ),
        (
            "labels",
            "mine",
            ". Meanwhile kproxide makes no machine in this NodePool",
        ),
        // It answers, and says so.
        ("hostSelection", "balanced", "it is not WebAssembly"),
        // The pool waits for it.
        ("hostSelection", "slow", "its file is being compiled"),
    ] {
        let text = said(&json!({"policies": {place: {"use": policy}}}));
        assert!(text.ends_with(expected), "{text}");
    }
}

#[test]
fn a_pool_that_is_deleted_names_what_keeps_its_machines() {
    use kproxide_planner::fixtures::{Scene, at, condition};
    let mut scene = Scene::default();
    let mut blocked = |name: &str, phase, kind, reason: &str, message: &str| {
        scene.machine(name, "alpha");
        let status = &mut scene.claim(name).status;
        status.phase = phase;
        status.conditions.push(ClaimCondition {
            status: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..condition(kind, at(0))
        });
    };
    let (drains, serves) = (Phase::Draining, Phase::Initialized);
    let removable = Condition::Removable;
    let budget = "pod default/web-1 cannot be evicted: PodDisruptionBudget web";
    blocked("a", drains, Condition::Drained, "PoolDeleted", budget);
    let hold = "PersistentVolume data can be reached only from its Node";
    blocked("b", serves, removable, "OnHold", hold);
    // These are no reasons to stay for ever.
    let turn = "as many removals of its pool are under way as its budget allows";
    blocked("c", serves, removable, "MaxDeletionCountReached", turn);
    blocked(
        "d",
        serves,
        Condition::Drained,
        "GivenUp",
        "an earlier drain",
    );
    let said = |scene: &Scene| {
        let pool = &scene.pools[&PoolName::from("workers")];
        going(&"workers".into(), pool, &scene.world())
    };
    let expected = format!(". These wait: a ({budget}); b ({hold}). If you delete");
    let text = said(&scene);
    assert!(text.contains(&expected), "{text}");
    // One that goes changes no word.
    assert!(!text.contains("workers-"), "{text}");

    let mut annotated = |name: &str| {
        let why = "ScaleDownDisabledAnnotation";
        let (reason, message) = (why.to_owned(), format!("the annotation of {name}"));
        let conditions = &mut scene.claim(name).status.conditions;
        conditions.push(ClaimCondition {
            status: false,
            reason,
            message,
            ..condition(removable, at(0))
        });
    };
    annotated("d");
    annotated("c");
    // Of a kind each claim has one condition.
    scene
        .claim("c")
        .status
        .conditions
        .retain(|it| it.message != turn);
    let text = said(&scene);
    assert!(
        text.contains(". Among those that wait: a (")
            && text.contains("; c (the annotation of c). If"),
        "{text}"
    );
}

#[test]
fn w12_settings_that_a_policy_does_not_accept_are_named_with_their_field() {
    assert_eq!(
        said(&json!({"wrong": 5})),
        "PolicyFailed: spec.policies.scaleDown: policy least-loaded: 5; spec.policies.labels.settings or spec.labelTemplates: policy go-template: 5. \
         Meanwhile scale-down removes nothing; kproxide makes no machine in this NodePool"
    );
}
