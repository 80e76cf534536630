//! Steps past the point of no return: tombstone, shutdown, stop, destroy; then the Ledger and the claim are closed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::claim::{Closing, Failure, Outcome, Proven, close};
use kproxide_planner::facts::LaunchFailure;

use super::drive::Drive;
use super::launch::{begun, no_client, refused};
use super::outcome::of_kubernetes;
use crate::kube::error::Cas;
use crate::kube::{claims, ledger};
use crate::pve::ownership::with_line;

/// Every launch writes the Ledger, so conflicts happen. More in a row than this are no coincidence.
const LEDGER_TRIES: u32 = 8;

impl Drive {
    pub(super) async fn tombstone(&self, proven: &Proven) -> Outcome {
        let (Some(client), Some(marker), Some(key)) = (
            self.proxmox(),
            self.marker(),
            self.context.identity.keys.first(),
        ) else {
            return no_client();
        };
        let (hypervisor, vmid) = (proven.hypervisor(), proven.vmid().0);
        let config = match client.read_config(hypervisor, vmid).await {
            Ok(config) => config,
            Err(error) => return refused(&client, &self.scope(), &error).await,
        };
        // Written only if the configuration is still the one that was proven.
        let description = with_line(&config.description, &marker.tombstone(key));
        match client
            .set_description(hypervisor, vmid, &description, Some(proven.digest()))
            .await
        {
            Ok(()) => Outcome::Done,
            Err(error) => refused(&client, &self.scope(), &error).await,
        }
    }

    pub(super) async fn shutdown(&self, proven: &Proven, grace: SignedDuration) -> Outcome {
        let Some(client) = self.proxmox() else {
            return no_client();
        };
        // Proxmox counts in whole seconds, at least one.
        let grace = Duration::try_from(grace)
            .unwrap_or_default()
            .max(Duration::from_secs(1));
        let begun_task = client
            .shutdown(proven.hypervisor(), proven.vmid().0, grace)
            .await;
        begun(&client, &self.scope(), begun_task).await
    }

    pub(super) async fn stop(&self, proven: &Proven) -> Outcome {
        let Some(client) = self.proxmox() else {
            return no_client();
        };
        let begun_task = client.stop(proven.hypervisor(), proven.vmid().0).await;
        begun(&client, &self.scope(), begun_task).await
    }

    pub(super) async fn destroy(&self, proven: &Proven) -> Outcome {
        let Some(client) = self.proxmox() else {
            return no_client();
        };
        tracing::info!(claim = %self.name(), vmid = %proven.vmid(), hypervisor = %proven.hypervisor(), "destroying");
        let begun_task = client.destroy(proven.hypervisor(), proven.vmid().0).await;
        begun(&client, &self.scope(), begun_task).await
    }

    pub(super) async fn quarantine(
        &self,
        until: Timestamp,
        failure: Option<LaunchFailure>,
    ) -> Outcome {
        let closing = Closing {
            claim: self.name(),
            spec: &self.facts().spec,
            until,
            failure,
        };
        for _ in 0..LEDGER_TRIES {
            let stands = match ledger::get_or_create(&self.context.kube).await {
                Ok(ledger) => ledger,
                Err(error) => return of_kubernetes(&error),
            };
            let closed = close(&stands, &closing, self.context.clock.now());
            if !self.leads() {
                break;
            }
            match ledger::replace(&self.context.kube, &closed).await {
                Ok(Cas::Written(_)) => return Outcome::Done,
                Ok(Cas::Conflict | Cas::Gone) => {}
                Err(error) => return of_kubernetes(&error),
            }
        }
        Outcome::Failed {
            failure: Failure::Retry,
            text: "the Ledger keeps changing".to_owned(),
        }
    }

    pub(super) async fn remove_finalizer(&self) -> Outcome {
        match claims::remove_finalizer(&self.context.kube, &self.claim).await {
            Ok(Cas::Written(()) | Cas::Gone) => Outcome::Done,
            Ok(Cas::Conflict) => Outcome::Failed {
                failure: Failure::Retry,
                text: "the claim has just changed".to_owned(),
            },
            Err(error) => of_kubernetes(&error),
        }
    }
}
