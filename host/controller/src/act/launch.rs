//! Steps on the way up: clone, configure, grow, start.

use kproxide_planner::claim::{Failure, Outcome, Proven};
use kproxide_planner::facts::{CloneSpec, Join};
use kproxide_planner::ids::Uid;

use super::clone_turn::CloneTurn;
use super::drive::Drive;
use super::outcome::{Performed, Stopped, failed};
use kproxide_pve::client::Client;
use kproxide_pve::cloudinit::MachineConfig;
use kproxide_pve::convert::configuration_digest;
use kproxide_pve::error::Meaning;
use kproxide_pve::limits::{CloneSlot, StorageSlot};
use kproxide_pve::machine::CloneRequest;
use kproxide_pve::ownership::{Key, Marker};
use kproxide_pve::preflight::Scope;
use kproxide_pve::task::{self, Upid};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Drive {
    /// Waits for a turn on the storage of the clone. A refusal is reported only when the clone is asked for, so that
    /// the claim gets its reason.
    pub(super) async fn clone_turn(&self) -> CloneTurn {
        match self.clone_slot().await {
            Ok(slot) => CloneTurn::Taken { _slot: slot },
            Err(refusal) => CloneTurn::Refused(refusal),
        }
    }

    async fn clone_slot(&self) -> Result<CloneSlot, Outcome> {
        let client = self.connected()?;
        let (clone, slot) = (self.planned_clone()?, self.storage_slot()?);
        Ok(client.limits().clone_slot(slot, &clone.hypervisor).await)
    }

    fn planned_clone(&self) -> Result<&CloneSpec, Outcome> {
        self.facts().spec.clone.as_ref().ok_or_else(|| {
            let text =
                "an earlier version of kproxide made the NodeClaim, and it does not say what to clone";
            failed(Failure::Outdated, text)
        })
    }

    /// What a clone's task shows of its storage's lock. One that runs for longer than any waits for a lock has got it.
    pub(super) fn note_lock(&self, outcome: &task::Outcome) {
        let is_jammed = match outcome {
            task::Outcome::Failed {
                meaning: Meaning::StorageBusy { .. },
                ..
            } => true,
            task::Outcome::Ok | task::Outcome::Warnings(_) | task::Outcome::Running => false,
            task::Outcome::Failed { .. } | task::Outcome::Unknown(_) => return,
        };
        if let (Ok(slot), Some(client)) = (self.storage_slot(), self.proxmox()) {
            client.limits().note_jam(slot, is_jammed);
        }
    }

    /// The hypervisor and the storage that the claim names, as the last look saw them.
    pub(super) fn storage_slot(&self) -> Result<StorageSlot, Outcome> {
        let spec = &self.facts().spec;
        let (hypervisor, storage) = (&spec.hypervisor, &spec.storage);
        let seen = self.context.clusters.hypervisor(&spec.hypervisor_id());
        let unfit = |text: String| failed(Failure::Elsewhere, text);
        let facts = seen
            .filter(|facts| facts.online)
            .ok_or_else(|| unfit(format!("hypervisor {hypervisor} is not online")))?;
        let name = storage.as_ref().map_or("", |storage| storage.as_str());
        let there = facts.storages.get(name).filter(|storage| storage.active);
        let there = there
            .ok_or_else(|| unfit(format!("storage {name} is not available on {hypervisor}")))?;
        Ok(StorageSlot {
            storage: name.to_owned(),
            hypervisor: (!there.shared).then(|| hypervisor.to_string()),
        })
    }

    /// The template is still the one that the plan saw. If not, this claim is closed, and the next plan uses the new
    /// template.
    async fn verify_template(&self, client: &Client, clone: &CloneSpec) -> Result<(), Stopped> {
        let (hypervisor, vmid) = (&clone.hypervisor, clone.vmid);
        let outdated = |what: &str| {
            // What the next plan is made of must not be as old.
            let cluster = &self.facts().spec.cluster;
            self.context.clusters.look_again(cluster);
            let text =
                format!("template {vmid} on {hypervisor} {what} since this machine was planned");
            Stopped::With(failed(Failure::Outdated, text))
        };
        let config = match client.read_config(hypervisor, vmid.0).await {
            Err(error) if error.meaning == Meaning::NotFound => {
                return Err(outdated("was removed"));
            }
            read => read?,
        };
        if !config.template {
            return Err(outdated("was made a VM again"));
        }
        if configuration_digest(&config) != *self.facts().spec.template_digest.as_str() {
            return Err(outdated("was changed"));
        }
        Ok(())
    }

    pub(super) async fn clone_machine(&mut self) -> Performed {
        if matches!(self.clone_turn, CloneTurn::None) {
            self.clone_turn = self.clone_turn().await;
        }
        if let CloneTurn::Refused(_) = &self.clone_turn
            && let CloneTurn::Refused(refusal) = std::mem::take(&mut self.clone_turn)
        {
            return Ok(refusal);
        }
        let clone = self.planned_clone()?.clone();
        let client = self.connected()?;
        let (marker, key) = self.signing()?;
        self.verify_template(&client, &clone).await?;
        // Check again, because the turn may have taken long.
        if !self.leads() {
            return Ok(failed(Failure::Retry, "somebody else leads"));
        }
        let spec = &self.facts().spec;
        let request = CloneRequest {
            clone,
            hypervisor: spec.hypervisor.to_string(),
            newid: spec.vmid.0,
            name: spec.vm_name.to_string(),
            pool: Some(self.surroundings.settings.pool.to_string()),
            description: marker.sign(key),
        };
        Ok(running(&client.clone_vm(&request).await?))
    }

    pub(super) async fn configure(&self, proven: &Proven) -> Performed {
        let client = self.connected()?;
        let spec = &self.facts().spec;
        let class = self.surroundings.class.as_deref();
        // A claim of an earlier version does not hold these settings.
        let machine = spec
            .machine
            .as_deref()
            .or(class.map(|class| &class.machine));
        let Some(machine) = machine else {
            let text = format!("NodeClass {} is gone", spec.class);
            return Ok(failed(Failure::GiveUp, text));
        };
        let config = MachineConfig {
            cores: spec.resources.milli_cores.div_ceil(1000),
            memory_mib: spec.resources.memory_bytes / MIB,
            address: spec.address,
            tags: class.map_or(&[], |class| &class.tags),
            machine,
        };
        let (hypervisor, vmid) = (proven.hypervisor(), proven.vmid().0);
        let clone = client.read_config(hypervisor, vmid).await?;
        // VMIDs are unique within a Proxmox cluster only.
        let origin = format!("{}/{}", self.context.identity.cluster_id, spec.cluster);
        let params = config.params(&clone, &origin, vmid);
        let params = params.map_err(|problem| failed(Failure::GiveUp, problem.to_string()))?;
        let digest = Some(&**proven.digest());
        client.configure(hypervisor, vmid, params, digest).await?;
        Ok(Outcome::Done)
    }

    pub(super) async fn resize(&self, proven: &Proven, bytes: u64) -> Performed {
        let client = self.connected()?;
        let (hypervisor, vmid) = (proven.hypervisor(), proven.vmid().0);
        let config = client.read_config(hypervisor, vmid).await?;
        let Some(disk) = config.boot_disk() else {
            let text = "the clone has no boot disk to grow: the template needs one";
            return Ok(failed(Failure::GiveUp, text));
        };
        let gib = bytes.div_ceil(GIB);
        let begun = client.resize_disk(hypervisor, vmid, &disk.key, gib).await?;
        Ok(begun.as_ref().map_or(Outcome::Done, running))
    }

    pub(super) async fn start(&self, proven: &Proven) -> Performed {
        let client = self.connected()?;
        let begun = client.start(proven.hypervisor(), proven.vmid().0).await?;
        Ok(running(&begun))
    }

    /// The privileges that kproxide needs on the claim's VM. Proxmox's refusal names the path of the VM, which goes
    /// away with the VM. The privileges belong on the path of its pool.
    pub(super) fn scope(&self) -> Scope {
        let settings = &self.surroundings.settings;
        Scope {
            pool: Some(settings.pool.to_string()),
            guest_exec: settings.join == Join::GuestExec,
            ..Scope::default()
        }
    }

    /// [`Self::scope`] with the template and the storage of the clone.
    pub(super) fn clone_scope(&self) -> Scope {
        let clone = self.facts().spec.clone.as_ref();
        let storage = clone.and_then(|clone| clone.storage.as_ref());
        Scope {
            templates: clone.iter().map(|clone| clone.vmid.0).collect(),
            storages: storage.iter().map(ToString::to_string).collect(),
            ..self.scope()
        }
    }

    pub(super) fn connected(&self) -> Result<Client, Outcome> {
        self.proxmox().ok_or_else(no_client)
    }

    /// The marker in the VM's description, and the key that signs it.
    pub(super) fn signing(&self) -> Result<(Marker, &Key), Outcome> {
        let key = self.context.identity.keys.first();
        self.marker().zip(key).ok_or_else(no_client)
    }

    /// The ownership marker that the machine's description must carry. `None`: the claim has no nonce yet.
    pub(super) fn marker(&self) -> Option<Marker> {
        let claim = self.facts();
        let nonce = match &claim.spec.adopts {
            Some(adopts) => &adopts.nonce,
            None => claim.status.nonce.as_ref()?,
        };
        Some(Marker {
            cluster_id: self.context.identity.cluster_id.clone(),
            claim_uid: self.made_for().to_string(),
            vmid: claim.spec.vmid.0,
            nonce: nonce.to_string(),
        })
    }

    /// UID of the claim that the machine was made for. Its marker and its join script carry this UID.
    pub(super) fn made_for(&self) -> &Uid {
        let claim = self.facts();
        let adopts = claim.spec.adopts.as_ref();
        adopts.map_or(&claim.uid, |adopts| &adopts.claim_uid)
    }
}

/// A task that was started.
pub(super) fn running(upid: &Upid) -> Outcome {
    Outcome::Running(upid.as_str().into())
}

fn no_client() -> Outcome {
    failed(
        Failure::Freeze,
        "the Proxmox cluster's settings, or our key, cannot be used",
    )
}
