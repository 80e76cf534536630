//! NodePool: its specification is the planner's own type. What is here are rules.

mod policies;

use std::sync::Arc;

use jiff::SignedDuration;
use kproxide_planner::facts::{
    CapacitySchedule, Disruption, DisruptionWindow, Headroom, Operator, Period, PoolFacts,
    PoolLimits, PoolSpec, Recurring, Requirement, Unreadable,
};
use kproxide_planner::keys;
use kube::api::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::defaults::least_pool;
use super::pod::annotation;
use super::{Problems, existence, flagged_in};
use crate::crd::PolicySettings;
use crate::view::is_too_deep;

pub fn pool_facts(meta: &ObjectMeta, written: &Map<String, Value>) -> PoolFacts {
    let mut problems = Problems::default();
    problems.too_deep(written);
    let mut spec: PoolSpec = problems.read(written, least_pool());
    let settings: PolicySettings = problems.read(written, Map::new());
    check(&spec, &mut problems);
    close_unread(written, &mut spec);
    problems.label_value("metadata.name", keys::POOL, super::name(meta));
    spec.paused |= flagged_in(meta, keys::PAUSE);
    spec.expire_after = spec
        .expire_after
        .filter(|age| is_late_enough(*age, &mut problems));
    PoolFacts {
        spec,
        policies: policies::policies(&settings, &mut problems),
        existence: existence(meta),
        keep_machines: flagged_in(meta, keys::KEEP_MACHINES),
        retry: annotation(meta, keys::RETRY).map(Arc::from),
        problem: problems.text(),
    }
}

/// Times that cannot be read are closed ones. Were they left out, kproxide would remove machines at any time, or too many.
fn close_unread(written: &Map<String, Value>, spec: &mut PoolSpec) {
    let when = Recurring::unreadable;
    if is_unreadable::<Disruption>(written.get("disruption")) {
        spec.disruption.windows = vec![DisruptionWindow {
            reasons: Vec::new(),
            when: when(),
        }];
    }
    if is_unreadable::<Vec<CapacitySchedule>>(written.get("schedules")) {
        spec.schedules = vec![CapacitySchedule {
            when: when(),
            min_nodes: 0,
            headroom: Headroom::default(),
        }];
    }
    let scale_up = written.get("scaleUp");
    let windows = scale_up.and_then(|it| it.get("windows"));
    if is_unreadable::<Vec<Recurring>>(windows) {
        spec.scale_up.windows = vec![when()];
    }
}

fn is_unreadable<T: DeserializeOwned>(field: Option<&Value>) -> bool {
    field.is_some_and(|it| is_too_deep(it) || T::deserialize(it).is_err())
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

#[cfg(test)]
mod tests;
