//! What follows from the reason of a removal. Each reason has one row, and each question one column.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::{DisruptionReason, RemovalReason};

/// The allowance of the breaker that a removal uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Allowance {
    Repairs,
    All,
}

/// Why a machine that was removed a short time ago counts as gone bad.
#[derive(Clone, Copy)]
pub(crate) enum Loss {
    Deleted,
    NoVm,
    PoolDeleted,
}

/// The columns are explained where they are asked.
#[derive(Clone, Copy)]
struct Row {
    event: &'static str,
    scales_down: bool,
    is_voluntary: bool,
    is_budgeted: bool,
    disruption: Option<DisruptionReason>,
    allowance: Allowance,
    is_frozen: bool,
    is_trouble: bool,
    loss: Option<Loss>,
}

impl RemovalReason {
    pub const ALL: [Self; 11] = [
        Self::Empty,
        Self::Underutilized,
        Self::Expired,
        Self::Maintenance,
        Self::Replace,
        Self::PoolDeleted,
        Self::Repair,
        Self::NodeDeleted,
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
            Self::Maintenance => "Maintenance",
            Self::Replace => "Replace",
            Self::PoolDeleted => "PoolDeleted",
            Self::Repair => "Repair",
            Self::NodeDeleted => "NodeDeleted",
            Self::LaunchFailed => "LaunchFailed",
            Self::Deleted => "Deleted",
            Self::Lost => "Lost",
        }
    }

    /// The reason that such a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// The reason under which the Ledger counts the removal: a word that programs up to 92f4022 know. All voluntary
    /// reasons count alike there.
    pub fn in_ledger(self) -> Self {
        match self == Self::Maintenance {
            true => Self::Replace,
            false => self,
        }
    }

    fn row(self) -> Row {
        let forced = Row {
            event: self.as_str(),
            scales_down: false,
            is_voluntary: false,
            is_budgeted: false,
            disruption: None,
            allowance: Allowance::All,
            is_frozen: true,
            is_trouble: false,
            loss: None,
        };
        let voluntary = Row {
            is_voluntary: true,
            is_budgeted: true,
            ..forced
        };
        let smaller = Row {
            event: "ScaleDown",
            scales_down: true,
            ..voluntary
        };
        match self {
            Self::Empty => Row {
                event: "ScaleDownEmpty",
                disruption: Some(DisruptionReason::Empty),
                ..smaller
            },
            Self::Underutilized => Row {
                disruption: Some(DisruptionReason::Underutilized),
                ..smaller
            },
            Self::Expired => Row {
                disruption: Some(DisruptionReason::Expired),
                ..voluntary
            },
            Self::Maintenance => Row {
                disruption: Some(DisruptionReason::Maintenance),
                ..voluntary
            },
            Self::Replace => Row {
                disruption: Some(DisruptionReason::Replace),
                ..voluntary
            },
            Self::PoolDeleted => Row {
                loss: Some(Loss::PoolDeleted),
                ..voluntary
            },
            Self::Repair => Row {
                is_budgeted: true,
                allowance: Allowance::Repairs,
                is_trouble: true,
                ..forced
            },
            // A person has asked for it. If many Nodes went at once by a mistake, the freeze notices.
            Self::NodeDeleted => Row {
                is_budgeted: true,
                ..forced
            },
            Self::LaunchFailed => Row {
                is_frozen: false,
                is_trouble: true,
                ..forced
            },
            Self::Deleted => Row {
                loss: Some(Loss::Deleted),
                ..forced
            },
            Self::Lost => Row {
                loss: Some(Loss::NoVm),
                is_trouble: true,
                ..forced
            },
        }
    }

    /// The reason of the Event that tells of the removal: of a scale-down in Cluster Autoscaler's words, else its own.
    pub fn event(self) -> &'static str {
        self.row().event
    }

    /// Something is wrong with the machine, so that people should know.
    pub fn is_trouble(self) -> bool {
        self.row().is_trouble
    }

    /// The removal makes the pool smaller. So `minNodes` and pods that block scale-down forbid it, and the drain goes
    /// on only while the cluster can do without the Node.
    pub fn scales_down(self) -> bool {
        self.row().scales_down
    }

    /// The machine works and could stay. So kproxide gives its drain up rather than force it.
    pub fn is_voluntary(self) -> bool {
        self.row().is_voluntary
    }

    /// Another machine takes its place, and is made first if need be.
    pub fn is_replaced(self) -> bool {
        self.is_repair() || matches!(self, Self::Expired | Self::Maintenance | Self::Replace)
    }

    /// If there is no room for its replacement, it stays, unless its pool says `oldFirst`.
    pub(crate) fn waits_for_room(self) -> bool {
        matches!(self, Self::Expired | Self::Maintenance)
    }

    /// Its Node is broken or gone. If the Node becomes Ready again in time, the machine stays.
    pub(crate) fn is_repair(self) -> bool {
        matches!(self, Self::Repair | Self::NodeDeleted)
    }

    /// The reason as the NodePool's `disruption` names it: windows and budgets are about these alone.
    pub fn disruption(self) -> Option<DisruptionReason> {
        self.row().disruption
    }

    /// It waits for a budget of the pool.
    pub(crate) fn is_budgeted(self) -> bool {
        self.row().is_budgeted
    }

    /// Which allowance of the breaker it uses. (Each removal uses the allowance for all removals, too.)
    pub(crate) fn allowance(self) -> Allowance {
        self.row().allowance
    }

    /// A freeze forbids it. What a failed launch left behind was never in service, so a freeze does not forbid its
    /// removal.
    pub(crate) fn is_frozen(self) -> bool {
        self.row().is_frozen
    }

    /// Whether the freeze counts a recent removal as a machine gone bad, and as which kind.
    pub(crate) fn loss(self) -> Option<Loss> {
        self.row().loss
    }
}

impl fmt::Display for RemovalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no pod needs it",
            Self::Underutilized => "its pods fit on other Nodes",
            Self::Expired => "it is older than expireAfter",
            Self::Maintenance => "its server is to be emptied",
            Self::Replace => "you asked for its replacement (kproxide.dev/replace)",
            Self::PoolDeleted => "its NodePool is being deleted",
            Self::Repair => "it has not been Ready for too long",
            Self::NodeDeleted => "its Node was deleted, and has not registered again",
            Self::LaunchFailed => "its launch failed",
            Self::Deleted => "its claim was deleted",
            Self::Lost => "its VM is gone",
        })
    }
}
