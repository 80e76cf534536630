//! What follows from the reason of a removal: one function for each question that the rest of the program asks.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::RemovalReason;

/// The allowance of the breaker that a removal uses.
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

    /// The Event's reason, in Cluster Autoscaler's words.
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

    /// The removal makes the pool smaller. So `minNodes` and pods that block scale-down forbid it, and the drain goes
    /// on only while the cluster can do without the Node.
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

    /// The machine works and could stay. So kproxide gives its drain up rather than force it.
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

    /// Which allowance of the breaker it uses. (Each removal uses the allowance for all removals, too.)
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

    /// A freeze forbids it. What a failed launch left behind was never in service, so a freeze does not forbid its
    /// removal.
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

    /// Whether the freeze counts a recent removal as a machine gone bad, and as which kind.
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
            Self::Replace => "you asked for its replacement (kproxide.dev/replace)",
            Self::Repair => "it has not been Ready for too long",
            Self::LaunchFailed => "its launch failed",
            Self::Deleted => "its claim was deleted",
            Self::Lost => "its VM is gone",
        })
    }
}
