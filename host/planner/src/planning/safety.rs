//! May a machine be removed, and if not, why: one answer for every removal, whatever it is for and wherever it is thought of.
//!
//! What its own claim says (that it is paused, say) comes before, in `claims`; how many may begin at once comes after: the pool's budget,
//! and the breaker. The check of the finished plan asks none of this: it has rules of its own.

use super::Tick;
use crate::facts::{LedgerFacts, RemovalReason};
use crate::guard::{self, Deed};
use crate::hold::Hold;
use crate::ids::{ClusterName, PoolName};
use crate::keys::CONTROL_PLANE_ROLES;
use crate::mutants::{Mutant, broken};
use crate::world::{NodeView, World};

/// A removal that is to begin, or to go on.
pub(super) struct Removal<'a> {
    pub(super) reason: RemovalReason,
    pub(super) has_begun: bool,
    pub(super) cluster: &'a ClusterName,
    pub(super) pool: Option<&'a PoolName>,
    pub(super) node: Option<NodeView<'a>>,
}

/// Everything that may stand against it. The freeze comes last: where it is the answer, nothing else is.
pub(super) fn may_remove(
    tick: &mut Tick<'_>,
    ledger: &LedgerFacts,
    removal: &Removal<'_>,
) -> Result<(), Hold> {
    let world = tick.world;
    let Removal {
        reason,
        has_begun,
        cluster,
        pool,
        node,
    } = *removal;
    // What is under way in a paused pool is finished.
    if !has_begun && let Some(pool) = pool.filter(|pool| is_paused(world, pool)) {
        return Err(Hold::PoolPaused(pool.clone()));
    }
    if let Some(hold) = node.and_then(|node| never_removed(world, &node)) {
        return Err(hold);
    }
    may_touch(world, cluster)?;
    let hold = not_observing(world)
        .or_else(|| warming_up(tick))
        .or_else(|| guard::hold(world, ledger, cluster, Deed::Remove(reason)));
    hold.map_or(Ok(()), Err)
}

/// Whether anything at all may be done to VMs of this Proxmox cluster.
pub(super) fn may_touch(world: &World, cluster: &ClusterName) -> Result<(), Hold> {
    if !world.host().key_known {
        return Err(Hold::NoKey);
    }
    if !world.clusters().contains_key(cluster) {
        return Err(Hold::NoCluster(cluster.clone()));
    }
    match world.inventories().get(cluster) {
        Some(inventory) if !inventory.reachable => Err(Hold::Unreachable(cluster.clone())),
        Some(inventory) if !inventory.quorate && !broken(Mutant::QuorumIgnored) => {
            Err(Hold::NoQuorum(cluster.clone()))
        }
        Some(_) => Ok(()),
        None => Err(Hold::NothingKnown(cluster.clone())),
    }
}

pub(super) fn is_paused(world: &World, pool: &PoolName) -> bool {
    world.pools().get(pool).is_some_and(|pool| pool.paused)
}

/// Nodes that are never removed, whoever asks.
pub(super) fn never_removed(world: &World, node: &NodeView<'_>) -> Option<Hold> {
    if world.host().own_node.as_ref() == Some(node.name()) {
        Some(Hold::OwnNode)
    } else if is_control_plane(node) {
        Some(Hold::ControlPlane)
    } else {
        None
    }
}

pub(super) fn is_control_plane(node: &NodeView<'_>) -> bool {
    CONTROL_PLANE_ROLES
        .iter()
        .any(|role| node.facts.labels.contains_key(*role))
}

/// Nobody wished for what claims say now; or a watch fails: who is on a Node, or may leave it, may be another by now.
fn not_observing(world: &World) -> Option<Hold> {
    let host = world.host();
    let definition = host.definition_problem.clone().map(Hold::Definition);
    let clock = || host.clock_problem.clone().map(Hold::Clock);
    let watch = || {
        host.failing_watches
            .first()
            .cloned()
            .map(Hold::WatchFailing)
    };
    definition.or_else(clock).or_else(watch)
}

/// The first lists may be those of a cluster that is itself starting.
fn warming_up(tick: &mut Tick<'_>) -> Option<Hold> {
    match tick.world.host().armed_at {
        Some(moment) if tick.reached(moment) => None,
        armed_at => Some(Hold::WarmingUp(armed_at)),
    }
}
