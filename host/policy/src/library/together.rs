//! Several policies that decide together: one answer of all of theirs.
//!
//! What one of them refuses, or does not name, is out. The rest has the mean of the scores, each counted by its weight.

use std::borrow::Cow;
use std::fmt::Write as _;

use kproxide_planner::ids::Digest;
use kproxide_planner::plan::question::{
    Answer, AnswerBody, Question, Ranking, Rejected, Removals, Scored, States,
};

use crate::engine::{REASON_BYTES_MAX, digest};
use kproxide_common::foreign;

/// What one of them answered.
pub(super) struct Part<'q> {
    pub(super) question: Cow<'q, Question>,
    pub(super) weight: u32,
    pub(super) digest: Digest,
    pub(super) body: AnswerBody,
}

/// The question as it is put to each policy, with its weight; in the ordinary case as it is.
pub(super) fn parts(question: &Question) -> Vec<(Cow<'_, Question>, u32)> {
    match &question.policy().members[..] {
        [] => vec![(Cow::Borrowed(question), 1)],
        members => members
            .iter()
            .map(|it| (Cow::Owned(question.to_member(it)), it.weight))
            .collect(),
    }
}

/// One digest for several: of each its name, its weight and the digest of its bytes.
pub(super) fn digest_of<'a>(parts: impl Iterator<Item = (&'a str, u32, &'a str)>) -> Digest {
    let mut text = String::new();
    for (name, weight, digest) in parts {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} {weight} {digest}");
    }
    digest(text.as_bytes())
}

/// Of one the answer itself.
pub(super) fn answer(question: &Question, mut parts: Vec<Part<'_>>) -> Answer {
    if question.policy().members.is_empty()
        && let Some(Part { digest, body, .. }) = parts.pop()
    {
        return Answer::of(digest, body);
    }
    let of_all = parts.iter();
    let of_all = of_all.map(|it| {
        let name = &*it.question.policy().policy.name;
        (name, it.weight, it.digest.as_str())
    });
    let of_all = digest_of(of_all);
    let mut states = States::new();
    for part in &mut parts {
        let name = part.name();
        let (AnswerBody::Ranking(Ranking { state, .. })
        | AnswerBody::Removals(Removals { state, .. })) = &mut part.body
        else {
            continue;
        };
        states.extend(state.take().map(|state| (name, state)));
    }
    let refuses = |part: &Part<'_>| match &part.body {
        AnswerBody::NoCandidate(reason) => Some(format!("{}: {reason}", part.name())),
        AnswerBody::Ranking(_)
        | AnswerBody::Removals(_)
        | AnswerBody::Decorations(_)
        | AnswerBody::Failed(_)
        | AnswerBody::Deferred => None,
    };
    let body = match (parts.iter().find_map(refuses), question) {
        (Some(reason), _) => AnswerBody::NoCandidate(reason),
        (None, Question::Rank(rank)) => {
            let possible = |index: &usize| rank.candidates[*index].ineligible.is_none();
            let (placements, rejected) =
                together(&parts, (0..rank.candidates.len()).filter(possible));
            AnswerBody::Ranking(Ranking {
                placements,
                rejected,
                state: None,
            })
        }
        (None, Question::Order(order)) => {
            let (removals, _) = together(&parts, 0..order.nodes.len());
            AnswerBody::Removals(Removals {
                removals,
                state: None,
            })
        }
        (None, Question::Decorate(_)) => {
            AnswerBody::Failed("label policies do not decide together".to_owned())
        }
    };
    Answer {
        states,
        ..Answer::of(of_all, body)
    }
}

fn together(
    parts: &[Part<'_>],
    indices: impl Iterator<Item = usize>,
) -> (Vec<Scored>, Vec<Rejected>) {
    let weights: u32 = parts.iter().map(|it| it.weight).sum();
    let (mut scored, mut rejected) = (Vec::new(), Vec::new());
    for index in indices {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let (mut sum, mut reasons, mut refusals) = (0.0, Vec::new(), Vec::new());
        for part in parts {
            match part.verdict(index) {
                Ok(Scored { score, reason, .. }) => {
                    sum += f64::from(part.weight) * score;
                    reasons.extend(part.told(*score, reason));
                }
                Err(reason) => refusals.push(format!("{}: {reason}", part.name())),
            }
        }
        let shown = |texts: Vec<String>| foreign::line(&texts.join("; "), 2 * REASON_BYTES_MAX);
        if refusals.is_empty() {
            scored.push(Scored {
                index,
                score: (sum / f64::from(weights.max(1))).clamp(0.0, 1.0),
                reason: shown(reasons),
            });
        } else {
            rejected.push(Rejected {
                index,
                reason: shown(refusals),
            });
        }
    }
    (scored, rejected)
}

impl Part<'_> {
    fn name(&self) -> std::sync::Arc<str> {
        self.question.policy().policy.name.clone()
    }

    /// What it says of one candidate.
    ///
    /// # Errors
    /// It is against it, for this reason.
    fn verdict(&self, index: u32) -> Result<&Scored, &str> {
        let (scored, rejected) = self.body.verdicts();
        let scored = scored.iter().find(|it| it.index == index);
        let rejected = rejected.iter().find(|it| it.index == index);
        let reason = rejected.map_or("it does not name it", |it| &it.reason);
        scored.ok_or(reason)
    }

    /// Its reason; that of a policy that only refuses, if it has one.
    fn told(&self, score: f64, reason: &str) -> Option<String> {
        let name = self.name();
        let colon = if reason.is_empty() { "" } else { ": " };
        match self.weight {
            0 if reason.is_empty() => None,
            0 => Some(format!("{name}: {reason}")),
            1 => Some(format!("{name} {score:.2}{colon}{reason}")),
            weight => Some(format!("{name} {score:.2} × {weight}{colon}{reason}")),
        }
    }
}
