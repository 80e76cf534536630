//! Whether one machine of each size could be made now, and on which servers none can.

use std::collections::{BTreeMap, BTreeSet};

use kproxide_planner::facts::{Drive, GuestFacts, TemplateFacts};
use kproxide_planner::ids::{ClassName, ClusterName, Vmid};
use kproxide_planner::planning::{Offer, addresses_left, machines_left, vmids_used_up};
use kproxide_planner::reasons::no_hypervisor::{Refusal, grouped};
use kproxide_planner::world::World;

use super::{Finding, Group, Reason, listed, named, reasons};

/// Why no server takes a machine of any size.
pub(super) struct Nowhere {
    pub(super) reason: &'static Reason,
    pub(super) message: String,
    /// Seconds after which it is said.
    pub(super) after: u32,
}

/// `None`: some server can take one of these, or none was seen.
pub(super) fn nowhere<'o, 'w: 'o>(
    offers: impl IntoIterator<Item = &'o Offer<'w>>,
) -> Option<Nowhere> {
    let offers: Vec<&Offer<'_>> = offers.into_iter().collect();
    if offers.is_empty() || offers.iter().any(|it| it.refusal.is_none()) {
        return None;
    }
    let open: Vec<&&Offer<'_>> = offers.iter().filter(|it| is_open(it)).collect();
    // Each server once, with what it says of the size that it is nearest to: the last one of the list.
    let clusters: BTreeSet<_> = offers.iter().map(|it| &it.hypervisor.cluster).collect();
    let mut by_server: BTreeMap<String, String> = BTreeMap::new();
    for offer in &offers {
        let server = match clusters.len() {
            1 => offer.hypervisor.name.to_string(),
            _ => offer.hypervisor.to_string(),
        };
        if let Some(refusal) = &offer.refusal {
            by_server.insert(server, refusal.to_string());
        }
    }
    let why = grouped(by_server);
    let (reason, what) = if offers.iter().all(|it| is_of_cluster(it)) {
        (&reasons::NO_USABLE_CLUSTER, "no machine can be made")
    } else if !open.is_empty() && open.iter().all(|it| is_storage(it)) {
        (
            &reasons::STORAGE_FULL,
            "no storage has room for a machine of any size",
        )
    } else if !open.is_empty() && open.iter().all(|it| lacks_room(it)) {
        (
            &reasons::NO_ROOM,
            "no server has room for a machine of any size",
        )
    } else {
        (&reasons::NO_HYPERVISOR, "no server can take a machine")
    };
    // Silence may end by itself.
    let is_silent = |it: &&Offer<'_>| matches!(it.refusal, Some(Refusal::Unreachable { .. }));
    let after = match offers.iter().any(is_silent) {
        true => reasons::UNREACHABLE.after,
        false => reason.after,
    };
    Some(Nowhere {
        reason,
        message: format!("{what}: {why}"),
        after,
    })
}

/// The Proxmox cluster as a whole is in the way, and says so itself.
fn is_of_cluster(offer: &Offer<'_>) -> bool {
    matches!(
        offer.refusal,
        Some(
            Refusal::Cluster(_)
                | Refusal::Unreachable { .. }
                | Refusal::NoQuorum(_)
                | Refusal::NoNumber { .. }
                | Refusal::Held(_)
        )
    )
}

pub(super) fn check(world: &World, all: &[Offer<'_>], sees_books: bool) -> Vec<Finding> {
    let mut findings = sizes(all);
    findings.extend(not_everywhere(all));
    findings.extend(no_cloud_init(world));
    findings.extend(larger_disks(world));
    findings.extend(addresses(world, sees_books));
    findings.extend(taken_numbers(world));
    findings.extend(strangers(world, sees_books));
    findings
}

/// Sizes that no server takes, of classes of which some server takes another size.
fn sizes(all: &[Offer<'_>]) -> Vec<Finding> {
    let mut by_size: BTreeMap<_, Vec<&Offer<'_>>> = BTreeMap::new();
    for offer in all {
        let of_size = by_size.entry((offer.class, &offer.size.name)).or_default();
        of_size.push(offer);
    }
    let mut findings = Vec::new();
    for ((class, size), offers) in by_size {
        let of_class = || all.iter().filter(|it| it.class == class);
        let Some(Nowhere { message, .. }) = nowhere(offers.iter().copied()) else {
            continue;
        };
        let lacks = offers.iter().any(|it| lacks_room(it));
        if !lacks || nowhere(of_class()).is_some() {
            continue;
        }
        let text = format!("size {size}: {message}");
        let object = named("NodeClass", class);
        let reason = &reasons::SIZE_NOWHERE;
        findings.push(Finding::warning(Group::Configuration, object, reason, text));
    }
    findings
}

/// Machines of such a template get no name and no address.
fn no_cloud_init(world: &World) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, class) in world.classes() {
        let whole = world.all_templates(class).filter(|it| it.vmid.0 > 0);
        let has = |it: &TemplateFacts| it.disks.iter().any(|disk| disk.drive == Drive::CloudInit);
        for template in whole.filter(|it| !has(it)) {
            let (vmid, server) = (template.vmid, &template.hypervisor);
            let storage = template.disks.first();
            let storage = storage.map_or("local-lvm", |disk| disk.storage.as_str());
            let text = format!("template {vmid} on {server} has no cloud-init drive");
            let object = named("NodeClass", name);
            let reason = &reasons::NO_CLOUD_INIT;
            let finding = Finding::error(Group::Configuration, object, reason, text);
            let command = format!("qm set {vmid} --ide2 {storage}:cloudinit");
            findings.push(finding.typing([command]));
        }
    }
    findings
}

/// Machines may be made on that server.
fn is_open(offer: &Offer<'_>) -> bool {
    !matches!(
        offer.refusal,
        Some(Refusal::Excluded | Refusal::Offline | Refusal::Maintenance)
    )
}

fn lacks_room(offer: &Offer<'_>) -> bool {
    is_storage(offer)
        || matches!(
            offer.refusal,
            Some(
                Refusal::Lacks { .. }
                    | Refusal::FewThreads { .. }
                    | Refusal::LittleFreeMemory { .. }
                    | Refusal::FewIdleCores { .. }
            )
        )
}

fn is_storage(offer: &Offer<'_>) -> bool {
    matches!(
        offer.refusal,
        Some(Refusal::StorageFull { .. } | Refusal::StorageNearlyFull { .. })
    )
}

fn text(offer: &Offer<'_>) -> Option<String> {
    let refusal = offer.refusal.as_ref()?;
    Some(format!("{}: {refusal}", offer.hypervisor.name))
}

fn command(offer: &Offer<'_>) -> Option<String> {
    if let Some(Refusal::NoAgent(vmid)) = &offer.refusal {
        return Some(format!("qm set {vmid} --agent 1"));
    }
    None
}

/// Servers on which a class's machines can never be, while they can be on others.
fn not_everywhere(all: &[Offer<'_>]) -> Vec<Finding> {
    let is_never = |offer: &&Offer<'_>| {
        matches!(
            offer.refusal,
            Some(
                Refusal::NoTemplate { .. }
                    | Refusal::TemplateStays(_)
                    | Refusal::NoAgent(_)
                    | Refusal::NoStorage(_)
                    | Refusal::NoBridge(_)
                    | Refusal::StorageInactive(_)
                    | Refusal::StorageLocal { .. }
                    | Refusal::NotLinkable { .. }
                    | Refusal::NotBase { .. }
            )
        )
    };
    let never = all.iter().filter(is_never);
    let never = never.filter(|offer| {
        let mut others = all.iter().filter(|other| other.class == offer.class);
        others.any(|other| is_open(other) && !is_never(&other))
    });
    let mut texts: BTreeMap<_, Vec<(String, Option<String>)>> = BTreeMap::new();
    for offer in never {
        let of_class = texts.entry(offer.class).or_default();
        let told = text(offer).map(|text| (text, command(offer)));
        of_class.extend(told.filter(|told| !of_class.contains(told)));
    }
    texts
        .into_iter()
        .map(|(class, texts)| {
            let object = named("NodeClass", class);
            let reason = &reasons::NOT_EVERYWHERE;
            let (texts, commands): (Vec<String>, Vec<Option<String>>) = texts.into_iter().unzip();
            let finding = Finding::warning(Group::Configuration, object, reason, texts.join("; "));
            finding.typing(commands.into_iter().flatten())
        })
        .collect()
}

/// Proxmox shrinks no disk.
fn larger_disks(world: &World) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, class) in world.classes() {
        let templates = world.all_templates(class);
        let largest = templates.map(|it| (it.boot_bytes(), it.vmid)).max();
        for size in &class.instance_types {
            let (Some(asked), Some((largest, template))) = (size.disk_bytes(), largest) else {
                continue;
            };
            if asked < largest {
                let text = format!(
                    "the size {} asks for a disk of {} GiB, and template {template} has one of {} GiB",
                    size.name,
                    asked >> 30,
                    largest.div_ceil(1 << 30)
                );
                let object = named("NodeClass", name);
                let reason = &reasons::DISK_LARGER;
                findings.push(Finding::warning(Group::Configuration, object, reason, text));
            }
        }
    }
    findings
}

/// What a class can still hand out, against what NodePools may still make. Classes with the same ranges share them.
fn addresses(world: &World, sees_books: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, class) in world.classes() {
        let Some(free) = addresses_left(world, name) else {
            continue;
        };
        let shares = |other: &ClassName| {
            let other = world.classes().get(other);
            other.is_some_and(|other| other.addresses == class.addresses)
        };
        let pools = world.pools().iter();
        let pools =
            pools.filter(|(_, pool)| pool.going_since().is_none() && shares(&pool.node_class));
        let wanted = pools.map(|(pool, _)| u64::from(machines_left(world, pool)));
        let wanted: u64 = wanted.sum();
        let unknown = match sees_books {
            true => "",
            false => ", if no machine has one yet",
        };
        let text = format!("addresses of cloudInit.ipPool that are free{unknown}: {free}");
        let (group, object) = (Group::Configuration, named("NodeClass", name));
        if free >= wanted {
            findings.push(Finding::ok(group, object, text));
        } else if free > 0 {
            let text = format!("{text}; machines that its NodePools may still make: {wanted}");
            let reason = &reasons::ADDRESSES_FEW;
            findings.push(Finding::warning(group, object, reason, text));
        }
        // Without any its NodePools say so.
    }
    findings
}

/// A VM as a person finds it in Proxmox.
fn told(vmid: Vmid, guest: &GuestFacts) -> String {
    let name = guest.name.as_deref().unwrap_or("without a name");
    format!("{vmid} ({name}) on {}", guest.hypervisor)
}

/// VMs in our range that are in no row of our books and not in our Proxmox pool.
fn taken_numbers(world: &World) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, cluster) in world.clusters() {
        let Some(inventory) = world.inventories().get(name) else {
            continue;
        };
        // Said as an error.
        if vmids_used_up(world, name) {
            continue;
        }
        let range = cluster.vmid_range.first..=cluster.vmid_range.last;
        let foreign = inventory.guests.range(range);
        // Where spec.pool is mistyped, ours are in another pool.
        let known = known(world, name);
        let foreign = foreign.filter(|(vmid, guest)| {
            guest.pool.as_ref() != Some(&cluster.pool) && !known.contains(vmid)
        });
        let texts: Vec<String> = foreign.map(|(vmid, guest)| told(*vmid, guest)).collect();
        if texts.is_empty() {
            continue;
        }
        let shown: Vec<&str> = texts.iter().map(String::as_str).collect();
        let text = format!("other people's VMs in spec.vmidRange: {}", listed(&shown));
        let object = named("ProxmoxCluster", name);
        findings.push(Finding::warning(
            Group::Proxmox,
            object,
            &reasons::VMIDS_TAKEN,
            text,
        ));
    }
    findings
}

/// VMIDs in our books: of claims, of the Ledger, of anchors.
fn known(world: &World, cluster: &ClusterName) -> BTreeSet<Vmid> {
    let rows = world.ledger().into_iter();
    let rows = rows.flat_map(|ledger| {
        let machines = ledger.entries.iter().filter(|row| row.cluster == *cluster);
        let anchors = ledger.anchors.iter().filter(|row| row.cluster == *cluster);
        let machines = machines.map(|row| row.vmid);
        machines.chain(anchors.map(|row| row.vmid))
    });
    let claims = world.claims().values();
    let claims = claims.filter(|claim| claim.spec.cluster == *cluster);
    rows.chain(claims.map(|claim| claim.spec.vmid)).collect()
}

/// VMs of our Proxmox pool that no claim and no row of our books has: mostly those of another installation. Without the books those in our range may be
/// our own, as before an upgrade.
fn strangers(world: &World, sees_books: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, cluster) in world.clusters() {
        let Some(inventory) = world.inventories().get(name) else {
            continue;
        };
        let known = known(world, name);
        let of_pool = inventory.guests.iter().filter(|(vmid, guest)| {
            guest.pool.as_ref() == Some(&cluster.pool) && !guest.template && !known.contains(vmid)
        });
        let range = cluster.vmid_range.first..=cluster.vmid_range.last;
        let (perhaps, foreign): (Vec<_>, Vec<_>) =
            of_pool.partition(|(vmid, _)| !sees_books && range.contains(vmid));
        let shown = |guests: &[(&Vmid, &GuestFacts)]| {
            let texts = guests.iter().map(|(vmid, guest)| told(**vmid, guest));
            let texts: Vec<String> = texts.collect();
            listed(&texts.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let object = named("ProxmoxCluster", name);
        let pool = &cluster.pool;
        if !perhaps.is_empty() {
            let text = format!(
                "the Proxmox pool {pool} has VMs with numbers of spec.vmidRange, as it must be if this Kubernetes cluster has made them: {}",
                shown(&perhaps)
            );
            findings.push(Finding::ok(Group::Proxmox, object.clone(), text));
        }
        if !foreign.is_empty() {
            let unknown = match sees_books {
                true => "that this cluster's books do not know",
                false => "with numbers outside of spec.vmidRange",
            };
            let text = format!(
                "VMs of the Proxmox pool {pool} {unknown}: {}",
                shown(&foreign)
            );
            let reason = &reasons::POOL_SHARED;
            findings.push(Finding::warning(Group::Proxmox, object, reason, text));
        }
    }
    findings
}
