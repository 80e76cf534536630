//! The policies of the benches, as plain functions: what they answer is the built-in `spread`'s definition, without its component.

use kproxide_planner::fixtures::{answered, reasonable};
use kproxide_planner::plan::question::{Answer, AnswerBody, Candidate, Question, Ranking, Scored};

/// Hypervisors without a machine first, the others by the share of their memory that is available; other questions as sensible policies answer them.
pub(crate) fn spread(question: &Question) -> Answer {
    let Question::Rank(rank) = question else {
        return reasonable(question);
    };
    let placements = (0..)
        .zip(rank.candidates.iter())
        .filter(|(_, candidate)| candidate.ineligible.is_none())
        .map(|(index, candidate)| Scored {
            index,
            score: score(candidate),
            reason: String::new(),
        });
    let ranking = Ranking {
        placements: placements.collect(),
        rejected: Vec::new(),
        state: None,
    };
    answered(question, AnswerBody::Ranking(ranking))
}

fn score(candidate: &Candidate) -> f64 {
    let all = candidate.hypervisor.capacity.memory_bytes.max(1);
    let share = (candidate.available.memory_bytes as f64 / all as f64).min(1.0);
    match candidate.machines {
        0 => 0.5 + share / 2.0,
        _ => share / 2.0,
    }
}
