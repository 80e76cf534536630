//! The one judge: what is so with everything that kproxide knows of, as findings. Conditions, Events, metrics, `status`, `explain` and
//! `doctor` show them, and none of these judges by itself. Nothing here writes, remembers, or reads a text.

pub mod finding;
pub mod reasons;

mod claims;
mod class;
mod cluster;
mod controller;
mod machines;
mod nodes;
mod pool;
mod room;
mod servers;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::claim::{Waits, failing_pools};
use kproxide_planner::facts::PoolFacts;
use kproxide_planner::ids::{ClaimName, ClassName, ClusterName, PoolName};
use kproxide_planner::plan::report::Report;
use kproxide_planner::planning::{clones, offers};
use kproxide_planner::world::World;

use crate::observe::Lacking;
use kproxide_kube::crd::ConditionStatus;
use kproxide_policy::{Refusal, Unfit};

pub use finding::{Finding, Group, Level};
pub use pool::{is_known, unpause};
pub use reasons::{Reason, Stops};
pub use servers::{Holding, Server, emptying, server};

/// What failed a pool's policies in a tick, in one text for each pool.
pub type Failures = BTreeMap<PoolName, String>;

pub(crate) fn failures(report: &Report) -> Failures {
    let mut by_pool = Failures::new();
    for failure in &report.policy_failures {
        let text = by_pool.entry(failure.pool.clone()).or_default();
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&failure.to_string());
    }
    by_pool
}

/// What is known beside the world.
pub struct Known<'a> {
    /// The plan's own words: what is frozen, which anchors are not in order, which pools make nothing, which pods wait.
    pub report: &'a Report,
    /// Why kproxide can sign no marker.
    pub key_problem: Option<&'a String>,
    /// Privileges that the credentials of a Proxmox cluster do not have.
    pub lacking: &'a BTreeMap<ClusterName, Lacking>,
    /// What they may do without need. Empty: they fit. No entry: it is not known.
    pub excess: &'a BTreeMap<ClusterName, String>,
    /// Why those in use are not the ones in the Secret.
    pub unused: &'a BTreeMap<ClusterName, String>,
    /// Why files of join scripts cannot be read, by their paths.
    pub join_problems: &'a BTreeMap<Arc<str>, String>,
    pub refusals: &'a BTreeMap<Arc<str>, Refusal>,
    pub unfit: &'a Unfit,
    /// What keeps NodeClaims from going on, and since when.
    pub held_up: &'a BTreeMap<ClaimName, Waits>,
    /// NodeClaims and the Ledger were listed. Otherwise nobody knows which VMs and Nodes are of machines.
    pub sees_books: bool,
    pub now: Timestamp,
}

/// What is so with each ProxmoxCluster, NodeClass, NodePool, NodeClaim, Node and server. An object has at most one finding for each of
/// its conditions.
pub fn judge(world: &World, known: &Known<'_>) -> Vec<Finding> {
    let clusters = world.clusters().iter().map(|(name, facts)| {
        let ready = cluster::ready_of(name, facts, world, known);
        (name.clone(), ready)
    });
    let clusters: BTreeMap<_, _> = clusters.collect();
    let clones = clones(world);
    let offers = offers(world, known.now);
    let classes = world.classes().iter().map(|(name, facts)| {
        let sight = class::Sight {
            world,
            clones: &clones,
            offers: &offers,
            clusters: &clusters,
            join_problems: known.join_problems,
        };
        let ready = class::ready_of(name, facts, &sight);
        (name.clone(), ready)
    });
    let classes: BTreeMap<_, _> = classes.collect();
    let around = pool::Around {
        world,
        known,
        classes: &classes,
        clusters: &clusters,
        offers: &offers,
        failing: &failing_pools(world),
        failures: &failures(known.report),
        kept_waiting: &kept_waiting(known.report),
    };
    let pools = world.pools().iter();
    let pools: Vec<_> = pools
        .flat_map(|(name, facts)| pool::conditions_of(name, facts, &around))
        .collect();
    let mut all: Vec<Finding> = clusters
        .into_values()
        .chain(classes.into_values())
        .collect();
    all.extend(pools);
    all.extend(controller::check(world));
    all.extend(token::check(world, known));
    all.extend(machines::check(world, known.report));
    all.extend(room::check(world, &offers, known.sees_books));
    all.extend(servers::check(world, known.now));
    all.extend(claims::check(world, known.held_up, known.now));
    all.extend(nodes::check(world, known.sees_books));
    all
}

/// What is so, as far as a world says it where nobody has asked the controller: Nodes and NodeClaims.
/// And servers, unless they are `assumed`.
pub fn of_machines(world: &World, assumed: bool, now: Timestamp) -> Vec<Finding> {
    let mut all = claims::check(world, &BTreeMap::new(), now);
    // kproxide makes the Ledger as soon as it runs: without one the lists are not whole.
    all.extend(nodes::check(world, world.ledger().is_some()));
    if !assumed {
        all.extend(servers::check(world, now));
    }
    all
}

/// Pools by which pods would be helped, if something did not keep them from it.
pub fn kept_waiting(report: &Report) -> BTreeSet<PoolName> {
    use kproxide_planner::plan::report::{PendingOutcome, Why};
    let whys = report.pending.iter().filter_map(|shape| {
        if let PendingOutcome::Unhelped(whys) = &shape.outcome {
            Some(whys)
        } else {
            None
        }
    });
    let stopped = whys.flatten().filter(|(_, why)| {
        matches!(
            why,
            Why::Unusable(_) | Why::Limit(_) | Why::NoHypervisor(_) | Why::Policy { .. }
        )
    });
    stopped.map(|(pool, _)| pool.clone()).collect()
}

/// An object, as kubectl takes it.
pub fn named(kind: &str, name: impl Display) -> String {
    format!("{kind}/{name}")
}

pub(crate) fn is_ready(finding: &Finding) -> bool {
    finding.reason.status == ConditionStatus::True
}

/// Whether kproxide is known to be unable to use it.
fn is_down(finding: &Finding) -> bool {
    finding.reason.status == ConditionStatus::False
}

/// Machines of the pool may be in that Proxmox cluster.
pub fn uses(pool: &PoolFacts, cluster: &ClusterName) -> bool {
    pool.clusters.is_empty() || pool.clusters.contains(cluster)
}

/// What keeps these Proxmox clusters from being used.
fn in_words(down: &[(&ClusterName, &Finding)]) -> String {
    let texts = down.iter();
    together(texts.map(|(name, judged)| {
        let (reason, message) = (judged.reason.word, &judged.message);
        format!("ProxmoxCluster {name} ({reason}): {message}")
    }))
}

/// Texts as one, each once.
fn together(texts: impl IntoIterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join("; ")
}

/// The first few names.
pub fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    match names.len() {
        0 => "none".to_owned(),
        1..=SHOWN => names.join(", "),
        more => format!("{} and {} more", names[..SHOWN].join(", "), more - SHOWN),
    }
}

/// The Proxmox clusters in which a class is used: those of its pools, or all if it has none.
fn clusters_of<'w>(world: &'w World, class: &ClassName) -> Vec<&'w ClusterName> {
    let mut pools = world.pools().values().filter(|it| it.node_class == *class);
    let is_free = pools.clone().next().is_none() || pools.any(|pool| pool.clusters.is_empty());
    let named = |cluster: &ClusterName| {
        let mut pools = world.pools().values();
        pools.any(|pool| pool.node_class == *class && pool.clusters.contains(cluster))
    };
    let all = world.clusters().keys();
    all.filter(|cluster| is_free || named(cluster)).collect()
}

#[cfg(test)]
pub(crate) mod tests;
