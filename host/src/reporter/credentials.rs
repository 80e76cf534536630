//! Credentials of Proxmox with which kproxide works, although something is wrong: they may do more than kproxide needs, so
//! that a thief of them could do more, too; or they are not those in the Secret, so that nothing works after a restart.

use jiff::Timestamp;
use kproxide_planner::ids::ClusterName;
use kproxide_planner::world::World;

use super::judging::{TOKEN_FITS, holds};
use super::{Reporter, reasons};
use crate::kube::events::{About, Event};
use crate::kube::status::Judgement;
use crate::observe::Clusters;

const OVER_PRIVILEGED: &str = reasons::TOKEN_OVER_PRIVILEGED.word;

impl Reporter {
    /// What is known of the credentials of each cluster, from now on.
    pub fn judge_credentials(&mut self, clusters: &Clusters) {
        self.excess = clusters.excess();
        self.lacking = clusters.lacking();
        self.unused = clusters.unused();
    }

    /// That the Secret of a cluster has credentials that cannot be used.
    pub(super) fn report_unused(&mut self, world: &World, now: Timestamp) {
        for (cluster, why) in self.unused.clone() {
            if let Some(facts) = world.clusters().get(&cluster) {
                let about = About::cluster(&cluster, &facts.existence.uid);
                self.warn(about, reasons::NEW_CREDENTIALS_UNUSABLE.word, &why, now);
            }
        }
    }

    /// Once each pool that may use the cluster.
    pub(super) fn report_excess(&mut self, world: &World) {
        // After a change of a ProxmoxCluster nothing is known of its credentials for a moment. That is no news.
        let unknown = |cluster: &ClusterName| {
            world.clusters().contains_key(cluster) && !self.excess.contains_key(cluster)
        };
        let mut told = std::mem::take(&mut self.excess_reported);
        let known = told.clone();
        told.retain(|(cluster, ..)| unknown(cluster));
        for (cluster, excess) in self.excess.iter().filter(|(_, excess)| !excess.is_empty()) {
            for (name, pool) in world.pools() {
                if !pool.clusters.is_empty() && !pool.clusters.contains(cluster) {
                    continue;
                }
                let about = About::pool(name, &pool.existence.uid);
                let message = format!("ProxmoxCluster {cluster}: {}", in_full(excess));
                let subject = (cluster.clone(), about.clone(), message.clone());
                if !known.contains(&subject) {
                    tracing::warn!(%cluster, pool = %name, text = message, "credentials");
                    self.events
                        .say(Event::warning(about, OVER_PRIVILEGED, message));
                }
                told.insert(subject);
            }
        }
        self.excess_reported = told;
    }

    /// The condition `TokenFits`. `None`: it is not known yet.
    pub(super) fn token_fits(&self, cluster: &ClusterName) -> Option<Judgement> {
        if let Some(why) = self.unused.get(cluster) {
            let reason = &reasons::NEW_CREDENTIALS_UNUSABLE;
            return Some(holds(TOKEN_FITS, false, reason, why));
        }
        let excess = self.excess.get(cluster)?;
        Some(match excess.is_empty() {
            true => holds(TOKEN_FITS, true, &reasons::TOKEN_FITS, ""),
            false => holds(
                TOKEN_FITS,
                false,
                &reasons::TOKEN_OVER_PRIVILEGED,
                in_full(excess),
            ),
        })
    }
}

pub(crate) fn in_full(excess: &str) -> String {
    format!(
        "the credentials may do more than kproxide needs ({excess}). Give the user and the token only the roles that examples/proxmox/setup.sh gives"
    )
}
