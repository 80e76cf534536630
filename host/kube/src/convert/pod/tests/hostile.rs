//! What somebody writes into a pod to act on the terminal of whoever reads of it.

use super::*;
use crate::convert::{disruption_budget_facts, node_facts};

/// The API server checks none of these.
#[test]
fn s6_what_nobody_has_checked_of_a_pod_is_clean_and_short() {
    let hostile = "a\u{1b}]52;c;aGk=\u{7}\u{202e}b";
    let clean = "a\u{fffd}]52;c;aGk=\u{fffd}\u{fffd}b";
    let long = "x".repeat(200_000);
    // As long as a key may be.
    let key = format!("{}/{}", "a".repeat(253), "b".repeat(63));
    let of = |values: Value| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}})
    };
    let pod = facts(json!({
        "metadata": {"name": "a", "ownerReferences": [{"controller": true, "kind": hostile, "name": hostile, "uid": "u"}]},
        "spec": {
            "schedulerName": hostile,
            "affinity": {"nodeAffinity": of(json!([hostile, "a\nb", "b", long]))},
            "tolerations": [{"key": "k", "operator": hostile}],
        },
    }));
    let spec = &pod.spec;
    assert_eq!(spec.scheduler_name.as_deref(), Some(clean));
    let owner = pod.owner.as_ref().unwrap();
    assert_eq!((&*owner.kind, &*owner.name), (clean, clean));
    let terms = spec.node_affinity.as_ref().unwrap();
    assert_eq!(*terms[0].match_expressions[0].key, key);
    let values = &terms[0].match_expressions[0].values;
    let short = format!("{}…", "x".repeat(200));
    let texts: Vec<&str> = values.iter().map(|it| &**it).collect();
    assert_eq!(texts, [clean, "a\u{fffd}b", "b", &short]);
    let unread = format!("spec.tolerations: operator {clean}");
    assert_eq!(spec.unsupported, [Arc::from(unread)]);
    // What is asked for has no label's form: it matches as little as before.
    for value in texts.into_iter().filter(|it| *it != "b") {
        assert!(
            kproxide_common::labels::check_value("label", "zone", value).is_err(),
            "{value}"
        );
    }
}

/// As many as one object holds.
#[test]
fn s12_of_20_000_things_that_a_pod_asks_few_are_kept_and_it_is_not_planned_for() {
    let many = 20_000;
    let numbered = |prefix: &'static str| (0..many).map(move |number| format!("{prefix}{number}"));
    let pairs = |prefix: &'static str| -> Value {
        let pairs = numbered(prefix).map(|key| (key, json!("1")));
        Value::Object(pairs.collect())
    };
    let expressions: Vec<Value> = numbered("k")
        .map(|key| json!({"key": key, "operator": "Exists"}))
        .collect();
    let selector = json!({"matchExpressions": expressions});
    let (required, preferred) = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    );
    let terms = vec![json!({"matchExpressions": [expressions[0]]}); many];
    let pod_term = json!({"topologyKey": "zone", "labelSelector": selector});
    let spread = json!({"topologyKey": "zone", "labelSelector": selector});
    let liked = json!({"weight": 1, "podAffinityTerm": pod_term});
    let ports: Vec<Value> = (1..=many).map(|port| json!({"hostPort": port})).collect();
    let claims = numbered("c")
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let claims: Vec<Value> = claims.collect();
    for (index, (metadata, mut spec)) in [
        (json!({}), json!({"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}})),
        (json!({}), json!({"affinity": {"nodeAffinity": {preferred: [{"weight": 1, "preference": selector}]}}})),
        (json!({}), json!({"affinity": {"podAffinity": {required: [pod_term]}}})),
        (json!({}), json!({"affinity": {"podAntiAffinity": {required: [pod_term]}}})),
        (json!({}), json!({"affinity": {"podAffinity": {preferred: [liked]}}})),
        (json!({}), json!({"topologySpreadConstraints": [spread]})),
        (json!({}), json!({"nodeSelector": pairs("k")})),
        (json!({}), json!({"tolerations": vec![json!({"operator": "Exists"}); many]})),
        (json!({}), json!({"containers": [{"ports": ports}]})),
        (json!({}), json!({"containers": [{"resources": {"requests": pairs("example.com/r")}}]})),
        (json!({}), json!({"volumes": claims})),
        (json!({"labels": pairs("l")}), json!({})),
    ]
    .into_iter()
    .enumerate()
    {
        let cpu = json!({"resources": {"requests": {"cpu": "3"}}});
        match spec["containers"].as_array_mut() {
            Some(containers) => containers.push(cpu),
            None => spec["containers"] = json!([cpu]),
        }
        let pod = facts(json!({"metadata": metadata, "spec": spec}));
        let is_told = pod.spec.too_many.is_some() || !pod.spec.unsupported.is_empty();
        assert!(is_told, "{index}");
        assert_eq!(pod.spec.requests.milli_cores, 3000, "{index}");
        let written = serde_json::to_string(&(&pod, &pod.spec)).unwrap().len();
        assert!(written < 60_000, "{index}: {written}");
    }
}

#[test]
fn s12_of_a_budget_that_asks_more_than_kproxide_looks_at_a_part_is_kept_and_it_covers_more_pods() {
    let values = |number: usize| vec![json!("v"); number];
    let expressions = [700, 400, 300]
        .map(|number| json!({"key": "k", "operator": "NotIn", "values": values(number)}));
    let labels = (0..20_000).map(|number| (format!("l{number}"), json!("1")));
    let labels = Value::Object(labels.collect());
    let budget =
        json!({"spec": {"selector": {"matchLabels": labels, "matchExpressions": expressions}}});
    let facts = disruption_budget_facts(&serde_json::from_value(budget).unwrap());
    let selector = facts.selector.unwrap();
    let kept = selector.match_expressions.iter();
    let kept: Vec<usize> = kept.map(|it| it.values.len()).collect();
    assert_eq!((selector.match_labels.len(), &kept[..]), (500, &[400][..]));
}

/// Of a kubelet, or of whoever may write a DaemonSet: what the API server gives back for `9999-12-31T23:59:59-12:00`.
#[test]
fn s12_a_moment_that_cannot_be_read_makes_no_object_unreadable() {
    let moment = "10000-01-01T11:59:59Z";
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": moment});
    let pod = facts(json!({"status": {
        "startTime": moment,
        "conditions": [condition("PodScheduled")],
        "containerStatuses": [{"name": "c", "state": {"terminated": {"startedAt": moment}}}],
    }}));
    assert_eq!((pod.bound_since, pod.started), (None, true));
    let created = "2026-01-01T00:00:00Z";
    let node = json!({"metadata": {"creationTimestamp": created}, "status": {"conditions": [condition("Ready")]}});
    let node = node_facts(&serde_json::from_value(node).unwrap());
    assert_eq!(
        (node.ready, node.ready_since.to_string().as_str()),
        (true, created)
    );
    let metadata =
        json!({"creationTimestamp": moment, "deletionTimestamp": moment, "labels": {"app": "a"}});
    let set = json!({"spec": {"template": {"metadata": metadata}}});
    let set = daemon_set_facts(&serde_json::from_value(set).unwrap());
    assert_eq!(set.labels["app"], "a");
}
