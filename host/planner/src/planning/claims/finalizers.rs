//! Which NodePools, NodeClasses and ProxmoxClusters machines need. While they do, a finalizer keeps the object, so that
//! its deletion is something kproxide sees, and can carry out in order. And which hypervisors answer that a person has said
//! to be off.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::facts::{EntryState, Existence, LedgerFacts};
use crate::ids::{ClassName, ClusterName, PoolName};
use crate::plan::{FinalizerStep, Launch, Needed};
use crate::world::World;

/// What changes now.
pub(in crate::planning) fn steps(
    world: &World,
    ledger: &LedgerFacts,
    launches: &[Launch],
) -> Vec<FinalizerStep> {
    let needed = Uses::of(world, launches);
    // A claim that the watch has not shown yet may need the object.
    let all_seen = ledger.entries.iter().all(|entry| match entry.state {
        EntryState::Reserved { .. } | EntryState::Live => world.claims().contains_key(&entry.claim),
        EntryState::Quarantined { .. } => true,
    });
    let mut steps = Vec::new();
    let mut compare = |object: Needed, existence: &Existence, is_needed: bool| {
        let is_settled = match is_needed {
            // Nobody can put a finalizer on an object that is being deleted.
            true => existence.in_use || existence.deleting_since.is_some(),
            false => !existence.in_use || !all_seen,
        };
        if !is_settled {
            steps.push(FinalizerStep {
                object,
                uid: existence.uid.clone(),
                in_use: is_needed,
                answering: Vec::new(),
            });
        }
    };
    for (name, pool) in world.pools() {
        let is_left = pool.existence.deleting_since.is_some() && pool.keep_machines;
        let is_needed = needed.pools.contains(name) && !is_left;
        compare(Needed::Pool(name.clone()), &pool.existence, is_needed);
    }
    for (name, class) in world.classes() {
        let is_needed = needed.classes.contains(name);
        compare(Needed::Class(name.clone()), &class.existence, is_needed);
    }
    for (name, cluster) in world.clusters() {
        let is_needed = needed.clusters.contains(name);
        compare(Needed::Cluster(name.clone()), &cluster.existence, is_needed);
    }
    for (name, cluster) in world.clusters() {
        let inventory = world.inventories().get(name).filter(|it| it.reachable);
        let answers = |off: &&Arc<str>| inventory.is_some_and(|it| it.answers(off));
        let answering: Vec<Arc<str>> = cluster.off.iter().filter(answers).cloned().collect();
        if answering.is_empty() {
            continue;
        }
        let object = Needed::Cluster(name.clone());
        match steps.iter_mut().find(|step| step.object == object) {
            Some(step) => step.answering = answering,
            None => steps.push(FinalizerStep {
                object,
                uid: cluster.existence.uid.clone(),
                in_use: cluster.existence.in_use,
                answering,
            }),
        }
    }
    steps
}

/// What claims name, those that this plan makes too.
#[derive(Default)]
struct Uses<'a> {
    pools: BTreeSet<&'a PoolName>,
    classes: BTreeSet<&'a ClassName>,
    clusters: BTreeSet<&'a ClusterName>,
}

impl<'a> Uses<'a> {
    fn of(world: &'a World, launches: &'a [Launch]) -> Self {
        let mut uses = Self::default();
        let claims = world.claims().values().map(|claim| &claim.spec);
        for spec in claims.chain(launches.iter().map(|launch| &launch.spec)) {
            uses.pools.insert(&spec.pool);
            uses.classes.insert(&spec.class);
            uses.clusters.insert(&spec.cluster);
        }
        uses
    }
}
