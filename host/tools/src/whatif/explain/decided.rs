//! What policies answered: why a machine is where it is, and not elsewhere.

use kproxide_planner::ids::{ClaimName, PoolName};

use super::{About, Explanation};
use kproxide_common::decisions::{Candidate, Decision};

/// Decisions that one answer shows, the last first.
const MOST: usize = 5;

impl About<'_> {
    /// Every other hypervisor that the policy was asked about when this machine was placed. Those that cannot take a
    /// machine of this plan are told by [`Self::rejected`].
    pub(super) fn decided(&self, claim: &ClaimName, explanation: &mut Explanation) {
        let mut decisions = self.decisions.iter().rev();
        let decision = decisions.find(|one| one.claim.as_deref() == Some(claim.as_str()));
        let Some(decision) = decision else {
            return;
        };
        let is_planned = self.plan.launches.iter().any(|one| one.claim == *claim);
        for candidate in &decision.candidates {
            if is_planned
                && (candidate.score.is_none() || decision.chosen.contains(&candidate.name))
            {
                continue;
            }
            if decision.chosen.contains(&candidate.name) {
                explanation.rule(
                    format!("placed on {}", candidate.name),
                    format!("{}, {}", said(candidate), by(decision)),
                );
            } else {
                explanation.rule(format!("not on {}", candidate.name), said(candidate));
            }
        }
    }

    /// The last answers about one hypervisor or Node.
    pub(super) fn considered(&self, name: &str, kind: &str, explanation: &mut Explanation) {
        let of_kind = self.decisions.iter().rev().filter(|one| one.kind == kind);
        let about = of_kind.filter_map(|decision| {
            let mut candidates = decision.candidates.iter();
            let candidate = candidates.find(|candidate| candidate.name == name)?;
            Some((decision, candidate))
        });
        for (decision, candidate) in about.take(MOST) {
            let mut text = said(candidate);
            if decision.chosen.iter().any(|chosen| chosen == name) {
                text += ": chosen";
            } else if let Some(chosen) = winner(decision) {
                text += &format!("; {} has {}", chosen.name, score(chosen));
                if chosen.score < candidate.score {
                    text += ", and kproxide keeps this room for the next machine";
                }
            }
            let what = decision.claim.as_deref().unwrap_or(&decision.pool);
            explanation.rule(format!("for {what} at {}", decision.at), text);
        }
    }

    /// The last answers for one pool.
    pub(super) fn decided_for(&self, pool: &PoolName, explanation: &mut Explanation) {
        let decisions = self.decisions.iter().rev();
        let of_pool = decisions.filter(|one| *one.pool == *pool.as_str() && one.kind != "labels");
        for decision in of_pool.take(MOST) {
            let result = match (&decision.no_answer, winner(decision)) {
                (Some(reason), _) => reason.clone(),
                (None, Some(chosen)) => format!(
                    "{} {}, {}",
                    decision.claim.as_deref().unwrap_or("removal of"),
                    chosen.name,
                    said(chosen)
                ),
                (None, None) => "nothing was chosen".to_owned(),
            };
            explanation.rule(
                format!("{} at {}", decision.kind, decision.at),
                format!("{result}, {}", by(decision)),
            );
        }
    }
}

fn winner(decision: &Decision) -> Option<&Candidate> {
    let first = decision.chosen.first()?;
    let mut candidates = decision.candidates.iter();
    candidates.find(|candidate| candidate.name == *first)
}

fn score(candidate: &Candidate) -> String {
    candidate
        .score
        .map_or("no score".to_owned(), |score| format!("{score:.2}"))
}

fn said(candidate: &Candidate) -> String {
    let reason = &candidate.reason;
    match (candidate.score, candidate.refused_by.as_deref()) {
        (Some(_), _) => format!("score {}: {reason}", score(candidate)),
        (None, Some(by)) => format!("refused by {by}: {reason}"),
        (None, None) => "the policy gave it no score".to_owned(),
    }
}

fn by(decision: &Decision) -> String {
    match &decision.fallback {
        Some(why) => format!("by spread, because {why}"),
        None => format!("by policy {}", decision.policy),
    }
}
