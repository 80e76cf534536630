//! How a drive ends, and how long it rests.

use jiff::Timestamp;
use kproxide_planner::claim::{Op, Restored, Step, Then, Waits};
use kproxide_planner::time::later;

use super::clone_turn::CloneTurn;
use kproxide_common::chain::chain;
use kproxide_kube::error::Error;

/// Why a drive ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pause {
    /// Until something changes, or that moment.
    Wait {
        until: Option<Timestamp>,
        why: String,
    },
    /// Until that moment.
    BackOff { until: Timestamp, why: String },
    /// There is no such claim any more, or it is not ours to drive.
    Done,
}

/// How a drive ended.
pub(super) struct Driven {
    pub(super) pause: Pause,
    /// It did something, so the world has changed.
    pub(super) acted: bool,
    /// The claim says that it is being removed.
    pub(super) removing: bool,
    /// The claim says that its removal is past the point of no return.
    pub(super) is_final: bool,
    /// What the claim says that is about to be done.
    pub(super) about_to: Option<Op>,
    /// The turn to clone, if the clone's task is known and may still run.
    pub(super) clone_turn: CloneTurn,
    /// What it has written to its Node.
    pub(super) restored: Restored,
}

impl Driven {
    /// Nothing was done.
    pub(super) fn idle(pause: Pause) -> Self {
        Self {
            pause,
            acted: false,
            removing: false,
            is_final: false,
            about_to: None,
            clone_turn: CloneTurn::None,
            restored: Restored::default(),
        }
    }

    /// Nothing was done, and the turn stays as it was.
    pub(super) fn idle_with(pause: Pause, clone_turn: CloneTurn) -> Self {
        Self {
            clone_turn,
            ..Self::idle(pause)
        }
    }
}

/// How long a claim waits, and before what.
pub(super) struct Waiting {
    about_to: Option<Op>,
    pub(super) waits: Waits,
}

impl Waiting {
    /// After one more drive. It has waited since the first that ended with the same still to be done.
    pub(super) fn after(
        before: Option<Self>,
        about_to: Option<Op>,
        why: &str,
        now: Timestamp,
    ) -> Self {
        let before = before.filter(|before| before.about_to == about_to);
        let waits = match before.map(|before| before.waits) {
            Some(waits) if waits.why == why => waits,
            waits => Waits {
                since: waits.map_or(now, |waits| waits.since),
                why: why.to_owned(),
                why_since: now,
            },
        };
        Self { about_to, waits }
    }
}

impl Pause {
    /// The step, if it asks for something to be done.
    pub(super) fn of(step: Step) -> Result<Self, Step> {
        match step {
            Step::Wait { until, why } => Ok(Self::Wait { until, why }),
            Step::BackOff { until, why } => Ok(Self::BackOff { until, why }),
            Step::Done => Ok(Self::Done),
            step @ (Step::Record { .. } | Step::Do(_) | Step::Follow { .. }) => Err(step),
        }
    }

    /// The pause after an error, until the server may be asked again.
    pub(super) fn after(error: &Error, now: Timestamp) -> Self {
        Self::BackOff {
            until: later(now, error.pause()),
            why: chain(error),
        }
    }

    /// The pause after a record that could not be written. `then` would have followed it.
    pub(super) fn no_shorter_than(self, then: &Then) -> Self {
        match (self, then) {
            (Self::BackOff { until, why }, Then::BackOff { until: wanted, .. }) => Self::BackOff {
                until: until.max(*wanted),
                why,
            },
            (pause, Then::Continue | Then::BackOff { .. }) => pause,
        }
    }
}
