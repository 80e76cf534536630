//! What stops kproxide when the world looks wrong as a whole. A freeze: too many machines went bad at once. The breaker: too many were
//! removed in a short time. The anchor: a copy of this cluster may be at work.

pub mod anchor;
pub mod breaker;
pub mod freeze;

use crate::facts::{LedgerFacts, RemovalReason};
use crate::hold::{AnchorHold, Hold};
use crate::ids::ClusterName;
use crate::world::World;

/// What is to be done in a Proxmox cluster.
#[derive(Clone, Copy)]
pub(crate) enum Deed {
    /// Also what goes on with a machine that is to stay.
    Launch,
    Remove(RemovalReason),
}

/// Whether it may go on, and if not, why. How many may begin is the breaker's to count: see [`breaker::count`].
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
