//! Machines made in vain: they are in service and idle, but do not take the pods that they were made for.
//!
//! For example, something taints every new Node or removes a label. One more machine would be the same, and kproxide
//! would make machines up to the pool's limits. Such machines are removed when they have been unneeded for a while, as
//! any other. Then kproxide tries again.

use super::claims::{ClaimState, Stage};
use super::csi::Shown;
use super::fit::Place;
use super::pools::PoolPlan;
use super::schedule::Need;
use super::{Planning, machines};
use crate::claim::Phase;
use crate::facts::PodSpec;
use crate::report::{Misfit, Why};
use crate::world::NodeView;

/// With this many such machines a pool makes no more for the same pods.
const MOST_INEFFECTIVE: usize = 3;

impl Planning<'_> {
    /// Why the pool makes no more machines for these pods, if it has made enough of them in vain.
    pub(super) fn why_ineffective(&self, pool: &PoolPlan<'_>, need: &Need<'_>) -> Option<Why> {
        let in_pool = |row: &&ClaimState<'_>| row.claim.spec.pool == *pool.name;
        let refusals = self.rows.iter().filter(in_pool).filter_map(|row| {
            let node = row.node?;
            let refusal = self.refusal_of(pool, &need.spec, row, &node)?;
            Some((node.name(), refusal))
        });
        let refusals: Vec<_> = refusals.collect();
        let machines = refusals.len();
        let (node, misfit) = refusals.into_iter().next()?;
        (machines >= MOST_INEFFECTIVE).then(|| Why::MadeInVain {
            machines,
            node: node.clone(),
            misfit: Box::new(misfit),
        })
    }

    /// Why an idle Node of the pool takes no pod of this spec, though its claim says that it would.
    fn refusal_of(
        &self,
        pool: &PoolPlan<'_>,
        spec: &PodSpec,
        row: &ClaimState<'_>,
        node: &NodeView<'_>,
    ) -> Option<Misfit<'static>> {
        let facts = node.facts;
        // A user's cordon is about this one Node, and says nothing about the next machine.
        let is_idle = row.stage == Stage::InService
            && row.claim.status.phase == Phase::Initialized
            && facts.ready
            && !facts.deleting
            && !facts.unschedulable
            && node.is_empty();
        if !is_idle {
            return None;
        }
        let claim = &row.claim.spec;
        let class = self.tick.world.classes().get(&claim.class)?;
        let promised = machines::profile(
            node.name().as_str(),
            class,
            &Shown::default(),
            claim.labels.clone(),
            claim.taints.clone(),
        );
        let mut offers = pool.offers.iter();
        let holds_them = offers.any(|offer| {
            offer.instance_type.name == claim.instance_type && offer.free.misfit(spec).is_none()
        });
        if !holds_them || promised.misfit(spec).is_some() {
            return None;
        }
        let place = Place::of(*node);
        place.misfit(spec).map(Misfit::into_owned)
    }
}
