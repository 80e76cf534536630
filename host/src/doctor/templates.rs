//! The templates' own configuration, and the privileges that follow from it.

use kproxide_planner::facts::{Drive, InventoryFacts, Join};
use kproxide_planner::ids::{ClusterName, StorageName};
use kproxide_planner::world::World;

use super::finding::{Finding, Group};
use super::{named, reasons};
use crate::pve::client::Client;
use crate::pve::preflight::Scope;

#[derive(Default)]
pub(super) struct Told {
    pub(super) findings: Vec<Finding>,
    /// What the credentials lack, with the commands that grant it.
    pub(super) lacking: Option<String>,
}

pub(super) async fn check(
    client: Client,
    world: &World,
    cluster: &ClusterName,
    facts: &InventoryFacts,
) -> Told {
    let mut told = Told::default();
    let mut scope = Scope {
        pool: world.clusters().get(cluster).map(|it| it.pool.to_string()),
        ..Scope::default()
    };
    for (name, class) in world.classes() {
        let runs_scripts = class.join == Join::GuestExec;
        scope.guest_exec |= runs_scripts;
        // A storage that is not there has a finding of its own.
        let is_there = |name: &&StorageName| {
            let mut servers = facts.hypervisors.values();
            servers.any(|server| server.storages.contains_key(*name))
        };
        let storage = class.storage.iter().filter(is_there);
        scope.storages.extend(storage.map(ToString::to_string));
        let templates = facts.templates.get(&class.template);
        for template in templates.into_iter().flatten().filter(|it| it.vmid.0 > 0) {
            let vmid = template.vmid.0;
            scope.templates.push(vmid);
            let drives = template.disks.iter();
            let drives = drives.filter(|disk| class.storage.is_none() && disk.is_base());
            scope
                .storages
                .extend(drives.map(|disk| disk.storage.to_string()));
            let Ok(config) = client.read_config(&template.hypervisor, vmid).await else {
                continue;
            };
            let networks = config.raw.iter().filter(|(key, _)| key.starts_with("net"));
            let bridges = networks.filter_map(|(_, value)| {
                let mut options = value.split(',');
                options.find_map(|option| option.strip_prefix("bridge="))
            });
            scope.bridges.extend(bridges.map(str::to_owned));
            let has_agent = config.raw.get("agent").is_some_and(|agent| {
                let mut options = agent.split(',');
                options.any(|option| matches!(option, "1" | "enabled=1"))
            });
            let object = named("NodeClass", name);
            let here = format!("template {vmid} on {}", template.hypervisor);
            let group = Group::Configuration;
            if runs_scripts && !has_agent {
                let text = format!("{here} has no guest agent: `qm set {vmid} --agent 1`");
                told.findings.push(Finding::error(
                    group,
                    object.clone(),
                    &reasons::NO_AGENT,
                    text,
                ));
            }
            if !template
                .disks
                .iter()
                .any(|disk| disk.drive == Drive::CloudInit)
            {
                let storage = template
                    .disks
                    .first()
                    .map_or("local-lvm", |disk| disk.storage.as_str());
                let text = format!(
                    "{here} has no cloud-init drive: `qm set {vmid} --ide2 {storage}:cloudinit`"
                );
                told.findings
                    .push(Finding::error(group, object, &reasons::NO_CLOUD_INIT, text));
            }
        }
    }
    if let Ok(held) = client.permissions(None).await
        && let Ok(gaps) = client.lacking(&scope, &held).await
        && !gaps.is_empty()
    {
        let gaps: Vec<String> = gaps.iter().map(ToString::to_string).collect();
        told.lacking = Some(format!(
            "the credentials may not do what machines need. {}",
            gaps.join("; ")
        ));
    }
    told
}
