//! Short ways to say an answer.

use crate::{Candidate, Placement, PolicyError, Ranking, Rejection};

impl Ranking {
    /// Ranks every eligible candidate by the score and reason that `score` gives it, and rejects the others with the
    /// reason that kproxide gave. Leaves the stored state as it is.
    pub fn by_score(
        candidates: &[Candidate],
        mut score: impl FnMut(&Candidate) -> (f64, String),
    ) -> Ranking {
        Self::by(candidates, |candidate| Ok(score(candidate)))
    }

    /// The same, but `judge` may also reject a candidate: then it gives the reason as an error.
    pub fn by(
        candidates: &[Candidate],
        mut judge: impl FnMut(&Candidate) -> Result<(f64, String), String>,
    ) -> Ranking {
        let mut ranking = Ranking {
            placements: Vec::new(),
            rejected: Vec::new(),
            state: None,
        };
        for (index, candidate) in (0_u32..).zip(candidates) {
            let judged = match &candidate.ineligible {
                Some(reason) => Err(reason.clone()),
                None => judge(candidate),
            };
            match judged {
                Ok((score, reason)) => ranking.placements.push(Placement {
                    index,
                    score,
                    reason,
                }),
                Err(reason) => ranking.rejected.push(Rejection { index, reason }),
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
