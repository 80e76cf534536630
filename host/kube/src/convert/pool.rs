//! NodePool: its specification is the planner's own type. What is here are rules, and policies with their settings as text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use kproxide_planner::facts::{
    CapacitySchedule, Disruption, DisruptionWindow, Operator, Period, PolicyKind, PolicyMember,
    PolicyRef, PolicyUse, PoolFacts, PoolLimits, PoolPolicies, PoolSpec, Requirement, Unreadable,
};
use kproxide_planner::keys;
use kube::api::ObjectMeta;
use serde_json::{Map, Value};

use super::defaults::least_pool;
use super::pod::annotation;
use super::{Problems, existence, flagged_in};
use crate::crd::{
    DEFAULT_HOST_SELECTION, DEFAULT_SCALE_DOWN, Policies, PolicyChain, PolicySettings,
};

pub fn pool_facts(meta: &ObjectMeta, written: &Map<String, Value>) -> PoolFacts {
    let mut problems = Problems::default();
    problems.too_deep(written);
    let mut spec: PoolSpec = problems.read(written, least_pool());
    // Without windows that it cannot read, kproxide would remove machines at any time.
    let disruption = written.get("disruption").cloned();
    if disruption.is_some_and(|it| serde_json::from_value::<Disruption>(it).is_err()) {
        spec.disruption.windows = vec![DisruptionWindow::unreadable()];
    }
    let settings: PolicySettings = problems.read(written, Map::new());
    check(&spec, &mut problems);
    problems.label_value("metadata.name", keys::POOL, super::name(meta));
    spec.paused |= flagged_in(meta, keys::PAUSE);
    spec.expire_after = spec
        .expire_after
        .filter(|age| is_late_enough(*age, &mut problems));
    PoolFacts {
        spec,
        policies: policies(&settings, &mut problems),
        existence: existence(meta),
        keep_machines: flagged_in(meta, keys::KEEP_MACHINES),
        retry: annotation(meta, keys::RETRY).map(Arc::from),
        problem: problems.text(),
    }
}

/// What the schema cannot say, or an API server with an older schema did not.
fn check(spec: &PoolSpec, problems: &mut Problems) {
    let PoolLimits {
        min_nodes,
        max_nodes,
        ..
    } = spec.limits;
    if min_nodes > max_nodes {
        problems.add(
            "limits",
            format_args!("minNodes {min_nodes} is larger than maxNodes {max_nodes}"),
        );
    }
    times(spec, problems);
    problems.label_value("spec.nodeClass", keys::CLASS, spec.node_class.as_str());
    for (key, value) in &spec.labels {
        problems.label("labels", "label", key, value);
        if let Some(fix) = written_anyway(key) {
            problems.add(
                "labels",
                format_args!("{key:?} cannot be given to all Nodes of a pool: {fix}"),
            );
        }
    }
    for (field, taints) in [
        ("taints", &spec.taints),
        ("startupTaints", &spec.startup_taints),
    ] {
        for taint in taints {
            problems.label(field, "taint", &taint.key, &taint.value);
        }
    }
    for (index, requirement) in spec.requirements.iter().enumerate() {
        if let Some(problem) = bad_requirement(requirement) {
            problems.add(&format!("requirements[{index}]"), problem);
        }
    }
    let load_headroom = spec.scale_down.load_headroom;
    if !(load_headroom.is_finite() && load_headroom >= 0.0) {
        problems.add(
            "scaleDown.loadHeadroom",
            format_args!("{load_headroom} is not a share of at least 0"),
        );
    }
}

fn bad_requirement(requirement: &Requirement) -> Option<String> {
    let Requirement {
        key,
        operator,
        values,
    } = requirement;
    if !keys::REQUIRABLE.contains(&&**key) {
        let known = keys::REQUIRABLE.join(", ");
        return Some(format!("{key:?} is none of {known}"));
    }
    let is_number = |value: &Arc<str>| value.parse::<i64>().is_ok();
    match (operator, &values[..]) {
        (Operator::In | Operator::NotIn, []) => Some("needs at least one value".to_owned()),
        (Operator::In | Operator::NotIn, _) | (Operator::Exists | Operator::DoesNotExist, []) => {
            None
        }
        (Operator::Exists | Operator::DoesNotExist, _) => Some("takes no values".to_owned()),
        (Operator::Gt | Operator::Lt, [one]) if is_number(one) => None,
        (Operator::Gt | Operator::Lt, _) => Some("needs one value, a whole number".to_owned()),
    }
}

/// Windows, budgets and schedules.
fn times(spec: &PoolSpec, problems: &mut Problems) {
    for (field, when) in spec.times() {
        if let Some(Unreadable {
            field: part,
            problem,
        }) = when.problem()
        {
            problems.add(&format!("{field}.{part}"), problem);
        }
    }
    let most = spec.limits.max_nodes;
    for (
        index,
        CapacitySchedule {
            min_nodes,
            headroom,
            ..
        },
    ) in spec.schedules.iter().enumerate()
    {
        if *min_nodes > most {
            problems.add(
                &format!("schedules[{index}].minNodes"),
                format_args!("{min_nodes} is larger than limits.maxNodes {most}"),
            );
        }
        if *min_nodes == 0 && headroom.is_none() {
            problems.add(
                &format!("schedules[{index}]"),
                "it asks for nothing: give minNodes, headroom or both",
            );
        }
    }
}

/// Machines that hardly serve before they are replaced would come and go without end.
fn is_late_enough(expire_after: Period, problems: &mut Problems) -> bool {
    let is_enough = expire_after.0 >= SignedDuration::from_hours(1);
    if !is_enough {
        let age = expire_after.written();
        problems.add(
            "expireAfter",
            format_args!("{age:?} is less than 1h: write 1h or more"),
        );
    }
    is_enough
}

fn policies(settings: &PolicySettings, problems: &mut Problems) -> PoolPolicies {
    let PolicySettings {
        label_templates,
        policies:
            Policies {
                host_selection,
                scale_down,
                labels,
            },
    } = settings;
    PoolPolicies {
        host_selection: chain(
            (PolicyKind::HostSelection, "policies.hostSelection"),
            host_selection,
            DEFAULT_HOST_SELECTION,
            problems,
        ),
        scale_down: chain(
            (PolicyKind::ScaleDown, "policies.scaleDown"),
            scale_down,
            DEFAULT_SCALE_DOWN,
            problems,
        ),
        labels: policy_use(
            PolicyKind::Labels,
            &labels.r#use,
            &label_settings(&labels.settings, label_templates, problems),
        ),
    }
}

fn policy_use(kind: PolicyKind, name: &str, settings: &Map<String, Value>) -> PolicyUse {
    let name = name.into();
    // Keys are sorted, so equal settings are equal texts.
    let settings = serde_json::to_string(settings).expect("JSON values are plain data");
    PolicyUse::alone(PolicyRef { kind, name }, settings.into())
}

/// One policy, or several that decide together.
fn chain(
    (kind, field): (PolicyKind, &'static str),
    chain: &PolicyChain,
    default: &str,
    problems: &mut Problems,
) -> PolicyUse {
    let PolicyChain {
        r#use,
        settings,
        filters,
        scores,
    } = chain;
    if filters.is_empty() && scores.is_empty() {
        return policy_use(kind, r#use.as_deref().unwrap_or(default), settings);
    }
    if r#use.is_some() || !settings.is_empty() {
        problems.add(
            field,
            "use and settings cannot stand beside filters and scores: write that policy into one of the two lists",
        );
    }
    let member = |name: &str, weight, settings: &Map<String, Value>| {
        let PolicyUse {
            policy, settings, ..
        } = policy_use(kind, name, settings);
        PolicyMember {
            policy,
            settings,
            weight,
            state: Vec::new(),
        }
    };
    let refuse = filters.iter().map(|it| member(&it.r#use, 0, &it.settings));
    let mut members: Vec<_> = refuse.collect();
    let score = scores.iter();
    members.extend(score.map(|it| member(&it.r#use, it.weight, &it.settings)));
    if scores.is_empty() {
        members.push(member(default, 1, &Map::new()));
    }
    let mut names = BTreeSet::new();
    // State and status are kept by name: there is room for one of each.
    members.retain(|it| {
        let name = &it.policy.name;
        let is_first = names.insert(name.clone());
        if !is_first && scores.is_empty() && **name == *default {
            problems.add(
                field,
                format_args!(
                    "policy {name} stands in filters, and gives the scores too where scores is not given: name another policy in scores, or write use: {name}"
                ),
            );
        } else if !is_first {
            problems.add(
                field,
                format_args!("policy {name} stands there twice: leave one out"),
            );
        }
        is_first
    });
    PolicyUse::together(kind, members)
}

/// Labels that every machine gets from another source, so that the pool's value would be lost without notice. The text
/// names the source.
fn written_anyway(key: &str) -> Option<&'static str> {
    Some(match key {
        keys::ZONE => "it is the name of the hypervisor; for another one set it in labelTemplates",
        keys::REGION => {
            "it is the name of the ProxmoxCluster; for another one set it in labelTemplates"
        }
        keys::INSTANCE_TYPE => "it is the name in the NodeClass's instanceTypes",
        keys::ARCH | keys::OS => "the kubelet writes it",
        _ => return None,
    })
}

/// `labelTemplates` become the setting `labels`, where they win over templates given there.
fn label_settings(
    settings: &Map<String, Value>,
    templates: &BTreeMap<String, String>,
    problems: &mut Problems,
) -> Map<String, Value> {
    let mut settings = settings.clone();
    if templates.is_empty() {
        return settings;
    }
    let templates = templates
        .iter()
        .map(|(key, template)| (key.clone(), Value::String(template.clone())));
    match settings.entry("labels").or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(labels) => labels.extend(templates),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => problems.add(
            "labelTemplates",
            "cannot be combined with a text in policies.labels.settings.labels: write all templates in one of the two",
        ),
    }
    settings
}

#[cfg(test)]
mod tests {
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
            spec["policies"] =
                json!({"labels": {"use": "go-template", "settings": {"labels": "a=b"}}});
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
            let members =
                members.map(|it| format!("{} {} {}", it.policy.name, it.weight, it.settings));
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
    fn times_are_read_and_one_that_cannot_be_names_its_field() {
        let problem = |field: &str, value: Value| read(|spec| spec[field] = value).problem;
        let when =
            json!({"schedule": "0 22 * * 1-5", "duration": "8h", "timeZone": "Europe/Berlin"});
        let good = json!({"windows": [when], "budgets": [{"nodes": "10%"}, {"nodes": 1, "schedule": "@daily", "duration": "1h"}]});
        assert_eq!(problem("disruption", good), None);
        assert_eq!(problem("scaleUp", json!({"windows": [when]})), None);
        let mut scheduled = when.clone();
        scheduled["minNodes"] = 3.into();
        assert_eq!(problem("schedules", json!([scheduled])), None);
        for (field, value, expected) in [
            (
                "disruption",
                json!({"windows": [when, {"schedule": "@every 1h", "duration": "8h"}]}),
                "spec.disruption.windows[1].schedule: \"@every 1h\" is not a schedule: ",
            ),
            (
                "disruption",
                json!({"budgets": [{"nodes": 1, "schedule": "@daily"}]}),
                "spec.disruption.budgets[0].duration: 0s is not between 1m and 7d",
            ),
            (
                "scaleUp",
                json!({"windows": [{"schedule": "@daily", "duration": "8h", "timeZone": "Berlin"}]}),
                "spec.scaleUp.windows[0].timeZone: \"Berlin\" is no time zone of the IANA database",
            ),
            (
                "schedules",
                json!([{"schedule": "@daily", "duration": "8h", "minNodes": 4}]),
                "spec.schedules[0].minNodes: 4 is larger than limits.maxNodes 3",
            ),
            (
                "schedules",
                json!([{"schedule": "@daily", "duration": "8h"}]),
                "spec.schedules[0]: it asks for nothing: give minNodes, headroom or both",
            ),
            (
                "disruption",
                json!({"budgets": [{"nodes": "many"}]}),
                "spec.disruption.budgets[0].nodes: \"many\" is no number of machines",
            ),
        ] {
            let problem = problem(field, value).unwrap();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    /// A kproxide that is older than a reason, say: it must not remove machines at any time for that.
    #[test]
    fn windows_that_cannot_be_read_are_not_left_out() {
        let newer =
            json!({"windows": [{"reasons": ["Bored"], "schedule": "@daily", "duration": "8h"}]});
        let facts = read(|spec| spec["disruption"] = newer);
        let problem = facts.problem.clone().unwrap();
        assert!(
            problem.starts_with("spec.disruption.windows[0]"),
            "{problem}"
        );
        assert!(facts.times().any(|(_, when)| when.problem().is_some()));
    }

    /// The zones are in the program. A process can be told of other files only before it begins, so this asks another one.
    #[test]
    fn zones_come_with_the_program() {
        let night = json!({"windows": [{"schedule": "@daily", "duration": "8h", "timeZone": "Europe/Berlin"}]});
        assert_eq!(read(|spec| spec["disruption"] = night).problem, None);
        if std::env::args().any(|word| word == "--exact") {
            return;
        }
        let empty = std::env::temp_dir().join(format!("kproxide-no-zones-{}", std::process::id()));
        std::fs::create_dir_all(&empty).unwrap();
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args([
            "--exact",
            "convert::pool::tests::zones_come_with_the_program",
        ]);
        let output = again.env("TZDIR", &empty).output().unwrap();
        std::fs::remove_dir(&empty).unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }

    #[test]
    fn machines_expire_after_an_hour_at_the_earliest() {
        let expiry = |text: &str| {
            let facts = read(|spec| spec["expireAfter"] = json!(text));
            let age = facts.expire_after.map(|age| age.as_hours());
            (age, facts.problem)
        };
        assert_eq!(read(|_| {}).expire_after, None);
        assert_eq!(expiry("1h"), (Some(1), None));
        assert_eq!(expiry("30d"), (Some(720), None));
        for text in ["59m", "soon"] {
            let (age, problem) = expiry(text);
            let begins = format!("spec.expireAfter: {text:?} is ");
            assert_eq!(age, None, "an unreadable age replaces nothing");
            assert!(problem.unwrap().starts_with(&begins), "{text}");
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
}
