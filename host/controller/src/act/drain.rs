//! Steps on the Kubernetes side: the Node's marks, its cordon, its pods, the claim itself.

use futures::future::join_all;
use kproxide_planner::claim::{NodePatch, NodeRef, Outcome, PodRef, Refusal};
use kproxide_planner::plan::Preference;

use super::drive::Drive;
use super::outcome::Performed;
use kproxide_common::chain::chain;
use kproxide_kube::claims;
use kproxide_kube::error::Error;
use kproxide_kube::evict::{self, Eviction};
use kproxide_kube::nodes;

/// Evictions that are asked for at once.
const EVICTIONS_AT_ONCE: usize = 10;

impl Drive {
    pub(super) async fn patch_node(&self, node: &NodeRef, patch: &NodePatch) -> Performed {
        done(nodes::mark(&self.context.kube, node, self.name(), patch).await)
    }

    pub(super) async fn cordon(&self, node: &NodeRef) -> Performed {
        done(nodes::cordon(&self.context.kube, node, self.name()).await)
    }

    pub(super) async fn uncordon(&self, node: &NodeRef) -> Performed {
        done(nodes::uncordon(&self.context.kube, node, self.name()).await)
    }

    /// A failure is no reason to stop: the next plan asks again.
    pub(super) async fn prefer(&self, preference: &Preference) {
        if !self.leads() {
            return;
        }
        let node = NodeRef {
            name: preference.node.clone(),
            uid: preference.node_uid.clone(),
        };
        let (kube, claim) = (&self.context.kube, self.name());
        if let Err(error) = nodes::prefer_others(kube, &node, claim, preference.is_unneeded).await {
            tracing::warn!(node = %node.name, error = %chain(&error), "the taint kproxide.dev/unneeded could not be changed");
        }
    }

    pub(super) async fn out_of_service(&self, node: &NodeRef) -> Performed {
        done(nodes::out_of_service(&self.context.kube, node, self.name()).await)
    }

    pub(super) async fn delete_node(&self, node: &NodeRef) -> Performed {
        done(nodes::delete(&self.context.kube, node, self.name()).await)
    }

    pub(super) async fn delete_claim(&self) -> Performed {
        done(claims::delete(&self.context.kube, self.name(), &self.facts().uid).await)
    }

    /// Asks for the eviction of each pod once. A pod that may not leave is asked again in a later drive.
    pub(super) async fn evict(&self, pods: &[PodRef]) -> Performed {
        let mut refused = Vec::new();
        for batch in pods.chunks(EVICTIONS_AT_ONCE) {
            if !self.leads() {
                break;
            }
            let asked = batch
                .iter()
                .map(|pod| evict::evict(&self.context.kube, &pod.key, &pod.uid));
            for (pod, answer) in batch.iter().zip(join_all(asked).await) {
                let (by_budget, why) = match answer {
                    Ok(Eviction::Evicted | Eviction::Gone) => continue,
                    Ok(Eviction::Blocked(why)) => (true, why),
                    Err(error) => (false, chain(&error)),
                };
                refused.push(Refusal {
                    pod: pod.key.clone(),
                    by_budget,
                    why,
                });
            }
        }
        Ok(Outcome::Evicted { refused })
    }
}

/// If the object is gone or has another UID, the next look shows it.
fn done<T>(result: Result<T, Error>) -> Performed {
    result?;
    Ok(Outcome::Done)
}
