//! When machines of a pool may go, and how many at once: `disruption` of a NodePool.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::budgets::{DisruptionBudget, Going, Left, Share, strictest};
use super::recurring::{Recurring, end_of, next_start};

/// Why a machine goes that works and could stay, in the words of a NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DisruptionReason {
    /// It runs no pod that would have to move.
    Empty,
    /// Its pods fit on other Nodes.
    Underutilized,
    /// Older than the pool's `expireAfter`.
    Expired,
    /// Its class or its template has changed.
    Drifted,
    /// Its server is to be emptied.
    Maintenance,
    /// The annotation `kproxide.dev/replace`.
    Replace,
}

impl DisruptionReason {
    pub const ALL: [Self; 6] = [
        Self::Empty,
        Self::Underutilized,
        Self::Expired,
        Self::Drifted,
        Self::Maintenance,
        Self::Replace,
    ];

    /// A window that names no reason means it. The others are what a person asks for.
    fn is_of_every_window(self) -> bool {
        match self {
            Self::Empty | Self::Underutilized | Self::Expired | Self::Drifted => true,
            Self::Maintenance | Self::Replace => false,
        }
    }

    /// A person wants it of one machine or server. One that is not Ready may then go whatever the budgets say, as its
    /// repair may.
    pub fn is_asked_for(self) -> bool {
        !self.is_of_every_window()
    }
}

impl fmt::Display for DisruptionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How machines are replaced, and when and how many machines may go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Disruption {
    /// kproxide makes the new machine before it drains the old one, if pods need it. true: where there is no room for both,
    /// a machine goes first that is older than `expireAfter`, or on a server that is to be emptied. false: it stays until
    /// there is room. Repairs, and replacements that you ask for (`kproxide.dev/replace`), go first in any case.
    pub old_first: bool,
    /// When removals may begin. A reason that some window names begins only while one of its windows is open. What has
    /// begun goes to its end. A machine is replaced only if its replacement's timeouts for clone, provision and join end in
    /// the window. Empty: at any time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub windows: Vec<DisruptionWindow>,
    /// How many machines may go at once. Of the active budgets for a reason the strictest holds. Where none is active, 10%
    /// do. `scaleDown.budget` then counts repairs, deleted Nodes and the deletion of the pool alone. Empty: it counts all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub budgets: Vec<DisruptionBudget>,
}

impl Disruption {
    /// The windows that a removal for this reason keeps to. None: it may begin at any time.
    pub fn windows_for(
        &self,
        reason: DisruptionReason,
    ) -> impl Iterator<Item = &Recurring> + Clone {
        let windows = self.windows.iter();
        let named = windows
            .filter(move |window| names(&window.reasons, reason, |it| it.is_of_every_window()));
        named.map(|window| &window.when)
    }

    /// When a removal for this reason may begin, if not now.
    pub fn closed_until(&self, reason: DisruptionReason, now: Timestamp) -> Option<Closed> {
        let windows = self.windows_for(reason);
        closed_until(windows, now)
    }

    /// The active budgets for this reason; where none is active, 10%. Empty: the pool has no `budgets`.
    pub fn shares(&self, reason: DisruptionReason, now: Timestamp) -> Vec<Share> {
        let active = self
            .budgets
            .iter()
            .filter(|budget| names(&budget.reasons, reason, |_| true) && budget.is_active(now));
        let shares: Vec<Share> = active.map(|budget| budget.nodes).collect();
        match shares.is_empty() && !self.budgets.is_empty() {
            true => vec![Share::Percent(10)],
            false => shares,
        }
    }

    /// How many more machines may go for this reason, and what says so. `None`: the pool has no `budgets`.
    pub fn left(&self, reason: DisruptionReason, now: Timestamp, pool: Going) -> Option<Left> {
        strictest(&self.shares(reason, now), pool)
    }

    /// All times, each with its field.
    pub fn times(&self) -> impl Iterator<Item = (String, &Recurring)> {
        let windows = self.windows.iter().enumerate();
        let windows = windows.map(|(at, it)| (format!("disruption.windows[{at}]"), &it.when));
        let budgets = self.budgets.iter().enumerate();
        let budgets = budgets
            .filter_map(|(at, it)| Some((format!("disruption.budgets[{at}]"), it.when.as_ref()?)));
        windows.chain(budgets)
    }
}

/// Of the list, or of those that an empty list means.
fn names(
    list: &[DisruptionReason],
    reason: DisruptionReason,
    by_default: impl Fn(DisruptionReason) -> bool,
) -> bool {
    match list.is_empty() {
        true => by_default(reason),
        false => list.contains(&reason),
    }
}

/// If there are any, and all are closed: until when.
pub fn closed_until<'a>(
    windows: impl Iterator<Item = &'a Recurring> + Clone,
    now: Timestamp,
) -> Option<Closed> {
    let is_open = windows.clone().next().is_none() || end_of(windows.clone(), now).is_some();
    (!is_open).then(|| Closed {
        opens: next_start(windows, now),
    })
}

/// No window is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The next one opens then. `None`: none ever does, because it cannot be read.
    pub opens: Option<Timestamp>,
}

/// When removals may begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DisruptionWindow {
    /// Empty, Underutilized, Expired, Drifted, Maintenance, Replace. Not given: the first four.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 6)))]
    pub reasons: Vec<DisruptionReason>,
    #[serde(flatten)]
    pub when: Recurring,
}

#[cfg(test)]
mod tests;
