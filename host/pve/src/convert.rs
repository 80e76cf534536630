//! What Proxmox says, in the planner's words.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kproxide_planner::facts::{
    Drive, GuestFacts, GuestStatus as Status, HypervisorFacts, InventoryFacts, StorageFacts,
    TemplateChoice, TemplateDisk, TemplateFacts,
};
use kproxide_planner::ids::Vmid;
use sha2::{Digest as _, Sha256};

use super::cloudinit::without_memory_hotplug;
use super::interfaces::connections;
use super::inventory::{Guest, GuestStatus, Hypervisor, Inventory};
use super::template::{Template, TemplateError, Templates, holds_linked_clones};
use super::vm_config::{Disk, VmConfig};
use kproxide_common::chain::chain;
use kproxide_common::foreign::value;
use kproxide_common::hex::hex;

/// The facts of one inventory; `templates` are those that classes name, by name.
pub fn inventory_facts(
    inventory: &Inventory,
    templates: BTreeMap<TemplateChoice, Vec<TemplateFacts>>,
    taken_at: Timestamp,
) -> InventoryFacts {
    let hypervisors = inventory
        .hypervisors
        .iter()
        .map(|hypervisor| {
            (
                hypervisor.name.as_str().into(),
                hypervisor_facts(inventory, hypervisor),
            )
        })
        .collect();
    let guests = inventory
        .guests
        .iter()
        .map(|guest| (Vmid(guest.vmid), guest_facts(guest)))
        .collect();
    InventoryFacts {
        taken_at: Some(taken_at),
        reachable: true,
        problem: None,
        commands: Vec::new(),
        trouble: None,
        quorate: inventory.quorate,
        version: None,
        complete: inventory.complete,
        hypervisors,
        guests,
        templates,
    }
}

fn hypervisor_facts(inventory: &Inventory, hypervisor: &Hypervisor) -> HypervisorFacts {
    let guests = inventory
        .guests_on(&hypervisor.name)
        .filter(|guest| !guest.template && takes_room(guest.status));
    let (mut count, mut threads, mut memory) = (0, 0_u64, 0_u64);
    for guest in guests {
        count += 1;
        threads = threads.saturating_add(guest.max_cpu);
        memory = memory.saturating_add(guest.max_mem);
    }
    let storages = hypervisor
        .storages
        .iter()
        .filter(|storage| storage.takes_disks())
        .map(|storage| {
            let facts = StorageFacts {
                kind: value(&storage.kind).into(),
                linked_clones: holds_linked_clones(&storage.kind),
                shared: storage.shared,
                active: storage.active,
                available_bytes: storage.available,
                total_bytes: storage.total,
            };
            (storage.name.as_str().into(), facts)
        });
    HypervisorFacts {
        online: hypervisor.online,
        problem: hypervisor.problem.as_deref().map(Into::into),
        maintenance: hypervisor.maintenance,
        // The inventory before this one tells.
        maintenance_since: None,
        threads: u32::try_from(hypervisor.threads).unwrap_or(u32::MAX),
        memory_bytes: hypervisor.memory_total,
        memory_used_bytes: hypervisor.memory_used,
        cpu_usage: hypervisor.cpu_usage,
        committed_threads: threads,
        committed_memory_bytes: memory,
        guests: count,
        uptime_seconds: hypervisor.uptime,
        ha_state: hypervisor.ha_state.as_deref().map(|it| value(it).into()),
        // It is asked apart from the inventory.
        details: None,
        storages: storages.collect(),
        bridges: None,
    }
}

/// A stopped guest takes nothing; one whose state is unknown may well run.
fn takes_room(status: GuestStatus) -> bool {
    match status {
        GuestStatus::Running | GuestStatus::Unknown => true,
        GuestStatus::Stopped => false,
    }
}

fn guest_facts(guest: &Guest) -> GuestFacts {
    GuestFacts {
        hypervisor: guest.hypervisor.as_str().into(),
        name: guest.name.as_deref().map(|it| value(it).into()),
        status: match guest.status {
            GuestStatus::Running => Status::Running,
            GuestStatus::Stopped => Status::Stopped,
            GuestStatus::Unknown => Status::Unknown,
        },
        template: guest.template,
        lock: guest.lock.as_deref().map(|it| value(it).into()),
        pool: guest.pool.as_deref().map(|it| value(it).into()),
        max_threads: u32::try_from(guest.max_cpu).unwrap_or(u32::MAX),
        max_memory_bytes: guest.max_mem,
    }
}

/// The templates of one name. If they cannot be read, a template with that problem, so that the users of the template
/// see the problem.
pub fn template_facts(
    inventory: &Inventory,
    found: Result<Templates, TemplateError>,
) -> Vec<TemplateFacts> {
    match found {
        Ok(templates) => templates
            .templates
            .iter()
            .map(|template| facts_of_template(inventory, template))
            .collect(),
        Err(error) => vec![TemplateFacts {
            vmid: Vmid(0),
            hypervisor: "".into(),
            disks: Vec::new(),
            digest: String::new(),
            problem: Some(chain(&error)),
            commands: error.command().into_iter().collect(),
            has_agent: true,
            smbios_uuid: None,
            hotplugs_memory: false,
            connections: BTreeMap::new(),
        }],
    }
}

fn facts_of_template(inventory: &Inventory, template: &Template) -> TemplateFacts {
    let Template {
        vmid,
        hypervisor,
        config,
    } = template;
    let here = inventory.hypervisor(hypervisor);
    let boot = config.boot_disk();
    let mut problem = boot
        .is_none()
        .then(|| format!("template {vmid} has no disk to boot from"));
    // kproxide may not change `args`: only root@pam may.
    let arguments = config.raw.get("args").map_or("", String::as_str);
    let mut arguments = arguments.split_whitespace();
    if let Some(option) = arguments.find(|it| matches!(*it, "-smp" | "-m" | "--smp" | "--m")) {
        problem.get_or_insert_with(|| format!(
            "template {vmid} sets {option} in its `args`, so that its machines would have another size than their type: take it out as root@pam (`qm set {vmid} --args …`)"
        ));
    }
    let mut disks = Vec::new();
    for disk in config.disks.iter().filter(|disk| !disk.is_unused()) {
        let Some(name) = disk.storage() else {
            problem.get_or_insert_with(|| format!(
                "template {vmid} has {} on {}, which is on no storage, so that Proxmox cannot clone it: take it off the template",
                disk.key, value(&disk.volume)
            ));
            continue;
        };
        let storage = here.and_then(|here| here.storage(name));
        disks.push(TemplateDisk {
            key: disk.key.as_str().into(),
            drive: drive_of(
                disk,
                disk.is_base() && storage.is_some_and(|it| holds_linked_clones(&it.kind)),
            ),
            bytes: disk.size_bytes().unwrap_or(0),
            storage: name.into(),
            storage_kind: storage.map_or("unknown", |storage| &storage.kind).into(),
            shared: storage.is_some_and(|storage| storage.shared),
        });
    }
    disks.sort_by_key(|disk| boot.is_none_or(|boot| *disk.key != *boot.key));
    TemplateFacts {
        vmid: Vmid(*vmid),
        hypervisor: hypervisor.as_str().into(),
        disks,
        digest: configuration_digest(config),
        problem,
        commands: Vec::new(),
        has_agent: config.agent_enabled(),
        smbios_uuid: config.smbios_uuid.as_deref().map(Into::into),
        hotplugs_memory: without_memory_hotplug(config).is_some(),
        connections: connections(config),
    }
}

fn drive_of(disk: &Disk, links: bool) -> Drive {
    if disk.is_cloud_init() {
        Drive::CloudInit
    } else if disk.is_cdrom() {
        Drive::Cd
    } else {
        Drive::Disk { links }
    }
}

/// What a clone inherits. Proxmox's own digest would change with a description, and differs between equal templates of two hypervisors.
pub fn configuration_digest(config: &VmConfig) -> String {
    const NOT_INHERITED: [&str; 6] = [
        "description",
        "digest",
        "meta",
        "smbios1",
        "template",
        "vmgenid",
    ];
    let mut hash = Sha256::new();
    for (key, value) in &config.raw {
        if !NOT_INHERITED.contains(&key.as_str()) {
            hash.update(key.as_bytes());
            hash.update([0]);
            hash.update(value.as_bytes());
            hash.update([0]);
        }
    }
    hex(&hash.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{GuestKind, Storage};

    fn guest(vmid: u32, status: GuestStatus, template: bool) -> Guest {
        Guest {
            vmid,
            hypervisor: "pve1".to_owned(),
            kind: GuestKind::Qemu,
            name: None,
            template,
            status,
            pool: None,
            tags: vec![],
            lock: None,
            max_cpu: 2,
            max_mem: 100,
        }
    }

    fn template(drives: &[(&str, &str)]) -> TemplateFacts {
        let inventory = Inventory {
            quorate: true,
            alone: false,
            hypervisors: vec![],
            guests: vec![],
            pools: Default::default(),
            complete: true,
        };
        let drives = drives.iter().map(|(key, value)| (*key, *value));
        let data = drives.chain([("boot", "order=scsi0")]);
        let data = data.map(|(key, value)| (key.to_owned(), value.into()));
        let template = Template {
            vmid: 9000,
            hypervisor: "pve1".to_owned(),
            config: VmConfig::from_data(&data.collect()),
        };
        facts_of_template(&inventory, &template)
    }

    /// A server that answers.
    fn pve1(storages: Vec<Storage>) -> Hypervisor {
        Hypervisor {
            name: "pve1".to_owned(),
            online: true,
            problem: None,
            maintenance: false,
            ha_state: None,
            uptime: None,
            threads: 8,
            cpu_usage: 0.0,
            memory_used: 0,
            memory_total: 1000,
            storages,
        }
    }

    #[test]
    fn a_clone_gets_all_drives_but_those_that_are_not_attached() {
        let facts = template(&[
            ("ide2", "none,media=cdrom"),
            ("scsi0", "fast:base-9000-disk-0,size=8G"),
            ("scsi1", "slow:base-9000-disk-1,size=2G"),
            ("unused0", "local:9000/vm-9000-disk-2.raw"),
        ]);
        let disks: Vec<_> = facts
            .disks
            .iter()
            .map(|disk| (&*disk.key, disk.bytes))
            .collect();
        assert_eq!(disks, [("scsi0", 8 << 30), ("scsi1", 2 << 30)]);
        assert_eq!(facts.problem, None);
    }

    #[test]
    fn r10_a_template_whose_arguments_change_the_size_is_not_used() {
        for (args, refused) in [
            ("-smp 1", Some("-smp")),
            ("-device x,id=y -m 512", Some("-m")),
            ("-cpu host,-smp", None),
        ] {
            let facts = template(&[("scsi0", "fast:base-9000-disk-0"), ("args", args)]);
            let told = facts.problem.unwrap_or_default();
            match refused {
                Some(option) => assert!(told.contains(&format!("sets {option} in")), "{told}"),
                None => assert_eq!(told, ""),
            }
        }
    }

    #[test]
    fn r12_only_base_volumes_are_bases_of_linked_clones() {
        for (volume, is_base) in [
            ("local-lvm:vm-9100-disk-0", false),
            ("local-lvm:base-9100-disk-0", true),
            ("dir:9100/vm-9100-disk-0.qcow2", false),
            ("dir:9100/base-9100-disk-0.qcow2", true),
            // A linked clone that was made a template itself, and one that was not.
            (
                "dir:9000/base-9000-disk-0.qcow2/9100/base-9100-disk-0.qcow2",
                true,
            ),
            (
                "dir:9000/base-9000-disk-0.qcow2/9100/vm-9100-disk-0.qcow2",
                false,
            ),
            ("zfs:base-9000-disk-0/base-9100-disk-0", true),
            ("zfs:base-9000-disk-0/vm-9100-disk-0", false),
        ] {
            let disk = Disk::parse("scsi0", volume).unwrap();
            assert_eq!(disk.is_base(), is_base, "{volume}");
        }
    }

    #[test]
    fn a_template_with_a_disk_on_no_storage_is_not_used() {
        let facts = template(&[
            ("scsi0", "fast:base-9000-disk-0,size=8G"),
            ("scsi1", "/dev/disk/by-id/ata-1,size=2G"),
        ]);
        let problem = facts.problem.expect("Proxmox refuses to clone it");
        assert!(
            problem.contains("scsi1 on /dev/disk/by-id/ata-1"),
            "{problem}"
        );
    }

    #[test]
    fn p6_a_storage_that_is_not_active_is_there_and_not_active() {
        let storage = |name: &str, content: &str, active| Storage {
            name: name.to_owned(),
            shared: false,
            kind: "dir".to_owned(),
            content: vec![content.to_owned()],
            available: 0,
            total: 0,
            active,
        };
        let inventory = Inventory {
            quorate: true,
            alone: true,
            hypervisors: vec![pve1(vec![
                storage("fast", "images", true),
                storage("nfs", "images", false),
                storage("iso", "iso", true),
            ])],
            guests: vec![],
            pools: Default::default(),
            complete: true,
        };
        let facts = inventory_facts(&inventory, BTreeMap::new(), Timestamp::UNIX_EPOCH);
        let storages = facts.hypervisors["pve1"].storages.iter();
        let active: Vec<_> = storages
            .map(|(name, it)| (name.as_str(), it.active))
            .collect();
        assert_eq!(active, [("fast", true), ("nfs", false)]);
    }

    #[test]
    fn guests_that_may_run_are_committed() {
        let inventory = Inventory {
            quorate: true,
            alone: false,
            hypervisors: vec![pve1(vec![])],
            guests: vec![
                guest(100, GuestStatus::Running, false),
                guest(101, GuestStatus::Unknown, false),
                guest(102, GuestStatus::Stopped, false),
                guest(103, GuestStatus::Running, true),
            ],
            pools: Default::default(),
            complete: true,
        };
        let facts = inventory_facts(&inventory, BTreeMap::new(), Timestamp::UNIX_EPOCH);
        let hypervisor = &facts.hypervisors["pve1"];
        assert_eq!(
            (
                hypervisor.committed_threads,
                hypervisor.committed_memory_bytes
            ),
            (4, 200)
        );
    }
}
