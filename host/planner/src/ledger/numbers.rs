//! VMIDs, and which of them are taken.

use std::collections::BTreeSet;

use crate::facts::LedgerFacts;
use crate::ids::ClusterName;
use crate::world::World;

/// Proxmox's CSI plugin makes its volumes under this number.
pub(crate) const FORBIDDEN_VMID: u32 = 9999;

/// VMIDs in use: by a Ledger entry, an anchor, a claim, a guest or a template; and the one that must not be.
pub(crate) fn used_numbers(
    world: &World,
    ledger: &LedgerFacts,
    cluster: &ClusterName,
) -> BTreeSet<u32> {
    let entries = ledger
        .entries
        .iter()
        .filter(|entry| entry.cluster == *cluster)
        .map(|entry| entry.vmid.0);
    let anchors = ledger
        .anchors
        .iter()
        .filter(|anchor| anchor.cluster == *cluster)
        .map(|anchor| anchor.vmid.0);
    let claims = world
        .claims()
        .values()
        .filter(|claim| claim.spec.cluster == *cluster)
        .map(|claim| claim.spec.vmid.0);
    let guests = world
        .inventories()
        .get(cluster)
        .into_iter()
        .flat_map(|inventory| inventory.guests.keys());
    let templates = world
        .inventories()
        .get(cluster)
        .into_iter()
        .flat_map(|inventory| inventory.templates.values().flatten());
    entries
        .chain(anchors)
        .chain(claims)
        .chain(guests.map(|vmid| vmid.0))
        .chain(templates.map(|template| template.vmid.0))
        .chain([FORBIDDEN_VMID])
        .collect()
}
