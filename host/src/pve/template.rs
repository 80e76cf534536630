//! Templates: which VM to clone for a hypervisor, and how.
//!
//! Proxmox: a template on shared storage can be cloned to every hypervisor; one with any disk (a CD included) on local
//! storage only to its own, so that such a cluster has one template per hypervisor. A linked clone builds on the
//! template's disks, needs a storage that can do that, and stays on it.

use super::client::Client;
use super::error::{Error, Meaning};
use super::inventory::{Guest, GuestKind, Hypervisor, Inventory, Storage};
use super::limits::StorageSlot;
use super::vm_config::{Disk, VmConfig};

/// Storage types whose volumes can be the base of linked clones. Thick LVM and plain block devices cannot.
const LINKABLE: [&str; 10] = [
    "btrfs",
    "cephfs",
    "cifs",
    "dir",
    "glusterfs",
    "lvmthin",
    "nfs",
    "rbd",
    "zfs",
    "zfspool",
];

/// Whether volumes on a storage of this type can be the base of linked clones.
pub(super) fn holds_linked_clones(kind: &str) -> bool {
    LINKABLE.contains(&kind)
}

/// NodeClass's `template.placement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// One template for the whole cluster.
    Shared,
    /// One of the same name on each hypervisor.
    Local,
}

/// NodeClass's `template.clone`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneKind {
    /// Linked where storage and template allow it, else full.
    Auto,
    /// Linked, or not at all.
    Linked,
    /// A copy of every disk.
    Full,
}

/// How a class wants its clones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneWish {
    /// Linked or full.
    pub kind: CloneKind,
    /// NodeClass's `template.storage`: where the copies go.
    pub storage: Option<String>,
}

/// The templates of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Templates {
    /// The name looked for.
    pub name: String,
    /// One if shared, else at most one per hypervisor; by hypervisor.
    pub templates: Vec<Template>,
}

/// One template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Its VMID.
    pub vmid: u32,
    /// Where it is; clones are ordered there.
    pub hypervisor: String,
    /// Its configuration, which every clone inherits.
    pub config: VmConfig,
}

/// A way from a template to a clone on one hypervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The template's VMID.
    pub template: u32,
    /// The hypervisor to send the call to.
    pub source: String,
    /// Where the clone shall be; none if that is the source.
    pub target: Option<String>,
    /// Full or linked.
    pub full: bool,
    /// Where full copies go, if not beside the template.
    pub storage: Option<String>,
    /// The storage whose lock the clone takes.
    pub slot: StorageSlot,
}

/// No usable template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// Nothing of that name.
    #[error(
        "template {name:?} does not exist in this Proxmox cluster: correct `template.name`, or give the token VM.Audit on it (`pveum acl modify /vms/VMID …`), without which it cannot be seen"
    )]
    Missing {
        /// The name looked for.
        name: String,
    },
    /// A VM of that name that was never converted.
    #[error(
        "VM {vmid} on {hypervisor} is named {name:?} but is not a template: convert it with `qm template {vmid}`, or correct `template.name`"
    )]
    NotATemplate {
        /// The name looked for.
        name: String,
        /// The VM of that name.
        vmid: u32,
        /// Where it is.
        hypervisor: String,
    },
    /// Several, and no way to tell which is meant.
    #[error(
        "template {name:?} is ambiguous: VMs {} have this name; rename all but one{}",
        .vmids.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        .hypervisor.as_ref().map(|name| format!(" on hypervisor {name}")).unwrap_or_else(|| ", or set `template.placement: local` if there is one per hypervisor".to_owned())
    )]
    Ambiguous {
        /// The name looked for.
        name: String,
        /// Those that have it.
        vmids: Vec<u32>,
        /// Where there is more than one, if there may be one per hypervisor.
        hypervisor: Option<String>,
    },
    /// Proxmox could not be asked.
    #[error("template {name:?} cannot be read")]
    Unreadable {
        /// The name looked for.
        name: String,
        /// Why.
        #[source]
        source: Error,
    },
}

/// Why a hypervisor cannot get a clone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRoute {
    /// `placement: local`, and no template here.
    #[error("template {0:?} is not on this hypervisor")]
    NoTemplate(String),
    /// The template's disks cannot leave.
    #[error("template {template} has {disk} on local storage {storage} of {source_hypervisor}")]
    LocalDisk {
        /// The template's VMID.
        template: u32,
        /// Which disk.
        disk: String,
        /// On which storage.
        storage: String,
        /// Where the template is.
        source_hypervisor: String,
    },
    /// A storage that this hypervisor has not, or not now.
    #[error("storage {0} is not available on this hypervisor")]
    StorageUnavailable(String),
    /// A storage that does not take disks.
    #[error("storage {0} does not hold disk images (content `images`)")]
    StorageContent(String),
    /// `clone: linked` where that cannot be.
    #[error(
        "template.clone is linked, but storage {storage} ({kind}) cannot hold linked clones: use `full` or `auto`"
    )]
    NotLinkable {
        /// The template's storage.
        storage: String,
        /// Its type.
        kind: String,
    },
    /// `clone: linked` with a storage.
    #[error(
        "template.clone is linked and template.storage is {0}: a linked clone stays on the template's storage; remove one of the two"
    )]
    LinkedWithStorage(String),
    /// Copies to a local storage of another hypervisor.
    #[error("storage {0} is local, so copies can only be made on the template's own hypervisor")]
    TargetNotShared(String),
    /// A template without disks.
    #[error("template {0} has no disk")]
    NoDisk(u32),
}

impl Client {
    /// Finds the templates of a name and reads their configurations.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub async fn templates(
        &self,
        inventory: &Inventory,
        name: &str,
        placement: Placement,
    ) -> Result<Templates, TemplateError> {
        let mut templates = Vec::new();
        for guest in choose(inventory, name, placement)? {
            let read = self.read_config(&guest.hypervisor, guest.vmid).await;
            let config = match (read, placement) {
                (Ok(config), _) => config,
                // One silent hypervisor must not hide the templates of the others.
                (Err(error), Placement::Local)
                    if !is_online(inventory, guest)
                        || matches!(
                            error.meaning,
                            Meaning::HypervisorOffline | Meaning::AnswerLost
                        ) =>
                {
                    continue;
                }
                (Err(source), _) => {
                    let name = name.to_owned();
                    return Err(TemplateError::Unreadable { name, source });
                }
            };
            templates.push(Template {
                vmid: guest.vmid,
                hypervisor: guest.hypervisor.clone(),
                config,
            });
        }
        templates.sort_by(|a, b| a.hypervisor.cmp(&b.hypervisor));
        Ok(Templates {
            name: name.to_owned(),
            templates,
        })
    }
}

fn is_online(inventory: &Inventory, guest: &Guest) -> bool {
    inventory
        .hypervisor(&guest.hypervisor)
        .is_some_and(|hypervisor| hypervisor.online)
}

fn choose<'a>(
    inventory: &'a Inventory,
    name: &str,
    placement: Placement,
) -> Result<Vec<&'a Guest>, TemplateError> {
    let named: Vec<&Guest> = inventory
        .guests
        .iter()
        .filter(|guest| guest.kind == GuestKind::Qemu && guest.name.as_deref() == Some(name))
        .collect();
    // Without the flag it is somebody's VM, which Proxmox would copy in full, running or not.
    let templates: Vec<&Guest> = named
        .iter()
        .copied()
        .filter(|guest| guest.template)
        .collect();
    let Some(first) = templates.first() else {
        return Err(match named.first() {
            Some(vm) => TemplateError::NotATemplate {
                name: name.to_owned(),
                vmid: vm.vmid,
                hypervisor: vm.hypervisor.clone(),
            },
            None => TemplateError::Missing {
                name: name.to_owned(),
            },
        });
    };
    let ambiguous = |same: Vec<&Guest>, hypervisor: Option<String>| TemplateError::Ambiguous {
        name: name.to_owned(),
        vmids: same.iter().map(|guest| guest.vmid).collect(),
        hypervisor,
    };
    match placement {
        Placement::Shared if templates.len() > 1 => Err(ambiguous(templates, None)),
        Placement::Shared => Ok(vec![first]),
        Placement::Local => {
            for template in &templates {
                let same: Vec<&Guest> = templates
                    .iter()
                    .copied()
                    .filter(|other| other.hypervisor == template.hypervisor)
                    .collect();
                if same.len() > 1 {
                    return Err(ambiguous(same, Some(template.hypervisor.clone())));
                }
            }
            Ok(templates)
        }
    }
}

impl Templates {
    /// How to make a clone on `hypervisor`: its own template first, else one that can be cloned to it.
    ///
    /// # Errors
    /// Why that is not possible. What Proxmox would refuse is refused here, before a VMID is spent.
    pub fn route(
        &self,
        inventory: &Inventory,
        hypervisor: &Hypervisor,
        wish: &CloneWish,
    ) -> Result<Route, NoRoute> {
        let own = self
            .templates
            .iter()
            .filter(|template| template.hypervisor == hypervisor.name);
        let others = self
            .templates
            .iter()
            .filter(|template| template.hypervisor != hypervisor.name);
        let mut refusal = None;
        for template in own.chain(others) {
            match template.route(inventory, hypervisor, wish) {
                Ok(route) => return Ok(route),
                // The nearest template's reason is the one to repair.
                Err(reason) => refusal = refusal.or(Some(reason)),
            }
        }
        Err(refusal.unwrap_or_else(|| NoRoute::NoTemplate(self.name.clone())))
    }
}

impl Template {
    fn route(
        &self,
        inventory: &Inventory,
        hypervisor: &Hypervisor,
        wish: &CloneWish,
    ) -> Result<Route, NoRoute> {
        let elsewhere = self.hypervisor != hypervisor.name;
        let source = inventory
            .hypervisor(&self.hypervisor)
            .ok_or_else(|| NoRoute::NoTemplate(self.config.name.clone().unwrap_or_default()))?;
        if elsewhere {
            self.may_leave(source)?;
        }
        let boot = self
            .config
            .boot_disk()
            .and_then(Disk::storage)
            .ok_or(NoRoute::NoDisk(self.vmid))?;
        let linked = self.linked(source, wish)?;
        let storage = match &wish.storage {
            Some(storage) if !linked => Some(storage.clone()),
            Some(_) | None => None,
        };
        let needed = storage.as_deref().unwrap_or(boot);
        let there = available(hypervisor, needed)?;
        if elsewhere && storage.is_some() && !there.shared {
            return Err(NoRoute::TargetNotShared(needed.to_owned()));
        }
        Ok(Route {
            template: self.vmid,
            source: self.hypervisor.clone(),
            target: elsewhere.then(|| hypervisor.name.clone()),
            full: !linked,
            slot: StorageSlot {
                storage: needed.to_owned(),
                hypervisor: (!there.shared).then(|| hypervisor.name.clone()),
            },
            storage,
        })
    }

    /// Proxmox: `target` is allowed only if every drive, CDs included, is on shared storage.
    fn may_leave(&self, source: &Hypervisor) -> Result<(), NoRoute> {
        for disk in self.copied_disks() {
            let name = disk.storage().unwrap_or("(none: a device)");
            if !source.storage(name).is_some_and(|storage| storage.shared) {
                return Err(NoRoute::LocalDisk {
                    template: self.vmid,
                    disk: disk.key.clone(),
                    storage: name.to_owned(),
                    source_hypervisor: self.hypervisor.clone(),
                });
            }
        }
        Ok(())
    }

    fn linked(&self, source: &Hypervisor, wish: &CloneWish) -> Result<bool, NoRoute> {
        let obstacle = self
            .copied_disks()
            .filter(|disk| !disk.is_cdrom())
            .find_map(|disk| {
                let storage = disk.storage().unwrap_or("(none: a device)");
                let kind = source
                    .storage(storage)
                    .map_or("unknown", |storage| &storage.kind);
                (!holds_linked_clones(kind)).then(|| NoRoute::NotLinkable {
                    storage: storage.to_owned(),
                    kind: kind.to_owned(),
                })
            });
        match (wish.kind, &wish.storage) {
            (CloneKind::Full, _) => Ok(false),
            (CloneKind::Linked, Some(storage)) => Err(NoRoute::LinkedWithStorage(storage.clone())),
            (CloneKind::Linked, None) => match obstacle {
                Some(obstacle) => Err(obstacle),
                None => Ok(true),
            },
            // A linked clone cannot move; it is what was asked for if the disks are on that storage already.
            (CloneKind::Auto, Some(storage)) => Ok(obstacle.is_none()
                && self
                    .copied_disks()
                    .filter(|disk| !disk.is_cdrom())
                    .all(|disk| disk.storage() == Some(storage))),
            (CloneKind::Auto, None) => Ok(obstacle.is_none()),
        }
    }

    /// What a clone gets; `unusedN` stays behind.
    fn copied_disks(&self) -> impl Iterator<Item = &Disk> {
        self.config
            .disks
            .iter()
            .filter(|disk| !disk.key.starts_with("unused"))
    }
}

fn available<'a>(hypervisor: &'a Hypervisor, name: &str) -> Result<&'a Storage, NoRoute> {
    let storage = hypervisor
        .storage(name)
        .filter(|storage| storage.active)
        .ok_or_else(|| NoRoute::StorageUnavailable(name.to_owned()))?;
    if storage.takes_disks() {
        Ok(storage)
    } else {
        Err(NoRoute::StorageContent(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
