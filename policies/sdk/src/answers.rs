//! Short ways to say an answer.

use crate::{Candidate, Placement, PolicyError, Ranking, Rejection};

impl Ranking {
    /// Ranks every eligible candidate by the score and reason that `score` gives it, and rejects the others with the
    /// reason that kproxide gave. Leaves the stored state as it is.
    pub fn by_score(
        candidates: &[Candidate],
        mut score: impl FnMut(&Candidate) -> (f64, String),
    ) -> Ranking {
        let mut ranking = Ranking {
            placements: Vec::new(),
            rejected: Vec::new(),
            state: None,
        };
        for (index, candidate) in (0_u32..).zip(candidates) {
            if let Some(reason) = &candidate.ineligible {
                ranking.rejected.push(Rejection {
                    index,
                    reason: reason.clone(),
                });
            } else {
                let (score, reason) = score(candidate);
                ranking.placements.push(Placement {
                    index,
                    score,
                    reason,
                });
            }
        }
        ranking
    }
}

impl PolicyError {
    /// The operator's settings are wrong: `what` names the field, the value and what would be right.
    pub fn invalid_settings(what: impl Into<String>) -> PolicyError {
        PolicyError::InvalidSettings(what.into())
    }

    /// The policy has a defect, or was given facts that it cannot make sense of.
    pub fn internal(what: impl Into<String>) -> PolicyError {
        PolicyError::Internal(what.into())
    }
}
