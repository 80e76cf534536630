//! What a policy says before anybody has looked at it: it comes from an instance in this process or, over a pipe, from one in another.

use kproxide_planner::plan::question::{Rejected, Scored};
use serde::{Deserialize, Serialize};

use super::store::{LOG_BYTES_MAX, LOG_ERRORS_MAX, LOG_LINES_MAX};
use super::{CALL_FUEL, CallError};
use kproxide_common::foreign;

/// One call: its outcome, its cost, and its lines for the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Replied<T> {
    pub(crate) result: Result<T, CallError>,
    pub(crate) fuel: u64,
    pub(crate) said: Vec<Said>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    Debug(String),
    Info(String),
    Warn(String),
    /// What comes next is dropped.
    TooMuch,
}

/// An answer in the words of `wit/policy.wit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Ranking {
        placements: Vec<Scored>,
        rejected: Vec<Rejected>,
        state: Option<Vec<u8>>,
    },
    Removals {
        removals: Vec<Scored>,
        state: Option<Vec<u8>>,
    },
    Decorations(Vec<Decorated>),
    NoCandidate(String),
    InvalidSettings(String),
    Internal(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Decorated {
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) annotations: Vec<(String, String)>,
    /// Key, value and effect.
    pub(crate) taints: Vec<(String, String, String)>,
}

impl<T> Replied<T> {
    /// No instance was asked.
    pub(crate) fn lost(reason: String) -> Self {
        Self::failed(CallError::Lost(reason), 0)
    }

    pub(crate) fn failed(error: CallError, fuel: u64) -> Self {
        Self {
            result: Err(error),
            fuel,
            said: Vec::new(),
        }
    }

    /// As it came from another process, held to what an instance in this one could have said.
    pub(crate) fn bounded(mut self) -> Self {
        self.fuel = self.fuel.min(CALL_FUEL);
        self.said
            .truncate((LOG_LINES_MAX + LOG_ERRORS_MAX + 1) as usize);
        self
    }

    /// Writes the policy's lines to the log.
    pub(super) fn tell(&self, policy: &str) {
        let line = |text: &str| foreign::line(text, LOG_BYTES_MAX);
        for said in &self.said {
            match said {
                Said::Debug(text) => tracing::debug!(policy, line = line(text), "policy says"),
                Said::Info(text) => tracing::info!(policy, line = line(text), "policy says"),
                // A policy's errors are its own: they are no broken invariant of ours.
                Said::Warn(text) => tracing::warn!(policy, line = line(text), "policy says"),
                Said::TooMuch => tracing::warn!(
                    policy,
                    "policy says more than {LOG_LINES_MAX} lines in one call; the rest is dropped"
                ),
            }
        }
    }
}
