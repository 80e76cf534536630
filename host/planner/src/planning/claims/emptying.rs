//! Servers that are to be emptied: by a person (`spec.hypervisors.drain`), or, if the ProxmoxCluster wants it so
//! (`onMaintenance: replace`), by Proxmox's maintenance mode.

use jiff::SignedDuration;

use crate::facts::ClaimFacts;
use crate::planning::Tick;
use crate::time::later;

/// With the datacenter's shutdown policy `migrate`, Proxmox shows a server that merely reboots as in maintenance. kproxide does not
/// move its machines for that.
const MAINTENANCE_LASTS: SignedDuration = SignedDuration::from_mins(2);

/// The machine has to leave the server on which its VM is now.
pub(in crate::planning) fn must_leave(tick: &mut Tick<'_>, claim: &ClaimFacts) -> bool {
    let world = tick.world;
    let Some(cluster) = world.clusters().get(&claim.spec.cluster) else {
        return false;
    };
    if cluster.drains(claim.hypervisor()) {
        return true;
    }
    let inventory = world.inventories().get(&claim.spec.cluster);
    let facts = inventory.and_then(|it| it.hypervisors.get(claim.hypervisor()));
    let Some(facts) = facts.filter(|it| it.maintenance && cluster.leaves_maintenance()) else {
        return false;
    };
    let since = facts.maintenance_since;
    since.is_none_or(|since| tick.reached(later(since, MAINTENANCE_LASTS)))
}
