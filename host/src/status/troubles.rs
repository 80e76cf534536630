//! What is wrong, the worst and nearest to the root first: conditions, what the plan reports of guards, and NodeClaims
//! that need a person.

use std::collections::BTreeSet;

use kproxide_planner::claim::Condition;
use kproxide_planner::report::{PendingOutcome, Report, Unusable, Why};
use kproxide_planner::world::World;
use serde::Serialize;

use crate::doctor::{Finding, Group, Level, of_conditions};
use crate::kube::manifest::Object;
use crate::kube::status::READY;
use crate::reporter::reasons;

/// As the Event says.
const LAUNCHES_PAUSED: &str = "LaunchesPaused";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    pub level: Level,
    pub group: Group,
    /// Kind and name of those that it is about.
    pub objects: Vec<String>,
    /// One word, of the list of reasons and conditions.
    pub reason: String,
    pub message: String,
    /// What to do about it. Empty: the message says it.
    pub remedy: String,
    /// What can be pasted.
    pub commands: Vec<String>,
}

pub(super) fn all(
    world: &World,
    report: &Report,
    objects: &[Object],
    unseen: Vec<Finding>,
) -> Vec<Trouble> {
    let found = unseen.into_iter();
    let found = found.chain(objects.iter().flat_map(of_conditions));
    let bad = found.filter(|finding| finding.level != Level::Ok);
    let mut troubles: Vec<Trouble> = bad.map(Trouble::of).collect();
    troubles.extend(guards(report, &troubles, objects));
    for trouble in &mut troubles {
        if trouble.reason == reasons::PAUSED.word {
            trouble.commands = unpause(&trouble.objects[0], objects);
        }
    }
    troubles.extend(claims(world));
    together(troubles, &keeping(report))
}

impl Trouble {
    fn of(finding: Finding) -> Self {
        let Finding {
            group,
            object,
            level,
            reason,
            message,
            remedy,
            commands,
            ..
        } = finding;
        Self {
            level,
            group,
            objects: vec![object],
            reason: reason.to_owned(),
            commands: match commands.is_empty() {
                true => pasted(&message),
                false => commands,
            },
            message,
            // The reason's text leads to the message, which is shown.
            remedy: match remedy.starts_with("The message") {
                true => String::new(),
                false => remedy,
            },
        }
    }

    fn new(level: Level, group: Group, object: String, reason: &str, message: &str) -> Self {
        Self {
            level,
            group,
            objects: vec![object],
            reason: reason.to_owned(),
            message: message.to_owned(),
            remedy: String::new(),
            commands: pasted(message),
        }
    }
}

/// What stops launches or removals and stands in no condition of a pool, or not yet.
fn guards(report: &Report, said: &[Trouble], objects: &[Object]) -> Vec<Trouble> {
    let is_said = |reason: &str| said.iter().any(|trouble| trouble.reason == reason);
    let mut troubles = Vec::new();
    if let Some(message) = &report.frozen
        && !is_said(reasons::FROZEN.word)
    {
        let (object, reason) = ("Ledger/kproxide".to_owned(), reasons::FROZEN.word);
        troubles.push(Trouble::new(
            Level::Error,
            Group::Nodes,
            object,
            reason,
            message,
        ));
    }
    for (pool, why) in &report.unusable {
        let object = format!("NodePool/{pool}");
        let is_told = said.iter().any(|trouble| trouble.objects.contains(&object));
        let stored = objects.iter().find(|it| named(it) == object);
        let judged = stored.and_then(why_not_ready);
        let reason = if let Unusable::LaunchesPaused { .. } = why {
            LAUNCHES_PAUSED
        } else if is_told {
            // A condition says so.
            continue;
        } else if let Unusable::Paused(_) = why {
            reasons::PAUSED.word
        } else {
            judged.as_deref().unwrap_or(reasons::UNKNOWN.word)
        };
        let message = format!("it gets no machines: {why}");
        let group = Group::Configuration;
        troubles.push(Trouble::new(
            Level::Warning,
            group,
            object,
            reason,
            &message,
        ));
    }
    troubles
}

/// Claims with a condition that needs a person, or may.
fn claims(world: &World) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for (name, claim) in world.claims() {
        for condition in claim.status.conditions.iter().filter(|it| it.status) {
            let reason = match condition.kind {
                Condition::StuckLocked => "StuckLocked",
                Condition::OwnershipMismatch => "OwnershipMismatch",
                Condition::ProtectedVM => "ProtectedVM",
                Condition::NotProvenOff => "NotProvenOff",
                Condition::Stalled => "Stalled",
                Condition::Reserved
                | Condition::Launched
                | Condition::Registered
                | Condition::Initialized
                | Condition::Unneeded
                | Condition::Removable
                | Condition::NodeMissing
                | Condition::Drained
                | Condition::VolumesDetached
                | Condition::InstanceTerminating
                | Condition::Ready => continue,
            };
            let object = format!("NodeClaim/{name}");
            let message = &condition.message;
            troubles.push(Trouble::new(
                Level::Warning,
                Group::Nodes,
                object,
                reason,
                message,
            ));
        }
    }
    troubles
}

/// Pools by which a pod would be helped, if a person let them.
fn keeping(report: &Report) -> BTreeSet<String> {
    let whys = report.pending.iter().filter_map(|shape| {
        if let PendingOutcome::Unhelped(whys) = &shape.outcome {
            Some(whys)
        } else {
            None
        }
    });
    let stopped = whys
        .flatten()
        .filter(|(_, why)| matches!(why, Why::Unusable(_) | Why::Limit(_)));
    stopped
        .map(|(pool, _)| format!("NodePool/{pool}"))
        .collect()
}

/// Errors first, then what keeps pods waiting (`keeping`), then by what a person looks at first. What is said of several objects is said once.
fn together(mut troubles: Vec<Trouble>, keeping: &BTreeSet<String>) -> Vec<Trouble> {
    let keeps = |it: &Trouble| it.objects.iter().any(|object| keeping.contains(object));
    troubles.sort_by(|a, b| {
        let by_level = b.level.cmp(&a.level).then(keeps(b).cmp(&keeps(a)));
        let by_level = by_level.then(a.group.cmp(&b.group));
        by_level.then_with(|| a.objects.cmp(&b.objects))
    });
    let mut all: Vec<Trouble> = Vec::new();
    for trouble in troubles {
        let alike = all.iter_mut().find(|other| {
            (&other.reason, &other.message) == (&trouble.reason, &trouble.message)
                && other.level == trouble.level
        });
        match alike {
            Some(other) => {
                other.objects.extend(trouble.objects);
                other.commands.extend(trouble.commands);
                other.commands.dedup();
            }
            None => all.push(trouble),
        }
    }
    all
}

/// The commands of a text that has them outside of backticks: each ends where its sentence does.
fn pasted(message: &str) -> Vec<String> {
    let starts = message.match_indices("kubectl ").map(|(at, _)| at);
    let commands = starts.map(|at| {
        let rest = &message[at..];
        let end = [". ", "`", "; ", ", "]
            .iter()
            .filter_map(|end| rest.find(end))
            .min();
        rest[..end.unwrap_or(rest.len())]
            .trim_end_matches('.')
            .to_owned()
    });
    commands.collect()
}

/// As kubectl takes it.
pub(super) fn named(object: &Object) -> String {
    format!("{}/{}", object.kind(), object.name())
}

/// The reason of the condition Ready, unless that is True.
pub(super) fn why_not_ready(object: &Object) -> Option<String> {
    let conditions = object.value["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|it| it["type"] == READY)?;
    let is_ready = ready["status"] == "True";
    let reason = ready["reason"].as_str().filter(|_| !is_ready)?;
    Some(reason.to_owned())
}

/// What ends a pause, by where it is set.
fn unpause(object: &str, objects: &[Object]) -> Vec<String> {
    let pool = objects.iter().find(|it| named(it) == object);
    let Some(pool) = pool else {
        return Vec::new();
    };
    let name = pool.name();
    let annotation = &pool.value["metadata"]["annotations"][kproxide_planner::keys::PAUSE];
    let by_spec = (pool.value["spec"]["paused"] == true).then(|| {
        format!(
            "kubectl patch nodepool {name} --type merge --patch '{{\"spec\":{{\"paused\":false}}}}'"
        )
    });
    let by_annotation = (!annotation.is_null()).then(|| {
        format!(
            "kubectl annotate nodepool {name} {}-",
            kproxide_planner::keys::PAUSE
        )
    });
    by_spec.into_iter().chain(by_annotation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_end_with_their_sentence() {
        assert_eq!(
            pasted(
                "To keep them: kubectl annotate nodepool a keep=true. To remove them: kubectl annotate ledger b c=d"
            ),
            [
                "kubectl annotate nodepool a keep=true",
                "kubectl annotate ledger b c=d"
            ]
        );
        assert_eq!(pasted("nothing to type"), [""; 0]);
    }
}
