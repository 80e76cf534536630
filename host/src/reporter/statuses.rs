//! What the tick found, in the conditions and counts of our own objects.

use jiff::Timestamp;
use kproxide_planner::facts::{InventoryFacts, PoolFacts};
use kproxide_planner::ids::{ClusterName, PoolName};
use kproxide_planner::world::World;

use super::{KEY_PROBLEM, Reporter};
use crate::kube::client::Client;
use crate::kube::status::{ClusterSighting, Readiness, SeenHypervisor};

impl Reporter {
    pub(super) async fn write_statuses(&mut self, kube: &Client, world: &World, now: Timestamp) {
        for (name, pool) in world.pools() {
            let nodes = world
                .claims()
                .values()
                .filter(|claim| claim.spec.pool == *name)
                .count();
            let ready = pool_readiness(name, pool, world);
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            if let Err(error) = self.statuses.pool(kube, name, nodes, &ready, now).await {
                tracing::warn!(pool = %name, error = %crate::chain::chain(&error), "status not written");
            }
        }
        for (name, class) in world.classes() {
            let ready = readiness("InvalidSettings", class.problem.as_ref());
            if let Err(error) = self.statuses.class(kube, name, &ready, now).await {
                tracing::warn!(class = %name, error = %crate::chain::chain(&error), "status not written");
            }
        }
        for (name, cluster) in world.clusters() {
            let Some(inventory) = world.inventories().get(name) else {
                let ready = readiness("InvalidSettings", cluster.problem.as_ref());
                self.cluster(kube, name, &ClusterSighting::default(), &ready, now)
                    .await;
                continue;
            };
            let ready = match (&cluster.problem, &self.key_problem) {
                (Some(problem), _) => Readiness::not_ready("InvalidSettings", problem.clone()),
                (None, Some(problem)) => Readiness::not_ready(KEY_PROBLEM, problem.clone()),
                (None, None) => inventory_readiness(inventory),
            };
            let seen = sighting(inventory, self.key_fingerprint.clone());
            self.cluster(kube, name, &seen, &ready, now).await;
        }
    }

    async fn cluster(
        &mut self,
        kube: &Client,
        name: &ClusterName,
        seen: &ClusterSighting,
        ready: &Readiness,
        now: Timestamp,
    ) {
        if let Err(error) = self.statuses.cluster(kube, name, seen, ready, now).await {
            tracing::warn!(cluster = %name, error = %crate::chain::chain(&error), "status not written");
        }
    }
}

fn readiness(reason: &'static str, problem: Option<&String>) -> Readiness {
    match problem {
        Some(problem) => Readiness::not_ready(reason, problem.clone()),
        None => Readiness::ready(),
    }
}

fn pool_readiness(name: &PoolName, pool: &PoolFacts, world: &World) -> Readiness {
    let Some(class) = world.classes().get(&pool.class) else {
        return Readiness::not_ready(
            "ClassMissing",
            format!(
                "spec.nodeClass: there is no NodeClass {}; create it or correct the name in NodePool {name}",
                pool.class
            ),
        );
    };
    match (&pool.problem, &class.problem) {
        (Some(problem), _) => Readiness::not_ready("InvalidSettings", problem.clone()),
        (None, Some(problem)) => Readiness::not_ready(
            "ClassNotReady",
            format!("NodeClass {}: {problem}", pool.class),
        ),
        (None, None) => Readiness::ready(),
    }
}

fn inventory_readiness(inventory: &InventoryFacts) -> Readiness {
    if !inventory.reachable {
        return Readiness::not_ready("Unreachable", inventory.problem.clone().unwrap_or_default());
    }
    if !inventory.quorate {
        return Readiness::not_ready(
            "NoQuorum",
            "the Proxmox cluster has no quorum: nothing is launched or destroyed",
        );
    }
    let template = inventory
        .templates
        .values()
        .flatten()
        .find_map(|template| template.problem.clone());
    match template {
        Some(problem) => Readiness::not_ready("TemplateUnusable", problem),
        None => Readiness::ready(),
    }
}

fn sighting(inventory: &InventoryFacts, key_fingerprint: Option<String>) -> ClusterSighting {
    ClusterSighting {
        reachable: inventory.reachable,
        quorate: inventory.reachable.then_some(inventory.quorate),
        version: inventory.version.as_deref().map(str::to_owned),
        hypervisors: inventory
            .hypervisors
            .iter()
            .map(|(name, hypervisor)| SeenHypervisor {
                name: name.to_string(),
                online: hypervisor.online,
                maintenance: hypervisor.maintenance,
            })
            .collect(),
        key_fingerprint,
    }
}
