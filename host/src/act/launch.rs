//! Steps on the way up: clone, configure, grow, start.

use kproxide_planner::claim::{Failure, Outcome, Proven};
use kproxide_planner::facts::{ClaimSpec, CloneSpec, Join};
use kproxide_planner::ids::Uid;

use super::clone_turn::CloneTurn;
use super::drive::Drive;
use super::outcome::of_proxmox;
use crate::pve::client::Client;
use crate::pve::cloudinit::MachineConfig;
use crate::pve::convert::configuration_digest;
use crate::pve::error::{Error, Meaning};
use crate::pve::limits::StorageSlot;
use crate::pve::machine::CloneRequest;
use crate::pve::ownership::Marker;
use crate::pve::preflight::Scope;
use crate::pve::task::Upid;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Drive {
    /// Waits for a turn on the storage of the clone. A refusal is reported only when the clone is asked for, so that
    /// the claim gets its reason.
    pub(super) async fn clone_turn(&self) -> CloneTurn {
        let Some(client) = self.proxmox() else {
            return CloneTurn::Refused(no_client());
        };
        let (slot, clone) = match (self.storage_slot(), self.planned_clone()) {
            (Ok(slot), Ok(clone)) => (slot, clone),
            (_, Err(refusal)) | (Err(refusal), _) => return CloneTurn::Refused(refusal),
        };
        let slot = client.limits().clone_slot(slot, &clone.hypervisor).await;
        CloneTurn::Taken { _slot: slot }
    }

    fn planned_clone(&self) -> Result<&CloneSpec, Outcome> {
        self.facts().spec.clone.as_ref().ok_or_else(|| {
            let text =
                "an earlier version of kproxide made the NodeClaim, and it does not say what to clone";
            failed(Failure::Outdated, text.to_owned())
        })
    }

    /// The hypervisor and the storage that the claim names, as the last look saw them.
    fn storage_slot(&self) -> Result<StorageSlot, Outcome> {
        let spec = &self.facts().spec;
        let ClaimSpec {
            hypervisor,
            storage,
            ..
        } = spec;
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
    async fn verify_template(&self, client: &Client, clone: &CloneSpec) -> Result<(), Outcome> {
        let CloneSpec {
            hypervisor, vmid, ..
        } = clone;
        let outdated = |what: &str| {
            failed(
                Failure::Outdated,
                format!("template {vmid} on {hypervisor} {what} since this machine was planned"),
            )
        };
        let config = match client.read_config(hypervisor, vmid.0).await {
            Ok(config) => config,
            Err(error) if error.meaning == Meaning::NotFound => {
                return Err(outdated("was removed"));
            }
            Err(error) => return Err(refused(client, &self.clone_scope(clone), &error).await),
        };
        if !config.template {
            return Err(outdated("was made a VM again"));
        }
        if configuration_digest(&config) != *self.facts().spec.template_digest.as_str() {
            return Err(outdated("was changed"));
        }
        Ok(())
    }

    fn clone_scope(&self, clone: &CloneSpec) -> Scope {
        Scope {
            templates: vec![clone.vmid.0],
            storages: clone.storage.iter().map(ToString::to_string).collect(),
            ..self.scope()
        }
    }

    pub(super) async fn clone_machine(&mut self) -> Outcome {
        if matches!(self.clone_turn, CloneTurn::None) {
            self.clone_turn = self.clone_turn().await;
        }
        if let CloneTurn::Refused(_) = &self.clone_turn
            && let CloneTurn::Refused(refusal) = std::mem::take(&mut self.clone_turn)
        {
            return refusal;
        }
        let clone = match self.planned_clone() {
            Ok(clone) => clone.clone(),
            Err(refusal) => return refusal,
        };
        let (Some(client), Some(marker), Some(key)) = (
            self.proxmox(),
            self.marker(),
            self.context.identity.keys.first(),
        ) else {
            return no_client();
        };
        if let Err(refusal) = self.verify_template(&client, &clone).await {
            return refusal;
        }
        // Check again, because the turn may have taken long.
        if !self.leads() {
            return failed(Failure::Retry, "somebody else leads".to_owned());
        }
        let scope = self.clone_scope(&clone);
        let spec = &self.facts().spec;
        let request = CloneRequest {
            clone,
            hypervisor: spec.hypervisor.to_string(),
            newid: spec.vmid.0,
            name: spec.vm_name.to_string(),
            pool: scope.pool.clone(),
            description: marker.sign(key),
        };
        begun(&client, &scope, client.clone_vm(&request).await).await
    }

    pub(super) async fn configure(&self, proven: &Proven) -> Outcome {
        let Some(client) = self.proxmox() else {
            return no_client();
        };
        let spec = &self.facts().spec;
        let class = self.surroundings.class.as_deref();
        // A claim of an earlier version does not hold these settings.
        let machine = spec
            .machine
            .as_deref()
            .or(class.map(|class| &class.machine));
        let Some(machine) = machine else {
            return failed(Failure::GiveUp, format!("NodeClass {} is gone", spec.class));
        };
        let config = MachineConfig {
            cores: spec.resources.milli_cores.div_ceil(1000),
            memory_mib: spec.resources.memory_bytes / MIB,
            address: spec.address,
            tags: class.map_or(&[], |class| &class.tags),
            machine,
        };
        let (hypervisor, vmid) = (proven.hypervisor(), proven.vmid().0);
        let clone = match client.read_config(hypervisor, vmid).await {
            Ok(clone) => clone,
            Err(error) => return refused(&client, &self.scope(), &error).await,
        };
        // VMIDs are unique within a Proxmox cluster only.
        let origin = format!("{}/{}", self.context.identity.cluster_id, spec.cluster);
        let params = match config.params(&clone, &origin, vmid) {
            Ok(params) => params,
            Err(problem) => return failed(Failure::GiveUp, problem.to_string()),
        };
        match client
            .configure(hypervisor, vmid, params, Some(proven.digest()))
            .await
        {
            Ok(()) => Outcome::Done,
            Err(error) => refused(&client, &self.scope(), &error).await,
        }
    }

    pub(super) async fn resize(&self, proven: &Proven, bytes: u64) -> Outcome {
        let Some(client) = self.proxmox() else {
            return no_client();
        };
        let (hypervisor, vmid) = (proven.hypervisor(), proven.vmid().0);
        let config = match client.read_config(hypervisor, vmid).await {
            Ok(config) => config,
            Err(error) => return refused(&client, &self.scope(), &error).await,
        };
        let Some(disk) = config.boot_disk() else {
            return failed(
                Failure::GiveUp,
                "the clone has no boot disk to grow: the template needs one".to_owned(),
            );
        };
        match client
            .resize_disk(hypervisor, vmid, &disk.key, bytes.div_ceil(GIB))
            .await
        {
            Ok(Some(upid)) => Outcome::Running(upid.as_str().into()),
            Ok(None) => Outcome::Done,
            Err(error) => refused(&client, &self.scope(), &error).await,
        }
    }

    pub(super) async fn start(&self, proven: &Proven) -> Outcome {
        let Some(client) = self.proxmox() else {
            return no_client();
        };
        let begun_task = client.start(proven.hypervisor(), proven.vmid().0).await;
        begun(&client, &self.scope(), begun_task).await
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

/// A call that starts a task.
pub(super) async fn begun(client: &Client, scope: &Scope, result: Result<Upid, Error>) -> Outcome {
    match result {
        Ok(upid) => Outcome::Running(upid.as_str().into()),
        Err(error) => refused(client, scope, &error).await,
    }
}

/// A call that failed. If a privilege is missing, the text has the commands that grant what `scope` needs.
pub(super) async fn refused(client: &Client, scope: &Scope, error: &Error) -> Outcome {
    let mut outcome = of_proxmox(error);
    if let Outcome::Failed { text, .. } = &mut outcome {
        *text = client.explained(error, scope).await;
    }
    outcome
}

pub(super) fn no_client() -> Outcome {
    failed(
        Failure::Freeze,
        "the Proxmox cluster's settings, or our key, cannot be used".to_owned(),
    )
}

pub(super) fn failed(failure: Failure, text: String) -> Outcome {
    Outcome::Failed { failure, text }
}
