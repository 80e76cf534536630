//! Steps past the point of no return: tombstone, shutdown, stop, destroy; then the Ledger and the claim are closed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::claim::{Closing, Failure, Outcome, Proven, close};
use kproxide_planner::facts::LaunchFailure;

use super::drive::Drive;
use super::launch::running;
use super::outcome::{Performed, failed};
use kproxide_kube::error::Cas;
use kproxide_kube::{claims, ledger};
use kproxide_pve::error::Meaning;
use kproxide_pve::ownership::with_line;

/// Every launch writes the Ledger, so conflicts happen. More in a row than this are no coincidence.
const LEDGER_TRIES: u32 = 8;

impl Drive {
    pub(super) async fn tombstone(&self, proven: &Proven) -> Performed {
        let client = self.connected()?;
        let (marker, key) = self.signing()?;
        let (hypervisor, vmid) = (proven.hypervisor(), proven.vmid().0);
        let config = client.read_config(hypervisor, vmid).await?;
        // Written only if the configuration is still the one that was proven.
        let description = with_line(&config.description, &marker.tombstone(key));
        let digest = Some(&**proven.digest());
        let written = client.set_description(hypervisor, vmid, &description, digest);
        written.await?;
        Ok(Outcome::Done)
    }

    pub(super) async fn shutdown(&self, proven: &Proven, grace: SignedDuration) -> Performed {
        let client = self.connected()?;
        // Proxmox counts in whole seconds, at least one.
        let grace = Duration::try_from(grace).unwrap_or_default();
        let grace = grace.max(Duration::from_secs(1));
        let begun = client.shutdown(proven.hypervisor(), proven.vmid().0, grace);
        Ok(running(&begun.await?))
    }

    pub(super) async fn stop(&self, proven: &Proven) -> Performed {
        let client = self.connected()?;
        let begun = client.stop(proven.hypervisor(), proven.vmid().0).await?;
        Ok(running(&begun))
    }

    pub(super) async fn destroy(&self, proven: &Proven) -> Performed {
        let client = self.connected()?;
        // Proxmox would remove the VM, and leave the disks that it cannot lock.
        if let Ok(slot) = self.storage_slot()
            && client.limits().is_jammed(&slot)
        {
            let storage = slot.storage;
            let busy = Meaning::StorageBusy { storage };
            return Ok(failed(Failure::StorageBusy, busy.to_string()));
        }
        tracing::info!(claim = %self.name(), vmid = proven.vmid().0, hypervisor = %proven.hypervisor(), "destroying");
        let begun = client.destroy(proven.hypervisor(), proven.vmid().0);
        Ok(running(&begun.await?))
    }

    pub(super) async fn quarantine(
        &self,
        until: Timestamp,
        failure: Option<LaunchFailure>,
    ) -> Performed {
        let closing = Closing {
            claim: self.name(),
            spec: &self.facts().spec,
            since: self.context.clock.now(),
            until,
            failure,
        };
        let failed_at = self.facts().status.draining_since;
        let failed_at = failed_at.unwrap_or(closing.since);
        for _ in 0..LEDGER_TRIES {
            let stands = ledger::get_or_create(&self.context.kube).await?;
            let closed = close(&stands, &closing, failed_at);
            if !self.leads() {
                break;
            }
            match ledger::replace(&self.context.kube, &closed).await? {
                Cas::Written(_) => return Ok(Outcome::Done),
                Cas::Conflict | Cas::Gone => {}
            }
        }
        Ok(failed(Failure::Retry, "the Ledger keeps changing"))
    }

    pub(super) async fn remove_finalizer(&self) -> Performed {
        let removed = claims::remove_finalizer(&self.context.kube, &self.claim);
        Ok(match removed.await? {
            Cas::Written(()) | Cas::Gone => Outcome::Done,
            Cas::Conflict => failed(Failure::Retry, "the claim has just changed"),
        })
    }
}
