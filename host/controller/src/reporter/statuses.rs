//! What the tick found, in the conditions and counts of our own objects.

use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::check::learned;
use kproxide_planner::facts::{ClassFacts, Delta, Existence, HypervisorFacts, InventoryFacts};
use kproxide_planner::ids::{ClassName, ClusterName};
use kproxide_planner::world::World;

use super::Reporter;
use super::policies::Failed;
use crate::judge::{Finding, Level, emptying, named};
use kproxide_common::chain::chain;
use kproxide_kube::client::Client;
use kproxide_kube::crd::{Holding, HypervisorStatus, ProxmoxClusterStatus};
use kproxide_kube::error::Error;
use kproxide_kube::events::About;
use kproxide_kube::status::{Condition, Found, Turn};

impl Reporter {
    /// An object has changed: perhaps its status too, by a late write of an earlier leader or by a user. So it is read
    /// again.
    pub fn forget_changed(&mut self, delta: &Delta) {
        let (resource, name, is_there) = if let Delta::Pool(name, pool) = delta {
            ("nodepools", name.as_str(), pool.is_some())
        } else if let Delta::Class(name, class) = delta {
            ("nodeclasses", name.as_str(), class.is_some())
        } else if let Delta::Cluster(name, cluster) = delta {
            ("proxmoxclusters", name.as_str(), cluster.is_some())
        } else {
            return;
        };
        match is_there {
            true => self.statuses.forget(resource, name),
            false => self.statuses.forget_all(resource, name),
        }
    }

    pub(super) async fn write_statuses(
        &mut self,
        kube: &Client,
        failed: &Failed,
        world: &World,
        now: Timestamp,
    ) {
        for (name, facts) in world.pools() {
            let of_pool = world.claims().values();
            let nodes = of_pool.filter(|claim| claim.spec.pool == *name).count();
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            let findings = self.findings_of(&named("NodePool", name));
            let conditions = conditions(&findings, now);
            let found = of(&facts.existence, &conditions);
            let policies = self.shown(name, facts, failed, now);
            let seen = (nodes, policies);
            let turns = self.statuses.pool(kube, name, seen, found, now).await;
            self.turned(About::pool(name, &facts.existence.uid), turns);
        }
        for (name, facts) in world.classes() {
            self.class(kube, world, name, facts, now).await;
        }
        for (name, facts) in world.clusters() {
            let seen = match world.inventories().get(name) {
                Some(inventory) => {
                    let fingerprint = self.key_fingerprint.clone();
                    sighting(world, name, inventory, fingerprint, now)
                }
                None => ProxmoxClusterStatus::default(),
            };
            let findings = self.findings_of(&named("ProxmoxCluster", name));
            let conditions = conditions(&findings, now);
            let found = of(&facts.existence, &conditions);
            let turns = self.statuses.cluster(kube, name, seen, found, now).await;
            self.turned(About::cluster(name, &facts.existence.uid), turns);
        }
    }

    async fn class(
        &mut self,
        kube: &Client,
        world: &World,
        name: &ClassName,
        facts: &ClassFacts,
        now: Timestamp,
    ) {
        let shown = learned::shown(world, name, facts);
        let findings = self.findings_of(&named("NodeClass", name));
        let conditions = conditions(&findings, now);
        let found = of(&facts.existence, &conditions);
        let statuses = &mut self.statuses;
        let turns = statuses.class(kube, name, facts, shown, found, now).await;
        self.turned(About::class(name, &facts.existence.uid), turns);
    }

    /// What a write of a status came to.
    fn turned(&mut self, about: About, turns: Result<Vec<Turn>, Error>) {
        match turns {
            Ok(turns) => self.turns.note(&about, turns),
            Err(error) => {
                let (kind, name) = about.object();
                tracing::warn!(kind, name, error = %chain(&error), "status not written");
            }
        }
    }
}

fn of<'f>(existence: &Existence, conditions: &'f [Condition<'f>]) -> Found<'f> {
    Found {
        generation: existence.generation,
        conditions,
    }
}

/// The conditions in which these stand.
fn conditions(findings: &[Finding], now: Timestamp) -> Vec<Condition<'_>> {
    let conditions = findings.iter().filter_map(|finding| {
        let (kind, status) = finding.condition()?;
        Some(Condition {
            kind,
            status,
            reason: finding.reason.word,
            message: &finding.message,
            is_ripe: finding.is_ripe(now),
            is_bad: finding.level != Level::Ok,
        })
    });
    conditions.collect()
}

/// As many machines as a status names.
const HOLDING_MAX: usize = 32;

fn sighting(
    world: &World,
    cluster: &ClusterName,
    inventory: &InventoryFacts,
    key_fingerprint: Option<String>,
    now: Timestamp,
) -> ProxmoxClusterStatus {
    let hypervisor = |(name, hypervisor): (&Arc<str>, &HypervisorFacts)| {
        let machines = emptying(world, cluster, name, now);
        let held_by = machines.iter().flatten().take(HOLDING_MAX);
        HypervisorStatus {
            name: name.to_string(),
            online: hypervisor.online,
            maintenance: hypervisor.maintenance,
            drained: machines.as_ref().map(Vec::is_empty),
            held_by: held_by
                .map(|it| Holding {
                    claim: it.claim.to_owned(),
                    reason: it.reason.map(str::to_owned),
                })
                .collect(),
        }
    };
    ProxmoxClusterStatus {
        reachable: Some(inventory.reachable),
        quorate: inventory.reachable.then_some(inventory.quorate),
        version: inventory.version.as_deref().map(str::to_owned),
        hypervisors: inventory.hypervisors.iter().map(hypervisor).collect(),
        // That of the key that new machines are marked with. Not given: what stands there is a person's to change.
        key_fingerprint,
        conditions: Vec::new(),
    }
}
