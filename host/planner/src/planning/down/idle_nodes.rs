//! An idle Node is the emptiest, so kube-scheduler sends each short pod there, and it never goes. Nodes that would go next
//! have the taint `kproxide.dev/unneeded:PreferNoSchedule`: pods come only if no other Node takes them. No filter sees it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::claim::Condition;
use crate::ids::PoolName;
use crate::keys::UNNEEDED_TAINT;
use crate::kubernetes::eviction::Blocker;
use crate::plan::{Preference, Verdict};
use crate::planning::Planning;
use crate::planning::claims::stages::Stage;
use crate::reasons::kept::Kept;
use crate::reasons::on_hold::Hold;
use crate::time::later;
use crate::world::NodeView;

/// A Node that could go gets the taint after this long, at once if only an unfinished Job keeps it.
const SETTLES: SignedDuration = SignedDuration::from_secs(30);

/// A Node that has lost the taint gets it again after this long at the earliest.
const RESTS: SignedDuration = SignedDuration::from_mins(1);

/// Nodes are written in one tick, at most.
const MOST_WRITES: usize = 10;

impl<'w> Planning<'w> {
    /// Last step: what changes about the taints. A Node that is needed loses it at once.
    pub(in crate::planning) fn prefer_other_nodes(&mut self) {
        let next = self.next_to_go();
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for (node, since) in self.tick.world.awaited().spared.clone() {
            if !self.tick.reached(later(since, RESTS)) {
                self.awaited.spared.push((node, since));
            }
        }
        for index in 0..self.rows.len() {
            let row = &self.rows[index];
            let Some(node) = row
                .node
                .filter(|_| !matches!(row.verdict, Verdict::Remove(_)))
            else {
                continue;
            };
            let mut spared = self.awaited.spared.iter();
            let rests = spared.any(|(name, _)| name == node.name());
            let wanted = next.contains(&index);
            let change = Preference {
                claim: row.name.clone(),
                uid: row.claim.uid.clone(),
                node: node.name().clone(),
                node_uid: node.facts.uid.clone(),
                is_unneeded: wanted,
            };
            match (has_taint(&node), wanted) {
                (true, false) => off.push(change),
                (false, true) if !rests => on.push(change),
                (true, true) | (false, _) => {}
            }
        }
        off.extend(on);
        if off.len() > MOST_WRITES {
            off.truncate(MOST_WRITES);
            let next_tick = later(self.tick.now, SignedDuration::from_secs(1));
            self.tick.reached(next_tick);
        }
        for change in off.iter().filter(|change| !change.is_unneeded) {
            self.awaited
                .spared
                .push((change.node.clone(), self.tick.now));
        }
        self.preferences = off;
    }

    /// Rows of Nodes that could go and only wait for their time or turn, as many as may go together. The removals of this
    /// tick are simulated already, and nothing is planned after this, so these are not taken back.
    fn next_to_go(&mut self) -> BTreeSet<usize> {
        let mut waiting: Vec<(Timestamp, usize)> = Vec::new();
        for (index, kept) in &self.scale_down.kept {
            let waits = matches!(
                kept,
                Kept::MinNodeAge(_)
                    | Kept::Stabilization
                    | Kept::UnneededTime(_)
                    | Kept::Budget
                    | Kept::Held(Hold::Budget(_))
                    | Kept::NextTick
            );
            let row = &self.rows[*index];
            let Some(node) = row.node.filter(|_| row.stage == Stage::InService) else {
                continue;
            };
            // Short Jobs that come one after the other would keep it for ever.
            let has_job = matches!(kept, Kept::Pod(_, Blocker::UnfinishedJob));
            let since = match has_job {
                true => row.claim.status.since(Condition::Initialized),
                // A Job has just ended: the claim does not say yet that the Node could go.
                false if waits && node.is_empty() => {
                    let since = row.claim.status.since(Condition::Unneeded);
                    since.or(has_taint(&node).then_some(self.tick.now))
                }
                false => None,
            };
            if let Some(since) = since
                && (has_taint(&node) || self.tick.reached(later(since, SETTLES)))
            {
                waiting.push((since, *index));
            }
        }
        waiting.sort_unstable();
        let mut left: BTreeMap<PoolName, u32> = BTreeMap::new();
        let mut next = BTreeSet::new();
        for (_, index) in waiting {
            let row = &self.rows[index];
            let (Some(node), Some(_)) = (row.node, row.pool) else {
                continue;
            };
            let name = row.claim.spec.pool.clone();
            let spare = self.serving(&name).saturating_sub(self.least(&name));
            let left = left.entry(name).or_insert(spare);
            if *left == 0 || self.snapshot.awaits_pods(&node) {
                continue;
            }
            let Ok(moves) = self.snapshot.move_away(&node) else {
                continue;
            };
            if self.pool_headroom_lacks(index).is_some() {
                self.snapshot.move_back(&node, moves);
                continue;
            }
            *left -= 1;
            next.insert(index);
        }
        next
    }
}

fn has_taint(node: &NodeView<'_>) -> bool {
    let mut taints = node.facts.taints.iter();
    taints.any(|taint| &*taint.key == UNNEEDED_TAINT)
}
