//! What is true of our objects, as conditions: nothing here writes or remembers.

use std::collections::BTreeMap;
use std::sync::Arc;

use kproxide_planner::claim::failing_pools;
use kproxide_planner::facts::PoolFacts;
use kproxide_planner::ids::{ClassName, ClusterName, PoolName};
use kproxide_planner::planning::clones;
use kproxide_planner::report::AnchorReport;
use kproxide_planner::world::World;

use super::policies::Failures;

use super::reasons::{self, Reason};
use crate::kube::crd::ConditionStatus;
use crate::kube::status::{Judgement, READY};
use crate::policy::{Refusal, Unfit};

pub(super) mod class;
pub(super) mod cluster;
pub(super) mod pool;

/// The condition `Paused` of a NodePool.
pub(super) const PAUSED: &str = "Paused";
/// One more machine of the NodePool would pass a limit.
pub(super) const LIMIT_REACHED: &str = "LimitReached";
/// The NodePool can use only some of its ProxmoxClusters.
pub(super) const DEGRADED: &str = "Degraded";
/// The credentials of a Proxmox cluster may do no more than kproxide needs, and are those in its Secret.
pub(crate) const TOKEN_FITS: &str = "TokenFits";

/// What is known beside the world.
pub(crate) struct Known<'a> {
    /// Why kproxide can sign no marker.
    pub(crate) key_problem: Option<&'a String>,
    /// Privileges that the credentials of a Proxmox cluster do not have.
    pub(crate) lacking: &'a BTreeMap<ClusterName, String>,
    /// Why files of join scripts cannot be read, by their paths.
    pub(crate) join_problems: &'a BTreeMap<Arc<str>, String>,
    pub(crate) refusals: &'a BTreeMap<Arc<str>, Refusal>,
    pub(crate) unfit: &'a Unfit,
    pub(crate) failures: &'a Failures,
    pub(crate) frozen: Option<&'a str>,
    pub(crate) anchors: &'a [&'a AnchorReport],
}

/// The conditions of all our objects.
pub(crate) struct Judged {
    pub(crate) clusters: BTreeMap<ClusterName, Judgement>,
    pub(crate) classes: BTreeMap<ClassName, Judgement>,
    pub(crate) pools: BTreeMap<PoolName, Vec<Judgement>>,
}

/// What is true of each ProxmoxCluster, NodeClass and NodePool.
pub(crate) fn judged(world: &World, known: &Known<'_>) -> Judged {
    let clusters = world.clusters().iter().map(|(name, facts)| {
        let lacking = known.lacking.get(name);
        let ready = cluster::ready_of(name, facts, world, known.key_problem, lacking);
        (name.clone(), ready)
    });
    let clusters = clusters.collect();
    let clones = clones(world);
    let classes = world.classes().iter().map(|(name, facts)| {
        let ready = class::ready_of(name, facts, world, &clones, known.join_problems);
        (name.clone(), ready)
    });
    let classes = classes.collect();
    let around = pool::Around {
        world,
        classes: &classes,
        clusters: &clusters,
        refusals: known.refusals,
        unfit: known.unfit,
        failures: known.failures,
        failing: &failing_pools(world),
        frozen: known.frozen,
        anchors: known.anchors,
    };
    let pools = world.pools().iter();
    let pools =
        pools.map(|(name, facts)| (name.clone(), pool::conditions_of(name, facts, &around)));
    let pools = pools.collect();
    Judged {
        clusters,
        classes,
        pools,
    }
}

/// The condition says so.
pub(super) fn holds(
    kind: &'static str,
    holds: bool,
    reason: &Reason,
    message: impl Into<String>,
) -> Judgement {
    let status = match holds {
        true => ConditionStatus::True,
        false => ConditionStatus::False,
    };
    Judgement {
        kind,
        status,
        reason: reason.word,
        message: message.into(),
        passes: reason.passes,
    }
}

pub(super) fn ready(message: impl Into<String>) -> Judgement {
    holds(READY, true, &reasons::READY, message)
}

pub(super) fn not_ready(reason: &Reason, message: impl Into<String>) -> Judgement {
    holds(READY, false, reason, message)
}

pub(super) fn unknown(message: impl Into<String>) -> Judgement {
    Judgement {
        status: ConditionStatus::Unknown,
        ..not_ready(&reasons::UNKNOWN, message)
    }
}

pub(super) fn is_ready(judgement: &Judgement) -> bool {
    judgement.status == ConditionStatus::True
}

/// Whether kproxide is known to be unable to use it.
pub(super) fn is_down(judgement: &Judgement) -> bool {
    judgement.status == ConditionStatus::False
}

/// Machines of the pool may be in that Proxmox cluster.
pub(super) fn uses(pool: &PoolFacts, cluster: &ClusterName) -> bool {
    pool.clusters.is_empty() || pool.clusters.contains(cluster)
}

/// Texts as one, each once.
pub(super) fn together(texts: impl IntoIterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join("; ")
}

/// The first few names.
pub(crate) fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    match names.len() {
        0 => "none".to_owned(),
        1..=SHOWN => names.join(", "),
        more => format!("{} and {} more", names[..SHOWN].join(", "), more - SHOWN),
    }
}

/// The Proxmox clusters in which a class is used: those of its pools, or all if it has none.
pub(super) fn clusters_of<'w>(world: &'w World, class: &ClassName) -> Vec<&'w ClusterName> {
    let mut pools = world.pools().values().filter(|it| it.class == *class);
    let is_free = pools.clone().next().is_none() || pools.any(|pool| pool.clusters.is_empty());
    let named = |cluster: &ClusterName| {
        let mut pools = world.pools().values();
        pools.any(|pool| pool.class == *class && pool.clusters.contains(cluster))
    };
    let all = world.clusters().keys();
    all.filter(|cluster| is_free || named(cluster)).collect()
}
