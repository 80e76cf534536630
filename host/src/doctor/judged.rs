//! What the controller would write into conditions, as findings.

use std::collections::BTreeMap;
use std::sync::Arc;

use kproxide_planner::planning::{Limits, Planning};
use kproxide_planner::world::World;

use super::finding::{Finding, Group, Level};
use super::proxmox::Look;
use super::{Sources, named};
use crate::kube::crd::{ConditionStatus, StatusCondition};
use crate::kube::manifest::Object;
use crate::kube::status::{Judgement, READY};
use crate::policy::Budget;
use crate::reporter::credentials::in_full;
use crate::reporter::judging::{Judged, Known, TOKEN_FITS, judged};
use crate::reporter::{policies, reasons};

/// Of another object, which has a finding of its own.
const FOLLOWS: [&str; 3] = [
    reasons::CLASS_NOT_READY.word,
    reasons::NO_USABLE_CLUSTER.word,
    reasons::CLUSTER_NOT_READY.word,
];
/// What an endpoint's own finding says already.
const OF_ENDPOINTS: [&str; 2] = [
    reasons::UNREACHABLE.word,
    reasons::CERTIFICATE_UNTRUSTED.word,
];

pub(super) async fn judge(
    sources: &Sources,
    world: &World,
    looks: &[Look],
    key_problem: Option<&String>,
) -> Vec<Finding> {
    // No policy is asked but for its settings: what they would answer keeps nobody from making machines.
    let used = policies::used(world);
    let mut budget = Budget::default();
    let unfit = sources.policies.judge(used, &mut budget).await;
    let plan = Planning::new(world, sources.clock.now(), Limits::default()).finish();
    let lacking = looks.iter();
    let lacking = lacking.filter_map(|look| Some((look.name.clone(), look.lacking.clone()?)));
    let anchors: Vec<_> = plan.report.anchors.iter().collect();
    let Judged {
        clusters,
        classes,
        pools,
    } = judged(
        world,
        &Known {
            key_problem,
            lacking: &lacking.collect(),
            join_problems: &join_problems(sources, world),
            refusals: &sources.policies.refusals(),
            unfit: &unfit,
            failures: &BTreeMap::new(),
            frozen: plan.report.frozen.as_deref(),
            anchors: &anchors,
        },
    );
    let mut findings = Vec::new();
    let mut all = clusters.values();
    let lacks_storage = all.any(|it| it.reason == reasons::STORAGE_MISSING.word);
    for (name, judgement) in clusters {
        let look = looks.iter().find(|look| look.name == name);
        let is_said = look.is_some_and(|look| look.endpoints_fail)
            && OF_ENDPOINTS.contains(&judgement.reason);
        if !is_said {
            let object = named("ProxmoxCluster", &name);
            findings.extend(finding(Group::Proxmox, object, said(&judgement)));
        }
    }
    for look in looks {
        if let Some(excess) = look.excess.as_ref().filter(|excess| !excess.is_empty()) {
            let object = named("ProxmoxCluster", &look.name);
            let reason = &reasons::TOKEN_OVER_PRIVILEGED;
            findings.push(Finding::warning(
                Group::Proxmox,
                object,
                reason,
                in_full(excess),
            ));
        }
    }
    for (name, judgement) in classes {
        // The Proxmox cluster says so.
        if lacks_storage && judgement.reason == reasons::CLONE_IMPOSSIBLE.word {
            continue;
        }
        let object = named("NodeClass", &name);
        findings.extend(finding(Group::Configuration, object, said(&judgement)));
    }
    for (name, judgements) in pools {
        let object = named("NodePool", &name);
        let found = judgements.iter();
        findings
            .extend(found.filter_map(|it| finding(Group::Configuration, object.clone(), said(it))));
    }
    findings
}

/// A condition, whoever found it.
struct Said<'a> {
    kind: &'a str,
    status: ConditionStatus,
    reason: &'a str,
    message: &'a str,
}

fn said(judgement: &Judgement) -> Said<'_> {
    Said {
        kind: judgement.kind,
        status: judgement.status,
        reason: judgement.reason,
        message: &judgement.message,
    }
}

/// What the controller has written into the conditions of one of our objects.
pub(crate) fn of_conditions(object: &Object) -> Vec<Finding> {
    let group = match object.kind() {
        "ProxmoxCluster" => Group::Proxmox,
        _ => Group::Configuration,
    };
    let conditions = object.value["status"]["conditions"].clone();
    let conditions: Vec<StatusCondition> = serde_json::from_value(conditions).unwrap_or_default();
    let found = conditions.iter().filter_map(|condition| {
        let said = Said {
            kind: &condition.kind,
            status: condition.status,
            reason: &condition.reason,
            message: &condition.message,
        };
        finding(group, named(object.kind(), object.name()), said)
    });
    found.collect()
}

/// What a condition says of an object. `None`: nothing that a person has to know.
fn finding(group: Group, object: String, said: Said<'_>) -> Option<Finding> {
    let Said {
        kind,
        status,
        reason,
        message,
    } = said;
    if FOLLOWS.contains(&reason) {
        return None;
    }
    let is_ready = kind == READY;
    // Of this one False is the bad news.
    let is_bad = (status == ConditionStatus::True) != (kind == TOKEN_FITS);
    let reason = reasons::of(reason)?;
    let found = |level| Finding {
        level,
        ..Finding::error(group, object.clone(), reason, message)
    };
    match (is_ready, status) {
        (true, ConditionStatus::True) => Some(Finding::ok(group, object, message)),
        // As somebody wishes.
        (true, ConditionStatus::False) if *reason == reasons::BEING_DELETED => {
            Some(found(Level::Warning))
        }
        (true, ConditionStatus::False) => Some(found(Level::Error)),
        // Something else has to be mended first, and says so.
        (true, ConditionStatus::Unknown) => None,
        (false, ConditionStatus::True | ConditionStatus::False) if is_bad => {
            Some(found(Level::Warning))
        }
        (false, _) => None,
    }
}

/// Why join scripts cannot be read, if they can be looked for here.
fn join_problems(sources: &Sources, world: &World) -> BTreeMap<Arc<str>, String> {
    let files = world.classes().values();
    let files = files.filter_map(|class| class.join_script.clone());
    let problem = |file: Arc<str>| {
        let read = sources.scripts.read(&file)?;
        Some((file, read.err()?))
    };
    files.filter_map(problem).collect()
}
