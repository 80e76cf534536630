//! Makes anchors on Proxmox and writes new marks to them. The planner decides which, when and whether. The Ledger knows
//! both marks before this begins, so a lost request costs only time.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kproxide_planner::facts::{AnchorLook, Mark};
use kproxide_planner::guard::anchor::NAME;
use kproxide_planner::ids::{ClusterName, Vmid};
use kproxide_planner::plan::AnchorStep;
use tokio::time::timeout;

use super::{Actor, Context, Identity};
use kproxide_pve::client::Client;
use kproxide_pve::error::{Error, Meaning};
use kproxide_pve::ownership::{Marker, with_line};
use kproxide_pve::preflight::Scope;
use kproxide_pve::vm_config::VmConfig;

/// A hypervisor that does not answer must not hold the loop up.
const DEADLINE: Duration = Duration::from_secs(5);

/// The description of the VM, for people who find it.
const EXPLANATION: &str = "kproxide's anchor: by the line below, kproxide tells its Kubernetes cluster from a copy of it (a restored backup, say). The VM has no disks and is never started. kproxide makes it anew if it is deleted; delete it when kproxide is uninstalled.";

/// Proxmox refused to make an anchor or to change it. Users have to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAnchor {
    pub cluster: ClusterName,
    pub message: String,
}

impl Actor {
    /// Gives anchors their new marks, all at once, while the leadership of their plan lasts. Returns what Proxmox
    /// refused.
    pub(super) async fn anchor(&self, steps: &[AnchorStep], term: &str) -> Vec<RefusedAnchor> {
        let context = &self.context;
        let done = join_all(steps.iter().map(|step| async move {
            let client = context.client_in(&step.cluster, term.into())?;
            let AnchorStep { cluster, vmid, .. } = step;
            let error = match timeout(DEADLINE, perform(context, &client, step)).await {
                Ok(Ok(())) => return None,
                Ok(Err(error)) => error,
                Err(_) => {
                    tracing::warn!(%cluster, vmid = vmid.0, "the anchor was not made or moved on in time");
                    return None;
                }
            };
            let scope = Scope {
                pool: Some(step.pool.to_string()),
                ..Scope::default()
            };
            let why = timeout(DEADLINE, client.explained(&error, &scope)).await;
            let why = why.unwrap_or_else(|_| error.chain());
            tracing::warn!(%cluster, vmid = vmid.0, error = why, "the anchor could not be made or moved on");
            if step.from.is_some() && is_going(&client, *vmid, &error).await {
                return None;
            }
            is_for_people(step, &error.meaning).then(|| RefusedAnchor {
                cluster: cluster.clone(),
                message: format!(
                    "kproxide could not make or change its anchor in Proxmox cluster {cluster} (VM {vmid}), so it may not notice a copy of this Kubernetes cluster. It tries again every few minutes. Proxmox's answer: {why}"
                ),
            })
        }));
        done.await.into_iter().flatten().collect()
    }
}

/// A failed change is tried again a few minutes later, so users need to know only if a privilege is missing. A missing
/// anchor stops nothing, so users would not notice it without an Event.
fn is_for_people(step: &AnchorStep, meaning: &Meaning) -> bool {
    match step.from {
        // Another process, or this one before, was faster or leads. Or the request's turn did not come, and the next
        // try shows why.
        None => !matches!(meaning, Meaning::VmidTaken | Meaning::Withheld),
        Some(_) => matches!(meaning, Meaning::PermissionDenied { .. }),
    }
}

/// Somebody is deleting the VM. Proxmox takes it out of its pool first, so that its answer is a missing privilege. What is
/// gone is made anew, so users need not know.
async fn is_going(client: &Client, vmid: Vmid, error: &Error) -> bool {
    let path = format!("/vms/{vmid}");
    let is_of_vm = matches!(
        &error.meaning,
        Meaning::PermissionDenied { path: Some(denied), .. } if *denied == path
    );
    let is_free = async || timeout(DEADLINE, client.vmid_is_free(vmid.0)).await;
    is_of_vm && matches!(is_free().await, Ok(Ok(true)))
}

async fn perform(context: &Context, client: &Client, step: &AnchorStep) -> Result<(), Error> {
    let AnchorStep {
        cluster,
        vmid,
        hypervisor,
        pool,
        from,
        to,
    } = step;
    let Some(key) = context.identity.keys.first() else {
        return Ok(());
    };
    let marker = Marker {
        cluster_id: context.identity.cluster_id.clone(),
        claim_uid: cluster.to_string(),
        vmid: vmid.0,
        nonce: to.to_string(),
    };
    let line = marker.anchor(key);
    let Some(from) = from else {
        let name = format!("{NAME}{vmid}");
        let description = format!("{EXPLANATION}\n{line}");
        tracing::info!(%cluster, vmid = vmid.0, %hypervisor, "making the anchor of this Kubernetes cluster");
        let made = client.create_vm(hypervisor, vmid.0, &name, pool, &description);
        return made.await.map(|_| ());
    };
    let config = client.read_config(hypervisor, vmid.0).await?;
    // Another process was faster. The next look shows which.
    if read(&context.identity, &config, cluster, *vmid) != Some(from.clone()) {
        return Ok(());
    }
    let description = with_line(&config.description, &line);
    let digest = config.digest.as_deref();
    let written = client.set_description(hypervisor, vmid.0, &description, digest);
    match written.await {
        Err(error) if error.meaning == Meaning::DigestMismatch => Ok(()),
        written => written,
    }
}

/// The mark that this VM shows, if it is the anchor of this Kubernetes cluster in that Proxmox cluster.
fn read(identity: &Identity, config: &VmConfig, cluster: &ClusterName, vmid: Vmid) -> Option<Mark> {
    let signed = Marker::find_anchor(&config.description).ok()?;
    let marker = signed.verify(&identity.keys, vmid.0).ok()?;
    let is_its = marker.cluster_id == identity.cluster_id && marker.claim_uid == cluster.as_str();
    let mark = Mark::try_from(marker.nonce.clone()).ok()?;
    (is_its && !config.template).then_some(mark)
}

/// As [`read`], for the planner.
pub(super) fn look(
    identity: &Identity,
    config: &VmConfig,
    cluster: &ClusterName,
    vmid: Vmid,
    hypervisor: &Arc<str>,
) -> Option<AnchorLook> {
    let mark = read(identity, config, cluster, vmid)?;
    let hypervisor = hypervisor.clone();
    Some(AnchorLook { mark, hypervisor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kproxide_pve::ownership::Key;

    #[test]
    fn f75_f113_only_a_line_that_we_signed_for_this_vm_and_this_cluster_is_an_anchor_of_ours() {
        let key = |byte| Key::new(vec![byte; 32]).unwrap();
        let identity = Identity {
            cluster_id: "us".to_owned(),
            keys: vec![key(1)],
        };
        let marker = Marker {
            cluster_id: "us".to_owned(),
            claim_uid: "lab".to_owned(),
            vmid: 999,
            nonce: "7-x4f9".to_owned(),
        };
        let seen = |description: String| {
            let config = VmConfig {
                description,
                ..VmConfig::default()
            };
            read(&identity, &config, &"lab".into(), Vmid(999)).map(|mark| mark.to_string())
        };
        let line = marker.anchor(&key(1));
        let shown = seen(format!("{EXPLANATION}\nmine\n{line}"));
        assert_eq!(shown.as_deref(), Some("7-x4f9"));
        let other = |edit: fn(&mut Marker)| {
            let mut other = marker.clone();
            edit(&mut other);
            other.anchor(&key(1))
        };
        for description in [
            String::new(),
            marker.anchor(&key(2)),
            marker.sign(&key(1)),
            line.replace("7-x4f9", "8-x4f9"),
            other(|marker| marker.cluster_id = "them".to_owned()),
            other(|marker| marker.claim_uid = "other-proxmox".to_owned()),
            other(|marker| marker.vmid = 998),
            other(|marker| marker.nonce = "x4f9".to_owned()),
        ] {
            assert_eq!(seen(description.clone()), None, "{description}");
        }
        // And it is never taken for a machine.
        assert!(Marker::find(&line).is_err());
    }
}
