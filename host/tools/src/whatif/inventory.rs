//! Hypervisors: those of `Inventory` documents, and those that are assumed where nothing is known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::facts::{
    BridgeKind, ClaimFacts, Drive, GuestFacts, GuestStatus, HypervisorFacts, InventoryFacts,
    StorageFacts, TemplateDisk, TemplateFacts,
};
use kproxide_planner::ids::{ClusterName, StorageName, Vmid};
use kproxide_planner::kubernetes::quantity::Quantity;
use kproxide_planner::world::World;
use serde::Deserialize;
use serde_json::Value;

use crate::manifest::{BadInput, Object};
use kproxide_controller::observe;
use kproxide_kube::crd::Amount;
use kproxide_pve::template::holds_linked_clones;

/// Hypervisors of a cluster of which nothing is known: enough for spreading over three.
const ASSUMED: [&str; 3] = ["pve1", "pve2", "pve3"];
/// Their size.
const ASSUMED_CORES: u32 = 1024;
const ASSUMED_MEMORY: u64 = 8 << 40;
/// The storage of a hypervisor whose storages are not given, and its size.
const ASSUMED_STORAGE: &str = "storage";
const ASSUMED_ROOM: u64 = 1 << 50;
/// The disk of a template of which nothing is known.
const TEMPLATE_BYTES: u64 = 8 << 30;
/// VMIDs of templates that are assumed, far above those that people use.
const FIRST_TEMPLATE: u32 = 990_000_000;

/// A document of kind `Inventory`: the hypervisors of one ProxmoxCluster, which its name names.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "metadata")]
    _metadata: Value,
    hypervisors: Vec<Hypervisor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Hypervisor {
    name: String,
    /// Threads.
    cores: u32,
    memory: Amount,
    /// What VMs of others take of it.
    #[serde(default)]
    used: Used,
    #[serde(default = "yes")]
    online: bool,
    #[serde(default)]
    maintenance: bool,
    /// Not given: one that is large enough.
    storages: Option<Vec<Storage>>,
    /// Its bridges and VNets. Not given: all that NodeClasses name.
    bridges: Option<Vec<String>>,
    /// Names of the templates that stand on it. If no hypervisor gives any: those of all NodeClasses.
    templates: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Used {
    cores: u32,
    memory: Option<Amount>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Storage {
    name: String,
    /// Proxmox's word, such as `lvmthin` or `rbd`.
    #[serde(rename = "type", default = "thin")]
    kind: String,
    size: Amount,
    /// Not given: all of it.
    free: Option<Amount>,
    #[serde(default)]
    shared: bool,
}

fn yes() -> bool {
    true
}

fn thin() -> String {
    "lvmthin".to_owned()
}

/// What is known of the hypervisors of one cluster.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) facts: InventoryFacts,
    /// All templates are there. If not, those that the classes name are assumed, one on each hypervisor.
    pub(super) has_templates: bool,
}

/// The cluster and the hypervisors of a document.
pub(super) fn read(object: &Object) -> Result<(ClusterName, Known), BadInput> {
    let document: Document = serde_path_to_error::deserialize(&object.value).map_err(|error| {
        let path = error.path().to_string();
        object.bad(&path, error.into_inner())
    })?;
    let mut inventory = empty();
    for (index, hypervisor) in document.hypervisors.iter().enumerate() {
        let field = |name: &str| format!("hypervisors[{index}].{name}");
        let bytes = |name: &str, amount: &Amount| match amount.0.parse::<Quantity>() {
            Ok(quantity) if quantity >= Quantity::default() => {
                Ok(quantity.units_down().unsigned_abs())
            }
            Ok(_) => Err(object.bad(&field(name), "it is negative")),
            Err(problem) => Err(object.bad(&field(name), problem)),
        };
        let mut storages = BTreeMap::new();
        for (at, storage) in hypervisor.storages.iter().flatten().enumerate() {
            let total = bytes(&format!("storages[{at}].size"), &storage.size)?;
            let free = match &storage.free {
                Some(free) => bytes(&format!("storages[{at}].free"), free)?,
                None => total,
            };
            let facts = StorageFacts {
                kind: storage.kind.as_str().into(),
                linked_clones: holds_linked_clones(&storage.kind),
                shared: storage.shared,
                active: true,
                available_bytes: free,
                total_bytes: total,
            };
            storages.insert(StorageName::from(storage.name.as_str()), facts);
        }
        let memory_bytes = bytes("memory", &hypervisor.memory)?;
        let used = match &hypervisor.used.memory {
            Some(used) => bytes("used.memory", used)?,
            None => 0,
        };
        let cores = f64::from(hypervisor.cores.max(1));
        let facts = HypervisorFacts {
            online: hypervisor.online,
            problem: None,
            maintenance: hypervisor.maintenance,
            threads: hypervisor.cores,
            memory_bytes,
            memory_used_bytes: used,
            cpu_usage: (f64::from(hypervisor.used.cores) / cores).min(1.0),
            committed_threads: hypervisor.used.cores.into(),
            committed_memory_bytes: used,
            storages,
            bridges: hypervisor.bridges.as_ref().map(bridges),
            ..HypervisorFacts::default()
        };
        let name: Arc<str> = hypervisor.name.as_str().into();
        if inventory.hypervisors.insert(name.clone(), facts).is_some() {
            return Err(object.bad(
                &field("name"),
                format_args!("there are two hypervisors {name}"),
            ));
        }
        for template in hypervisor.templates.iter().flatten() {
            let known = inventory.templates.entry(template.as_str().into());
            known
                .or_default()
                .push(template_on(&name, &inventory.hypervisors[&name]));
        }
    }
    let known = Known {
        has_templates: document
            .hypervisors
            .iter()
            .any(|one| one.templates.is_some()),
        facts: inventory,
    };
    Ok((object.name().into(), known))
}

fn bridges<T: AsRef<str>>(
    names: impl IntoIterator<Item = T>,
) -> Arc<BTreeMap<Arc<str>, BridgeKind>> {
    let names = names.into_iter();
    let plain = names.map(|name| (name.as_ref().into(), BridgeKind::Plain));
    Arc::new(plain.collect())
}

fn empty() -> InventoryFacts {
    InventoryFacts {
        reachable: true,
        quorate: true,
        complete: true,
        ..InventoryFacts::default()
    }
}

/// Hypervisors that are large enough: those that the ProxmoxCluster's status and its claims name, or else three.
pub(super) fn assumed<'a>(
    names: impl Iterator<Item = &'a str>,
    offline: &BTreeSet<String>,
) -> Known {
    let mut names: BTreeSet<&str> = names.collect();
    if names.is_empty() {
        names.extend(ASSUMED);
    }
    let mut inventory = empty();
    for name in names {
        let facts = HypervisorFacts {
            online: !offline.contains(name),
            threads: ASSUMED_CORES,
            memory_bytes: ASSUMED_MEMORY,
            ..HypervisorFacts::default()
        };
        inventory.hypervisors.insert(name.into(), facts);
    }
    Known {
        facts: inventory,
        has_templates: false,
    }
}

/// How hypervisors are described that nothing is known of.
pub(super) fn assumption(cluster: &ClusterName, inventory: &InventoryFacts) -> String {
    let names: Vec<&str> = inventory.hypervisors.keys().map(|name| &**name).collect();
    format!(
        "the hypervisors of ProxmoxCluster {cluster} are {}, each with {ASSUMED_CORES} cores and {} TiB (no Inventory names them; --proxmox-credentials DIR asks Proxmox)",
        names.join(", "),
        ASSUMED_MEMORY >> 40
    )
}

/// What an Inventory does not say, and [`complete`] takes for it.
pub(super) fn untold(cluster: &ClusterName, known: &Known, world: &World) -> Vec<String> {
    let wanted = observe::wanted(world).remove(cluster).unwrap_or_default();
    let templates: BTreeSet<String> = (wanted.templates.iter())
        .filter(|_| !known.has_templates)
        .map(|(template, _)| template.to_string())
        .collect();
    let templates = templates.into_iter().map(|template| {
        format!("each hypervisor of ProxmoxCluster {cluster} has the template {template} (its Inventory names none)")
    });
    let hypervisors = known.facts.hypervisors.iter();
    let lacking = hypervisors.filter(|(_, facts)| facts.storages.is_empty());
    let lacking: Vec<&str> = lacking.map(|(name, _)| &**name).collect();
    let storages = (!lacking.is_empty()).then(|| {
        format!(
            "these hypervisors of ProxmoxCluster {cluster} have storages that are large enough (its Inventory names none): {}",
            lacking.join(", ")
        )
    });
    templates.chain(storages).collect()
}

/// Adds what follows from the rest of the world: storages and templates that are not given, and the VMs of claims.
pub(super) fn complete(
    cluster: &ClusterName,
    known: Known,
    world: &World,
    now: Timestamp,
) -> InventoryFacts {
    let Known {
        facts: mut inventory,
        has_templates,
    } = known;
    inventory.taken_at = Some(now);
    let classes: Vec<_> = world.classes().values().collect();
    let network = classes.iter().flat_map(|class| &class.network);
    let named = bridges(network.filter_map(|it| it.bridge.as_ref()));
    for facts in inventory.hypervisors.values_mut() {
        facts.bridges.get_or_insert_with(|| named.clone());
        if !facts.storages.is_empty() {
            continue;
        }
        let named = classes
            .iter()
            .filter_map(|class| class.template.storage.clone());
        for name in named.chain([ASSUMED_STORAGE.into()]) {
            let facts_of_it = StorageFacts {
                kind: "rbd".into(),
                linked_clones: true,
                shared: true,
                active: true,
                available_bytes: ASSUMED_ROOM,
                total_bytes: ASSUMED_ROOM,
            };
            facts.storages.insert(name, facts_of_it);
        }
    }
    let wanted = observe::wanted(world).remove(cluster).unwrap_or_default();
    if !has_templates {
        for (template, _) in wanted.templates {
            let on_each = inventory.hypervisors.iter();
            let on_each = on_each.map(|(name, facts)| template_on(name, facts));
            inventory.templates.insert(template, on_each.collect());
        }
    }
    let templates = inventory.templates.values_mut().flatten();
    for (number, template) in (FIRST_TEMPLATE..).zip(templates) {
        template.vmid = Vmid(number);
        // A template of an Inventory was read before its hypervisor's storages were assumed.
        let facts = &inventory.hypervisors[&template.hypervisor];
        if template.disks.is_empty() {
            template.disks = disks_on(facts);
        }
    }
    for claim in world.claims().values() {
        if claim.spec.cluster == *cluster && claim.status.smbios_uuid.is_some() {
            inventory.guests.insert(claim.spec.vmid, guest_of(claim));
        }
    }
    add_guests_to_hypervisors(&mut inventory);
    inventory
}

fn template_on(name: &Arc<str>, facts: &HypervisorFacts) -> TemplateFacts {
    TemplateFacts {
        // Numbered when all are known.
        vmid: Vmid(FIRST_TEMPLATE),
        hypervisor: name.clone(),
        disks: disks_on(facts),
        digest: "assumed".to_owned(),
        problem: None,
        commands: Vec::new(),
        has_agent: true,
        smbios_uuid: None,
        hotplugs_memory: false,
        connections: BTreeMap::new(),
    }
}

/// One disk and a cloud-init drive, on the storage with the most room.
fn disks_on(facts: &HypervisorFacts) -> Vec<TemplateDisk> {
    let storages = facts.storages.iter();
    let largest = storages.max_by_key(|(name, storage)| {
        // Of equals the first by name.
        (storage.available_bytes, std::cmp::Reverse((*name).clone()))
    });
    let disk = largest.map(|(name, storage)| TemplateDisk {
        key: "scsi0".into(),
        drive: Drive::Disk {
            links: storage.linked_clones,
        },
        bytes: TEMPLATE_BYTES,
        storage: name.clone(),
        storage_kind: storage.kind.clone(),
        shared: storage.shared,
    });
    let cloud_init = disk.clone().map(|disk| TemplateDisk {
        key: "ide2".into(),
        drive: Drive::CloudInit,
        bytes: 4 << 20,
        ..disk
    });
    disk.into_iter().chain(cloud_init).collect()
}

fn guest_of(claim: &ClaimFacts) -> GuestFacts {
    let spec = &claim.spec;
    GuestFacts {
        hypervisor: claim.hypervisor().clone(),
        name: Some(spec.vm_name.clone()),
        status: GuestStatus::Running,
        template: false,
        lock: None,
        pool: None,
        max_threads: u32::try_from(spec.resources.milli_cores.div_ceil(1000)).unwrap_or(u32::MAX),
        max_memory_bytes: spec.resources.memory_bytes,
    }
}

/// An Inventory says what others take.
fn add_guests_to_hypervisors(inventory: &mut InventoryFacts) {
    for guest in inventory.guests.values() {
        if let Some(facts) = inventory.hypervisors.get_mut(&guest.hypervisor) {
            facts.committed_threads += u64::from(guest.max_threads);
            facts.committed_memory_bytes += guest.max_memory_bytes;
            let used = facts
                .memory_used_bytes
                .saturating_add(guest.max_memory_bytes);
            facts.memory_used_bytes = used.min(facts.memory_bytes);
        }
    }
}
