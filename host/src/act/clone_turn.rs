//! The right to clone: as many clones at once as a storage and a hypervisor bear.

use kproxide_planner::claim::Outcome;

use crate::pve::limits::CloneSlot;

/// The right to clone, held until the clone's task has ended or is left to itself; or why there is none.
#[derive(Default)]
pub(super) enum CloneTurn {
    #[default]
    None,
    Taken {
        _slot: CloneSlot,
    },
    Refused(Outcome),
}

impl CloneTurn {
    /// It was not asked for yet.
    pub(super) fn is_awaited(&self) -> bool {
        match self {
            Self::None => true,
            Self::Taken { .. } | Self::Refused(_) => false,
        }
    }

    pub(super) fn is_taken(&self) -> bool {
        match self {
            Self::Taken { .. } => true,
            Self::None | Self::Refused(_) => false,
        }
    }
}
