//! Policies alone and together, and their settings.

use std::collections::BTreeSet;

use super::*;

#[test]
fn label_templates_are_merged_into_the_label_policys_settings() {
    let facts = read(|spec| {
        spec["labelTemplates"] = json!({"example.com/host": "{{ .TargetHost }}"});
        spec["policies"] =
            json!({"labels": {"use": "go-template", "settings": {"labels": {"a": "b"}}}});
    });
    assert_eq!(
        &*facts.policies.labels.settings,
        r#"{"labels":{"a":"b","example.com/host":"{{ .TargetHost }}"}}"#
    );
    assert_eq!(facts.problem, None);

    let facts = read(|spec| {
        spec["labelTemplates"] = json!({"example.com/host": "{{ .TargetHost }}"});
        spec["policies"] = json!({"labels": {"use": "go-template", "settings": {"labels": "a=b"}}});
    });
    assert!(
        facts
            .problem
            .unwrap()
            .starts_with("spec.labelTemplates: cannot be combined")
    );
}

#[test]
fn several_policies_decide_together() {
    let used = |chain: Value| {
        let facts = read(|spec| spec["policies"] = json!({"hostSelection": chain}));
        let members = facts.policies.host_selection.members.iter();
        let members = members.map(|it| format!("{} {} {}", it.policy.name, it.weight, it.settings));
        let name = facts.policies.host_selection.policy.name.to_string();
        (name, members.collect::<Vec<_>>(), facts.problem)
    };
    let (name, members, problem) = used(json!({
        "filters": [{"use": "racks", "settings": {"attribute": "rack"}}, {"use": "quiet"}],
        "scores": [{"use": "pack", "weight": 2}, {"use": "spread"}],
    }));
    assert_eq!((&*name, problem), ("racks+quiet+pack+spread", None));
    let racks = r#"racks 0 {"attribute":"rack"}"#;
    assert_eq!(members, [racks, "quiet 0 {}", "pack 2 {}", "spread 1 {}"]);
    // Somebody must give scores.
    let (_, members, _) = used(json!({"filters": [{"use": "racks"}]}));
    assert_eq!(members, ["racks 0 {}", "spread 1 {}"]);
    let (name, members, _) = used(json!({"scores": [{"use": "pack"}]}));
    assert_eq!(
        (&*name, &members[..]),
        ("pack", &["pack 1 {}".to_owned()][..])
    );
    for (chain, wrong) in [
        (
            json!({"use": "pack", "scores": [{"use": "pack"}]}),
            "use and settings cannot stand beside",
        ),
        (
            json!({"settings": {"a": 1}, "filters": [{"use": "pack"}]}),
            "use and settings cannot stand beside",
        ),
        (
            json!({"filters": [{"use": "pack"}], "scores": [{"use": "pack"}]}),
            "policy pack stands there twice",
        ),
        (
            json!({"filters": [{"use": "spread"}]}),
            "policy spread stands in filters, and gives the scores too",
        ),
    ] {
        let (_, members, problem) = used(chain);
        let names: BTreeSet<_> = members.iter().map(|it| it.split(' ').next()).collect();
        assert_eq!(names.len(), members.len(), "{members:?}");
        let problem = problem.unwrap();
        let expected = format!("spec.policies.hostSelection: {wrong}");
        assert!(problem.starts_with(&expected), "{problem}");
    }
}
