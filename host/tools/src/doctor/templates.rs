//! The templates' own configuration, and the privileges that follow from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use kproxide_planner::facts::{Interface, InventoryFacts};
use kproxide_planner::ids::{ClassName, ClusterName, StorageName};
use kproxide_planner::world::World;

use kproxide_controller::judge::listed;
use kproxide_controller::judge::{Finding, Group, named, reasons};
use kproxide_controller::observe::{Lacking, Wanted, vnets};
use kproxide_pve::client::Client;
use kproxide_pve::preflight::network_paths;

#[derive(Default)]
pub(super) struct Told {
    pub(super) findings: Vec<Finding>,
    /// What the credentials lack, with the commands that grant it.
    pub(super) lacking: Option<Lacking>,
}

pub(super) async fn check(
    client: Client,
    world: &World,
    cluster: &ClusterName,
    facts: &InventoryFacts,
    wanted: &Wanted,
) -> Told {
    let mut told = Told::default();
    let settings = world.clusters().get(cluster);
    let pool = settings.map(|it| it.pool.to_string());
    let mut scope = wanted.scope(&pool.unwrap_or_default(), &facts.templates, &vnets(facts));
    let servers = facts
        .hypervisors
        .iter()
        .filter(|(name, server)| server.online && !settings.is_some_and(|it| it.excludes(name)));
    let servers: BTreeSet<String> = servers.map(|(name, _)| name.to_string()).collect();
    let mut uses = Vec::new();
    for (name, class) in world.classes() {
        // A storage that is not there has a finding of its own.
        let is_there = |name: &&StorageName| {
            let mut servers = facts.hypervisors.values();
            servers.any(|server| server.storages.contains_key(*name))
        };
        let storage = class.template.storage.iter().filter(is_there);
        scope.storages.extend(storage.map(ToString::to_string));
        let templates = facts.templates.get(&class.template_in(cluster));
        for template in templates.into_iter().flatten().filter(|it| it.vmid.0 > 0) {
            let vmid = template.vmid.0;
            let drives = template.disks.iter();
            let drives = drives.filter(|disk| class.template.storage.is_none() && disk.is_base());
            scope
                .storages
                .extend(drives.map(|disk| disk.storage.to_string()));
            for (interface, connection) in &template.connections {
                scope.networks.extend(network_paths(connection));
                // The class says where machines of its own network are connected.
                let is_replaced = |it: &Interface| it.name == *interface && it.bridge.is_some();
                let network = &class.network;
                let is_gone = !network.is_empty() && network.iter().all(|it| it.name != *interface);
                if is_gone || network.iter().any(is_replaced) {
                    continue;
                }
                let bridge = &connection.bridge;
                let on_each = (!class.template.is_local()).then_some(servers.clone());
                let on = on_each.unwrap_or_else(|| [template.hypervisor.to_string()].into());
                uses.push(Use {
                    class: name.clone(),
                    vmid,
                    bridge: bridge.clone(),
                    on,
                });
            }
        }
    }
    let Ok(held) = client.permissions(None).await else {
        return told;
    };
    let Ok(gaps) = client.lacking(&scope, &held).await else {
        return told;
    };
    // Proxmox does not tell a bridge to which the credentials may not connect machines.
    if !gaps.iter().any(|gap| gap.path.starts_with("/sdn/")) {
        told.findings.extend(bridges(&client, &uses).await);
    }
    if !gaps.is_empty() {
        told.lacking = Lacking::of(&gaps);
    }
    told
}

/// Machines of a class are made from a template that is connected to a bridge, on these servers.
struct Use {
    class: ClassName,
    vmid: u32,
    bridge: Arc<str>,
    on: BTreeSet<String>,
}

/// Proxmox does not start a VM whose bridge its server lacks.
async fn bridges(client: &Client, uses: &[Use]) -> Vec<Finding> {
    let servers: BTreeSet<&String> = uses.iter().flat_map(|it| &it.on).collect();
    let asked = servers.into_iter().map(async |server| {
        let has = client.bridges(server).await.ok()?;
        Some((server, has))
    });
    let told: BTreeMap<_, _> = join_all(asked).await.into_iter().flatten().collect();
    let mut findings = Vec::new();
    for one in uses {
        let lacks = |server: &&String| {
            told.get(server)
                .is_some_and(|has| !has.contains_key(&one.bridge))
        };
        let without: Vec<&str> = one.on.iter().filter(lacks).map(String::as_str).collect();
        if without.is_empty() {
            continue;
        }
        let text = format!(
            "template {} is connected to the bridge {}, which is not on {}",
            one.vmid,
            one.bridge,
            listed(&without)
        );
        let object = named("NodeClass", &one.class);
        let reason = &reasons::BRIDGE_MISSING;
        findings.push(Finding::error(Group::Configuration, object, reason, text));
    }
    findings
}
