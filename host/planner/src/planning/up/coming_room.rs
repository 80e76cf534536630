//! Room that comes by itself: where a pod ends soon, a pending pod waits rather than getting a machine. And a machine that
//! has become needless this way is not made after all, as long as its clone was not asked for.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::schedule::is_refused;
use crate::claim::Phase;
use crate::ids::NodeName;
use crate::kubernetes::eviction::ENDS;
use crate::plan::report::Severity;
use crate::plan::{RemovalReason, Verdict};
use crate::planning::Planning;
use crate::planning::claims::may_remove::{Removal, may_remove};
use crate::planning::claims::stages::Stage;
use crate::time::later;
use crate::world::{NodeView, PodView};

impl<'w> Planning<'w> {
    /// Puts pods without a place where other pods end soon.
    pub(in crate::planning) fn place_in_coming_room(&mut self) {
        let needs_room = self
            .needs
            .iter()
            .any(|need| need.left > 0 && need.unserved.is_none());
        if !needs_room {
            return;
        }
        let until = later(self.tick.now, self.tick.limits.coming_room);
        for node in self.nodes_with_coming_room(until) {
            for need in &mut self.needs {
                if need.unserved.is_some() || is_refused(&need.refused, &node) {
                    continue;
                }
                let is_gone = |pod: &PodView<'w>| ends_by(pod, until);
                while need.left > 0
                    && self
                        .snapshot
                        .put_without(&node, need.shape, &need.spec, is_gone)
                {
                    need.left -= 1;
                    need.on_nodes
                        .get_or_insert_with(|| (node.name().clone(), 0))
                        .1 += 1;
                }
            }
        }
    }

    /// Ready Nodes, by name. A pod that should have ended by now makes no room: nobody knows when it will.
    fn nodes_with_coming_room(&mut self, until: Timestamp) -> Vec<NodeView<'w>> {
        let world = self.tick.world;
        let mut names: BTreeSet<&NodeName> = BTreeSet::new();
        for pod in world.ending().filter(|pod| ends_by(pod, until)) {
            let end = pod.grace_ends().map(|end| later(end, ENDS));
            if end.is_some_and(|end| !self.tick.reached(end)) {
                names.extend(pod.node());
            }
        }
        if self.tick.limits.coming_room.is_zero() {
            return Vec::new();
        }
        let nodes = names.into_iter().filter_map(|name| world.node(name));
        nodes.filter(|node| node.facts.ready).collect()
    }

    /// Closes claims that Proxmox was asked nothing for and that no pod, `minNodes` or headroom needs any more.
    pub(in crate::planning) fn withdraw_needless(&mut self) {
        let mut staying = self.staying();
        for index in 0..self.rows.len() {
            let row = &self.rows[index];
            let (name, claim) = (row.name, row.claim);
            let is_waiting = row.stage == Stage::Coming
                && row.verdict == Verdict::Keep
                && claim.status.phase == Phase::Pending
                && claim.has_finalizer
                && claim.spec.adopts.is_none()
                && self.replaces_standing(row).is_none();
            let (Some(_), true) = (row.pool, is_waiting) else {
                continue;
            };
            let removal = Removal {
                reason: RemovalReason::LaunchFailed,
                has_begun: false,
                has_replacement: false,
                claim: Some(claim),
                cluster: &claim.spec.cluster,
                pool: Some(&claim.spec.pool),
                node: None,
            };
            if may_remove(&mut self.tick, &self.ledger, &removal).is_err() {
                continue;
            }
            let of_pool = staying.entry(claim.spec.pool.clone()).or_default();
            let mut wanted = self.placing.wanted.iter();
            let is_growing = wanted.any(|it| *self.pools[it.pool].name == claim.spec.pool);
            if *of_pool <= self.least(&claim.spec.pool) || is_growing {
                continue;
            }
            match self.snapshot.coming(name) {
                Some(info) if info.promised == 0 => info.is_open = false,
                Some(_) | None => continue,
            }
            if self.pool_headroom_lacks(index).is_some() {
                if let Some(info) = self.snapshot.coming(name) {
                    info.is_open = true;
                }
                continue;
            }
            *of_pool -= 1;
            let row = &mut self.rows[index];
            row.verdict = Verdict::Remove(RemovalReason::LaunchFailed);
            row.stage = Stage::Overdue;
            self.tick.found(
                Severity::Notice,
                format!("NodeClaim/{name}"),
                "its pods have found another place. Nothing was asked of Proxmox yet, so kproxide closes the NodeClaim",
            );
        }
    }
}

/// A pod that makes room when it ends: what a DaemonSet or a kubelet keeps on the Node comes back.
fn ends_by(pod: &PodView<'_>, until: Timestamp) -> bool {
    let is_bound = pod.is_of_daemon_set() || pod.is_mirror();
    let ends = pod.grace_ends().is_some_and(|end| end <= until);
    pod.is_alive() && pod.is_deleting() && !is_bound && ends
}
