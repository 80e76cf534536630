//! What is true of our objects, as conditions: nothing here writes or remembers.

use kproxide_planner::facts::PoolFacts;
use kproxide_planner::ids::{ClassName, ClusterName};
use kproxide_planner::world::World;

use super::reasons::{self, Reason};
use crate::kube::crd::ConditionStatus;
use crate::kube::status::{Judgement, READY};

pub(super) mod class;
pub(super) mod cluster;
pub(super) mod pool;

/// The condition `Paused` of a NodePool.
pub(super) const PAUSED: &str = "Paused";
/// One more machine of the NodePool would pass a limit.
pub(super) const LIMIT_REACHED: &str = "LimitReached";
/// The NodePool can use only some of its ProxmoxClusters.
pub(super) const DEGRADED: &str = "Degraded";
/// The credentials of a Proxmox cluster may do no more than kproxide needs.
pub(super) const TOKEN_FITS: &str = "TokenFits";

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
pub(super) fn listed(names: &[&str]) -> String {
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
