//! Pods that come back to a Node that is being drained, because they tolerate its taints. Another eviction would be in
//! vain. Such a pod ends with the machine, if an eviction would be allowed at this moment and no volume of it has to be
//! detached first. Otherwise it keeps the Node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::blockers::{budgets_of, is_counted};
use crate::facts::{ClaimFacts, PodPhase, VolumeNeed};
use crate::ids::{ObjectKey, Uid};
use crate::kubernetes::eviction::Blocker;
use crate::kubernetes::taints::{draining_toleration, tolerates_drain};
use crate::reasons::kept::{CameBack, Keeps};
use crate::world::{NodeView, PodView, World};

/// The pods that have come back to the Node of this claim and may end with its machine.
pub fn ends_with_machine(world: &World, claim: &ClaimFacts) -> BTreeSet<Uid> {
    let node = world.node_of(claim);
    let returned = node.zip(claim.status.draining_since);
    let returned = returned.map(|(node, since)| returned_to(world, &node, since));
    let pods = returned.into_iter().flatten();
    let ending = pods.filter(|(_, keeps)| keeps.is_none());
    ending.map(|(pod, _)| pod.uid().clone()).collect()
}

/// The first pod by name that has come back and keeps its Node.
pub(in crate::planning) fn returned_and_stays(
    world: &World,
    node: &NodeView<'_>,
    since: Timestamp,
) -> Option<CameBack> {
    let returned = returned_to(world, node, since);
    returned.into_iter().find_map(|(pod, keeps)| {
        let toleration = draining_toleration(&pod.spec().tolerations)?;
        Some(CameBack {
            pod: pod.key(),
            toleration: toleration.to_string(),
            keeps: keeps?,
        })
    })
}

/// By name, each with what keeps it.
fn returned_to<'w>(
    world: &'w World,
    node: &NodeView<'w>,
    since: Timestamp,
) -> Vec<(PodView<'w>, Option<Keeps>)> {
    let is_back = |pod: &PodView<'w>| {
        pod.is_movable() && pod.created() > since && tolerates_drain(&pod.spec().tolerations)
    };
    let mut pods: Vec<_> = node.pods().filter(is_back).collect();
    pods.sort_by_key(PodView::key);
    let mut used: BTreeMap<&ObjectKey, i32> = BTreeMap::new();
    let judged = pods.into_iter().map(|pod| {
        let keeps = volume_of(&pod).map(Keeps::Volume);
        let keeps = keeps.or_else(|| budget_of(world, &pod, &mut used).map(Keeps::Budget));
        (pod, keeps)
    });
    judged.collect()
}

/// A volume that is attached to its Node, or that other Nodes do not reach.
fn volume_of(pod: &PodView<'_>) -> Option<Arc<str>> {
    let ties = |need: &&VolumeNeed| need.driver.is_some() || need.reach.is_some();
    let need = pod.spec().volumes.iter().find(ties)?;
    Some(need.volume.to_string().into())
}

/// What the Eviction API would say. Pods that end together use up a budget together.
fn budget_of<'w>(
    world: &'w World,
    pod: &PodView<'w>,
    used: &mut BTreeMap<&'w ObjectKey, i32>,
) -> Option<Blocker> {
    if pod.phase() == PodPhase::Pending {
        return None;
    }
    let mut budgets = budgets_of(world, pod);
    let (key, budget) = budgets.next()?;
    if budgets.next().is_some() {
        return Some(Blocker::SeveralBudgets);
    }
    if !is_counted(budget, pod) {
        return None;
    }
    let used = used.entry(key).or_default();
    if *used >= budget.disruptions_allowed {
        return Some(Blocker::Budget(key.name.clone()));
    }
    *used += 1;
    None
}
