//! May a machine be removed, and if not, why? Every part of the planner that thinks of a removal asks here.
//!
//! Before this, `claims` looks at the claim itself (whether it is paused, say). After this, the pool's budget and the
//! breaker limit how many removals begin. The check of the finished plan does not ask here: it has rules of its own.

use crate::claim::GuestHint;
use crate::facts::{ClaimFacts, LedgerFacts, RemovalReason};
use crate::guard::{self, Deed};
use crate::ids::{ClusterName, PoolName};
use crate::keys::CONTROL_PLANE_ROLES;
use crate::kubernetes::taints::untolerated;
use crate::planning::Tick;
use crate::reasons::on_hold::Hold;
use crate::world::{NodeView, World};

/// A removal that is to begin, or to go on.
pub(in crate::planning) struct Removal<'a> {
    pub(in crate::planning) reason: RemovalReason,
    pub(in crate::planning) has_begun: bool,
    /// Its replacement is on its way or in service: then it has begun as far as windows go.
    pub(in crate::planning) has_replacement: bool,
    /// `None`: the machine has lost its claim.
    pub(in crate::planning) claim: Option<&'a ClaimFacts>,
    pub(in crate::planning) cluster: &'a ClusterName,
    pub(in crate::planning) pool: Option<&'a PoolName>,
    pub(in crate::planning) node: Option<NodeView<'a>>,
}

/// Everything that can forbid a removal. The freeze comes last, so that the answer "frozen" means that nothing else
/// forbids it.
pub(in crate::planning) fn may_remove(
    tick: &mut Tick<'_>,
    ledger: &LedgerFacts,
    removal: &Removal<'_>,
) -> Result<(), Hold> {
    let world = tick.world;
    let Removal {
        reason,
        has_begun,
        has_replacement,
        claim,
        cluster,
        pool,
        node,
    } = *removal;
    let is_choice = reason.is_voluntary() && !has_begun;
    // In a paused pool, removals that have begun go on.
    if !has_begun && let Some(pool) = pool.filter(|pool| is_paused(world, pool)) {
        return Err(Hold::PoolPaused(pool.clone()));
    }
    if let Some(hold) = node.and_then(|node| never_removed(world, &node)) {
        return Err(hold);
    }
    // Unless its user lets go of volumes that only the Node reaches.
    let keeps_volumes = is_choice && !claim.is_some_and(|claim| claim.discard_local_volumes);
    if keeps_volumes && let Some(volume) = node.and_then(|node| world.local_volume(&node)) {
        return Err(Hold::LocalVolume(volume.clone()));
    }
    may_touch(world, cluster)?;
    if is_choice && let Some(claim) = claim {
        is_heard_of(world, claim)?;
    }
    let waits = is_choice && !has_replacement;
    if waits && let Some(hold) = pool.and_then(|pool| tick.out_of_time(pool, reason)) {
        return Err(hold);
    }
    let hold = not_observing(world)
        .or_else(|| warming_up(tick))
        .or_else(|| guard::hold(world, ledger, cluster, Deed::Remove(reason)));
    hold.map_or(Ok(()), Err)
}

/// Whether anything at all may be done to VMs of this Proxmox cluster.
pub(in crate::planning) fn may_touch(world: &World, cluster: &ClusterName) -> Result<(), Hold> {
    if !world.host().key_known {
        return Err(Hold::NoKey);
    }
    if !world.clusters().contains_key(cluster) {
        return Err(Hold::NoCluster(cluster.clone()));
    }
    match world.inventories().get(cluster) {
        Some(inventory) if !inventory.reachable => Err(Hold::Unreachable(cluster.clone())),
        Some(inventory) if !inventory.quorate => Err(Hold::NoQuorum(cluster.clone())),
        Some(_) => Ok(()),
        None => Err(Hold::NothingKnown(cluster.clone())),
    }
}

/// What cannot be removed to its end is not begun: it would take the place of a machine that can go.
fn is_heard_of(world: &World, claim: &ClaimFacts) -> Result<(), Hold> {
    let Some(inventory) = world.inventories().get(&claim.spec.cluster) else {
        return Ok(());
    };
    match GuestHint::of(claim, inventory) {
        GuestHint::Running | GuestHint::Stopped | GuestHint::Absent => Ok(()),
        GuestHint::Unknown => {
            let vmid = claim.spec.vmid;
            let guest = inventory.guests.get(&vmid);
            let hypervisor = guest.map_or(claim.hypervisor(), |guest| &guest.hypervisor);
            let hypervisor = hypervisor.clone();
            Err(match inventory.answers(&hypervisor) {
                true => Hold::MachineUnknown { hypervisor, vmid },
                false => Hold::HypervisorUnknown(hypervisor),
            })
        }
    }
}

pub(in crate::planning) fn is_paused(world: &World, pool: &PoolName) -> bool {
    world.pools().get(pool).is_some_and(|pool| pool.paused)
}

/// Nodes that are never removed, for any reason.
pub(in crate::planning) fn never_removed(world: &World, node: &NodeView<'_>) -> Option<Hold> {
    if world.host().own_node.as_ref() == Some(node.name()) {
        Some(Hold::OwnNode)
    } else if is_control_plane(node) {
        Some(Hold::ControlPlane)
    } else {
        None
    }
}

fn is_control_plane(node: &NodeView<'_>) -> bool {
    CONTROL_PLANE_ROLES
        .iter()
        .any(|role| node.facts.labels.contains_key(*role))
}

/// A control plane whose taints keep ordinary pods away. k3s does not taint its servers, so they are Nodes like any other.
pub(in crate::planning) fn is_closed_control_plane(node: &NodeView<'_>) -> bool {
    is_control_plane(node) && untolerated(&[], &node.facts.taints).is_some()
}

/// What kproxide sees may be wrong: the claims' CRD is being deleted, a clock is off, or a watch fails, so that other
/// pods may be on a Node by now.
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

/// The whole cluster may be starting just now, so that the first lists do not show everything yet.
fn warming_up(tick: &mut Tick<'_>) -> Option<Hold> {
    match tick.world.host().armed_at {
        Some(moment) if tick.reached(moment) => None,
        armed_at => Some(Hold::WarmingUp(armed_at)),
    }
}
