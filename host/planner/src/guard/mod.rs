//! What stops kproxide when something looks wrong as a whole. The freeze: too many machines went bad at once. The
//! breaker: too many were removed in a short time. The anchor: a copy of this cluster may be at work.

pub mod loops;
pub(crate) mod upkeep;

pub mod anchor;
pub mod breaker;
pub mod freeze;

use crate::facts::{LedgerFacts, RemovalReason};
use crate::ids::ClusterName;
use crate::reasons::on_hold::{AnchorHold, Hold};
use crate::world::World;

/// What kproxide is about to do in a Proxmox cluster.
#[derive(Clone, Copy)]
pub(crate) enum Deed {
    /// Launch a machine, or act on one that stays.
    Launch,
    Remove(RemovalReason),
}

/// Why it may not. `None`: it may. The breaker counts how many removals may begin: see [`breaker::count`].
pub(crate) fn hold(
    world: &World,
    ledger: &LedgerFacts,
    cluster: &ClusterName,
    deed: Deed,
) -> Option<Hold> {
    let anchor = anchor::hold(world, Some(ledger), cluster);
    match (deed, anchor) {
        (Deed::Remove(_), Some(hold)) | (Deed::Launch, Some(hold @ AnchorHold::Foreign)) => {
            Some(Hold::Anchor(cluster.clone(), hold))
        }
        (Deed::Remove(reason), None) if reason.is_frozen() && freeze::is_frozen(ledger) => {
            Some(Hold::Frozen)
        }
        (Deed::Remove(_) | Deed::Launch, _) => None,
    }
}
