//! Which guests to read, because they may be kproxide's machines without a claim. Their configuration shows what they
//! are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::facts::{Anchor, EntryState, GuestFacts, InventoryFacts, LedgerFacts, NodeFacts};
use crate::guard::anchor::is_named;
use crate::ids::{ClusterName, Vmid};
use crate::mutants::{Mutant, broken};
use crate::world::World;

/// The guests to read, with their hypervisors: those in our range and our pool without a claim or a reservation, our
/// anchors, and all VMs named like one. (If we are a copy, the original's anchor may have a VMID outside of our range,
/// or one that we claim.) The inventory is seconds old, so it is only a reason to look. `None`: the VMID of an anchor
/// that no visible guest has. A VM that we cannot see may have it.
pub fn suspects(world: &World) -> BTreeMap<(ClusterName, Vmid), Option<Arc<str>>> {
    let claims = world.claims().values().map(|claim| &claim.spec);
    let mut named: BTreeSet<(&ClusterName, Vmid)> =
        claims.map(|spec| (&spec.cluster, spec.vmid)).collect();
    let entries = world.ledger().map_or(&[][..], |ledger| &ledger.entries);
    named.extend(entries.iter().filter_map(|entry| match entry.state {
        EntryState::Reserved { .. } => Some((&entry.cluster, entry.vmid)),
        EntryState::Live | EntryState::Quarantined { .. } => None,
    }));
    let mut suspects = BTreeMap::new();
    for (name, cluster) in world.clusters() {
        let inventory = world.inventories().get(name);
        let Some(inventory) = inventory.filter(|inventory| inventory.reachable) else {
            continue;
        };
        let range = cluster.vmid_range.first..=cluster.vmid_range.last;
        for (vmid, guest) in &inventory.guests {
            let may_be_machine = range.contains(vmid) && !named.contains(&(name, *vmid));
            let answers = inventory.answers(&guest.hypervisor);
            let is_in_pool = guest.pool.as_deref() == Some(&*cluster.pool);
            let may_be_ours = may_be_machine || is_named(guest);
            if answers && is_in_pool && !guest.template && may_be_ours {
                suspects.insert((name.clone(), *vmid), Some(guest.hypervisor.clone()));
            }
        }
    }
    for anchor in world.ledger().map_or(&[][..], |ledger| &ledger.anchors) {
        let Anchor { cluster, vmid, .. } = anchor;
        let inventory = world.inventories().get(cluster);
        let Some(inventory) = inventory.filter(|inventory| inventory.reachable) else {
            continue;
        };
        let guest = inventory.guests.get(vmid);
        let answers = |guest: &GuestFacts| inventory.answers(&guest.hypervisor);
        if guest.is_none_or(answers) && world.clusters().contains_key(cluster) {
            let hypervisor = guest.map(|guest| guest.hypervisor.clone());
            suspects.insert((cluster.clone(), *vmid), hypervisor);
        }
    }
    suspects
}

/// Whether a machine that carries our marker, and that the Ledger does not know, may be taken over with its Node.
///
/// If its Node is older than the Ledger, the Ledger was lost. A younger one was removed by kproxide and its marker was kept or
/// restored by somebody, or etcd is older than the machine. Then it takes a person's word for this very marker.
pub(crate) fn may_return(
    ledger: Option<&LedgerFacts>,
    node: &NodeFacts,
    (cluster, vmid): (&ClusterName, Vmid),
    nonce: &str,
) -> bool {
    // There is none yet. It is made before anything is taken over.
    let Some(ledger) = ledger.filter(|ledger| !ledger.resource_version.is_empty()) else {
        return true;
    };
    let is_older = ledger.created.is_some_and(|created| node.created < created);
    let word = acknowledgement(cluster, vmid, nonce);
    let is_meant =
        |it: &str| it == word || (broken(Mutant::WordWithoutNonce) && is_of(it, cluster, vmid));
    let mut words = words(ledger);
    is_older || words.any(is_meant) || broken(Mutant::AgeIgnored)
}

/// What a person writes of one VM: `CLUSTER:VMID:NONCE`.
pub(crate) fn acknowledgement(cluster: &ClusterName, vmid: Vmid, nonce: &str) -> String {
    format!("{cluster}:{vmid}:{nonce}")
}

fn words(ledger: &LedgerFacts) -> impl Iterator<Item = &str> {
    let words = ledger.orphans_acknowledged.iter();
    words.flat_map(|all| all.split(',')).map(str::trim)
}

fn is_of(word: &str, cluster: &ClusterName, vmid: Vmid) -> bool {
    word.starts_with(&acknowledgement(cluster, vmid, ""))
}

/// Takes away the words of VMs that the Ledger knows by now: they have done their work.
pub(crate) fn forget_words(ledger: &mut LedgerFacts) {
    let is_needed = |word: &&str| {
        let mut rows = ledger.entries.iter();
        !word.is_empty() && !rows.any(|row| is_of(word, &row.cluster, row.vmid))
    };
    let left: Vec<&str> = words(ledger).filter(is_needed).collect();
    ledger.orphans_acknowledged = (!left.is_empty()).then(|| left.join(",").into());
}

/// Every hypervisor has answered, with quorum. So a VM that is not listed does not exist.
pub(crate) fn is_whole(inventory: &InventoryFacts) -> bool {
    let mut hypervisors = inventory.hypervisors.values();
    inventory.reachable
        && inventory.quorate
        && inventory.complete
        && hypervisors.all(|hypervisor| hypervisor.online)
}
