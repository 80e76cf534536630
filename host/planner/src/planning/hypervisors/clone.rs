//! How a machine of a class is cloned on a hypervisor: from which template, full or linked, and what its disks take of which storages.
//!
//! Proxmox: a clone can be made for another hypervisor only if every drive of the template is on shared storage, CDs included, and every new disk
//! as well. A linked clone builds on the template's disks, needs storages that can do that, and stays on them. A full one copies every disk, to
//! one storage that the request names or beside the template's. The cloud-init drive is made anew in both. `unusedN` stays behind.

use super::sites::Hypervisor;
use crate::facts::{
    ClassFacts, CloneMode, CloneSpec, Drive, InstanceType, Join, TemplateDisk, TemplateFacts,
};
use crate::ids::StorageName;
use crate::reasons::no_hypervisor::Refusal;

/// A clone as it would be asked for.
#[derive(Clone, Debug)]
pub(in crate::planning) struct CloneWay<'w> {
    pub(in crate::planning) template: &'w TemplateFacts,
    pub(in crate::planning) full: bool,
    /// Where the copies go. `None`: each beside its original.
    pub(in crate::planning) storage: Option<&'w StorageName>,
}

impl<'w> CloneWay<'w> {
    pub(in crate::planning) fn of(
        class: &'w ClassFacts,
        on: &Hypervisor<'w>,
    ) -> Result<Self, Refusal> {
        let template = on.template(class)?;
        let mut bases = template.disks.iter().filter(|disk| disk.is_base());
        let obstacle = bases.clone().find(|disk| !disk.links());
        let linked = match (class.template.clone, obstacle) {
            (CloneMode::Full, _) | (CloneMode::Auto, Some(_)) => false,
            (CloneMode::Linked, Some(disk)) => {
                let storage = on.facts.storages.get(&disk.storage);
                let storage = storage.filter(|storage| storage.kind == disk.storage_kind);
                if storage.is_some_and(|storage| storage.linked_clones) {
                    return Err(Refusal::NotBase {
                        template: template.vmid,
                        disk: disk.key.to_string(),
                    });
                }
                return Err(Refusal::NotLinkable {
                    template: template.vmid,
                    disk: disk.key.to_string(),
                    storage: disk.storage.clone(),
                    kind: disk.storage_kind.to_string(),
                });
            }
            (CloneMode::Linked, None) => true,
            // A linked clone cannot move: it is what was asked for if the disks are on that storage already.
            (CloneMode::Auto, None) => class
                .template
                .storage
                .as_ref()
                .is_none_or(|storage| bases.all(|disk| disk.storage == *storage)),
        };
        Ok(Self {
            template,
            full: !linked,
            storage: class.template.storage.as_ref().filter(|_| !linked),
        })
    }

    /// The storages that the new disks need, the one of the disk to boot from first, and what each takes at once.
    pub(in crate::planning) fn needs(&self, size: &InstanceType) -> Vec<(&'w StorageName, u64)> {
        let mut needs: Vec<(&StorageName, u64)> = Vec::new();
        for (index, disk) in self.template.disks.iter().enumerate() {
            let bytes = match disk.drive {
                Drive::Cd => continue,
                // 4 MiB.
                Drive::CloudInit => 0,
                Drive::Disk { .. } if !self.full => 0,
                // The first one is grown.
                Drive::Disk { .. } if index == 0 => disk.bytes.max(size.disk_bytes().unwrap_or(0)),
                Drive::Disk { .. } => disk.bytes,
            };
            let storage = self.storage.unwrap_or(&disk.storage);
            match needs.iter_mut().find(|(name, _)| *name == storage) {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => needs.push((storage, bytes)),
            }
        }
        needs
    }

    pub(in crate::planning) fn spec(&self) -> CloneSpec {
        CloneSpec {
            hypervisor: self.template.hypervisor.clone(),
            vmid: self.template.vmid,
            full: self.full,
            storage: self.storage.cloned(),
        }
    }
}

impl<'w> Hypervisor<'w> {
    /// The template that a clone for this hypervisor is made from: of those that can be cloned one that stands here, else one on shared storage.
    fn template(&self, class: &ClassFacts) -> Result<&'w TemplateFacts, Refusal> {
        let name = class.template_in(&self.id.cluster);
        let templates = self.templates(&name);
        // The name itself is in trouble: there is a VM of that name, say, that is no template.
        let mut of_name = templates.iter().filter(|it| it.hypervisor.is_empty());
        if let Some(problem) = of_name.find_map(|it| it.problem.as_ref()) {
            return Err(Refusal::Template(problem.clone()));
        }
        let is_here = |template: &TemplateFacts| template.hypervisor == self.id.name;
        let may_leave = |template: &TemplateFacts| {
            !class.template.is_local() && template.disks.iter().all(|disk| disk.shared)
        };
        let usable = templates
            .iter()
            .filter(|template| is_here(template) || may_leave(template));
        let first = usable.min_by_key(|template| {
            let has_problem = template.problem.is_some();
            (has_problem, !is_here(template), template.vmid)
        });
        match first {
            Some(TemplateFacts {
                problem: Some(problem),
                ..
            }) => Err(Refusal::Template(problem.clone())),
            Some(template) if class.join.way() == Join::GuestExec && !template.has_agent => {
                Err(Refusal::NoAgent(template.vmid))
            }
            Some(template) if template.disks.iter().any(TemplateDisk::is_base) => Ok(template),
            Some(_) => Err(Refusal::Template(format!("template {name} has no disk"))),
            None if templates.is_empty() || class.template.is_local() => Err(Refusal::NoTemplate {
                template: name.to_string(),
                cluster: templates.is_empty().then(|| self.id.cluster.clone()),
            }),
            None => Err(Refusal::TemplateStays(name.to_string())),
        }
    }
}
