//! Whether the cluster needs a Node, a pod keeps it, or it could go. And why a Node that could go does not go yet.

use jiff::Timestamp;

use crate::claim::{BLOCKED_BY_POD, CORDONED, Condition, unneeded};
use crate::facts::{PoolFacts, RemovalReason};
use crate::guard::freeze;
use crate::ids::PoolName;
use crate::plan::{Standing, Unneeded, Verdict};
use crate::planning::Planning;
use crate::planning::claims::drain_backoff::rests;
use crate::planning::claims::may_remove::{Removal, may_remove, never_removed};
use crate::planning::claims::stages;
use crate::reasons::kept::{Kept, Moment};
use crate::reasons::on_hold::Hold;
use crate::time::later;
use crate::world::NodeView;

/// For which it would go.
pub(super) fn reason_of(node: &NodeView<'_>) -> RemovalReason {
    match node.is_empty() {
        true => RemovalReason::Empty,
        false => RemovalReason::Underutilized,
    }
}

/// So many Nodes of a tick are looked at more closely. In a full cluster each look may go over every Node.
const LOOKS_MAX: u32 = 200;

impl<'w> Planning<'w> {
    /// Whether the Node could go, and if not, why.
    pub(super) fn standing(
        &mut self,
        index: usize,
        node: &NodeView<'w>,
    ) -> (Standing, Option<Kept>) {
        if let Some(why) = self.why_needed(index, node) {
            let standing = if matches!(why, Kept::Cordoned) && node.is_empty() {
                Standing::Cordoned(node.name().clone())
            } else {
                Standing::Needed
            };
            return (standing, Some(why));
        }
        let pool = self.rows[index].pool;
        match pool.and_then(|pool| self.blocking_pod(node, pool)) {
            Some((pod, by)) => (
                Standing::Blocked(pod.clone(), by.clone()),
                Some(Kept::Pod(pod, by)),
            ),
            None => (Standing::CouldGo, None),
        }
    }

    /// Why the cluster needs this Node; `None`: it could go, if no pod on it forbids that.
    fn why_needed(&mut self, index: usize, node: &NodeView<'w>) -> Option<Kept> {
        let row = &self.rows[index];
        if let Some(hold) = &row.waiting {
            return Some(Kept::Held(hold.clone()));
        }
        match &row.verdict {
            Verdict::Keep => {}
            Verdict::Hold(hold) => return Some(Kept::Held(hold.clone())),
            Verdict::GiveUp(why) => return Some(Kept::GivenUp(why.clone())),
            Verdict::Remove(reason) => return Some(Kept::Removing(*reason)),
        }
        let Some(pool) = row.pool else {
            return Some(Kept::PoolGone);
        };
        // What forbids only scale-down does not keep the machines of a pool that somebody deletes.
        let is_going = pool.going_since().is_some();
        if !pool.scale_down.enabled && !is_going {
            return Some(Kept::ScaleDownOff);
        }
        if let Some(hold) = never_removed(self.tick.world, node) {
            return Some(Kept::Held(hold));
        }
        if stages::is_protected(&mut self.tick, row) {
            return Some(Kept::DoNotDisrupt);
        }
        if stages::stays_unneeded(node) && !is_going {
            return Some(Kept::ScaleDownDisabled);
        }
        if let Some(reason) = row.claim.status.refusal() {
            return Some(Kept::Refused(reason.to_owned()));
        }
        if stages::is_unguarded(row.claim) {
            return Some(Kept::Held(Hold::NoFinalizer));
        }
        if let Some(rest) = rests(&mut self.tick, row.claim) {
            return Some(Kept::Rests(rest));
        }
        if is_going {
            return Some(match freeze::is_frozen(&self.ledger) {
                true => Kept::Held(Hold::Frozen),
                false => Kept::Budget,
            });
        }
        if let Some(replacing) = &row.replacing {
            return Some(Kept::Replacing(replacing.clone()));
        }
        if let Some(old) = self.replaces_standing(row) {
            return Some(Kept::Replaces(old.clone()));
        }
        if !node.facts.ready {
            return Some(Kept::NotReady);
        }
        if node.facts.unschedulable {
            return Some(Kept::Cordoned);
        }
        let at = self.snapshot.index_of_node(node);
        let info = at.map(|at| &self.snapshot.nodes[at]);
        if info.is_some_and(|info| info.promised > 0) {
            return Some(Kept::Promised);
        }
        if self.snapshot.awaits_pods(node) {
            return Some(Kept::AwaitsPods(Moment::Now));
        }
        if node.carries_load(self.tick.now)
            && !self
                .scale_down
                .load
                .allows_without(&node.facts.allocatable, pool.scale_down.load_headroom)
        {
            return Some(self.why_beside_headroom(index, node, pool));
        }
        match self.snapshot.move_away(node) {
            Err(stuck) => Some(Kept::Stuck(stuck, Moment::Now)),
            Ok(moves) => {
                let lacking = self.pool_headroom_lacks(index);
                self.snapshot.move_back(node, moves);
                lacking
            }
        }
    }

    /// The cluster would not keep its headroom. That a pod has no other place, or that the pool keeps `minNodes`, tells a
    /// person more, and stands also with no headroom at all.
    fn why_beside_headroom(
        &mut self,
        index: usize,
        node: &NodeView<'w>,
        pool: &'w PoolFacts,
    ) -> Kept {
        if self.scale_down.looked_closer < LOOKS_MAX {
            self.scale_down.looked_closer += 1;
            match self.snapshot.move_away(node) {
                Err(stuck) => return Kept::Stuck(stuck, Moment::Now),
                Ok(moves) => self.snapshot.move_back(node, moves),
            }
            let name = &self.rows[index].claim.spec.pool;
            if self.serving(name) <= self.least(name) {
                return self.at_least(name);
            }
        }
        Kept::load_headroom(pool, Moment::Now)
    }

    /// With the Node closed and its pods moved: whether the pool's own headroom is still free.
    pub(in crate::planning) fn pool_headroom_lacks(&self, index: usize) -> Option<Kept> {
        let headroom = self.keeps_free(&self.rows[index].claim.spec.pool);
        if headroom.is_zero() {
            return None;
        }
        let free = self.free_in(&self.rows[index].claim.spec.pool);
        headroom.first_lacking(&free).map(Kept::PoolHeadroom)
    }

    /// Its pool keeps its last machines.
    pub(super) fn at_least(&self, pool: &PoolName) -> Kept {
        let least = self.least(pool);
        let facts = self.tick.world.pools().get(pool);
        match facts.is_some_and(|facts| least > facts.limits.min_nodes) {
            true => Kept::Schedule(least),
            false => Kept::MinNodes(least),
        }
    }

    /// The claim's condition follows what was found.
    pub(super) fn note_standing(&mut self, index: usize, standing: Standing) {
        let row = &self.rows[index];
        let mut conditions = row.claim.status.conditions.iter();
        let recorded = conditions.find(|c| c.kind == Condition::Unneeded);
        let kept_by = [BLOCKED_BY_POD, CORDONED];
        let is_kept = recorded.is_some_and(|c| !c.status && kept_by.contains(&&*c.reason));
        let could_go = recorded.is_some_and(|c| c.status);
        let stands = match &standing {
            Standing::Needed => !could_go && !is_kept,
            Standing::CouldGo => could_go,
            Standing::Blocked(..) | Standing::Cordoned(_) => {
                is_kept && unneeded(&standing, self.tick.now).is_in(&row.claim.status)
            }
        };
        if !stands {
            self.unneeded.push(Unneeded {
                claim: row.name.clone(),
                uid: row.claim.uid.clone(),
                standing,
            });
        }
    }

    /// Why a Node that could go does not go now.
    pub(super) fn why_not_yet(
        &mut self,
        index: usize,
        node: &NodeView<'w>,
        stable_at: Option<Timestamp>,
    ) -> Option<Kept> {
        let row = &self.rows[index];
        let pool = row.pool?;
        let settings = &pool.scale_down;
        let unneeded_since = row.claim.status.since(Condition::Unneeded);
        let old_at = later(node.facts.created, settings.min_node_age.0);
        let unneeded_at = later(
            unneeded_since.unwrap_or(self.tick.now),
            settings.unneeded_time.0,
        );
        let removal = Removal {
            reason: reason_of(node),
            has_begun: false,
            has_replacement: false,
            claim: Some(row.claim),
            cluster: &row.claim.spec.cluster,
            pool: Some(&row.claim.spec.pool),
            node: Some(*node),
        };
        if let Err(hold) = may_remove(&mut self.tick, &self.ledger, &removal) {
            Some(Kept::Held(hold))
        } else if !self.tick.reached(old_at) {
            Some(Kept::MinNodeAge(settings.min_node_age.0))
        } else if stable_at.is_some_and(|moment| !self.tick.reached(moment)) {
            Some(Kept::Stabilization)
        } else if !self.tick.reached(unneeded_at) {
            Some(Kept::UnneededTime(settings.unneeded_time.0))
        } else {
            None
        }
    }
}
