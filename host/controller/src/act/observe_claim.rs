//! Reads what the next decision needs, freshly, from Proxmox and Kubernetes at once. What cannot be read stays unknown.

use std::error::Error;

use futures::future::join_all;
use kproxide_planner::claim::{
    Attempted, ClaimLook, EntryLook, JoinLook, Looks, Machine, MachineLook, Marker, Need, NodeLook,
    Observed, Outcome, PodOnNode, Power, Presence, entry_of, is_proven, same_uuid,
};
use kproxide_planner::facts::NodeFacts;
use kproxide_planner::ids::NodeName;
use kproxide_planner::mutants::{Mutant, broken};

use super::drive::Drive;
use kproxide_common::chain::chain;
use kproxide_kube::definition::{self, Definition};
use kproxide_kube::error::Error as KubeError;
use kproxide_kube::{ledger, nodes, pods};
use kproxide_pve::client::Client;
use kproxide_pve::error::{Meaning, Reaction};
use kproxide_pve::inventory::{Guest, GuestKind, Inventory};
use kproxide_pve::machine::CurrentStatus;
use kproxide_pve::ownership::{self, NotOurs, SignedMarker};
use kproxide_pve::task::{self, Upid};
use kproxide_pve::vm_config::{Disk, VmConfig};

/// The VMID that proxmox-csi gives its volumes. No VM has this VMID.
const PERSISTENT_VOLUMES_OWNER: &str = "9999";

/// The end of a task's log that is searched for what it left behind.
const LOG_LINES: u64 = 200;

impl Drive {
    pub(super) async fn observe(&self, looks: &Looks, last: Option<Attempted>) -> Observed {
        let (proxmox, kubernetes, definition) = futures::join!(
            self.look_at_proxmox(looks),
            self.look_at_kubernetes(looks),
            self.look_at_definition(looks)
        );
        let mut seen = Observed {
            node: kubernetes.node,
            pods: kubernetes.pods,
            attachments: kubernetes.attachments,
            entry: kubernetes.entry,
            last,
            ..proxmox
        };
        seen.unread.extend(kubernetes.unread);
        seen.claim = definition.unwrap_or_else(|why| {
            seen.unread.push(why);
            ClaimLook::Unclear
        });
        if let (Some(NodeLook::Absent), Some(MachineLook::Visible(machine))) =
            (&seen.node, &seen.machine)
        {
            if looks.join {
                seen.join = self.join_state(machine, &mut seen.unread).await;
            }
            if looks.evidence {
                seen.evidence = self.evidence(machine).await;
            }
        }
        let epoch = self.context.fence.epoch();
        let intent = self.facts().status.intent.as_ref();
        seen.own_intent = intent.is_some_and(|intent| epoch.as_deref() == Some(&intent.epoch));
        seen
    }

    /// Kubernetes marks the CRD as deleted before it deletes the first claim.
    async fn look_at_definition(&self, looks: &Looks) -> Result<ClaimLook, String> {
        if !looks.definition {
            return Ok(ClaimLook::Here);
        }
        match definition::of_claims(&self.context.kube).await {
            Ok(Definition::Stands) => Ok(ClaimLook::Here),
            Ok(Definition::BeingDeleted | Definition::Gone) => Ok(ClaimLook::SweptAway),
            Err(error) => Err(chain(&error)),
        }
    }

    async fn look_at_proxmox(&self, looks: &Looks) -> Observed {
        let mut seen = Observed::default();
        let silent = looks.task.is_none()
            && looks.presence == Need::No
            && looks.machine == Need::No
            && looks.quorum == Need::No;
        if silent {
            return seen;
        }
        let Some(client) = self.proxmox() else {
            seen.unread.push(format!(
                "there is no usable connection to Proxmox cluster {}",
                self.facts().spec.cluster
            ));
            return seen;
        };
        // A VM counts as absent only by quorum, list and VMID together, so ask one endpoint for all three.
        let client = client.at_one_endpoint();
        if let Some(upid) = &looks.task {
            seen.task = match upid.parse::<Upid>() {
                Ok(parsed) => {
                    let outcome = note(client.task_outcome(&parsed).await, &mut seen.unread);
                    if let Some(task::Outcome::Warnings(_)) = outcome {
                        let log = client.task_log(&parsed, LOG_LINES).await;
                        seen.leftovers = left_behind(&log.unwrap_or_default());
                    }
                    outcome.map(|outcome| self.of_task(upid, outcome))
                }
                Err(error) => Some(Outcome::Unknown(error.to_string())),
            };
        }
        if looks.presence == Need::Always {
            self.look_at_vmid(&client, &mut seen).await;
        }
        let machine_wanted = match looks.machine {
            Need::No => false,
            Need::IfNeeded => seen.presence == Some(Presence::Taken),
            Need::Always => true,
        };
        if machine_wanted || looks.quorum == Need::Always {
            // One inventory shows the quorum, where the VM is, and its pool. All of them are current.
            if let Some(inventory) = note(client.inventory().await, &mut seen.unread) {
                seen.quorate = Some(inventory.quorate_for(self.facts().hypervisor()));
                if machine_wanted {
                    seen.machine = self
                        .look_at_machine(&client, &inventory, looks.tasks, &mut seen.unread)
                        .await;
                }
            }
        }
        let visible = matches!(seen.machine, Some(MachineLook::Visible(_)));
        if looks.presence == Need::IfNeeded && !visible {
            self.look_at_vmid(&client, &mut seen).await;
        }
        seen
    }

    async fn look_at_vmid(&self, client: &Client, seen: &mut Observed) {
        let free = client.vmid_is_free(self.facts().spec.vmid.0).await;
        seen.presence = note(free, &mut seen.unread).map(|free| match free {
            true => Presence::Free,
            false => Presence::Taken,
        });
    }

    async fn look_at_machine(
        &self,
        client: &Client,
        inventory: &Inventory,
        with_tasks: bool,
        unread: &mut Vec<String>,
    ) -> Option<MachineLook> {
        let vmid = self.facts().spec.vmid.0;
        let Some(guest) = inventory.guest(vmid) else {
            // In Proxmox, the other hypervisors list the VMs of an offline one.
            return Some(if inventory.complete {
                MachineLook::Invisible
            } else {
                MachineLook::Unreachable("the list of VMs is not complete".to_owned())
            });
        };
        let hypervisor = &guest.hypervisor;
        if !inventory
            .hypervisor(hypervisor)
            .is_some_and(|hypervisor| hypervisor.online)
        {
            return Some(MachineLook::Unreachable(format!(
                "hypervisor {hypervisor} is offline"
            )));
        }
        match guest.kind {
            GuestKind::Qemu => {}
            GuestKind::Lxc => return Some(MachineLook::Visible(Box::new(container(guest)))),
        }
        // The tasks first: a start that began before this look shows there, or has ended and shows in the status.
        let task = match with_tasks {
            true => note(client.running_task(hypervisor, vmid).await, unread)?,
            false => None,
        };
        let (config, status) = futures::join!(
            client.read_config(hypervisor, vmid),
            client.status_current(hypervisor, vmid)
        );
        if let Err(error) = &config
            && let Meaning::PermissionDenied { .. } = error.meaning
        {
            return Some(MachineLook::Invisible);
        }
        let (config, status) = (note(config, unread)?, note(status, unread)?);
        let mut machine = self.machine(&config, &status, guest);
        machine.task = task.map(Into::into);
        Some(MachineLook::Visible(Box::new(machine)))
    }

    fn machine(&self, config: &VmConfig, status: &CurrentStatus, guest: &Guest) -> Machine {
        let (persistent, disks): (Vec<_>, Vec<_>) = config
            .disks
            .iter()
            .partition(|disk| owner_of(disk) == Some(PERSISTENT_VOLUMES_OWNER));
        let volumes = |disks: Vec<&Disk>| {
            let volumes = disks.into_iter().map(|disk| disk.volume.as_str().into());
            volumes.collect()
        };
        Machine {
            hypervisor: guest.hypervisor.as_str().into(),
            name: config.name.as_deref().map(Into::into),
            pool: guest.pool.as_deref().map(Into::into),
            marker: match self.read_marker(&config.description) {
                Marker::Missing | Marker::Foreign
                    if broken(Mutant::TrustTags) && !config.tags.is_empty() =>
                {
                    Marker::Ours
                }
                marker
                @ (Marker::Ours | Marker::Tombstoned | Marker::Foreign | Marker::Missing) => marker,
            },
            smbios_uuid: config.smbios_uuid.as_deref().map(Into::into),
            lock: config
                .lock
                .as_ref()
                .or(status.lock.as_ref())
                .map(|lock| lock.as_str().into()),
            power: match status.running {
                Some(true) => Power::On,
                Some(false) => Power::Off,
                None => Power::Unknown,
            },
            task: None,
            protected: config.protection,
            snapshot: config.snapshot.as_deref().map(Into::into),
            template: config.template,
            ha_managed: status.ha_managed,
            disks: volumes(disks),
            persistent: volumes(persistent),
            digest: config.digest.as_deref().unwrap_or_default().into(),
            grow_to: self.grow_to(config),
        }
    }

    fn read_marker(&self, description: &str) -> Marker {
        let keys = &self.context.identity.keys;
        let Some(expected) = self.marker() else {
            return Marker::Missing;
        };
        match ownership::prove(description, keys, &expected) {
            Ok(()) => {
                let is_it = |found: SignedMarker| {
                    let verified = found.verify(keys, expected.vmid);
                    verified.is_ok_and(|marker| *marker == expected)
                };
                match ownership::Marker::find_tombstone(description).is_ok_and(is_it) {
                    true => Marker::Tombstoned,
                    false => Marker::Ours,
                }
            }
            Err(NotOurs::Absent) => Marker::Missing,
            Err(
                NotOurs::Several | NotOurs::Malformed | NotOurs::Forged | NotOurs::Differs { .. },
            ) => Marker::Foreign,
        }
    }

    /// The size that the boot disk still has to get.
    fn grow_to(&self, config: &VmConfig) -> Option<u64> {
        let wanted = self.facts().spec.resources.disk_bytes?;
        let size = config.boot_disk()?.size_bytes()?;
        (size < wanted).then_some(wanted)
    }

    async fn join_state(&self, machine: &Machine, unread: &mut Vec<String>) -> Option<JoinLook> {
        if !is_proven(&self.subject(), machine) {
            // Without the proof the guest is not asked. The script will not run either, because it needs the same
            // proof.
            return Some(JoinLook::NotRun);
        }
        let client = self.proxmox()?;
        match self.look_at_join(&client, &machine.hypervisor).await {
            Ok(look) => Some(look),
            // An agent that has just started may answer one request and not the next.
            Err(error) if error.meaning == Meaning::AgentDown => {
                Some(JoinLook::AgentSilent(error.chain()))
            }
            Err(error) => {
                let why = client.explained(&error, &self.scope()).await;
                if error.reaction() == Reaction::GiveUp {
                    return Some(JoinLook::Refused(why));
                }
                unread.push(why);
                None
            }
        }
    }

    async fn look_at_kubernetes(&self, looks: &Looks) -> Observed {
        let mut seen = Observed::default();
        let kube = &self.context.kube;
        if looks.entry {
            match ledger::get(kube).await {
                Ok(Some(found)) => {
                    let entry = entry_of(&found, self.name(), &self.facts().spec);
                    // A mistake: what was in memory when its claim was made is believed to be written.
                    let is_remembered =
                        broken(Mutant::CountsInMemory) && entry == EntryLook::Missing;
                    seen.entry = Some(if is_remembered {
                        EntryLook::Ours
                    } else {
                        entry
                    });
                }
                Ok(None) => seen.entry = Some(EntryLook::Missing),
                Err(error) => seen.unread.push(chain(&error)),
            }
        }
        let mut of_others = Vec::new();
        if looks.node
            && let Some(found) = note(self.look_at_node().await, &mut seen.unread)
        {
            (seen.node, of_others) = (Some(found.0), found.1);
        }
        if !looks.pods && !looks.attachments {
            return seen;
        }
        let recorded = self.facts().status.node_name.as_ref();
        let recorded = recorded.filter(|name| !of_others.contains(name));
        let Some(node) = node_to_empty(seen.node.as_ref(), recorded) else {
            // Either there never was a Node, and so no pods. Or it is not known which Node it is.
            if seen.node == Some(NodeLook::Absent) {
                (seen.pods, seen.attachments) = (Some(Vec::new()), Some(Vec::new()));
            }
            return seen;
        };
        let (pods, attached) = futures::join!(
            pods::on_node(kube, &node),
            pods::volumes_attached_to(kube, &node)
        );
        seen.pods = note(pods, &mut seen.unread).map(|pods| {
            let pods = pods.iter().map(|(key, pod)| PodOnNode::of(key, pod));
            pods.collect()
        });
        seen.attachments = note(attached, &mut seen.unread).map(|attached| {
            let volumes = attached
                .into_iter()
                .map(|(attachment, facts)| match facts.volume {
                    Some(volume) => format!("{volume} (VolumeAttachment {attachment})"),
                    None => format!("VolumeAttachment {attachment}"),
                });
            volumes.collect()
        });
        seen
    }

    /// Looks for the Node under the names that it may have (the recorded one, the VM's, those of the world), and compares
    /// UUID and age, and whether it is another machine's. Also returns the names that it tried, and those under which it found the Node of another machine.
    async fn look_at_node(&self) -> Result<(NodeLook, Vec<NodeName>), KubeError> {
        let claim = self.facts();
        let Some(uuid) = &claim.status.smbios_uuid else {
            return Ok((NodeLook::Absent, Vec::new()));
        };
        let is_its = |node: &NodeFacts| {
            let found = node.system_uuid.as_ref();
            found.is_some_and(|found| same_uuid(found, uuid))
                && claim.may_become(node)
                && !self.surroundings.joined.is_anothers(node, uuid)
        };
        let by_vm = NodeName::from(&*claim.spec.vm_name);
        let mut names: Vec<_> = claim
            .status
            .node_name
            .iter()
            .chain([&by_vm])
            .chain(&self.surroundings.nodes)
            .cloned()
            .collect();
        names.sort();
        names.dedup();
        let kube = &self.context.kube;
        let found = join_all(names.iter().map(|name| nodes::get(kube, name))).await;
        let (mut matching, mut of_others) = (Vec::new(), Vec::new());
        // The Node of an adopted machine may have any name. To miss it would mean to destroy a machine in service.
        if claim.spec.adopts.is_some() && claim.status.node_name.is_none() {
            let mut others = nodes::list(kube).await?;
            others.retain(|(name, node)| !names.contains(name) && is_its(node));
            matching.extend(others);
        }
        for (name, found) in names.into_iter().zip(found) {
            match found? {
                Some(node) if is_its(&node) => matching.push((name, node)),
                Some(_) => of_others.push(name),
                None => {}
            }
        }
        if matching.len() > 1 {
            let names = matching.into_iter().map(|(name, _)| name).collect();
            return Ok((NodeLook::Several(names), of_others));
        }
        let one = matching.pop();
        let one = one.map(|(name, node)| NodeLook::One(name, Box::new(node)));
        Ok((one.unwrap_or(NodeLook::Absent), of_others))
    }
}

/// Pods of a deleted Node are still bound to its name. But if another machine has this Node name now, they are its
/// pods.
fn node_to_empty(node: Option<&NodeLook>, recorded: Option<&NodeName>) -> Option<NodeName> {
    match node? {
        NodeLook::One(name, _) => Some(name.clone()),
        NodeLook::Absent => recorded.cloned(),
        NodeLook::Several(_) => None,
    }
}

/// The volumes that a destroy's log names. Proxmox: `Could not remove disk 'local-lvm:vm-101-disk-0', check manually: …`.
fn left_behind(log: &[String]) -> Vec<String> {
    let volume = |line: &String| {
        let (_, rest) = line.split_once("Could not remove disk '")?;
        Some(rest.split_once('\'')?.0.to_owned())
    };
    log.iter().filter_map(volume).collect()
}

/// A container has none of the marks of a machine of ours.
fn container(guest: &Guest) -> Machine {
    Machine {
        hypervisor: guest.hypervisor.as_str().into(),
        name: guest.name.as_deref().map(Into::into),
        pool: guest.pool.as_deref().map(Into::into),
        lock: guest.lock.as_deref().map(Into::into),
        ..Machine::default()
    }
}

/// The VMID in a volume's name: `local-lvm:vm-101-disk-0`, `nfs:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2`.
fn owner_of(disk: &Disk) -> Option<&str> {
    let (_, path) = disk.volume.rsplit_once(['/', ':'])?;
    path.strip_prefix("vm-")?.split('-').next()
}

/// The value, if it could be read. If not, notes why, for people.
fn note<T, E: Error>(result: Result<T, E>, unread: &mut Vec<String>) -> Option<T> {
    result.map_err(|error| unread.push(chain(&error))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f42_a_destroys_log_names_what_it_left_behind() {
        let log = [
            "removing image: 100% complete",
            "WARN: Could not remove disk 'nfs:101/vm-101-disk-0.qcow2', check manually: unable to unlink",
            "TASK WARNINGS: 1",
        ];
        let log = log.map(str::to_owned);
        assert_eq!(left_behind(&log), ["nfs:101/vm-101-disk-0.qcow2"]);
    }

    #[test]
    fn volumes_name_their_owner() {
        for (volume, owner) in [
            ("local-lvm:vm-101-disk-0", Some("101")),
            ("local:101/vm-101-disk-0.qcow2", Some("101")),
            (
                "nfs:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2",
                Some("101"),
            ),
            ("local-lvm:vm-101-cloudinit", Some("101")),
            ("ceph:vm-9999-pvc-0b1c", Some("9999")),
            ("local:iso/debian.iso", None),
            ("/dev/sda", None),
        ] {
            let disk = Disk {
                key: "scsi0".to_owned(),
                volume: volume.to_owned(),
                options: Vec::new(),
            };
            assert_eq!(owner_of(&disk), owner, "{volume}");
        }
    }
}
