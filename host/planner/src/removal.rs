//! What follows from the reason of a removal: a column for each question that the rest of the program asks.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::RemovalReason;

/// What of the breaker a removal uses up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Allowance {
    Repairs,
    All,
}

/// Why a machine that was removed a short time ago counts as gone bad.
pub(crate) enum Loss {
    Deleted,
    NoVm,
}

impl RemovalReason {
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::Underutilized,
        Self::Expired,
        Self::Replace,
        Self::Repair,
        Self::LaunchFailed,
        Self::Deleted,
        Self::Lost,
    ];

    /// One word, as conditions, Events and the Ledger carry it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Underutilized => "Underutilized",
            Self::Expired => "Expired",
            Self::Replace => "Replace",
            Self::Repair => "Repair",
            Self::LaunchFailed => "LaunchFailed",
            Self::Deleted => "Deleted",
            Self::Lost => "Lost",
        }
    }

    /// The reason that such a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// The reason of the Event that tells of the removal, in Cluster Autoscaler's words.
    pub fn event(self) -> &'static str {
        match self {
            Self::Empty => "ScaleDownEmpty",
            Self::Underutilized
            | Self::Expired
            | Self::Replace
            | Self::Repair
            | Self::LaunchFailed
            | Self::Deleted
            | Self::Lost => "ScaleDown",
        }
    }

    /// The pool gets smaller by it, and no other machine is made: it is held to `minNodes` and to what blocks scale-down, and its drain
    /// goes on only while the cluster could still do without the Node.
    pub fn scales_down(self) -> bool {
        match self {
            Self::Empty | Self::Underutilized => true,
            Self::Expired
            | Self::Replace
            | Self::Repair
            | Self::LaunchFailed
            | Self::Deleted
            | Self::Lost => false,
        }
    }

    /// The machine works, and may as well stay: its drain is given up rather than forced.
    pub fn is_voluntary(self) -> bool {
        match self {
            Self::Empty | Self::Underutilized | Self::Expired | Self::Replace => true,
            Self::Repair | Self::LaunchFailed | Self::Deleted | Self::Lost => false,
        }
    }

    /// It waits for the pool's `scaleDown.budget`.
    pub(crate) fn is_budgeted(self) -> bool {
        match self {
            Self::Empty | Self::Underutilized | Self::Expired | Self::Replace | Self::Repair => {
                true
            }
            Self::LaunchFailed | Self::Deleted | Self::Lost => false,
        }
    }

    /// What of the breaker it uses up beside the allowance for all removals.
    pub(crate) fn allowance(self) -> Allowance {
        match self {
            Self::Repair => Allowance::Repairs,
            Self::Empty
            | Self::Underutilized
            | Self::Expired
            | Self::Replace
            | Self::LaunchFailed
            | Self::Deleted
            | Self::Lost => Allowance::All,
        }
    }

    /// It does not happen in a freeze. What a failed launch left was never in service.
    pub(crate) fn is_frozen(self) -> bool {
        match self {
            Self::LaunchFailed => false,
            Self::Empty
            | Self::Underutilized
            | Self::Expired
            | Self::Replace
            | Self::Repair
            | Self::Deleted
            | Self::Lost => true,
        }
    }

    /// The loss that a removal of a short time ago stands for, when machines that went bad at once are counted.
    pub(crate) fn loss(self) -> Option<Loss> {
        match self {
            Self::Deleted => Some(Loss::Deleted),
            Self::Lost => Some(Loss::NoVm),
            Self::Empty
            | Self::Underutilized
            | Self::Expired
            | Self::Replace
            | Self::Repair
            | Self::LaunchFailed => None,
        }
    }
}

impl fmt::Display for RemovalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no pod needs it",
            Self::Underutilized => "its pods fit on other Nodes",
            Self::Expired => "it is older than expireAfter",
            Self::Replace => "its replacement was asked for",
            Self::Repair => "it has not been Ready for too long",
            Self::LaunchFailed => "its launch failed",
            Self::Deleted => "its claim was deleted",
            Self::Lost => "its VM is gone",
        })
    }
}
