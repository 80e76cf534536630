//! What the tick found, in numbers.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kproxide_planner::claim::Phase;
use kproxide_planner::facts::{ClaimFacts, GuestStatus, HypervisorFacts, NodeFacts, PolicyRef};
use kproxide_planner::ids::HypervisorId;
use kproxide_planner::plan::question::Size;
use kproxide_planner::plan::report::{
    AnchorReport, AnchorTrouble, NodeOutcome, NodeReport, PendingOutcome, Report, Why,
};
use kproxide_planner::planning::free;
use kproxide_planner::reasons::kept::Kept;
use kproxide_planner::world::World;
use serde::Serialize;
use serde_json::Value;

use super::Reporter;
use super::policies::used_by;
use crate::metrics::{Found, KproximateGauges};
use kproxide_common::metrics::{Present, Rows};

const MILLI: f64 = 1000.0;
/// Series of troubles. With more the rest is left out.
const MOST_TROUBLES: usize = 1000;

impl Reporter {
    /// A removal is counted when it begins, however long it takes.
    pub(super) fn count_removals(&mut self, nodes: &[NodeReport], world: &World) {
        let mut removing = BTreeSet::new();
        for node in nodes {
            if let NodeOutcome::Removing(reason) = &node.outcome {
                removing.insert(&node.claim);
                if self.counted.insert(node.claim.clone()) {
                    self.metrics
                        .removals
                        .with_label_values(&[node.pool.as_str(), reason.as_str()])
                        .inc();
                }
            }
        }
        self.counted.retain(|name| {
            let claim = world.claims().get(name);
            claim.is_some_and(|claim| {
                removing.contains(name) || claim.status.phase > Phase::Initialized
            })
        });
    }

    pub(super) fn measure(
        &self,
        report: &Report,
        anchors: &[&AnchorReport],
        world: &World,
        now: Timestamp,
    ) {
        let found = &self.metrics.found;
        pending(found, report);
        machines(found, report, world);
        hypervisors(found, world);
        clusters(found, anchors, world);
        pools(found, world);
        let mut troubles = Rows::default();
        let said = self
            .findings
            .iter()
            .filter(|it| it.is_trouble() && it.is_ripe(now));
        for it in said.take(MOST_TROUBLES) {
            let (kind, name) = it.object.split_once('/').unwrap_or((&it.object, ""));
            // There may be many machines, and their names change all the time.
            let name = match kind {
                "NodeClaim" | "Node" => "",
                _ => name,
            };
            let level = it.level.to_string();
            troubles.add(&[kind, name, it.reason.word, it.stops.word(), &level], 1.0);
        }
        found.troubles.show(&troubles);
        let mut policies = Rows::default();
        for (PolicyRef { kind, name }, facts) in world.policies() {
            policies.add(&[kind.as_str(), name, facts.digest.as_str()], 1.0);
        }
        found.policy_info.show(&policies);
        let mut refused = Rows::default();
        for policy in self.refusals.keys() {
            refused.add(&[policy], 1.0);
        }
        found.policy_refused.show(&refused);
        // A counter that begins with its first failure shows no increase.
        for pool in world.pools().keys() {
            for phase in ["launch", "join", "initialize"] {
                let failures = &self.metrics.launch_failures;
                failures.with_label_values(&[pool.as_str(), phase]);
            }
        }
        self.metrics.show_kproximate(&kproximate_gauges(world));
        self.metrics.retain(&self.present(world));
    }

    fn present(&self, world: &World) -> Present {
        let claims = || world.claims().values();
        let pools = world.pools().keys().map(ToString::to_string);
        let pools = pools.chain(claims().map(|claim| claim.spec.pool.to_string()));
        let clusters = world.clusters().keys().map(ToString::to_string);
        let clusters = clusters.chain(claims().map(|claim| claim.spec.cluster.to_string()));
        let used = world.pools().values().flat_map(used_by);
        // Those that decide together are asked by the names of all.
        let together = world.pools().values().flat_map(|it| it.policies.by_field());
        let together = together.map(|(_, used)| used.policy.name.clone());
        let known = world.policies().keys().map(|policy| policy.name.clone());
        let refused = self.refusals.keys().cloned().chain(together);
        let policies = used.chain(known).chain(refused).map(|it| it.to_string());
        let mut present = Present::default();
        present.names.insert("pool", pools.collect());
        present.names.insert("cluster", clusters.collect());
        present.names.insert("policy", policies.collect());
        // One that does not answer has its servers nevertheless.
        if world.inventories().values().all(|it| it.reachable) {
            let servers = world.inventories().values();
            let servers = servers.flat_map(|it| it.hypervisors.keys());
            let servers = servers.chain(claims().map(ClaimFacts::hypervisor));
            let servers = servers.map(ToString::to_string).collect();
            present.names.insert("hypervisor", servers);
        }
        present
    }
}

fn pending(found: &Found, report: &Report) {
    let (mut pending, mut unhelped) = (Rows::default(), Rows::default());
    for shape in &report.pending {
        let count = f64::from(shape.count);
        let outcome = match &shape.outcome {
            PendingOutcome::FitsNode(_) => "fits-node",
            PendingOutcome::Refused(_) => "refused",
            PendingOutcome::FitsClaim(_) => "machine-coming",
            PendingOutcome::Launching(_) => "launching",
            PendingOutcome::Unhelped(_) | PendingOutcome::LaterTick | PendingOutcome::NoPool => {
                "unhelped"
            }
            PendingOutcome::NotSupported(_) | PendingOutcome::TooMany(_) => "not-supported",
            PendingOutcome::Expendable { .. } | PendingOutcome::OtherScheduler { .. } => {
                "not-served"
            }
        };
        pending.add(&[outcome], count);
        if let PendingOutcome::Unhelped(whys) = &shape.outcome {
            for (pool, why) in whys {
                unhelped.add(&[pool.as_str(), &why_word(why)], count);
            }
        }
    }
    found.pending_pods.show(&pending);
    found.unhelped_pods.show(&unhelped);
}

fn machines(found: &Found, report: &Report, world: &World) {
    let (mut claims, mut nodes, mut kept) = (Rows::default(), Rows::default(), Rows::default());
    for claim in world.claims().values() {
        let pool = claim.spec.pool.as_str();
        let phase = format!("{:?}", claim.status.phase).to_lowercase();
        claims.add(&[pool, &phase], 1.0);
        if let Some(node) = world.node_of(claim) {
            let (cluster, server) = (claim.spec.cluster.as_str(), claim.hypervisor());
            nodes.add(&[pool, cluster, server, state(claim, node.facts)], 1.0);
        }
    }
    for node in &report.nodes {
        if let NodeOutcome::Kept(why) = &node.outcome {
            kept.add(&[node.pool.as_str(), &kept_word(why)], 1.0);
        }
    }
    found.claims.show(&claims);
    found.nodes.show(&nodes);
    found.kept_nodes.show(&kept);
}

fn state(claim: &ClaimFacts, node: &NodeFacts) -> &'static str {
    if claim.status.phase > Phase::Initialized {
        "draining"
    } else if !node.ready {
        "not-ready"
    } else if node.unschedulable {
        "cordoned"
    } else {
        "ready"
    }
}

fn hypervisors(found: &Found, world: &World) {
    let mut online = Rows::default();
    let (mut cores, mut memory): ([Rows; 3], [Rows; 3]) = Default::default();
    let free = free(world);
    for (name, inventory) in world.inventories() {
        for (server, facts) in &inventory.hypervisors {
            let Some(free) = free.get(&HypervisorId::new(name.as_str(), server)) else {
                continue;
            };
            let labels = [name.as_str(), server];
            let answers = inventory.reachable && inventory.answers(server);
            online.add(&labels, f64::from(u8::from(answers)));
            let (of_cores, of_memory) = amounts(facts, *free);
            for (rows, amount) in cores.iter_mut().zip(of_cores) {
                rows.add(&labels, amount);
            }
            for (rows, amount) in memory.iter_mut().zip(of_memory) {
                rows.add(&labels, amount);
            }
        }
    }
    found.hypervisor_online.show(&online);
    for (amounts, [capacity, given, free]) in [
        (&found.hypervisor_cores, cores),
        (&found.hypervisor_memory, memory),
    ] {
        amounts.capacity.show(&capacity);
        amounts.given.show(&given);
        amounts.free.show(&free);
    }
}

/// Of cores, and of bytes of memory: what there is, what is promised, and what may still be promised.
fn amounts(facts: &HypervisorFacts, free: Size) -> ([f64; 3], [f64; 3]) {
    let cores = [
        facts.threads.into(),
        facts.committed_threads as f64,
        free.milli_cores as f64 / MILLI,
    ];
    let promised = facts.committed_memory_bytes.max(facts.memory_used_bytes);
    let memory = [facts.memory_bytes, promised, free.memory_bytes];
    (cores, memory.map(|bytes| bytes as f64))
}

fn clusters(found: &Found, anchors: &[&AnchorReport], world: &World) {
    let (mut reachable, mut problems) = (Rows::default(), Rows::default());
    for (cluster, inventory) in world.inventories() {
        let usable = inventory.reachable && inventory.quorate;
        reachable.add(&[cluster.as_str()], f64::from(u8::from(usable)));
    }
    for anchor in anchors {
        let problem = match anchor.trouble {
            AnchorTrouble::Missing => "missing",
            AnchorTrouble::Stuck => "stuck",
            AnchorTrouble::Unproven => "unproven",
            AnchorTrouble::Foreign => "foreign",
        };
        problems.add(&[anchor.cluster.as_str(), problem], 1.0);
    }
    found.cluster_reachable.show(&reachable);
    found.anchor_problem.show(&problems);
}

fn pools(found: &Found, world: &World) {
    let mut paused = Rows::default();
    let (mut least, mut most) = (Rows::default(), Rows::default());
    let (mut cores, mut memory) = (Rows::default(), Rows::default());
    for (name, pool) in world.pools() {
        let labels = [name.as_str()];
        paused.add(&labels, f64::from(u8::from(pool.paused)));
        least.add(&labels, pool.limits.min_nodes.into());
        most.add(&labels, pool.limits.max_nodes.into());
        if let Some(milli_cores) = pool.limits.milli_cores() {
            cores.add(&labels, milli_cores as f64 / MILLI);
        }
        if let Some(bytes) = pool.limits.memory_bytes() {
            memory.add(&labels, bytes as f64);
        }
    }
    found.pool_paused.show(&paused);
    found.pool_min_nodes.show(&least);
    found.pool_max_nodes.show(&most);
    found.pool_max_cores.show(&cores);
    found.pool_max_memory.show(&memory);
}

fn why_word(why: &Why) -> String {
    if let Why::Misfit(misfit) = why {
        word(misfit)
    } else if let Why::Limit(limit) = why {
        word(limit)
    } else if let Why::Unusable(unusable) = why {
        word(unusable)
    } else {
        word(why)
    }
}

fn kept_word(why: &Kept) -> String {
    if let Kept::Held(hold) = why {
        word(hold)
    } else if let Kept::GivenUp(given_up) = why {
        word(given_up)
    } else {
        word(why)
    }
}

/// The variant's name. There are as many as the enum has.
fn word(reason: &impl Serialize) -> String {
    let name = match serde_json::to_value(reason) {
        Ok(Value::String(name)) => Some(name),
        Ok(Value::Object(fields)) => fields.into_iter().next().map(|(name, _)| name),
        Ok(_) | Err(_) => None,
    };
    name.unwrap_or_else(|| "Other".to_owned())
}

/// kproximate's numbers, from claims, the inventory and their Nodes.
fn kproximate_gauges(world: &World) -> KproximateGauges {
    let mut gauges = KproximateGauges::default();
    for claim in world.claims().values() {
        let guest = world
            .inventories()
            .get(&claim.spec.cluster)
            .and_then(|cluster| cluster.guests.get(&claim.spec.vmid));
        if guest.is_some_and(|guest| guest.status != GuestStatus::Unknown || guest.name.is_some()) {
            gauges.machines += 1;
        }
        let Some(node) = world.node_of(claim).filter(|node| node.facts.ready) else {
            continue;
        };
        let (allocatable, requested) = (&node.facts.allocatable, node.requested());
        gauges.running += 1;
        gauges.cpu_provisioned_cores += claim.spec.resources.milli_cores as f64 / MILLI;
        gauges.memory_provisioned_bytes += claim.spec.resources.memory_bytes as f64;
        gauges.cpu_allocatable_cores += allocatable.milli_cores as f64 / MILLI;
        gauges.memory_allocatable_bytes += allocatable.memory_bytes as f64;
        gauges.cpu_allocated_cores += requested.milli_cores as f64 / MILLI;
        gauges.memory_allocated_bytes += requested.memory_bytes as f64;
    }
    gauges
}
