mod policies;
mod times;

use serde_json::json;

use super::*;

fn read(change: impl FnOnce(&mut Value)) -> PoolFacts {
    let mut spec = json!({"nodeClass": "default"});
    change(&mut spec);
    pool_facts(
        &ObjectMeta::default(),
        &serde_json::from_value(spec).unwrap(),
    )
}

#[test]
fn a_class_is_enough() {
    let facts = read(|_| {});
    assert_eq!(facts.problem, None);
    assert_eq!((facts.limits.min_nodes, facts.limits.max_nodes), (0, 3));
    assert_eq!(
        String::from(facts.policies.host_selection.policy.clone()),
        "host-selection/spread"
    );
    assert_eq!(&*facts.policies.labels.settings, "{}");
    assert_eq!(facts.scale_down.min_node_age.as_secs(), 600);
    assert_eq!(facts.drain_timeout.as_secs(), 900);
    assert!(facts.scale_down.blocked_by.bare_pods && !facts.scale_down.blocked_by.empty_dir);
}

#[test]
fn a_requirement_that_says_nothing_is_named() {
    for (key, operator, values, said) in [
        ("kubernetes.io/arch", "In", json!(["arm64"]), None),
        ("kproxide.dev/instance-cpu", "Gt", json!(["4"]), None),
        ("topology.kubernetes.io/zone", "Exists", json!([]), None),
        (
            "example.com/rack",
            "In",
            json!(["a"]),
            Some("is none of kubernetes.io/arch"),
        ),
        (
            "kubernetes.io/arch",
            "In",
            json!([]),
            Some("needs at least one value"),
        ),
        (
            "kubernetes.io/arch",
            "Exists",
            json!(["a"]),
            Some("takes no values"),
        ),
        (
            "kproxide.dev/instance-cpu",
            "Lt",
            json!(["four"]),
            Some("a whole number"),
        ),
        (
            "kproxide.dev/instance-cpu",
            "Lt",
            json!(["1", "2"]),
            Some("a whole number"),
        ),
    ] {
        let facts = read(|spec| {
            spec["requirements"] = json!([
                {"key": "kubernetes.io/os", "operator": "Exists"},
                {"key": key, "operator": operator, "values": values},
            ]);
        });
        let problem = facts.problem.unwrap_or_default();
        let expected = said.map_or(String::new(), |said| {
            assert!(problem.contains(said), "{problem}");
            "requirements[1]".to_owned()
        });
        assert!(problem.contains(&expected) && problem.is_empty() == said.is_none());
    }
}

#[test]
fn the_pause_annotation_pauses() {
    let meta = ObjectMeta {
        annotations: Some([(keys::PAUSE.to_owned(), "true".to_owned())].into()),
        ..ObjectMeta::default()
    };
    assert!(
        pool_facts(
            &meta,
            &serde_json::from_value(json!({"nodeClass": "c"})).unwrap()
        )
        .paused
    );
}

#[test]
fn labels_and_taints_are_checked_before_a_machine_is_made() {
    let check = |field: &str, value: Value, expected: &str| {
        let problem = read(|spec| spec[field] = value).problem.unwrap_or_default();
        assert!(problem.starts_with(expected), "{problem}");
    };
    check(
        "labels",
        json!({"rack": "a b"}),
        r#"spec.labels: the value "a b" of label "rack" is invalid: it must be"#,
    );
    check(
        "labels",
        json!({"kubernetes.io/hostname": "x"}),
        r#"spec.labels: the label key "kubernetes.io/hostname" is reserved"#,
    );
    check(
        "labels",
        json!({"topology.kubernetes.io/zone": "rack-1"}),
        r#"spec.labels: "topology.kubernetes.io/zone" cannot be given to all Nodes of a pool: it is the name of the hypervisor"#,
    );
    check(
        "startupTaints",
        json!([{"key": "a b", "value": "", "effect": "NoSchedule"}]),
        r#"spec.startupTaints: the taint key "a b" is invalid"#,
    );
    check(
        "nodeClass",
        json!("c".repeat(64)),
        r#"spec.nodeClass: the value "cccc"#,
    );
}

#[test]
fn amounts_and_problems() {
    let facts = read(|spec| {
        spec["limits"] = json!({"cpuCores": 64, "memoryMiB": 1024});
        spec["headroom"] = json!({"cpu": "500m", "memory": "1Gi", "pods": 2});
    });
    assert_eq!(facts.limits.milli_cores(), Some(64_000));
    assert_eq!(facts.limits.memory_bytes(), Some(1 << 30));
    let headroom = facts.headroom.resources();
    assert_eq!(
        (headroom.milli_cores, headroom.memory_bytes, headroom.pods),
        (500, 1 << 30, 2)
    );

    let facts = read(|spec| {
        spec["limits"] = json!({"minNodes": 4});
        spec["drainTimeout"] = json!("soon");
    });
    let text = facts.problem.unwrap();
    assert!(
        text.contains("minNodes 4 is larger than maxNodes 3"),
        "{text}"
    );
    assert!(
        text.contains("spec.drainTimeout: \"soon\" is not a length of time"),
        "{text}"
    );
}
