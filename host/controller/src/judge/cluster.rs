//! ProxmoxCluster: reachable, the credentials, the Proxmox pool, the storages and the VMIDs.

use kproxide_planner::facts::{ClusterFacts, InventoryFacts, Trouble, VmidRange};
use kproxide_planner::ids::{ClusterName, StorageName, Vmid};
use kproxide_planner::planning::{vmids_rested, vmids_used_up};
use kproxide_planner::world::World;

use super::{Finding, Group, Known, Reason, Stops, clusters_of, named, reasons};

/// The condition Ready.
pub(super) fn ready_of(
    name: &ClusterName,
    facts: &ClusterFacts,
    world: &World,
    known: &Known<'_>,
) -> Finding {
    let object = || named("ProxmoxCluster", name);
    let not_ready = |reason: &'static Reason, message: &str| {
        Finding::error(Group::Proxmox, object(), reason, message)
    };
    if let Some(problem) = &facts.problem {
        return Finding {
            stops: Stops::All,
            ..not_ready(&reasons::INVALID_SETTINGS, problem)
        };
    }
    if let Some(problem) = known.key_problem {
        return not_ready(&reasons::KEY_UNUSABLE, problem);
    }
    let Some(inventory) = world.inventories().get(name) else {
        let text = "kproxide has not asked this Proxmox cluster yet";
        return Finding {
            reason: &reasons::UNKNOWN,
            ..Finding::ok(Group::Proxmox, object(), text)
        };
    };
    if let Some((reason, message)) = of_inventory(facts, inventory) {
        return not_ready(reason, &message).typing(inventory.commands.clone());
    }
    if let Some(lacking) = known.lacking.get(name) {
        let finding = not_ready(&reasons::PRIVILEGES_MISSING, &lacking.message);
        return finding.typing(lacking.commands.clone());
    }
    if let Some(text) = missing_storage(name, inventory, world) {
        return not_ready(&reasons::STORAGE_MISSING, &text);
    }
    if vmids_used_up(world, name) {
        let VmidRange { first, last } = facts.vmid_range;
        let anchors = world.ledger().into_iter().flat_map(|it| &it.anchors);
        let range = first..=last;
        let mut anchors =
            anchors.filter(|anchor| anchor.cluster == *name && range.contains(&anchor.vmid));
        let anchor = anchors.next().map_or_else(String::new, |anchor| {
            format!(
                " {} is that of the anchor VM, by which kproxide tells this cluster from a copy.",
                anchor.vmid
            )
        });
        let rested = vmids_rested(world, name, known.now);
        if rested > 0 {
            let text = format!(
                "no VMID from {first} to {last} (spec.vmidRange) is free.{anchor} kproxide takes those again that have rested longest, at least an hour: {rested} of them now. Make the range larger"
            );
            let reason = &reasons::VMIDS_REUSED;
            return Finding::warning(Group::Proxmox, object(), reason, text)
                .typing(larger_range(name, first, last));
        }
        return not_ready(
            &reasons::VMIDS_USED_UP,
            &format!(
                "each VMID from {first} to {last} (spec.vmidRange) is in use, or rests after its machine is gone.{anchor} Make the range larger, or wait: an hour after its machine is gone kproxide takes a VMID again, if no other is free. Since when each rests stands in `kubectl get ledger kproxide --output yaml` (spec.entries, since)"
            ),
        )
        .typing(larger_range(name, first, last));
    }
    Finding::ok(Group::Proxmox, object(), "")
}

/// Twice as many numbers, where the API server takes them: no range may hold 9999, and none goes beyond what Proxmox has.
fn larger_range(name: &ClusterName, first: Vmid, last: Vmid) -> Option<String> {
    let most = if first.0 < 9999 { 9998 } else { 999_999_999 };
    let larger = last
        .0
        .saturating_add(last.0.saturating_sub(first.0) + 1)
        .min(most);
    (larger > last.0).then(|| {
        let patch = format!(r#"{{"spec":{{"vmidRange":{{"last":{larger}}}}}}}"#);
        format!("kubectl patch proxmoxcluster {name} --type merge --patch '{patch}'")
    })
}

/// What the last look at the Proxmox cluster says. `None`: all is well.
fn of_inventory(
    facts: &ClusterFacts,
    inventory: &InventoryFacts,
) -> Option<(&'static Reason, String)> {
    let problem = || inventory.problem.clone().unwrap_or_default();
    if !inventory.reachable {
        let reason = match inventory.trouble {
            Some(Trouble::Credentials) => &reasons::CREDENTIALS_REFUSED,
            Some(Trouble::Endpoint) => &reasons::ENDPOINT_NOT_ALLOWED,
            Some(Trouble::Certificate) => &reasons::CERTIFICATE_UNTRUSTED,
            Some(Trouble::Privileges) => &reasons::PRIVILEGES_MISSING,
            Some(Trouble::NoPool) => &reasons::POOL_MISSING,
            None => &reasons::UNREACHABLE,
        };
        return Some((reason, problem()));
    }
    if !inventory.quorate {
        return Some((
            &reasons::NO_QUORUM,
            "the Proxmox cluster has no quorum, so kproxide launches and destroys nothing there. If you took the server of spec.endpoints out of its cluster on purpose, restart kproxide".to_owned(),
        ));
    }
    if let Some(problem) = unknown_hypervisor(facts, inventory) {
        return Some((&reasons::UNKNOWN_HYPERVISOR, problem));
    }
    (inventory.trouble == Some(Trouble::NoPool)).then(|| (&reasons::POOL_MISSING, problem()))
}

/// Proxmox also lists servers that are off. So a name that is not listed is a mistake, and a machine may be made where
/// the user did not want it.
fn unknown_hypervisor(cluster: &ClusterFacts, inventory: &InventoryFacts) -> Option<String> {
    let fields = [
        ("hypervisors.include", &cluster.hypervisors.include),
        ("hypervisors.exclude", &cluster.hypervisors.exclude),
        ("hypervisors.drain", &cluster.hypervisors.drain),
    ];
    let named = fields
        .into_iter()
        .flat_map(|(field, names)| names.iter().map(move |name| (field, name)));
    let described = cluster.hypervisor_attributes.keys();
    let described = described.map(|name| ("hypervisorAttributes", name));
    let overridden = cluster.hypervisors.overrides.keys();
    let overridden = overridden.map(|name| ("hypervisors.overrides", name));
    let mut named = named.chain(described).chain(overridden);
    let (field, name) = named.find(|(_, name)| !inventory.hypervisors.contains_key(*name))?;
    let there: Vec<&str> = inventory.hypervisors.keys().map(|name| &**name).collect();
    (inventory.complete && !there.is_empty()).then(|| {
        format!(
            "spec.{field}: the Proxmox cluster has no server {name}; it has {}: correct the name",
            there.join(", ")
        )
    })
}

/// A storage that a class wants here, and that no server that is online has.
fn missing_storage(
    name: &ClusterName,
    inventory: &InventoryFacts,
    world: &World,
) -> Option<String> {
    let classes = world.classes().iter();
    let mut wanted = classes.filter_map(|(class, facts)| {
        let storage = facts.template.storage.as_ref()?;
        clusters_of(world, class)
            .contains(&name)
            .then_some((class, storage))
    });
    let has = |storage: &StorageName| {
        let mut online = inventory.hypervisors.values().filter(|it| it.online);
        online.any(|it| it.storages.contains_key(storage))
    };
    let someone_is_online = inventory.hypervisors.values().any(|it| it.online);
    let (class, storage) = wanted.find(|(_, storage)| someone_is_online && !has(storage))?;
    Some(format!(
        "NodeClass {class} asks for storage {storage} (template.storage), which no server of this Proxmox cluster has, or which holds no disk images (content `images`), or which the credentials may not see (Datastore.Audit on /storage/{storage}). Correct the name, or make the storage"
    ))
}

#[cfg(test)]
mod tests {
    use kproxide_planner::facts::HypervisorFacts;
    use serde_json::{Value, json};

    use super::*;
    use kproxide_kube::convert::cluster_facts;

    #[test]
    fn f97_a_cluster_that_names_a_server_that_it_does_not_have_is_not_ready() {
        let said = |field: &str, value: Value| {
            let mut spec = json!({
                "endpoints": ["https://pve1"], "credentials": "c", "pool": "p",
                "vmidRange": {"first": 200, "last": 299},
            });
            spec[field] = value;
            let (cluster, _) = cluster_facts(&serde_json::from_value(spec).unwrap());
            // One of them is off, and there all the same.
            let servers = [("alpha", false), ("beta", true), ("gamma", true)];
            let hypervisors = servers.map(|(name, online)| {
                let facts = HypervisorFacts {
                    online,
                    ..HypervisorFacts::default()
                };
                (name.into(), facts)
            });
            let inventory = InventoryFacts {
                reachable: true,
                quorate: true,
                complete: true,
                hypervisors: hypervisors.into(),
                ..InventoryFacts::default()
            };
            of_inventory(&cluster, &inventory)
        };
        let both = json!({"include": ["alpha"], "exclude": ["beta"]});
        assert_eq!(said("hypervisors", both), None);
        let racks = |name: &str| json!({"alpha": {"rack": "a"}, name: {"rack": "b"}});
        assert_eq!(said("hypervisorAttributes", racks("beta")), None);
        for (field, value, named) in [
            (
                "hypervisors",
                json!({"include": ["alpha", "gama"]}),
                "hypervisors.include",
            ),
            (
                "hypervisors",
                json!({"exclude": ["alpha", "gama"]}),
                "hypervisors.exclude",
            ),
            (
                "hypervisors",
                json!({"drain": ["alpha", "gama"]}),
                "hypervisors.drain",
            ),
            (
                "hypervisors",
                json!({"overrides": {"alpha": {}, "gama": {}}}),
                "hypervisors.overrides",
            ),
            (
                "hypervisorAttributes",
                racks("gama"),
                "hypervisorAttributes",
            ),
        ] {
            let (_, message) = said(field, value).unwrap();
            let expected = format!(
                "spec.{named}: the Proxmox cluster has no server gama; it has alpha, beta, gamma"
            );
            assert!(message.contains(&expected), "{message}");
        }
    }
}
