//! Converts the planner's types to WIT's and back, and checks the form of answers: a policy's answer is foreign data.

use std::collections::BTreeSet;

use kproxide_planner::facts::{Labels, Taint, TaintEffect};
use kproxide_planner::question::{
    AnswerBody, Attribute, AttributeValue, Candidate, Context, DecorateQuestion, Decoration,
    HypervisorDescription, Machine, OrderQuestion, RankQuestion, Ranking, Rejected, Removals,
    Scored, Size,
};

use super::CallError;
use super::bindings::host_selection::exports::kproxide::policy::host_selection as hs;
use super::bindings::host_selection::kproxide::policy::types;
use super::bindings::labels::exports::kproxide::policy::labels;
use super::bindings::scale_down::exports::kproxide::policy::scale_down as sd;
use crate::labels::{LabelError, check_key, check_value};

const STATE_BYTES_MAX: usize = 4096;
const REASON_BYTES_MAX: usize = 300;
/// Labels, annotations or taints of one machine.
const DECORATIONS_MAX: usize = 64;
const ANNOTATION_BYTES_MAX: usize = 4096;

/// Text from a policy, made safe to print: what cannot be seen, such as marks that move the cursor, turn the direction of reading or hide text, becomes a
/// space; cut at a character boundary.
pub(crate) fn printable(text: &str, bytes_max: usize) -> String {
    let text = &text[..text.floor_char_boundary(bytes_max)];
    // Nearly all texts are such.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.trim().to_owned();
    }
    let shown = text.chars().map(|c| if is_visible(c) { c } else { ' ' });
    shown.collect::<String>().trim().to_owned()
}

fn is_visible(c: char) -> bool {
    // Letters and marks without a shape: variation selectors, fillers, the blank of Braille.
    let is_blank = matches!(
        c,
        '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'
    );
    if c.is_ascii() || is_blank {
        return matches!(c, ' '..='~');
    }
    // The standard library escapes what Unicode calls a control, a format, a separator, private or unassigned. An accent it leaves alone behind a letter.
    let mut behind_a_letter = [b'a', 0, 0, 0, 0];
    let end = 1 + c.encode_utf8(&mut behind_a_letter[1..]).len();
    str::from_utf8(&behind_a_letter[..end]).is_ok_and(|text| text.escape_debug().count() == 2)
}

pub(super) fn refused(error: types::PolicyError) -> Result<AnswerBody, CallError> {
    let reason = |text: &str| printable(text, REASON_BYTES_MAX);
    match error {
        types::PolicyError::NoCandidate(text) => Ok(AnswerBody::NoCandidate(reason(&text))),
        types::PolicyError::InvalidSettings(text) => Err(CallError::InvalidSettings(reason(&text))),
        types::PolicyError::Internal(text) => Err(CallError::Internal(reason(&text))),
    }
}

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

fn context(context: &Context, settings: &str) -> types::Context {
    types::Context {
        cluster: context.cluster.to_string(),
        now: u64::try_from(context.now).unwrap_or(0),
        seed: context.seed,
        dry_run: context.dry_run,
        state: context.state.clone(),
        settings: settings.to_owned(),
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

pub(super) fn ranking(
    answer: Result<hs::Ranking, types::PolicyError>,
    question: &RankQuestion,
) -> Result<AnswerBody, CallError> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return refused(error),
    };
    let mut seen = BTreeSet::new();
    let mut placements = Vec::with_capacity(answer.placements.len().min(question.candidates.len()));
    for placement in answer.placements {
        let candidate = question.candidates.get(placement.index as usize);
        let candidate = candidate.ok_or_else(|| {
            invalid(format!(
                "placement index {} is out of range: there are {} candidates",
                placement.index,
                question.candidates.len()
            ))
        })?;
        if let Some(reason) = &candidate.ineligible {
            return Err(invalid(format!(
                "it placed the machine on {}, which is not eligible: {reason}",
                candidate.hypervisor.id
            )));
        }
        placements.push(scored(
            "placement",
            placement.index,
            placement.score,
            &placement.reason,
            &mut seen,
        )?);
    }
    let mut rejected = Vec::with_capacity(answer.rejected.len().min(question.candidates.len()));
    for rejection in answer.rejected {
        let index = rejection.index;
        if index as usize >= question.candidates.len() {
            return Err(invalid(format!(
                "rejection index {index} is out of range: there are {} candidates",
                question.candidates.len()
            )));
        }
        see("rejection", index, &mut seen)?;
        rejected.push(Rejected {
            index,
            reason: printable(&rejection.reason, REASON_BYTES_MAX),
        });
    }
    Ok(AnswerBody::Ranking(Ranking {
        placements,
        rejected,
        state: state(answer.state)?,
    }))
}

pub(super) fn removals(
    answer: Result<sd::Plan, types::PolicyError>,
    question: &OrderQuestion,
) -> Result<AnswerBody, CallError> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return refused(error),
    };
    let mut seen = BTreeSet::new();
    let removals = answer
        .removals
        .into_iter()
        .map(|removal| {
            if removal.index as usize >= question.nodes.len() {
                return Err(invalid(format!(
                    "removal index {} is out of range: there are {} nodes",
                    removal.index,
                    question.nodes.len()
                )));
            }
            scored(
                "removal",
                removal.index,
                removal.score,
                &removal.reason,
                &mut seen,
            )
        })
        .collect::<Result<_, _>>()?;
    Ok(AnswerBody::Removals(Removals {
        removals,
        state: state(answer.state)?,
    }))
}

pub(super) fn decorations(
    answer: Result<Vec<labels::Decoration>, types::PolicyError>,
    question: &DecorateQuestion,
) -> Result<AnswerBody, CallError> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return refused(error),
    };
    if answer.len() != question.hypervisors.len() {
        return Err(invalid(format!(
            "{} decorations for {} hypervisors",
            answer.len(),
            question.hypervisors.len()
        )));
    }
    let decorations = answer
        .into_iter()
        .zip(&question.hypervisors)
        .map(|(answer, hypervisor)| {
            decoration(answer).map_err(|error| invalid(format!("for {}: {error}", hypervisor.id)))
        })
        .collect::<Result<_, _>>()?;
    Ok(AnswerBody::Decorations(decorations))
}

fn decoration(answer: labels::Decoration) -> Result<Decoration, LabelError> {
    let count = answer
        .labels
        .len()
        .max(answer.annotations.len())
        .max(answer.taints.len());
    if count > DECORATIONS_MAX {
        return Err(LabelError::TooMany {
            count,
            max: DECORATIONS_MAX,
        });
    }
    let mut labels = Labels::new();
    for (key, value) in answer.labels {
        check_key("label", &key)?;
        check_value("label", &key, &value)?;
        insert("label", &mut labels, key, value)?;
    }
    let mut annotations = Labels::new();
    for (key, value) in answer.annotations {
        check_key("annotation", &key)?;
        if value.len() > ANNOTATION_BYTES_MAX {
            return Err(LabelError::LongAnnotation {
                key,
                max: ANNOTATION_BYTES_MAX,
            });
        }
        insert("annotation", &mut annotations, key, value)?;
    }
    let mut taints: Vec<Taint> = Vec::with_capacity(answer.taints.len());
    for taint in answer.taints {
        check_key("taint", &taint.key)?;
        check_value("taint", &taint.key, &taint.value)?;
        let Some(effect) = TaintEffect::from_word(&taint.effect) else {
            return Err(LabelError::Effect {
                key: taint.key,
                effect: printable(&taint.effect, 40),
            });
        };
        // Kubernetes tells taints apart by key and effect.
        if taints
            .iter()
            .any(|before| *before.key == *taint.key && before.effect == effect)
        {
            return Err(LabelError::Twice {
                what: "taint",
                key: taint.key,
            });
        }
        taints.push(Taint {
            key: taint.key.into(),
            value: taint.value.into(),
            effect,
        });
    }
    Ok(Decoration {
        labels,
        annotations,
        taints,
    })
}

fn insert(
    what: &'static str,
    map: &mut Labels,
    key: String,
    value: String,
) -> Result<(), LabelError> {
    if map.contains_key(&key) {
        return Err(LabelError::Twice { what, key });
    }
    map.insert(key, value);
    Ok(())
}

fn scored(
    what: &str,
    index: u32,
    score: f64,
    reason: &str,
    seen: &mut BTreeSet<u32>,
) -> Result<Scored, CallError> {
    see(what, index, seen)?;
    // NaN is in no range.
    if !(0.0..=1.0).contains(&score) {
        return Err(invalid(format!(
            "the score {score} of {what} {index} is not between 0 and 1"
        )));
    }
    // Adding zero takes the sign off -0.0, which a total order would put below 0.0.
    Ok(Scored {
        index,
        score: score + 0.0,
        reason: printable(reason, REASON_BYTES_MAX),
    })
}

fn see(what: &str, index: u32, seen: &mut BTreeSet<u32>) -> Result<(), CallError> {
    if seen.insert(index) {
        Ok(())
    } else {
        Err(invalid(format!(
            "index {index} is given twice, the second time as a {what}"
        )))
    }
}

fn state(state: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, CallError> {
    match state {
        Some(bytes) if bytes.len() > STATE_BYTES_MAX => Err(invalid(format!(
            "its state has {} bytes; at most {STATE_BYTES_MAX} are kept",
            bytes.len()
        ))),
        state => Ok(state),
    }
}

fn invalid(text: String) -> CallError {
    CallError::InvalidAnswer(text)
}
