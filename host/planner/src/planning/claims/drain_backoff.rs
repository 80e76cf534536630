//! Drains that pods kept from ending: those on the Node, or others that need it. It rests, so that its pods are not evicted
//! again and again.
//!
//! The claim's status says how often in a row, and which pods kept it. The rest ends before its time once none of them
//! stands on the Node as it did then, or with a new value of `kproxide.dev/retry` on the NodePool.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash};

use crate::claim::{Condition, GIVEN_UP, retry_digest};
use crate::facts::{ClaimFacts, Phase};
use crate::guard::loops::{pods_digest, workload};
use crate::ids::{Digest, PodKey, digest};
use crate::planning::Tick;
use crate::planning::pods::blockers::budgets_of;
use crate::reasons::kept::Rest;
use crate::world::{PodView, World};

/// The pods on the Node of a claim that is being drained, each as a digest of its workload and of what may keep it there.
pub fn keepers(world: &World, claim: &ClaimFacts) -> BTreeMap<PodKey, Digest> {
    if claim.status.phase != Phase::Draining {
        return BTreeMap::new();
    }
    let on_node = on_node(world, claim);
    on_node
        .map(|pod| (pod.key(), keeper(world, &pod)))
        .collect()
}

fn on_node<'w>(world: &'w World, claim: &ClaimFacts) -> impl Iterator<Item = PodView<'w>> {
    let pods = world.node_of(claim).into_iter();
    let pods = pods.flat_map(|node| node.pods());
    pods.filter(|pod| pod.is_alive() && !pod.is_mirror() && !pod.is_of_daemon_set())
}

/// By what a pod that needs the Node is known again: a successor has the same. What its budgets allow is no part of it, since
/// that has changed by the time that the pod runs.
pub(in crate::planning) fn claimant(pod: &PodView<'_>) -> Digest {
    let mut hasher = DefaultHasher::new();
    workload(pod).hash(&mut hasher);
    pods_digest(pod.spec()).hash(&mut hasher);
    digest(&hasher)
}

/// A successor of the pod that is kept by the same has the same.
fn keeper(world: &World, pod: &PodView<'_>) -> Digest {
    let mut hasher = DefaultHasher::new();
    claimant(pod).hash(&mut hasher);
    (pod.do_not_disrupt(), pod.is_on_completion()).hash(&mut hasher);
    for (key, budget) in budgets_of(world, pod) {
        let allows = budget.disruptions_allowed > 0;
        (&key.name, &budget.selector, allows, budget.frees_unhealthy).hash(&mut hasher);
    }
    digest(&hasher)
}

/// The Node of this claim is not drained yet, because its last drain was given up. Meanwhile other Nodes can use the
/// pool's budget.
pub(in crate::planning) fn rests(tick: &mut Tick<'_>, claim: &ClaimFacts) -> Option<Rest> {
    let status = &claim.status;
    let pause = status.pauses_until().filter(|end| !tick.reached(*end));
    let blocked = status.blocked_drains.as_ref();
    let blocked = blocked.filter(|it| !has_changed(tick.world, claim, &it.pods, &it.retry));
    let rest = blocked.map(|it| it.rests_until());
    let rest = rest.filter(|end| !tick.reached(*end));
    let until = pause.max(rest)?;
    let mut conditions = status.conditions.iter();
    let why = conditions.find(|it| it.kind == Condition::Drained && it.reason == GIVEN_UP);
    Some(Rest {
        until,
        is_blocked: rest == Some(until),
        why: why.map_or("", |it| &it.message).into(),
    })
}

/// What kept the Node is gone, or has changed, or a person wants another try.
fn has_changed(world: &World, claim: &ClaimFacts, pods: &[Digest], retried: &Digest) -> bool {
    let pool = world.pools().get(&claim.spec.pool);
    if pool.is_some_and(|pool| retry_digest(pool.retry.as_ref()) != *retried) {
        return true;
    }
    let stands =
        |pod: PodView<'_>| pods.contains(&keeper(world, &pod)) || pods.contains(&claimant(&pod));
    !pods.is_empty() && !on_node(world, claim).any(stands)
}
