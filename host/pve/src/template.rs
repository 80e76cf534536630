//! Templates: which VMs of a name, with tags or of a VMID there are to clone. Which of them is cloned for a hypervisor, and how, is the planner's decision.

use std::fmt;

use futures::future::join_all;
use kproxide_planner::facts::TemplateChoice;
use tokio::time::timeout;

use super::client::Client;
use super::error::{Error, Meaning};
use super::inventory::{Guest, GuestKind, HYPERVISOR_DEADLINE, Inventory};
use super::vm_config::VmConfig;

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
pub fn holds_linked_clones(kind: &str) -> bool {
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

/// The templates of one choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Templates {
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

/// No usable template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// There is none.
    #[error(
        "template {} does not exist in this Proxmox cluster: correct `{}`, or give the token VM.Audit and VM.Clone on it (`pveum acl modify /vms/VMID …`), without which it cannot be seen",
        Quoted(choice), choice.field()
    )]
    Missing {
        /// What was looked for.
        choice: TemplateChoice,
    },
    /// Such a VM was never converted.
    #[error(
        "VM {vmid} on {hypervisor} is {} but is not a template: convert it with `qm template {vmid}`, or correct `{}`",
        match choice { TemplateChoice::Name(name) => format!("named {name:?}"), TemplateChoice::Tags(_) | TemplateChoice::Vmid(_) => format!("one {choice}") },
        choice.field()
    )]
    NotATemplate {
        /// What was looked for.
        choice: TemplateChoice,
        /// The VM.
        vmid: u32,
        /// Where it is.
        hypervisor: String,
    },
    /// Several, and no way to tell which is meant.
    #[error(
        "template {} is ambiguous: VMs {} {}{}",
        Quoted(choice),
        .vmids.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        match choice { TemplateChoice::Name(_) => "have this name; rename all but one", TemplateChoice::Tags(_) | TemplateChoice::Vmid(_) => "match; take a tag off all but one" },
        .hypervisor.as_ref().map(|name| format!(" on hypervisor {name}")).unwrap_or_else(|| ", or set `template.placement: local` if there is one per hypervisor".to_owned())
    )]
    Ambiguous {
        /// What was looked for.
        choice: TemplateChoice,
        /// Those that match.
        vmids: Vec<u32>,
        /// Where there is more than one, if there may be one per hypervisor.
        hypervisor: Option<String>,
    },
    /// The one template is on a hypervisor that does not answer.
    #[error(
        "template {} is on {hypervisor}, which does not answer; with `template.placement: local` and a template on each hypervisor, kproxide needs no other one",
        Quoted(choice)
    )]
    Silent {
        /// What was looked for.
        choice: TemplateChoice,
        /// Where the template is.
        hypervisor: String,
    },
    /// Proxmox could not be asked.
    #[error("template {} cannot be read", Quoted(choice))]
    Unreadable {
        /// What was looked for.
        choice: TemplateChoice,
        /// Why.
        #[source]
        source: Error,
    },
}

/// A name, or what else tells the template.
struct Quoted<'a>(&'a TemplateChoice);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TemplateChoice::Name(name) => write!(f, "{name:?}"),
            other @ (TemplateChoice::Tags(_) | TemplateChoice::Vmid(_)) => other.fmt(f),
        }
    }
}

impl TemplateError {
    /// What a person can type on the server that the text names.
    pub fn command(&self) -> Option<String> {
        match self {
            Self::NotATemplate { vmid, .. } => Some(format!("qm template {vmid}")),
            Self::Missing { .. }
            | Self::Ambiguous { .. }
            | Self::Silent { .. }
            | Self::Unreadable { .. } => None,
        }
    }
}

impl Client {
    /// Finds the templates and reads their configurations.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub async fn templates(
        &self,
        inventory: &Inventory,
        choice: &TemplateChoice,
        placement: Placement,
    ) -> Result<Templates, TemplateError> {
        let chosen = match choose(inventory, choice, placement) {
            Err(TemplateError::NotATemplate {
                choice,
                vmid,
                hypervisor,
            }) => {
                // Proxmox's lists show only after some seconds that a VM has become a template.
                let guest = inventory.guest(vmid);
                let read = match guest {
                    Some(guest) => self.template(inventory, guest).await.ok().flatten(),
                    None => None,
                };
                let flag =
                    |it: &Template| it.config.raw.get("template").is_some_and(|it| it == "1");
                return match read.filter(flag) {
                    Some(template) => Ok(Templates {
                        templates: vec![template],
                    }),
                    None => Err(TemplateError::NotATemplate {
                        choice,
                        vmid,
                        hypervisor,
                    }),
                };
            }
            chosen => chosen?,
        };
        let read = chosen.iter().map(|guest| self.template(inventory, guest));
        let mut templates = Vec::new();
        for (guest, read) in chosen.iter().zip(join_all(read).await) {
            let choice = choice.clone();
            match (read, placement) {
                (Ok(Some(template)), _) => templates.push(template),
                // One silent hypervisor must not hide the templates of the others.
                (Ok(None), Placement::Local) => {}
                (Ok(None), Placement::Shared) => {
                    let hypervisor = guest.hypervisor.clone();
                    return Err(TemplateError::Silent { choice, hypervisor });
                }
                (Err(source), _) => return Err(TemplateError::Unreadable { choice, source }),
            }
        }
        templates.sort_by(|a, b| a.hypervisor.cmp(&b.hypervisor));
        Ok(Templates { templates })
    }

    /// One of them, read; none if its hypervisor does not answer.
    async fn template(
        &self,
        inventory: &Inventory,
        guest: &Guest,
    ) -> Result<Option<Template>, Error> {
        if !is_online(inventory, guest) {
            return Ok(None);
        }
        let read = self.read_config(&guest.hypervisor, guest.vmid);
        match timeout(HYPERVISOR_DEADLINE, read).await {
            Ok(Ok(config)) => Ok(Some(Template {
                vmid: guest.vmid,
                hypervisor: guest.hypervisor.clone(),
                config,
            })),
            Ok(Err(error)) => {
                let is_silent = [Meaning::HypervisorOffline, Meaning::AnswerLost];
                if is_silent.contains(&error.meaning) {
                    Ok(None)
                } else {
                    Err(error)
                }
            }
            Err(_) => Ok(None),
        }
    }
}

fn is_online(inventory: &Inventory, guest: &Guest) -> bool {
    inventory
        .hypervisor(&guest.hypervisor)
        .is_some_and(|hypervisor| hypervisor.online)
}

fn is_meant(guest: &Guest, choice: &TemplateChoice) -> bool {
    match choice {
        TemplateChoice::Name(name) => guest.name.as_deref() == Some(&**name),
        TemplateChoice::Tags(tags) => tags
            .iter()
            .all(|tag| guest.tags.iter().any(|it| **it == **tag)),
        TemplateChoice::Vmid(vmid) => guest.vmid == vmid.0,
    }
}

fn choose<'a>(
    inventory: &'a Inventory,
    choice: &TemplateChoice,
    placement: Placement,
) -> Result<Vec<&'a Guest>, TemplateError> {
    let meant: Vec<&Guest> = inventory
        .guests
        .iter()
        .filter(|guest| guest.kind == GuestKind::Qemu && is_meant(guest, choice))
        .collect();
    // Without the flag it is a VM and not a template. Proxmox would copy it in full, running or not.
    let templates: Vec<&Guest> = meant
        .iter()
        .copied()
        .filter(|guest| guest.template)
        .collect();
    let Some(first) = templates.first() else {
        // Tags are for people, who give them to other VMs too.
        let is_sure = !matches!(choice, TemplateChoice::Tags(_));
        let choice = choice.clone();
        return Err(match meant.first().filter(|_| is_sure) {
            Some(vm) => TemplateError::NotATemplate {
                choice,
                vmid: vm.vmid,
                hypervisor: vm.hypervisor.clone(),
            },
            None => TemplateError::Missing { choice },
        });
    };
    let ambiguous = |same: Vec<&Guest>, hypervisor: Option<String>| TemplateError::Ambiguous {
        choice: choice.clone(),
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

#[cfg(test)]
mod tests;
