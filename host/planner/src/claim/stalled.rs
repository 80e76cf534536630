//! A removal past the point of no return that waits. What it waits for is told after a minute, in the condition
//! `Stalled` and in one Event. After ten minutes it no longer takes a place in its pool's budget, if no pod was evicted
//! for it.

use jiff::{SignedDuration, Timestamp};

use super::answers::SOON;
use super::reasons::KEPT_FAILED;
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use crate::facts::{ClaimStatus, Condition, Phase, RemovalReason};
use crate::plan::Verdict;
use crate::time::later;

/// What is waited for longer than this is told.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// A removal of which nothing goes on for so long gives its place back.
const GIVES_BACK: SignedDuration = SignedDuration::from_mins(10);

impl ClaimStatus {
    /// From when its removal takes no place in its pool's budget. `None`: as long as its VM exists. Its pods, if it had
    /// any, may not be back in service elsewhere: then the next removal would disrupt more of them than the budget says.
    pub(crate) fn gives_place_back(&self) -> Option<Timestamp> {
        let had_no_pods = self.removal() == Some(RemovalReason::Empty);
        let is_final = self.phase == Phase::Terminating;
        let since = self
            .since(Condition::Stalled)
            .filter(|_| had_no_pods && is_final)?;
        Some(later(since, GIVES_BACK))
    }
}

/// The step, or the record that has to come before it.
pub(super) fn told(subject: &Subject<'_>, step: Step, now: Timestamp) -> Step {
    // What is held is told by whoever holds it.
    let is_held = matches!(subject.verdict, Verdict::Hold(_));
    if subject.status().phase != Phase::Terminating || is_held {
        return step;
    }
    let conditions = &subject.status().conditions;
    let stalled = conditions
        .iter()
        .find(|c| c.kind == Condition::Stalled && c.status);
    let (why, until) = match &step {
        Step::BackOff { until, why } => (why, *until),
        Step::Wait { .. } if is_kept(subject) => return step,
        Step::Wait { until, why } => (why, until.unwrap_or(later(now, SOON))),
        Step::Record { change, then } if stalled.is_some() && goes_on(subject, change) => {
            let change = (**change).clone();
            return Step::Record {
                change: Box::new(ended(change, now)),
                then: then.clone(),
            };
        }
        Step::Record { .. } | Step::Do(_) | Step::Follow { .. } | Step::Done => return step,
    };
    let waits = subject.hint.waits.as_ref();
    let is_due = match stalled {
        // The API server may have cut the message.
        Some(told) if why.starts_with(&told.message) => false,
        // An error's text may be another one each time.
        Some(_) => {
            waits.is_some_and(|waits| waits.why == *why && now >= later(waits.why_since, PATIENCE))
        }
        None => waits.is_some_and(|waits| now >= later(waits.since, PATIENCE)),
    };
    let Some(waits) = waits.filter(|_| is_due) else {
        return step;
    };
    let since = stalled.map_or(waits.since, |told| told.since);
    let is_told = conditions.iter().any(|c| c.status && c.message == *why);
    let mut change =
        StatusChange::default().condition(Condition::Stalled, true, "Waits", why.clone(), since);
    if stalled.is_none() && !is_told {
        change = change.warn(
            "RemovalStalled",
            format!("the removal waits since {since:.0}: {why}"),
        );
    }
    let why = why.clone();
    change.record_and_back_off(until, why)
}

/// It waits no more.
pub(super) fn ended(change: StatusChange, now: Timestamp) -> StatusChange {
    change.condition(Condition::Stalled, false, "GoesOn", "", now)
}

/// The next operation is about to be done.
fn goes_on(subject: &Subject<'_>, change: &StatusChange) -> bool {
    match change.intent {
        Change::Set((op, _)) => subject.intent() != Some(op),
        Change::Keep | Change::Clear => false,
    }
}

/// The machine of a failed launch is kept for a person, and its condition says so.
fn is_kept(subject: &Subject<'_>) -> bool {
    let mut conditions = subject.status().conditions.iter();
    conditions.any(|c| c.kind == Condition::InstanceTerminating && c.reason == KEPT_FAILED)
}
