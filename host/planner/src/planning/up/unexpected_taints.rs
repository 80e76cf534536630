//! Taints on fresh machines that nobody has told kproxide of. The next machine would get them too, so none is made for the
//! same pods.

use super::pools::PoolPlan;
use super::schedule::Need;
use crate::facts::Taint;
use crate::kubernetes::taints::{delays_service, untolerated};
use crate::plan::report::Why;
use crate::planning::Planning;
use crate::planning::claims::stages::{ClaimState, Stage};
use crate::planning::pods::fit::{NodeProfile, Place};

impl Planning<'_> {
    /// An empty machine that was made while one of these pods waited, and would take them without such a taint.
    pub(in crate::planning) fn why_tainted(
        &self,
        pool: &PoolPlan<'_>,
        need: &Need<'_>,
    ) -> Option<Why> {
        let in_pool = |row: &&ClaimState<'_>| row.claim.spec.pool == *pool.name;
        self.rows.iter().filter(in_pool).find_map(|row| {
            let node = row.node.filter(|node| {
                let is_fresh = need
                    .pods
                    .iter()
                    .any(|pod| pod.created() <= row.claim.created);
                let is_open = node.facts.ready && !node.facts.unschedulable;
                row.stage == Stage::InService && is_open && node.is_empty() && is_fresh
            })?;
            let is_unexpected = |taint: &Taint| {
                let startup = &pool.facts.startup_taints;
                !row.claim.spec.taints.contains(taint) && !delays_service(startup, taint)
            };
            let mut unexpected = node.facts.taints.iter();
            let taint = unexpected.find(|taint| {
                is_unexpected(taint) && untolerated(&need.spec.tolerations, [*taint]).is_some()
            })?;
            let place = Place {
                profile: NodeProfile::without(&node, is_unexpected),
                ..Place::of(node)
            };
            let fits = place.misfit(&need.spec).is_none();
            fits.then(|| Why::UnexpectedTaint {
                node: node.name().clone(),
                taint: taint.clone(),
            })
        })
    }
}
