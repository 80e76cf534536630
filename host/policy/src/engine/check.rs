//! Checks the form of answers. A policy's answer is foreign data, from whichever process it comes: all of them are looked at here, by the same rules.

use std::collections::BTreeSet;

use kproxide_planner::facts::{Labels, PolicyKind, Taint, TaintEffect};
use kproxide_planner::plan::question::{
    AnswerBody, DecorateQuestion, Decoration, OrderQuestion, Question, RankQuestion, Ranking,
    Rejected, Removals, Scored,
};

use super::CallError;
use super::reply::{Decorated, Reply};
use kproxide_common::foreign;
use kproxide_common::labels::{LabelError, check_key, check_value};

const STATE_BYTES_MAX: usize = 4096;
pub(crate) const REASON_BYTES_MAX: usize = 300;
/// Labels, annotations or taints of one machine.
const DECORATIONS_MAX: usize = 64;
const ANNOTATION_BYTES_MAX: usize = 4096;

/// # Errors
/// The policy refuses to answer, or its answer has not the form that this question wants.
pub(super) fn answer(reply: Reply, question: &Question) -> Result<AnswerBody, CallError> {
    let reason = |text: &str| foreign::line(text, REASON_BYTES_MAX);
    match (reply, question) {
        (Reply::NoCandidate(text), _) => Ok(AnswerBody::NoCandidate(reason(&text))),
        (Reply::InvalidSettings(text), _) => Err(CallError::InvalidSettings(reason(&text))),
        (Reply::Internal(text), _) => Err(CallError::Internal(reason(&text))),
        (
            Reply::Ranking {
                placements,
                rejected,
                state,
            },
            Question::Rank(question),
        ) => ranking(placements, rejected, state, question),
        (
            Reply::Removals {
                removals: of,
                state,
            },
            Question::Order(question),
        ) => removals(of, state, question),
        (Reply::Decorations(of), Question::Decorate(question)) => decorations(of, question),
        (Reply::Ranking { .. }, _) => Err(CallError::WrongKind(PolicyKind::HostSelection)),
        (Reply::Removals { .. }, _) => Err(CallError::WrongKind(PolicyKind::ScaleDown)),
        (Reply::Decorations(_), _) => Err(CallError::WrongKind(PolicyKind::Labels)),
    }
}

/// What a policy says of settings.
///
/// # Errors
/// It does not accept them. There is no candidate yet: whatever it says of that is of its settings.
pub(super) fn settings(reply: Reply) -> CallError {
    let reason = |text: &str| foreign::line(text, REASON_BYTES_MAX);
    match reply {
        Reply::NoCandidate(text) | Reply::InvalidSettings(text) => {
            CallError::InvalidSettings(reason(&text))
        }
        Reply::Internal(text) => CallError::Internal(reason(&text)),
        Reply::Ranking { .. } | Reply::Removals { .. } | Reply::Decorations(_) => {
            invalid("it is no verdict on settings".to_owned())
        }
    }
}

fn ranking(
    placements: Vec<Scored>,
    rejected: Vec<Rejected>,
    of_state: Option<Vec<u8>>,
    question: &RankQuestion,
) -> Result<AnswerBody, CallError> {
    let mut seen = BTreeSet::new();
    let mut placed = Vec::with_capacity(placements.len().min(question.candidates.len()));
    for placement in placements {
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
        placed.push(scored("placement", placement, &mut seen)?);
    }
    let mut refused = Vec::with_capacity(rejected.len().min(question.candidates.len()));
    for rejection in rejected {
        let index = rejection.index;
        if index as usize >= question.candidates.len() {
            return Err(invalid(format!(
                "rejection index {index} is out of range: there are {} candidates",
                question.candidates.len()
            )));
        }
        see("rejection", index, &mut seen)?;
        refused.push(Rejected {
            index,
            reason: foreign::line(&rejection.reason, REASON_BYTES_MAX),
        });
    }
    Ok(AnswerBody::Ranking(Ranking {
        placements: placed,
        rejected: refused,
        state: state(of_state)?,
    }))
}

fn removals(
    removals: Vec<Scored>,
    of_state: Option<Vec<u8>>,
    question: &OrderQuestion,
) -> Result<AnswerBody, CallError> {
    let mut seen = BTreeSet::new();
    let removals = removals
        .into_iter()
        .map(|removal| {
            if removal.index as usize >= question.nodes.len() {
                return Err(invalid(format!(
                    "removal index {} is out of range: there are {} nodes",
                    removal.index,
                    question.nodes.len()
                )));
            }
            scored("removal", removal, &mut seen)
        })
        .collect::<Result<_, _>>()?;
    Ok(AnswerBody::Removals(Removals {
        removals,
        state: state(of_state)?,
    }))
}

fn decorations(
    answer: Vec<Decorated>,
    question: &DecorateQuestion,
) -> Result<AnswerBody, CallError> {
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

fn decoration(answer: Decorated) -> Result<Decoration, LabelError> {
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
    for (key, value, effect) in answer.taints {
        check_key("taint", &key)?;
        check_value("taint", &key, &value)?;
        let Some(effect) = TaintEffect::from_word(&effect) else {
            return Err(LabelError::Effect {
                key,
                effect: foreign::line(&effect, 40),
            });
        };
        // Kubernetes tells taints apart by key and effect.
        if taints
            .iter()
            .any(|before| *before.key == *key && before.effect == effect)
        {
            return Err(LabelError::Twice { what: "taint", key });
        }
        taints.push(Taint {
            key: key.into(),
            value: value.into(),
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

fn scored(what: &str, answer: Scored, seen: &mut BTreeSet<u32>) -> Result<Scored, CallError> {
    let Scored {
        index,
        score,
        reason,
    } = answer;
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
        reason: foreign::line(&reason, REASON_BYTES_MAX),
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
