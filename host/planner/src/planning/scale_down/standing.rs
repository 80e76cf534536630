//! How a Node stands: whether the cluster needs it, a pod keeps it, or it could go; and why one that could does not go yet.

use jiff::Timestamp;

use super::super::Planning;
use super::super::claims;
use crate::claim::{BLOCKED_BY_POD, Condition, NO_FINALIZER};
use crate::facts::PoolFacts;
use crate::guard::{anchor, freeze};
use crate::plan::{Standing, Unneeded, Verdict};
use crate::time::later;
use crate::world::NodeView;

impl<'w> Planning<'w> {
    /// Whether the Node could go, and if not, why.
    pub(super) fn standing(
        &mut self,
        index: usize,
        node: &NodeView<'w>,
    ) -> (Standing, Option<String>) {
        if let Some(why) = self.why_needed(index, node) {
            return (Standing::Needed, Some(why));
        }
        let pool = self.rows[index].pool;
        match pool.and_then(|pool| self.blocking_pod(node, pool)) {
            Some(why) => (Standing::Blocked(why.clone()), Some(why)),
            None => (Standing::CouldGo, None),
        }
    }

    /// Why the cluster needs this Node; `None`: it could go, if no pod on it forbids that.
    fn why_needed(&mut self, index: usize, node: &NodeView<'w>) -> Option<String> {
        let row = &self.rows[index];
        if row.waiting.is_some() {
            return row.waiting.clone();
        }
        match &row.verdict {
            Verdict::Keep => {}
            Verdict::Hold(reason) => return Some(reason.clone()),
            Verdict::GiveUp(reason) => return Some(format!("its drain is given up: {reason}")),
            Verdict::Remove(reason) => return Some(format!("being removed: {reason}")),
        }
        let Some(pool) = row.pool else {
            return Some("its pool is gone".to_owned());
        };
        if !pool.scale_down.enabled {
            return Some("scale-down is disabled for its pool".to_owned());
        }
        if let Some(reason) = claims::never_removed(self.tick.world, node) {
            return Some(reason.to_owned());
        }
        if claims::is_protected(row) {
            return Some("the annotation kproxide.dev/do-not-disrupt is set".to_owned());
        }
        if let Some(reason) = row.claim.status.refusal() {
            return Some(reason.to_owned());
        }
        if claims::is_unguarded(row.claim) {
            return Some(NO_FINALIZER.to_owned());
        }
        if claims::rests(&mut self.tick, row.claim) {
            return Some("its drain was given up a short time ago".to_owned());
        }
        if !node.facts.ready {
            return Some("it is not Ready; it is repaired if it stays so".to_owned());
        }
        if node.facts.unschedulable {
            return Some("somebody cordoned it".to_owned());
        }
        let slot = self.board.slot_of(node).map(|slot| &self.board.slots[slot]);
        if slot.is_some_and(|slot| slot.promised > 0) {
            return Some("pending pods will run on it".to_owned());
        }
        if self.board.awaits_pods(node) {
            return Some("pods of Nodes that are being removed will come to it".to_owned());
        }
        let is_empty = node.is_empty();
        if !is_empty
            && !self
                .scale_down
                .load
                .allows_without(&node.facts.allocatable, pool.scale_down.load_headroom)
        {
            return Some(format!(
                "without it the cluster would not keep its headroom of {:.0}% (loadHeadroom)",
                pool.scale_down.load_headroom * 100.0
            ));
        }
        match self.board.move_away(node) {
            Err(stuck) => Some(stuck.to_string()),
            Ok(moves) => {
                let lacking = self.pool_headroom_lacks(index, pool);
                self.board.move_back(node, moves);
                lacking
            }
        }
    }

    /// With the Node closed and its pods moved: whether the pool's own headroom is still free.
    pub(super) fn pool_headroom_lacks(&self, index: usize, pool: &PoolFacts) -> Option<String> {
        if pool.headroom.is_zero() {
            return None;
        }
        let free = self.free_in(&self.rows[index].claim.spec.pool);
        let lack = pool.headroom.first_lacking(&free)?;
        Some(format!("the pool would not keep its headroom: {lack}"))
    }

    /// The claim's condition follows what was found.
    pub(super) fn note_standing(&mut self, index: usize, standing: Standing) {
        let row = &self.rows[index];
        let mut conditions = row.claim.status.conditions.iter();
        let recorded = conditions.find(|c| c.kind == Condition::Unneeded);
        let is_blocked = recorded.is_some_and(|c| !c.status && c.reason == BLOCKED_BY_POD);
        let could_go = recorded.is_some_and(|c| c.status);
        let stands = match &standing {
            Standing::Needed => !could_go && !is_blocked,
            Standing::CouldGo => could_go,
            Standing::Blocked(why) => is_blocked && recorded.is_some_and(|c| c.message == *why),
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
    ) -> Option<String> {
        let row = &self.rows[index];
        let pool = row.pool?;
        let settings = &pool.scale_down;
        let unneeded_since = row.claim.status.since(Condition::Unneeded);
        let old_at = later(node.facts.created, settings.min_node_age);
        let unneeded_at = later(
            unneeded_since.unwrap_or(self.tick.now),
            settings.unneeded_time,
        );
        let name = &row.claim.spec.cluster;
        let cluster = self.tick.world.inventories().get(name);
        let in_reach = cluster.is_some_and(|inventory| inventory.reachable && inventory.quorate);
        if !in_reach {
            Some("its Proxmox cluster cannot be reached or has no quorum".to_owned())
        } else if !self.tick.world.host().key_known {
            Some("the key for ownership proofs is missing".to_owned())
        } else if let Some(reason) = claims::blind(self.tick.world) {
            Some(reason)
        } else if let Some(reason) = claims::unarmed(&mut self.tick) {
            Some(reason)
        } else if let Some(hold) = anchor::hold(self.tick.world, Some(&self.ledger), name) {
            Some(hold.brief(name))
        } else if self.tick.frozen {
            Some(freeze::HELD.to_owned())
        } else if !self.tick.reached(old_at) {
            Some(format!(
                "it is younger than {} s (minNodeAge)",
                settings.min_node_age.as_secs()
            ))
        } else if stable_at.is_some_and(|moment| !self.tick.reached(moment)) {
            Some("a machine came into service a short time ago (stabilization)".to_owned())
        } else if !self.tick.reached(unneeded_at) {
            Some(format!(
                "it has not been unneeded for {} s (unneededTime)",
                settings.unneeded_time.as_secs()
            ))
        } else {
            None
        }
    }
}
