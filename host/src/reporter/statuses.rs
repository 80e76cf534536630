//! What the tick found, in the conditions and counts of our own objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::facts::{
    Backoff, ClassFacts, ClusterFacts, InventoryFacts, PoolFacts, PoolPolicies,
};
use kproxide_planner::ids::{ClassName, ClusterName, PoolName};
use kproxide_planner::learned;
use kproxide_planner::report::{AnchorReport, AnchorTrouble};
use kproxide_planner::world::World;

use super::policies::{Failures, POLICY_FAILED, POLICY_REFUSED};
use super::{FROZEN, KEY_PROBLEM, Reporter, anchor_reason, uses};
use crate::kube::client::Client;
use crate::kube::crd::{HypervisorStatus, ProxmoxClusterStatus};
use crate::kube::status::Readiness;
use crate::policy::{Instead, Refusal};

impl Reporter {
    pub(super) async fn write_statuses(
        &mut self,
        kube: &Client,
        failures: &Failures,
        frozen: Option<&str>,
        anchors: &[&AnchorReport],
        world: &World,
        now: Timestamp,
    ) {
        for (name, pool) in world.pools() {
            let nodes = world
                .claims()
                .values()
                .filter(|claim| claim.spec.pool == *name)
                .count();
            let ready = pool_readiness(name, pool, world, &self.refusals);
            let ready = match failing(pool, world) {
                Some(message) if ready.ready => Readiness::not_ready("LaunchesFail", message),
                Some(_) | None => ready,
            };
            let ready = match failures.get(name) {
                Some(failure) if ready.ready => Readiness::not_ready(POLICY_FAILED, failure),
                Some(_) | None => ready,
            };
            // While an anchor is only watched, the pool still makes machines. So this comes after the pool's own
            // problems.
            let holds_up = |anchor: &&&AnchorReport| {
                uses(pool, &anchor.cluster) && anchor.trouble >= AnchorTrouble::Unproven
            };
            let worst = anchors
                .iter()
                .filter(holds_up)
                .max_by_key(|anchor| anchor.trouble);
            let ready = match worst {
                Some(anchor) if ready.ready || anchor.trouble == AnchorTrouble::Foreign => {
                    Readiness::not_ready(anchor_reason(anchor), anchor.message.clone())
                }
                Some(_) | None => ready,
            };
            // Above all else: it wants a person.
            let ready = match frozen {
                Some(message) => Readiness::not_ready(FROZEN, message),
                None => ready,
            };
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            if let Err(error) = self.statuses.pool(kube, name, nodes, &ready, now).await {
                tracing::warn!(pool = %name, error = %crate::chain::chain(&error), "status not written");
            }
        }
        for (name, class) in world.classes() {
            self.class(kube, world, name, class, now).await;
        }
        for (name, cluster) in world.clusters() {
            let Some(inventory) = world.inventories().get(name) else {
                let ready = readiness("InvalidSettings", cluster.problem.as_ref());
                self.cluster(kube, name, ProxmoxClusterStatus::default(), &ready, now)
                    .await;
                continue;
            };
            let ready = match (&cluster.problem, &self.key_problem) {
                (Some(problem), _) => Readiness::not_ready("InvalidSettings", problem.clone()),
                (None, Some(problem)) => Readiness::not_ready(KEY_PROBLEM, problem.clone()),
                (None, None) => inventory_readiness(cluster, inventory),
            };
            let seen = sighting(inventory, self.key_fingerprint.clone());
            self.cluster(kube, name, seen, &ready, now).await;
        }
    }

    async fn class(
        &mut self,
        kube: &Client,
        world: &World,
        name: &ClassName,
        class: &ClassFacts,
        now: Timestamp,
    ) {
        let ready = readiness("InvalidSettings", class.problem.as_ref());
        let shown = learned::shown(world, name, class);
        let written = self
            .statuses
            .class(kube, name, class, shown, &ready, now)
            .await;
        if let Err(error) = written {
            tracing::warn!(class = %name, error = %crate::chain::chain(&error), "status not written");
        }
    }

    async fn cluster(
        &mut self,
        kube: &Client,
        name: &ClusterName,
        seen: ProxmoxClusterStatus,
        ready: &Readiness,
        now: Timestamp,
    ) {
        let fits = self.token_fits(name);
        let written = self
            .statuses
            .cluster(kube, name, seen, ready, fits.as_ref(), now)
            .await;
        if let Err(error) = written {
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

fn pool_readiness(
    name: &PoolName,
    pool: &PoolFacts,
    world: &World,
    refusals: &BTreeMap<Arc<str>, Refusal>,
) -> Readiness {
    if let Some(problem) = &world.host().definition_problem {
        return Readiness::not_ready("ClaimsUndefined", problem.clone());
    }
    if pool.existence.deleting_since.is_some() {
        return Readiness::not_ready("BeingDeleted", going(name, pool, world));
    }
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
        (None, None) => match missing(name, pool, world, refusals) {
            Some((reason, text)) => Readiness::not_ready(reason, text),
            None => Readiness::ready(),
        },
    }
}

/// How far the deletion of a pool is, and what it waits for.
fn going(name: &PoolName, pool: &PoolFacts, world: &World) -> String {
    let of_pool = world.claims().iter();
    let of_pool = of_pool.filter(|(_, claim)| claim.spec.pool == *name);
    let left: Vec<&str> = of_pool.map(|(name, _)| name.as_str()).collect();
    if pool.keep_machines {
        return "somebody deletes this NodePool, and its machines stay (kproxide.dev/keep-machines)".to_owned();
    }
    if pool.paused {
        return format!(
            "somebody deletes this NodePool, but it is paused, so its {} machines stay. Set spec.paused to false, or take the annotation kproxide.dev/pause off",
            left.len()
        );
    }
    format!(
        "somebody deletes this NodePool. kproxide removes its machines one after the other, as scaleDown.budget allows, and forces nothing: what keeps a Node stands in its NodeClaim. Left: {}. To remove one at once: kubectl delete nodeclaim NAME",
        listed(&left)
    )
}

/// The first few names.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    match names.len() {
        0 => "none".to_owned(),
        1..=SHOWN => names.join(", "),
        more => format!("{} and {} more", names[..SHOWN].join(", "), more - SHOWN),
    }
}

/// What the pool names but does not exist. A missing policy may not stop the pool, but its owner wanted that policy.
fn missing(
    name: &PoolName,
    pool: &PoolFacts,
    world: &World,
    refusals: &BTreeMap<Arc<str>, Refusal>,
) -> Option<(&'static str, String)> {
    let clusters = &mut pool.clusters.iter();
    if let Some(gone) = clusters.find(|cluster| !world.clusters().contains_key(*cluster)) {
        return Some((
            "ClusterMissing",
            format!(
                "spec.clusters: there is no ProxmoxCluster {gone}; create it or correct the name in NodePool {name}"
            ),
        ));
    }
    let PoolPolicies {
        host_selection,
        scale_down,
        labels,
    } = &pool.policies;
    [
        ("hostSelection", host_selection),
        ("scaleDown", scale_down),
        ("labels", labels),
    ]
    .into_iter()
    .find(|(_, used)| !world.policies().contains_key(&used.policy))
    .map(|(field, used)| {
        let refusal = refusals.get(&used.policy.name);
        if let Some(refusal) = refusal.filter(|refusal| refusal.instead == Instead::Nothing) {
            return (POLICY_REFUSED, format!("spec.policies.{field}: {refusal}"));
        }
        let text = format!(
            "spec.policies.{field}: there is no {} policy {}; mount {}.wasm or correct the name in NodePool {name}",
            used.policy.kind.as_str(),
            used.policy.name,
            used.policy.name
        );
        ("PolicyMissing", text)
    })
}

/// This many failed launches in a row on a hypervisor are no accident.
const NO_ACCIDENT: u32 = 3;

/// Wherever the pool's machines could be made, the last launches failed one after the other.
fn failing(pool: &PoolFacts, world: &World) -> Option<String> {
    let rows = world.ledger().map_or(&[][..], |ledger| &ledger.backoff);
    let is_of_pool =
        |cluster: &ClusterName| pool.clusters.is_empty() || pool.clusters.contains(cluster);
    let mut worst: Option<&Backoff> = None;
    for (cluster, inventory) in world.inventories() {
        let online = inventory.hypervisors.iter().filter(|(_, it)| it.online);
        for (hypervisor, _) in online.filter(|_| is_of_pool(cluster)) {
            let mut of_it = rows.iter().filter(|row| {
                row.hypervisor.cluster == *cluster
                    && match &row.node_class {
                        Some(class) => *class == pool.class,
                        None => row.hypervisor.name == *hypervisor,
                    }
                    && row.failures >= NO_ACCIDENT
            });
            let row = of_it.next()?;
            worst = worst
                .filter(|worst| worst.failures >= row.failures)
                .or(Some(row));
        }
    }
    let Backoff {
        hypervisor,
        failures,
        message,
        until,
        ..
    } = worst?;
    Some(format!(
        "the last launches failed on each hypervisor, on {} {failures} in a row. kproxide tries again there after {until:.0}. The last failure: {message}",
        hypervisor.name
    ))
}

fn inventory_readiness(cluster: &ClusterFacts, inventory: &InventoryFacts) -> Readiness {
    if !inventory.reachable {
        return Readiness::not_ready("Unreachable", inventory.problem.clone().unwrap_or_default());
    }
    if !inventory.quorate {
        return Readiness::not_ready(
            "NoQuorum",
            "the Proxmox cluster has no quorum, so kproxide launches and destroys nothing there. If you took this server out of its cluster on purpose, restart kproxide",
        );
    }
    if let Some(problem) = unknown_hypervisor(cluster, inventory) {
        return Readiness::not_ready("UnknownHypervisor", problem);
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

/// Proxmox also lists servers that are off. So a name that is not listed is a mistake, and a machine may be made where
/// the user did not want it.
fn unknown_hypervisor(cluster: &ClusterFacts, inventory: &InventoryFacts) -> Option<String> {
    let fields = [("include", &cluster.include), ("exclude", &cluster.exclude)];
    let mut named = fields
        .into_iter()
        .flat_map(|(field, names)| names.iter().map(move |name| (field, name)));
    let (field, name) = named.find(|(_, name)| !inventory.hypervisors.contains_key(*name))?;
    let there: Vec<&str> = inventory.hypervisors.keys().map(|name| &**name).collect();
    (inventory.complete && !there.is_empty()).then(|| {
        format!(
            "spec.hypervisors.{field}: the Proxmox cluster has no server {name}; it has {}: correct the name",
            there.join(", ")
        )
    })
}

fn sighting(inventory: &InventoryFacts, key_fingerprint: Option<String>) -> ProxmoxClusterStatus {
    ProxmoxClusterStatus {
        reachable: Some(inventory.reachable),
        quorate: inventory.reachable.then_some(inventory.quorate),
        version: inventory.version.as_deref().map(str::to_owned),
        hypervisors: inventory
            .hypervisors
            .iter()
            .map(|(name, hypervisor)| HypervisorStatus {
                name: name.to_string(),
                online: hypervisor.online,
                maintenance: hypervisor.maintenance,
            })
            .collect(),
        // That of the key that new machines are marked with. Not given: what stands there is a person's to change.
        key_fingerprint,
        conditions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use kproxide_planner::facts::{Delta, HypervisorFacts};
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::convert::{class_facts, cluster_facts, pool_facts};

    /// Of a policy that nothing stands in for, and of one that the built-in stands in for.
    fn refusals() -> BTreeMap<Arc<str>, Refusal> {
        let refusal = |policy: &str, instead| Refusal {
            policy: policy.into(),
            reason: "it is not WebAssembly".to_owned(),
            instead,
        };
        [
            refusal("broken", Instead::Nothing),
            refusal("spread", Instead::Builtin),
        ]
        .map(|refusal| (refusal.policy.clone(), refusal))
        .into()
    }

    /// The reason and the text of a pool that names these things; empty if it is ready.
    fn said(change: impl FnOnce(&mut Value)) -> String {
        let mut world = World::default();
        let class = json!({"template": {"name": "t"}, "instanceTypes": [{"name": "m", "cores": 1, "memoryMiB": 1024}]});
        let class = class_facts(&serde_json::from_value(class).unwrap());
        world.apply(Delta::Class("standard".into(), Some(Box::new(class))));
        let cluster = json!({"endpoints": ["https://pve1"], "credentials": "c", "pool": "p", "vmidRange": {"first": 200, "last": 299}});
        let (cluster, _) = cluster_facts(&serde_json::from_value(cluster).unwrap());
        world.apply(Delta::Cluster("home".into(), Some(Box::new(cluster))));
        let engine = crate::policy::Engine::new(crate::policy::Execution::Inline).unwrap();
        let policies: BTreeMap<_, _> = crate::policy::Library::new(engine).facts();
        for (policy, facts) in policies {
            world.apply(Delta::Policy(policy, Some(facts)));
        }
        let mut spec = json!({"nodeClass": "standard", "clusters": ["home"]});
        change(&mut spec);
        let pool = pool_facts(
            &kube::api::ObjectMeta::default(),
            &serde_json::from_value(spec).unwrap(),
        );
        let name = "workers".into();
        format!("{:?}", pool_readiness(&name, &pool, &world, &refusals()))
    }

    #[test]
    fn f97_a_cluster_that_names_a_server_that_it_does_not_have_is_not_ready() {
        let said = |hypervisors: Value| {
            let spec = json!({
                "endpoints": ["https://pve1"], "credentials": "c", "pool": "p",
                "vmidRange": {"first": 200, "last": 299}, "hypervisors": hypervisors,
            });
            let (cluster, _) = cluster_facts(&serde_json::from_value(spec).unwrap());
            // One of them is off, and there all the same.
            let servers = [("alpha", false), ("beta", true), ("gamma", true)];
            let hypervisors = servers.map(|(name, online)| {
                let facts = HypervisorFacts {
                    online,
                    ..HypervisorFacts::default()
                };
                (name.into(), facts)
            });
            let inventory = InventoryFacts {
                reachable: true,
                quorate: true,
                complete: true,
                hypervisors: hypervisors.into(),
                ..InventoryFacts::default()
            };
            format!("{:?}", inventory_readiness(&cluster, &inventory))
        };
        let ready = format!("{:?}", Readiness::ready());
        assert_eq!(
            said(json!({"include": ["alpha"], "exclude": ["beta"]})),
            ready
        );
        for field in ["include", "exclude"] {
            let readiness = said(json!({field: ["alpha", "gama"]}));
            let expected = format!(
                "spec.hypervisors.{field}: the Proxmox cluster has no server gama; it has alpha, beta, gamma"
            );
            assert!(readiness.contains(&expected), "{readiness}");
        }
    }

    #[test]
    fn f97_a_pool_that_names_what_nobody_has_is_not_ready() {
        let ready = format!("{:?}", Readiness::ready());
        assert_eq!(said(|_| {}), ready);
        for (change, expected) in [
            (json!({"nodeClass": "other"}), "there is no NodeClass other"),
            (
                json!({"clusters": ["typo"]}),
                "there is no ProxmoxCluster typo",
            ),
            (
                json!({"policies": {"hostSelection": {"use": "mine"}}}),
                "there is no host-selection policy mine; mount mine.wasm",
            ),
            (
                json!({"policies": {"scaleDown": {"use": "broken"}}}),
                "PolicyRefused\", message: \"spec.policies.scaleDown: the file of policy broken is refused",
            ),
        ] {
            let text = said(|spec| {
                for (field, value) in change.as_object().unwrap() {
                    spec[field] = value.clone();
                }
            });
            assert!(text.contains(expected), "{text}");
        }
    }
}
