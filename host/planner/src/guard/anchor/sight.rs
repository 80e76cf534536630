//! What a tick sees of the anchors.

use super::is_named;
use crate::facts::{Anchor, AnchorLook, ClusterFacts, GuestFacts, InventoryFacts, OrphanLook};
use crate::ids::{ClusterName, Vmid};
use crate::world::World;

/// What is seen of the anchors of this Kubernetes cluster in one Proxmox cluster.
pub(super) enum Sight<'w> {
    /// Some could be read.
    Found(Vec<(Vmid, &'w AnchorLook)>),
    /// There is none: everything that could be one was read.
    Absent,
    /// Why nothing is known.
    Unknown(String),
}

impl<'w> Sight<'w> {
    pub(super) fn of(
        world: &'w World,
        name: &ClusterName,
        cluster: &ClusterFacts,
        row: Option<&Anchor>,
    ) -> Self {
        let Some(inventory) = world.inventories().get(name) else {
            return Self::Unknown(format!("kproxide has not read Proxmox cluster {name} yet"));
        };
        let looks = world.orphans().get(name);
        let found: Vec<_> = looks
            .into_iter()
            .flatten()
            .filter_map(|(vmid, look)| match look {
                OrphanLook::Anchor(look) => Some((*vmid, look)),
                OrphanLook::Ours(_) | OrphanLook::NotProven(_) => None,
            })
            .collect();
        // Without quorum no process can write, so an unchanged mark says nothing.
        if !inventory.reachable || !inventory.quorate {
            let what = match inventory.reachable {
                true => "has no quorum",
                false => "cannot be reached",
            };
            return Self::Unknown(format!("Proxmox cluster {name} {what}"));
        }
        if !found.is_empty() {
            return Self::Found(found);
        }
        if !inventory.complete {
            return Self::Unknown(format!(
                "Proxmox cluster {name} does not answer in full: {}",
                inventory
                    .problem
                    .as_deref()
                    .unwrap_or("a hypervisor is missing")
            ));
        }
        let is_read = |vmid: &Vmid| looks.is_some_and(|looks| looks.contains_key(vmid));
        let unread = inventory.guests.iter().find(|(vmid, guest)| {
            // What it is named now does not count where it can no longer be read. What answers and has another name was read, or is a container.
            let was = row.is_some_and(|row| row.vmid == **vmid) && is_off(inventory, guest);
            (was || may_be_anchor(world, name, cluster, **vmid, guest)) && !is_read(vmid)
        });
        match unread {
            None => Self::Absent,
            Some((vmid, guest)) => Self::Unknown(unread_because(inventory, *vmid, guest)),
        }
    }
}

/// Whether this VM may be an anchor, as long as its configuration was not read. Another kproxide may have made it, with
/// another range and without our claims, so range and claims do not rule it out. On a hypervisor that is off, Proxmox
/// does not always show the names of VMs. There a VM outside of our range is not waited for.
fn may_be_anchor(
    world: &World,
    name: &ClusterName,
    cluster: &ClusterFacts,
    vmid: Vmid,
    guest: &GuestFacts,
) -> bool {
    let could_be = match guest.name {
        Some(_) => is_named(guest),
        None => cluster.has_in_range(vmid) && !world.is_claimed(name, vmid),
    };
    could_be && !guest.template && guest.pool.as_deref() == Some(&*cluster.pool)
}

fn is_off(inventory: &InventoryFacts, guest: &GuestFacts) -> bool {
    !inventory.answers(&guest.hypervisor)
}

fn unread_because(inventory: &InventoryFacts, vmid: Vmid, guest: &GuestFacts) -> String {
    let hypervisor = &guest.hypervisor;
    let pool = guest.pool.as_deref().unwrap_or_default();
    match is_off(inventory, guest) {
        true => format!(
            "VM {vmid} cannot be read, because hypervisor {hypervisor} is offline. Start the hypervisor. If it never comes back and VM {vmid} is the anchor, which has no disks, move /etc/pve/nodes/{hypervisor}/qemu-server/{vmid}.conf to another hypervisor. If VM {vmid} is not an anchor, take it out of resource pool {pool}"
        ),
        false => format!(
            "VM {vmid} on hypervisor {hypervisor} has not been read yet. If that lasts and VM {vmid} is not kproxide's anchor, take it out of resource pool {pool}, or rename it"
        ),
    }
}
