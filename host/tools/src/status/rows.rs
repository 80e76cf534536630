//! The rows of the screen, taken out of the planner's world.

use jiff::Timestamp;
use kproxide_planner::claim::{Condition, Phase};
use kproxide_planner::facts::ClaimFacts;
use kproxide_planner::planning::{Offer, free, offers};
use kproxide_planner::reasons::no_hypervisor::Refusal;
use kproxide_planner::world::World;

use super::order::Said;
use super::{Decided, Hypervisor, HypervisorSize, Machine, Policy, Pool};
use crate::manifest::Object;
use kproxide_common::decisions::Decision;
use kproxide_controller::judge::{Finding, Level, emptying, named, reasons};

/// Decisions that are shown.
const MOST_DECISIONS: usize = 5;

pub(super) fn pools(world: &World, findings: &[Finding], said: &Said) -> Vec<Pool> {
    let pools = world.pools().iter().map(|(name, facts)| {
        let of_pool = || world.claims().values().filter(|it| it.spec.pool == *name);
        let object = named("NodePool", name);
        let about = || findings.iter().filter(|it| it.object == object);
        let bad = about().filter(|it| said.is_said(it));
        let bad = bad.filter(|it| it.level != Level::Ok || *it.reason == reasons::PAUSED);
        let mut state: Vec<String> = bad.map(|it| it.reason.word.to_owned()).collect();
        state.dedup();
        if state.is_empty() {
            let is_ready = |it: &Finding| *it.reason == reasons::READY;
            let word = match about().any(is_ready) || said.is_ready(&object) {
                true => reasons::READY.word,
                false => reasons::UNKNOWN.word,
            };
            state.push(word.to_owned());
        }
        Pool {
            name: name.to_string(),
            machines: of_pool().count(),
            ready: of_pool().filter(|claim| is_ready(world, claim)).count(),
            min_nodes: facts.limits.min_nodes,
            max_nodes: facts.limits.max_nodes,
            cpu_cores: of_pool()
                .map(|it| it.spec.resources.milli_cores)
                .sum::<u64>()
                / 1000,
            max_cpu_cores: facts.limits.cpu_cores.map(u64::from),
            memory_mib: of_pool()
                .map(|it| it.spec.resources.memory_bytes)
                .sum::<u64>()
                >> 20,
            max_memory_mib: facts.limits.memory_mib,
            state,
        }
    });
    pools.collect()
}

/// As the status of each NodePool names them.
pub(super) fn policies(objects: &[Object]) -> Vec<Policy> {
    let pools = objects.iter().filter(|it| it.kind() == "NodePool");
    let rows = pools.flat_map(|pool| {
        let listed = pool.value["status"]["policies"].as_array();
        listed.into_iter().flatten().map(|policy| {
            let text = |field: &str| policy[field].as_str().map(str::to_owned);
            Policy {
                pool: pool.name().to_owned(),
                kind: text("kind").unwrap_or_default(),
                name: text("name").unwrap_or_default(),
                version: text("version"),
                file: text("file"),
                last_error: text("lastError"),
                last_error_time: text("lastErrorTime").and_then(|it| it.parse().ok()),
            }
        })
    });
    rows.collect()
}

fn is_ready(world: &World, claim: &ClaimFacts) -> bool {
    let node = world.node_of(claim);
    claim.status.since(Condition::Initialized).is_some() && node.is_some_and(|it| it.facts.ready)
}

fn machines_on(world: &World, cluster: &str, name: &str) -> usize {
    let claims = world.claims().values();
    let here =
        claims.filter(|it| it.spec.cluster.as_str() == cluster && **it.hypervisor() == *name);
    here.count()
}

/// As Proxmox shows them.
pub(super) fn hypervisors(world: &World, findings: &[Finding], now: Timestamp) -> Vec<Hypervisor> {
    let free = free(world);
    let offers = offers(world, now);
    let mut rows = Vec::new();
    for (cluster, inventory) in world.inventories() {
        let object = named("ProxmoxCluster", cluster);
        let mut about = findings.iter().filter(|it| it.object == object);
        let silent = about.find(|it| *it.reason == reasons::UNREACHABLE);
        let silent = silent.and_then(|it| Some(now.duration_since(it.since?).as_secs()));
        for (name, facts) in &inventory.hypervisors {
            let here = || {
                let here = |it: &&Offer<'_>| {
                    it.hypervisor.cluster == *cluster && it.hypervisor.name == *name
                };
                offers.iter().filter(here)
            };
            let is_full = |it: &Offer<'_>| {
                matches!(
                    it.refusal,
                    Some(Refusal::StorageFull { .. } | Refusal::StorageNearlyFull { .. })
                )
            };
            let no_storage = here().next().is_some() && here().all(is_full);
            let left = free
                .iter()
                .find(|(id, _)| id.cluster == *cluster && id.name == *name);
            let left = left.map(|(_, size)| *size).unwrap_or_default();
            rows.push(Hypervisor {
                cluster: cluster.to_string(),
                name: name.to_string(),
                state: match (inventory.reachable, facts.online) {
                    (false, _) => "unknown",
                    (true, false) => "offline",
                    (true, true) => {
                        let machines = emptying(world, cluster, name, now);
                        at_work(machines.map(|it| it.is_empty()), facts.maintenance)
                    }
                },
                machines: machines_on(world, cluster.as_str(), name),
                silent_seconds: silent,
                full: no_storage.then_some("storage full"),
                size: Some(HypervisorSize {
                    cpu_cores: facts.threads.into(),
                    cpu_cores_given: facts.committed_threads,
                    cpu_cores_free: left.milli_cores / 1000,
                    memory_mib: facts.memory_bytes >> 20,
                    memory_given_mib: facts.committed_memory_bytes >> 20,
                    memory_free_mib: left.memory_bytes >> 20,
                }),
            });
        }
    }
    rows
}

/// The state of a hypervisor that is online. `drained`: whether it is empty, if it is to be.
fn at_work(drained: Option<bool>, maintenance: bool) -> &'static str {
    match (drained, maintenance) {
        (Some(true), _) => "drained",
        (Some(false), _) => "draining",
        (None, true) => "maintenance",
        (None, false) => "online",
    }
}

/// As the status of each ProxmoxCluster names them.
pub(super) fn hypervisors_named(world: &World, objects: &[Object]) -> Vec<Hypervisor> {
    let clusters = objects.iter().filter(|it| it.kind() == "ProxmoxCluster");
    let mut rows = Vec::new();
    for object in clusters {
        let cluster = object.name();
        let listed = object.value["status"]["hypervisors"].as_array();
        for hypervisor in listed.into_iter().flatten() {
            let name = hypervisor["name"].as_str().unwrap_or_default();
            let is = |field: &str| hypervisor[field] == true;
            rows.push(Hypervisor {
                cluster: cluster.to_owned(),
                name: name.to_owned(),
                state: match is("online") {
                    false => "offline",
                    true => at_work(hypervisor["drained"].as_bool(), is("maintenance")),
                },
                machines: machines_on(world, cluster, name),
                silent_seconds: None,
                full: None,
                size: None,
            });
        }
    }
    rows
}

/// Those that are not simply in service, the oldest first.
pub(super) fn machines(world: &World) -> Vec<Machine> {
    let claims = world.claims().iter();
    let moving = claims.filter(|(_, claim)| claim.status.phase != Phase::Initialized);
    let mut machines: Vec<Machine> = moving
        .map(|(name, claim)| Machine {
            claim: name.to_string(),
            pool: claim.spec.pool.to_string(),
            cluster: claim.spec.cluster.to_string(),
            hypervisor: claim.hypervisor().to_string(),
            phase: format!("{:?}", claim.status.phase),
            since: match claim.status.phase {
                Phase::Draining => claim.status.draining_since,
                Phase::Terminating => claim.deleting_since,
                Phase::Pending
                | Phase::Launching
                | Phase::Launched
                | Phase::Registered
                | Phase::Initialized => None,
            }
            .unwrap_or(claim.created),
        })
        .collect();
    machines.sort_by(|a, b| a.since.cmp(&b.since).then_with(|| a.claim.cmp(&b.claim)));
    machines
}

/// Where machines were placed and which Nodes go, the last first.
pub(super) fn decided(decisions: &[Decision]) -> Vec<Decided> {
    let told = decisions.iter().rev().filter_map(|decision| {
        let chosen = decision.chosen.first()?;
        let candidate = decision.candidates.iter().find(|it| it.name == *chosen);
        let score = candidate.and_then(|it| it.score);
        let reason = candidate.map_or("", |it| &it.reason);
        let what = match decision.kind.as_str() {
            "host-selection" => {
                let claim = decision.claim.as_deref().unwrap_or("a machine");
                format!("{claim} on {chosen}")
            }
            "scale-down" => format!("{} goes", decision.chosen.join(", ")),
            _ => return None,
        };
        let score = score.map_or(String::new(), |score| format!(" {score:.2}"));
        let policy = match decision.fallback {
            Some(_) => "spread",
            None => &decision.policy,
        };
        Some(Decided {
            at: decision.at,
            pool: decision.pool.clone(),
            what: format!("{what}: {policy}{score}, {reason}")
                .trim_end_matches(", ")
                .to_owned(),
        })
    });
    told.take(MOST_DECISIONS).collect()
}
