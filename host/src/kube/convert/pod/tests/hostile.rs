//! What somebody writes into a pod to act on the terminal of whoever reads of it.

use super::*;

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
            crate::labels::check_value("label", "zone", value).is_err(),
            "{value}"
        );
    }
}

#[test]
fn s12_of_20_000_terms_about_its_node_few_are_kept() {
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
    let terms = json!({"nodeSelectorTerms": vec![term; 20_000]});
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
    let pod = facts(json!({ "spec": { "affinity": { "nodeAffinity": affinity } } }));
    assert!(pod.spec.too_many().is_some());
    assert!(pod.spec.node_affinity.as_ref().unwrap().len() < 200);
}
