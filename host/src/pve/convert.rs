//! From what Proxmox says to the planner's facts. The only place of this module that knows the planner.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::facts::{
    GuestFacts, GuestStatus as Status, HypervisorFacts, InventoryFacts, StorageFacts, TemplateFacts,
};
use kproxide_planner::ids::Vmid;
use sha2::{Digest as _, Sha256};

use super::error::Error;
use super::inventory::{GuestStatus, Hypervisor, Inventory, Storage};
use super::template::{Template, TemplateError, Templates};

/// What was found under each template name that a class uses.
pub type Lookups = BTreeMap<String, Result<Templates, TemplateError>>;

/// The planner's view of a cluster, read at `now`.
pub fn inventory_facts(inventory: &Inventory, lookups: &Lookups, now: Timestamp) -> InventoryFacts {
    let templates = lookups
        .iter()
        .map(|(name, lookup)| (Arc::from(name.as_str()), template_facts(inventory, lookup)))
        .collect();
    InventoryFacts {
        taken_at: Some(now),
        reachable: true,
        problem: None,
        quorate: inventory.quorate,
        complete: inventory.complete,
        hypervisors: inventory
            .hypervisors
            .iter()
            .map(|hypervisor| {
                let name = Arc::from(hypervisor.name.as_str());
                (name, hypervisor_facts(inventory, hypervisor))
            })
            .collect(),
        guests: inventory
            .guests
            .iter()
            .map(|guest| {
                let facts = GuestFacts {
                    hypervisor: guest.hypervisor.as_str().into(),
                    name: guest.name.as_deref().map(Arc::from),
                    status: match guest.status {
                        GuestStatus::Running => Status::Running,
                        GuestStatus::Stopped => Status::Stopped,
                        GuestStatus::Unknown => Status::Unknown,
                    },
                    template: guest.template,
                    lock: guest.lock.as_deref().map(Arc::from),
                    pool: guest.pool.as_deref().map(Arc::from),
                    max_threads: small(guest.max_cpu),
                    max_memory_bytes: guest.max_mem,
                };
                (Vmid(guest.vmid), facts)
            })
            .collect(),
        templates,
    }
}

/// The planner's view of a cluster that could not be read: the last one, no longer reachable, with the reason.
pub fn unreachable(last: InventoryFacts, error: &Error) -> InventoryFacts {
    InventoryFacts {
        reachable: false,
        problem: Some(error.chain()),
        complete: false,
        ..last
    }
}

fn hypervisor_facts(inventory: &Inventory, hypervisor: &Hypervisor) -> HypervisorFacts {
    let committed = || {
        inventory
            .guests_on(&hypervisor.name)
            .filter(|guest| !guest.template)
    };
    HypervisorFacts {
        online: hypervisor.online,
        maintenance: hypervisor.maintenance,
        threads: small(hypervisor.threads),
        memory_bytes: hypervisor.memory_total,
        memory_used_bytes: hypervisor.memory_used,
        cpu_usage: hypervisor.cpu_usage,
        committed_threads: committed().map(|guest| guest.max_cpu).sum(),
        committed_memory_bytes: committed().map(|guest| guest.max_mem).sum(),
        storages: hypervisor
            .storages
            .iter()
            .map(|storage| (storage.name.as_str().into(), storage_facts(storage)))
            .collect(),
    }
}

fn storage_facts(storage: &Storage) -> StorageFacts {
    StorageFacts {
        kind: storage.kind.as_str().into(),
        shared: storage.shared,
        // What takes no disks is no storage to the planner.
        active: storage.takes_disks(),
        available_bytes: storage.available,
        total_bytes: storage.total,
    }
}

fn template_facts(
    inventory: &Inventory,
    lookup: &Result<Templates, TemplateError>,
) -> Vec<TemplateFacts> {
    match lookup {
        Ok(found) => found
            .templates
            .iter()
            .map(|template| usable(inventory, template))
            .collect(),
        Err(error) => {
            let problem = with_causes(error);
            // A name that nothing has must be told as well: its reason then stands alone.
            let vmids = match error.vmids() {
                none if none.is_empty() => vec![0],
                some => some,
            };
            vmids
                .into_iter()
                .map(|vmid| TemplateFacts {
                    vmid: Vmid(vmid),
                    hypervisor: inventory
                        .guest(vmid)
                        .map_or("", |guest| &guest.hypervisor)
                        .into(),
                    shared: true,
                    storage: None,
                    disk_bytes: 0,
                    digest: String::new(),
                    problem: Some(problem.clone()),
                    smbios_uuid: None,
                })
                .collect()
        }
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What a clone inherits. Proxmox's own digest changes with a description too, which is no drift.
fn inherited_digest(template: &Template) -> String {
    const NOT_INHERITED: [&str; 5] = ["description", "meta", "smbios1", "template", "vmgenid"];
    let mut hash = Sha256::new();
    for (key, value) in &template.config.raw {
        if !NOT_INHERITED.contains(&key.as_str()) {
            hash.update(format!("{key}\0{value}\0"));
        }
    }
    hash.finalize()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn usable(inventory: &Inventory, template: &Template) -> TemplateFacts {
    let boot = template.config.boot_disk();
    TemplateFacts {
        vmid: Vmid(template.vmid),
        hypervisor: template.hypervisor.as_str().into(),
        shared: template.is_shared(inventory),
        storage: boot
            .and_then(|disk| disk.storage())
            .map(|storage| storage.into()),
        disk_bytes: boot.and_then(|disk| disk.size_bytes()).unwrap_or(0),
        digest: inherited_digest(template),
        problem: boot
            .is_none()
            .then(|| format!("template {} has no disk", template.vmid)),
        smbios_uuid: template.config.smbios_uuid.as_deref().map(Into::into),
    }
}

/// No server has four billion threads.
fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pve::inventory::tests::inventory;
    use serde_json::json;

    fn cluster() -> Inventory {
        inventory(
            json!([{"type": "cluster", "quorate": 1}]),
            json!([
                {"type": "node", "node": "pve1", "status": "online", "maxcpu": 8, "maxmem": 100, "mem": 60, "cpu": 0.5},
                {"type": "storage", "node": "pve1", "storage": "isos", "plugintype": "dir", "content": "iso", "status": "available"},
                {"type": "qemu", "vmid": 101, "node": "pve1", "status": "running", "maxcpu": 4, "maxmem": 40},
                {"type": "lxc", "vmid": 102, "node": "pve1", "status": "stopped", "maxcpu": 2, "maxmem": 10},
                {"type": "qemu", "vmid": 9000, "node": "pve1", "name": "tmpl", "template": 1, "maxcpu": 2, "maxmem": 20},
            ]),
        )
    }

    #[test]
    fn stopped_guests_count_as_committed_and_templates_do_not() {
        let facts = inventory_facts(&cluster(), &Lookups::new(), Timestamp::UNIX_EPOCH);
        let hypervisor = &facts.hypervisors["pve1"];
        assert_eq!(
            (
                hypervisor.committed_threads,
                hypervisor.committed_memory_bytes
            ),
            (6, 50)
        );
        assert_eq!((hypervisor.threads, hypervisor.memory_used_bytes), (8, 60));
        assert!(!hypervisor.storages["isos"].active);
        assert!(facts.quorate && facts.complete && facts.reachable);
    }

    #[test]
    fn a_template_that_cannot_be_used_carries_its_reason() {
        let lookup = Err(TemplateError::NotATemplate {
            name: "tmpl".to_owned(),
            vmid: 101,
            hypervisor: "pve1".to_owned(),
        });
        let lookups = Lookups::from([("tmpl".to_owned(), lookup)]);
        let facts = inventory_facts(&cluster(), &lookups, Timestamp::UNIX_EPOCH);
        let template = &facts.templates["tmpl"][0];
        assert_eq!(&*template.hypervisor, "pve1");
        assert!(
            template
                .problem
                .as_ref()
                .unwrap()
                .contains("qm template 101")
        );
    }

    #[test]
    fn a_template_that_does_not_exist_has_a_reason_too() {
        let name = "tmpl".to_owned();
        let lookups = Lookups::from([(name.clone(), Err(TemplateError::Missing { name }))]);
        let facts = inventory_facts(&cluster(), &lookups, Timestamp::UNIX_EPOCH);
        let problem = facts.templates["tmpl"][0].problem.as_ref().unwrap();
        assert!(problem.contains("does not exist"), "{problem}");
    }

    #[test]
    fn drift_is_what_a_clone_would_inherit() {
        let digest = |config: serde_json::Value| {
            inherited_digest(&Template {
                vmid: 9000,
                hypervisor: "pve1".to_owned(),
                config: crate::pve::vm_config::VmConfig::from_data(
                    &serde_json::from_value(config).unwrap(),
                ),
            })
        };
        let before = digest(json!({"scsi0": "local:1", "description": "a", "digest": "1"}));
        assert_eq!(
            digest(json!({"scsi0": "local:1", "description": "b", "digest": "2"})),
            before
        );
        assert_ne!(
            digest(json!({"scsi0": "local:2", "description": "a", "digest": "1"})),
            before
        );
    }
}
