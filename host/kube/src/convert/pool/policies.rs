//! The policies of a NodePool, with their settings as text.

use std::collections::{BTreeMap, BTreeSet};

use kproxide_planner::facts::{PolicyKind, PolicyMember, PolicyRef, PolicyUse, PoolPolicies};
use serde_json::{Map, Value};

use super::Problems;
use crate::crd::{
    DEFAULT_HOST_SELECTION, DEFAULT_SCALE_DOWN, Policies, PolicyChain, PolicySettings,
};

pub(super) fn policies(settings: &PolicySettings, problems: &mut Problems) -> PoolPolicies {
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
