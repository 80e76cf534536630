//! The claim's status: written by compare-and-set. Then the Event is sent.

use kproxide_planner::claim::{Change, Phase, StatusChange};
use kproxide_planner::ids::Digest;
use kproxide_planner::plan::decision;

use super::ClaimNote;
use super::drive::Drive;
use super::pause::Pause;
use super::reserve::read_claim;
use kproxide_kube::claims;
use kproxide_kube::error::Cas;

/// What became of a record.
pub(super) enum Recorded {
    Written,
    /// Another writer has changed the claim. It was read again, and the decision has to be made again.
    Changed,
    Ended(Pause),
}

impl Drive {
    pub(super) async fn record(&mut self, change: &StatusChange) -> Recorded {
        let Some(epoch) = self.context.fence.epoch().filter(|_| self.leads()) else {
            return Recorded::Ended(Pause::Wait {
                until: None,
                why: "somebody else leads".to_owned(),
            });
        };
        let nonce = if change.fresh_nonce {
            (self.context.nonces)()
        } else {
            String::new()
        };
        let facts = self.facts();
        let before = decision::present(self.name(), facts);
        let mut status = facts.status.clone();
        change.apply(&mut status, &epoch, &nonce);
        if !decision::is_leaving(facts) && status.phase > Phase::Initialized {
            status.removal_decision = Some(decision::removal(facts));
        }
        self.acted();
        match claims::write_status(&self.context.kube, &self.claim, &status).await {
            Ok(Cas::Written(claim)) => {
                self.claim = claim;
                self.send_note(change, before);
                Recorded::Written
            }
            Ok(Cas::Conflict) => {
                match read_claim(&self.context, &self.claim.name, &self.claim.facts.uid).await {
                    Ok(claim) => {
                        self.claim = claim;
                        Recorded::Changed
                    }
                    Err(pause) => Recorded::Ended(pause),
                }
            }
            Ok(Cas::Gone) => Recorded::Ended(Pause::Done),
            Err(error) => Recorded::Ended(Pause::after(&error, self.context.clock.now())),
        }
    }

    /// Sends the Event after the claim's condition is written. A crash in between loses the Event, but not the
    /// condition.
    fn send_note(&self, change: &StatusChange, before: Option<Digest>) {
        let status = &self.facts().status;
        let decision = before.or_else(|| decision::present(self.name(), self.facts()));
        let decision_id = decision.as_ref().map(Digest::as_str);
        if let Some(phase) = change.phase {
            tracing::info!(claim = %self.name(), ?phase, decision_id, "phase");
        }
        if let Change::Set((op, attempt)) = &change.intent {
            tracing::debug!(claim = %self.name(), ?op, attempt, phase = ?status.phase, "intent");
        }
        if let Some(note) = &change.note {
            let note = ClaimNote {
                claim: self.name().clone(),
                uid: self.facts().uid.clone(),
                pool: self.facts().spec.pool.clone(),
                decision,
                note: note.clone(),
            };
            if self.context.notes.try_send(note).is_err() {
                tracing::debug!(claim = %self.name(), "an Event was dropped: too many at once");
            }
        }
    }
}
