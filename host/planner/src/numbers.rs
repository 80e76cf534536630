//! VMIDs, and which of them are taken.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::facts::{EntryState, LedgerEntry, LedgerFacts};
use crate::ids::ClusterName;
use crate::ledger::{SHORTEST_REST, is_absent};
use crate::time::later;
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

/// Entries whose number and address may be used again before their time if no other is free: they rest for an hour, nothing else holds the number or the
/// address, and Proxmox lists no such VM. The longest rest comes first.
pub(crate) fn rested<'l>(
    world: &World,
    ledger: &'l LedgerFacts,
    now: Timestamp,
) -> Vec<&'l LedgerEntry> {
    let began = |entry: &LedgerEntry| match entry.state {
        EntryState::Quarantined { since, .. } => since,
        EntryState::Reserved { .. } | EntryState::Live => None,
    };
    let is_over =
        |entry: &&LedgerEntry| began(entry).is_some_and(|since| now >= later(since, SHORTEST_REST));
    let mut rested: Vec<&LedgerEntry> = ledger.entries.iter().filter(is_over).collect();
    if rested.is_empty() {
        return rested;
    }
    let claims = world.claims().values().map(|claim| &claim.spec);
    let claims = claims.map(|spec| (&spec.cluster, spec.vmid, spec.address));
    let entries = ledger.entries.iter();
    let entries = entries.map(|entry| (&entry.cluster, entry.vmid, entry.address));
    let anchors = ledger.anchors.iter();
    let anchors = anchors.map(|anchor| (&anchor.cluster, anchor.vmid, None));
    let mut numbers: BTreeMap<_, u32> = BTreeMap::new();
    let mut addresses: BTreeMap<_, u32> = BTreeMap::new();
    for (cluster, vmid, address) in entries.chain(claims).chain(anchors) {
        *numbers.entry((cluster, vmid)).or_default() += 1;
        if let Some(address) = address {
            *addresses.entry(address).or_default() += 1;
        }
    }
    rested.retain(|entry| {
        let address = entry.address.as_ref();
        numbers[&(&entry.cluster, entry.vmid)] == 1
            && address.is_none_or(|address| addresses[address] == 1)
            && is_absent(world, entry)
    });
    rested.sort_by_key(|entry| (began(entry), entry.vmid));
    rested
}
