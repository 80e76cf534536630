//! What the Nodes of a class offer to pods. A change may be just what the pods have waited for, so one machine is tried soon.
//!
//! Each Node is compared with itself alone. A Node that comes or goes shows nothing new: kproxide's next machine would
//! otherwise shorten the rest that the last one began. What passes by itself does not count either: a kubelet that is silent
//! or under pressure, a cordon, taints of the start, and what kproxide writes to Nodes itself.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash};

use jiff::{SignedDuration, Timestamp};

use crate::claim::{Condition, Phase};
use crate::facts::{ClaimFacts, LedgerFacts, Offered, Taint, TaintEffect, Tries};
use crate::ids::{ClassName, Digest, NodeName, digest};
use crate::keys::{EXCLUDE_FROM_LOAD_BALANCERS, GROUP};
use crate::kubernetes::taints::is_passing;
use crate::time::later;
use crate::world::{NodeView, World};

/// Labels, taints and devices of others come late. A Node is looked at when it has been Ready in service for so long.
const SETTLED: SignedDuration = SignedDuration::from_mins(5);

/// Somebody may write another label every minute. Rests become short once in so long, which is as long as the longest rest.
const PACE: SignedDuration = super::LONGEST_REST;

const MOST_NODES: usize = 16;

/// A new kernel moves a Node's memory by some KiB.
const MEMORY_STEP: i64 = 64 << 20;

/// Kubernetes sets and removes these taints by the Node's condition.
const OF_CONDITIONS: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// Shortens the rests for which a Node of the class offers something else than before, so that one machine is tried. A label
/// that somebody counts up would otherwise bring a round of any size. Tells when to look again.
pub(super) fn review(world: &World, ledger: &mut LedgerFacts, now: Timestamp) -> Vec<Timestamp> {
    let LedgerFacts { tries, offered, .. } = ledger;
    let class_of = |row: &Tries| {
        world
            .pools()
            .get(&row.pool)
            .map(|pool| pool.node_class.clone())
    };
    let resting = tries.iter().filter(|row| row.at.is_some());
    let resting: BTreeSet<ClassName> = resting.filter_map(class_of).collect();
    offered.retain_mut(|row| {
        // A clock that was ahead must not make it last longer.
        row.changed = row.changed.map(|at| at.min(now));
        resting.contains(&row.node_class) || row.paces_until().is_some_and(|end| now < end)
    });
    for class in resting {
        if !offered.iter().any(|row| row.node_class == class) {
            offered.push(Offered {
                node_class: class,
                nodes: BTreeMap::new(),
                changed: None,
            });
        }
    }
    offered.truncate(super::MOST_ROWS);
    let mut moments = Vec::new();
    for row in offered {
        let free = row.paces_until().is_none_or(|end| end <= now);
        if row.look(world, free, now, &mut moments) {
            row.changed = Some(now);
            let of_class = |tried: &&mut Tries| class_of(tried).as_ref() == Some(&row.node_class);
            let of_class = tries.iter_mut().filter(of_class);
            of_class.for_each(Tries::rests_anew);
        }
        moments.extend(row.paces_until());
    }
    moments
}

impl Offered {
    fn paces_until(&self) -> Option<Timestamp> {
        Some(later(self.changed?, PACE))
    }

    /// Whether a Node offers something else. If that does not count now, what the Node offered before is kept.
    fn look(
        &mut self,
        world: &World,
        counts: bool,
        now: Timestamp,
        moments: &mut Vec<Timestamp>,
    ) -> bool {
        let of_class = |claim: &&ClaimFacts| {
            claim.spec.class == self.node_class
                && claim.status.phase == Phase::Initialized
                && claim.deleting_since.is_none()
        };
        let claims = world.claims().values().filter(of_class);
        let nodes = claims.filter_map(|claim| Some((claim, world.node_of(claim)?)));
        let mut shown: BTreeMap<NodeName, Option<Digest>> = BTreeMap::new();
        for (claim, node) in nodes {
            let served = claim.status.since(Condition::Initialized);
            let since = served.map(|served| served.max(node.facts.ready_since));
            let settled = since.filter(|_| node.facts.ready);
            let settled = settled.map(|since| later(since, SETTLED));
            if let Some(moment) = settled.filter(|moment| now < *moment) {
                moments.push(moment);
            }
            let is_settled = settled.is_some_and(|moment| moment <= now);
            let offers = is_settled.then(|| offers(world, claim, &node));
            shown.insert(node.name().clone(), offers);
        }
        self.nodes.retain(|name, _| shown.contains_key(name));
        let mut has_changed = false;
        for (name, offers) in shown {
            let Some(offers) = offers else { continue };
            let has_room = self.nodes.len() < MOST_NODES;
            match self.nodes.get_mut(&name) {
                Some(before) if *before != offers && counts => {
                    *before = offers;
                    has_changed = true;
                }
                None if has_room => _ = self.nodes.insert(name, offers),
                Some(_) | None => {}
            }
        }
        has_changed
    }
}

fn offers(world: &World, claim: &ClaimFacts, node: &NodeView<'_>) -> Digest {
    let facts = node.facts;
    let mut hasher = DefaultHasher::new();
    let is_ours = |key: &str| key.starts_with(GROUP) || key == EXCLUDE_FROM_LOAD_BALANCERS;
    let labels = facts.labels.iter().filter(|(key, _)| !is_ours(key));
    labels.for_each(|label| label.hash(&mut hasher));
    let pool = world.pools().get(&claim.spec.pool);
    let startup = pool.map_or(&[][..], |pool| &pool.startup_taints);
    let stays = |taint: &&Taint| {
        let is_of_condition = OF_CONDITIONS.iter().any(|it| taint.key.starts_with(it));
        let is_of_start = is_passing(taint) || startup.iter().any(|it| it.key == taint.key);
        taint.effect != TaintEffect::PreferNoSchedule
            && !(is_of_condition || is_of_start || is_ours(&taint.key))
    };
    let taints = facts.taints.iter().filter(stays);
    let taints: BTreeSet<String> = taints.map(ToString::to_string).collect();
    taints.hash(&mut hasher);
    let room = &facts.allocatable;
    (room.milli_cores, room.pods, room.memory_bytes / MEMORY_STEP).hash(&mut hasher);
    room.extended.hash(&mut hasher);
    for (name, driver) in node.csi().into_iter().flat_map(|csi| &csi.drivers) {
        (name, driver.limit, &driver.topology_keys).hash(&mut hasher);
    }
    digest(&hasher)
}
