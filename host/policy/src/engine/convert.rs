//! Converts the planner's types to WIT's, and WIT's answers to [`Reply`].

use kproxide_planner::plan::question::{
    Attribute, AttributeValue, Candidate, Context, DecorateQuestion, HypervisorDescription,
    Machine, OrderQuestion, RankQuestion, Rejected, Scored, Size,
};

use super::bindings::host_selection::exports::kproxide::policy::host_selection as hs;
use super::bindings::host_selection::kproxide::policy::types;
use super::bindings::labels::exports::kproxide::policy::labels;
use super::bindings::scale_down::exports::kproxide::policy::scale_down as sd;
use super::reply::{Decorated, Reply};

// === To the policy ===

pub(super) fn rank(
    question: &RankQuestion,
) -> (types::Context, hs::Request, Vec<types::Candidate>) {
    let request = hs::Request {
        machine: machine(&question.machine),
        batch_index: question.batch_index,
        batch_size: question.batch_size,
        sequence: question.sequence,
        previous: question.previous.as_ref().map(|id| types::HypervisorId {
            cluster: id.cluster.to_string(),
            name: id.name.to_string(),
        }),
    };
    let candidates = question.candidates.iter().map(candidate).collect();
    (
        context(&question.context, &question.policy.settings),
        request,
        candidates,
    )
}

pub(super) fn order(
    question: &OrderQuestion,
) -> (types::Context, Vec<sd::Node>, Vec<types::Candidate>) {
    let nodes = question
        .nodes
        .iter()
        .map(|node| sd::Node {
            name: node.name.to_string(),
            instance_type: node.instance_type.to_string(),
            on: node.on,
            created: u64::try_from(node.created).unwrap_or(0),
            unneeded_seconds: node.unneeded_seconds,
            allocatable: size(node.allocatable),
            requested: size(node.requested),
            movable_pods: node.movable_pods,
            labels: node
                .labels
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            attributes: attributes(&node.attributes),
        })
        .collect();
    (
        context(&question.context, &question.policy.settings),
        nodes,
        question.hypervisors.iter().map(candidate).collect(),
    )
}

pub(super) fn decorate(question: &DecorateQuestion) -> (types::Machine, Vec<types::Hypervisor>) {
    (
        machine(&question.machine),
        question.hypervisors.iter().map(hypervisor).collect(),
    )
}

/// JSON in any case: without settings an object without fields.
pub(super) fn given(settings: &str) -> &str {
    match settings {
        "" => "{}",
        settings => settings,
    }
}

fn context(context: &Context, settings: &str) -> types::Context {
    types::Context {
        cluster: context.cluster.to_string(),
        now: u64::try_from(context.now).unwrap_or(0),
        seed: context.seed,
        dry_run: context.dry_run,
        state: context.state.clone(),
        settings: given(settings).to_owned(),
    }
}

fn machine(machine: &Machine) -> types::Machine {
    types::Machine {
        pool: machine.pool.to_string(),
        instance_type: machine.instance_type.to_string(),
        size: size(machine.size),
        attributes: attributes(&machine.attributes),
    }
}

fn hypervisor(hypervisor: &HypervisorDescription) -> types::Hypervisor {
    types::Hypervisor {
        id: types::HypervisorId {
            cluster: hypervisor.id.cluster.to_string(),
            name: hypervisor.id.name.to_string(),
        },
        zone: hypervisor.zone.to_string(),
        capacity: size(hypervisor.capacity),
        attributes: attributes(&hypervisor.attributes),
    }
}

fn candidate(candidate: &Candidate) -> types::Candidate {
    types::Candidate {
        hypervisor: hypervisor(&candidate.hypervisor),
        ineligible: candidate.ineligible.clone(),
        used: size(candidate.used),
        committed: size(candidate.committed),
        system_reserved: size(candidate.system_reserved),
        in_flight: size(candidate.in_flight),
        available: size(candidate.available),
        cpu_usage: candidate.cpu_usage,
        machines: candidate.machines,
        machines_of_pool: candidate.machines_of_pool,
        storage_free: candidate.storage_free,
    }
}

fn size(size: Size) -> types::Resources {
    types::Resources {
        milli_cores: size.milli_cores,
        memory_bytes: size.memory_bytes,
    }
}

fn attributes(attributes: &[Attribute]) -> Vec<types::Attribute> {
    attributes
        .iter()
        .map(|attribute| types::Attribute {
            key: attribute.key.to_string(),
            value: match &attribute.value {
                AttributeValue::Text(text) => types::Value::Text(text.to_string()),
                AttributeValue::Integer(integer) => types::Value::Integer(*integer),
                AttributeValue::Number(number) => types::Value::Number(*number),
                AttributeValue::Boolean(boolean) => types::Value::Boolean(*boolean),
            },
        })
        .collect()
}

// === From the policy ===

pub(super) fn refused(error: types::PolicyError) -> Reply {
    match error {
        types::PolicyError::NoCandidate(text) => Reply::NoCandidate(text),
        types::PolicyError::InvalidSettings(text) => Reply::InvalidSettings(text),
        types::PolicyError::Internal(text) => Reply::Internal(text),
    }
}

pub(super) fn ranking(answer: Result<hs::Ranking, types::PolicyError>) -> Reply {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return refused(error),
    };
    let placements = answer.placements.into_iter().map(|it| Scored {
        index: it.index,
        score: it.score,
        reason: it.reason,
    });
    let rejected = answer.rejected.into_iter().map(|it| Rejected {
        index: it.index,
        reason: it.reason,
    });
    Reply::Ranking {
        placements: placements.collect(),
        rejected: rejected.collect(),
        state: answer.state,
    }
}

pub(super) fn removals(answer: Result<sd::Plan, types::PolicyError>) -> Reply {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return refused(error),
    };
    let removals = answer.removals.into_iter().map(|it| Scored {
        index: it.index,
        score: it.score,
        reason: it.reason,
    });
    Reply::Removals {
        removals: removals.collect(),
        state: answer.state,
    }
}

pub(super) fn decorations(answer: Result<Vec<labels::Decoration>, types::PolicyError>) -> Reply {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return refused(error),
    };
    let decorated = answer.into_iter().map(|it| Decorated {
        labels: it.labels,
        annotations: it.annotations,
        taints: it
            .taints
            .into_iter()
            .map(|taint| (taint.key, taint.value, taint.effect))
            .collect(),
    });
    Reply::Decorations(decorated.collect())
}
