//! NodePool: facts for the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use kproxide_planner::facts::{
    BlockedBy, PolicyKind, PolicyMember, PolicyRef, PolicyUse, PoolFacts, PoolPolicies, ScaleDown,
};
use kproxide_planner::ids::{ClassName, ClusterName};
use kproxide_planner::keys;
use kproxide_planner::kubernetes::resources::Resources;
use kube::api::ObjectMeta;
use serde_json::{Map, Value};

use super::pod::annotation;
use super::{Problems, existence, flagged_in};
use crate::crd::{
    self, DEFAULT_HOST_SELECTION, DEFAULT_SCALE_DOWN, Headroom, Limits, NodePoolSpec, Period,
    PolicyChain,
};

pub fn pool_facts(meta: &ObjectMeta, spec: &NodePoolSpec) -> PoolFacts {
    let NodePoolSpec {
        node_class,
        clusters,
        limits:
            Limits {
                min_nodes,
                max_nodes,
                cpu_cores,
                memory_mib,
            },
        weight,
        labels,
        taints,
        startup_taints,
        label_templates,
        policies,
        paused,
        scale_up,
        scale_down,
        drain_timeout,
        repair_after,
        expire_after,
        disruption,
        headroom,
    } = spec;
    let mut problems = Problems::default();
    if min_nodes > max_nodes {
        problems.add(
            "limits",
            format_args!("minNodes {min_nodes} is larger than maxNodes {max_nodes}"),
        );
    }
    problems.label_value("metadata.name", keys::POOL, super::name(meta));
    problems.label_value("spec.nodeClass", keys::CLASS, node_class);
    for (key, value) in labels {
        problems.label("labels", "label", key, value);
        if let Some(fix) = written_anyway(key) {
            problems.add(
                "labels",
                format_args!("{key:?} cannot be given to all Nodes of a pool: {fix}"),
            );
        }
    }
    for (field, taints) in [("taints", taints), ("startupTaints", startup_taints)] {
        for taint in taints {
            problems.label(field, "taint", &taint.key, &taint.value);
        }
    }
    let crd::Policies {
        host_selection,
        scale_down: scale_down_policy,
        labels: label_policy,
    } = policies;
    let facts = PoolFacts {
        existence: existence(meta),
        keep_machines: flagged_in(meta, keys::KEEP_MACHINES),
        class: ClassName::from(node_class.as_str()),
        clusters: clusters
            .iter()
            .map(|name| ClusterName::from(name.as_str()))
            .collect(),
        min_nodes: *min_nodes,
        max_nodes: *max_nodes,
        max_milli_cores: cpu_cores.map(|cores| u64::from(cores) * 1000),
        max_memory_bytes: memory_mib.map(|mib| mib.saturating_mul(1 << 20)),
        weight: *weight,
        labels: labels.clone(),
        taints: taints.clone(),
        startup_taints: startup_taints.clone(),
        policies: PoolPolicies {
            host_selection: chain(
                (PolicyKind::HostSelection, "policies.hostSelection"),
                host_selection,
                DEFAULT_HOST_SELECTION,
                &mut problems,
            ),
            scale_down: chain(
                (PolicyKind::ScaleDown, "policies.scaleDown"),
                scale_down_policy,
                DEFAULT_SCALE_DOWN,
                &mut problems,
            ),
            labels: policy_use(
                PolicyKind::Labels,
                &label_policy.r#use,
                &label_settings(&label_policy.settings, label_templates, &mut problems),
            ),
        },
        paused: *paused || flagged_in(meta, keys::PAUSE),
        retry: annotation(meta, keys::RETRY).map(Arc::from),
        scale_up_stabilization: problems.period(
            "scaleUp.stabilizationWindow",
            &scale_up.stabilization_window,
        ),
        scale_down: scale_down_facts(scale_down, &mut problems),
        drain_timeout: problems.period("drainTimeout", drain_timeout),
        repair_after: problems.period("repairAfter", repair_after),
        expire_after: expire_after
            .as_ref()
            .and_then(|age| expiry(age, &mut problems)),
        old_first: disruption.old_first,
        headroom: headroom_facts(headroom, &mut problems),
        problem: None,
    };
    PoolFacts {
        problem: problems.text(),
        ..facts
    }
}

/// Machines that hardly serve before they are replaced would come and go without end.
fn expiry(age: &Period, problems: &mut Problems) -> Option<SignedDuration> {
    let expire_after = problems.period("expireAfter", age);
    if expire_after >= SignedDuration::from_hours(1) {
        return Some(expire_after);
    }
    problems.add(
        "expireAfter",
        format_args!("{:?} is less than 1h: write 1h or more", age.0),
    );
    None
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

fn scale_down_facts(scale_down: &crd::ScaleDown, problems: &mut Problems) -> ScaleDown {
    let crd::ScaleDown {
        enabled,
        load_headroom,
        stabilization,
        min_node_age,
        unneeded_time,
        budget,
        blocked_by:
            crd::BlockedBy {
                local_volumes,
                bare_pods,
                unfinished_jobs,
                empty_dir,
                kube_system,
            },
    } = scale_down;
    if !(load_headroom.is_finite() && *load_headroom >= 0.0) {
        problems.add(
            "scaleDown.loadHeadroom",
            format_args!("{load_headroom} is not a share of at least 0"),
        );
    }
    ScaleDown {
        enabled: *enabled,
        load_headroom: *load_headroom,
        stabilization: problems.period("scaleDown.stabilization", stabilization),
        min_node_age: problems.period("scaleDown.minNodeAge", min_node_age),
        unneeded_time: problems.period("scaleDown.unneededTime", unneeded_time),
        budget: *budget,
        blocked_by: BlockedBy {
            local_volumes: *local_volumes,
            bare_pods: *bare_pods,
            unfinished_jobs: *unfinished_jobs,
            empty_dir: *empty_dir,
            kube_system: *kube_system,
        },
    }
}

fn headroom_facts(headroom: &Headroom, problems: &mut Problems) -> Resources {
    let Headroom { cpu, memory, pods } = headroom;
    Resources {
        milli_cores: cpu
            .as_ref()
            .map_or(0, |cpu| problems.milli_cores("headroom.cpu", cpu)),
        memory_bytes: memory
            .as_ref()
            .map_or(0, |memory| problems.bytes("headroom.memory", memory)),
        pods: pods.unwrap_or_default().into(),
        ..Resources::default()
    }
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
        assert_eq!((facts.min_nodes, facts.max_nodes), (0, 3));
        assert_eq!(
            String::from(facts.policies.host_selection.policy),
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
        assert_eq!(facts.max_milli_cores, Some(64_000));
        assert_eq!(facts.max_memory_bytes, Some(1 << 30));
        assert_eq!(
            (
                facts.headroom.milli_cores,
                facts.headroom.memory_bytes,
                facts.headroom.pods
            ),
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
