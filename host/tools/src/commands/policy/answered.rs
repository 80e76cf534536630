//! An answer of a policy, in words that stay the same from one version to the next.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use kproxide_planner::facts::Taint;
use kproxide_planner::plan::question::{Answer, AnswerBody, Question};
use serde::Serialize;

use super::given::{Asked, kind_of};
use crate::whatif::table;
use kproxide_common::decisions::Decision;
use kproxide_policy::{CALL_FUEL, CallError};

/// Fields may be added.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answered {
    pub(super) kind: &'static str,
    pub(super) pool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instance_type: Option<String>,
    /// What kproxide would take first comes first, and what it would not take last.
    pub(super) candidates: Vec<Row>,
    /// The policy wants nothing done, for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) no_answer: Option<String>,
    /// It has no answer that counts, for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
}

/// A hypervisor, or with `scale-down` a Node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) score: Option<f64>,
    /// `kproxide` or `policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused_by: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) taints: Vec<Taint>,
}

impl Answered {
    pub(super) fn of(question: &Question, result: &Result<AnswerBody, CallError>) -> Self {
        let failure = result.as_ref().err().map(ToString::to_string);
        let body = match result {
            Ok(body) => body.clone(),
            Err(error) => AnswerBody::Failed(error.to_string()),
        };
        let answer = Answer::of("".into(), body);
        let decision = Decision::new(Timestamp::UNIX_EPOCH, question, &answer);
        let mut decorations = match answer.body {
            AnswerBody::Decorations(decorations) => decorations,
            AnswerBody::Ranking(_)
            | AnswerBody::Removals(_)
            | AnswerBody::NoCandidate(_)
            | AnswerBody::Failed(_)
            | AnswerBody::Deferred => Vec::new(),
        }
        .into_iter();
        let rows = decision.candidates.into_iter().map(|candidate| {
            let decoration = decorations.next().unwrap_or_default();
            let texts = decoration.annotations.iter();
            Row {
                name: candidate.name,
                score: candidate.score,
                refused_by: candidate.refused_by,
                reason: candidate.reason,
                labels: candidate.labels,
                annotations: texts
                    .map(|(key, value)| (key.to_string(), value.to_string()))
                    .collect(),
                taints: decoration.taints,
            }
        });
        let mut candidates: Vec<Row> = rows.collect();
        // As the planner does: the best score first, equal ones by name.
        candidates.sort_by(|a, b| {
            let (of_a, of_b) = (a.score.unwrap_or(-1.0), b.score.unwrap_or(-1.0));
            of_b.total_cmp(&of_a).then_with(|| a.name.cmp(&b.name))
        });
        Self {
            kind: kind_of(question).as_str(),
            pool: decision.pool,
            instance_type: decision.instance_type,
            candidates,
            no_answer: decision.no_answer.filter(|_| failure.is_none()),
            failure,
        }
    }

    fn title(&self) -> String {
        let of_type = self.instance_type.as_ref();
        let of_type = of_type.map_or(String::new(), |name| format!(", a machine of type {name}"));
        format!("{} for pool {}{of_type}", self.kind, self.pool)
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_labels = self.kind == "labels";
        let rows = self.candidates.iter().zip(1..).map(|(row, rank)| {
            let Row {
                name,
                score,
                refused_by,
                reason,
                labels,
                annotations,
                taints,
            } = row;
            if is_labels {
                let pairs = labels.iter().map(|(key, value)| format!("{key}={value}"));
                let notes = annotations.iter();
                let notes = notes.map(|(key, value)| format!("annotation {key}={value}"));
                let taints = taints.iter();
                let taints =
                    taints.map(|it| format!("taint {}={}:{:?}", it.key, it.value, it.effect));
                let all: Vec<_> = pairs.chain(notes).chain(taints).collect();
                return vec![name.clone(), all.join(", ")];
            }
            let why = match refused_by.as_deref() {
                Some("kproxide") => format!("not eligible: {reason}"),
                Some(_) => format!("refused: {reason}"),
                None if score.is_none() && self.failure.is_none() => "not named".to_owned(),
                None => reason.clone(),
            };
            let dash = || "-".to_owned();
            vec![
                score.map_or_else(dash, |_| rank.to_string()),
                name.clone(),
                score.map_or_else(dash, |score| format!("{score:.3}")),
                why,
            ]
        });
        let heads: &[&str] = match self.kind {
            "labels" => &["HYPERVISOR", "GETS"],
            "scale-down" => &["RANK", "NODE", "SCORE", "WHY"],
            _ => &["RANK", "HYPERVISOR", "SCORE", "WHY"],
        };
        let mut text = String::new();
        table(&mut text, &self.title(), heads, rows.collect(), 50, 120)?;
        match text.is_empty() {
            true => writeln!(f, "{}: no candidate", self.title())?,
            false => write!(f, "{}", text.trim_start_matches('\n'))?,
        }
        if let Some(reason) = &self.no_answer {
            writeln!(f, "  It wants nothing done: {reason}")?;
        }
        if let Some(failure) = &self.failure {
            writeln!(f, "  It has failed: {failure}")?;
        }
        Ok(())
    }
}

/// An answer, and what it took.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    #[serde(flatten)]
    pub(super) answered: Answered,
    pub(super) log: Vec<kproxide_policy::heard::Line>,
    pub(super) instructions: u64,
    pub(super) microseconds: u64,
}

impl Measured {
    pub(super) fn of(question: &Question, asked: Asked) -> Self {
        Self {
            answered: Answered::of(question, &asked.called.result),
            log: asked.log,
            instructions: asked.called.fuel,
            microseconds: asked.microseconds,
        }
    }

    /// It was not asked, for this reason.
    pub(super) fn refused(question: &Question, error: CallError) -> Self {
        Self {
            answered: Answered::of(question, &Err(error)),
            log: Vec::new(),
            instructions: 0,
            microseconds: 0,
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.answered)?;
        for line in &self.log {
            writeln!(f, "  It says ({}): {}", line.level, line.text)?;
        }
        let Self {
            instructions,
            microseconds,
            ..
        } = self;
        writeln!(
            f,
            "  {instructions} instructions ({}), {microseconds} µs",
            share(*instructions)
        )
    }
}

/// Of what one call may use.
pub(super) fn share(fuel: u64) -> String {
    let percent = fuel as f64 * 100.0 / CALL_FUEL as f64;
    format!("{percent:.3} % of what a call may use")
}
