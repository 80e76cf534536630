//! The right to clone. It limits how many clones run at once on a storage and on a hypervisor.

use kproxide_planner::claim::Outcome;

use kproxide_pve::limits::CloneSlot;

/// The right to clone, or why there is none. It is held until the clone's task has ended or is no longer followed.
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
