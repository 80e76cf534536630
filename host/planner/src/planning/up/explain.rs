//! The report on pending pods: per shape what becomes of them, and why.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::schedule::Need;
use crate::ids::{ClaimName, PodKey};
use crate::keys::DEFAULT_SCHEDULER;
use crate::plan::report::{PendingOutcome, PendingShape};
use crate::planning::Planning;
use crate::time::later;
use crate::world::PodView;

/// Pods that a row names; it counts all of them.
const MOST_NAMED: usize = 1000;

/// Most pods of another scheduler have their Node sooner, and nothing is to be said of them.
const OTHER_SCHEDULER_PATIENCE: SignedDuration = SignedDuration::from_mins(1);

impl Planning<'_> {
    /// One row per shape and outcome; pods of a shape are told apart by nothing but their names, so the first by name get the first outcome.
    pub(in crate::planning) fn report_pending(&mut self) {
        let has_pools = !self.pools.is_empty();
        for need in &self.needs {
            let mut first = 0;
            for (count, outcome) in outcomes(need, has_pools) {
                let pods = need.pods.iter().skip(first);
                first += count as usize;
                self.report.pending.extend(row(pods, count, outcome));
            }
        }
        self.report_other_schedulers();
        self.report
            .pending
            .sort_by(|a, b| a.example.cmp(&b.example));
        let unusable = self.pools.iter().filter_map(|pool| {
            let why = pool.class.as_ref().err()?;
            Some((pool.name.clone(), why.clone()))
        });
        self.report.unusable = unusable.collect();
        self.report.unusable.sort_by(|a, b| a.0.cmp(&b.0));
        self.report_rejected();
    }

    /// They say so too where that scheduler does not run at all.
    fn report_other_schedulers(&mut self) {
        let served = &self.tick.world.host().served;
        for (shape, pods) in self.tick.world.of_other_schedulers() {
            let waited = |pod: &PodView<'_>| {
                let end = later(pod.created(), OTHER_SCHEDULER_PATIENCE);
                self.tick.reached(end)
            };
            let waiting: Vec<_> = pods.iter().filter(waited).collect();
            let scheduler = shape.spec.scheduler_name.clone();
            let outcome = PendingOutcome::OtherScheduler {
                scheduler: scheduler.unwrap_or_else(|| DEFAULT_SCHEDULER.into()),
                served: served.schedulers.iter().cloned().collect(),
            };
            let count = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
            let row = row(waiting.into_iter(), count, outcome);
            self.report.pending.extend(row);
        }
    }
}

/// The first `count` of these pods; no row if there are none.
fn row<'w>(
    pods: impl Iterator<Item = PodView<'w>>,
    count: u32,
    outcome: PendingOutcome,
) -> Option<PendingShape> {
    let named = pods.take((count as usize).min(MOST_NAMED));
    let pods: Vec<PodKey> = named.map(|pod| pod.key()).collect();
    Some(PendingShape {
        example: pods.first()?.clone(),
        pods,
        count,
        outcome,
    })
}

fn outcomes(need: &Need<'_>, has_pools: bool) -> Vec<(u32, PendingOutcome)> {
    let mut outcomes = Vec::new();
    if let Some((node, count)) = &need.on_nodes {
        let node = node.clone();
        let outcome = match need.is_refused_now {
            true => PendingOutcome::Refused(node),
            false => PendingOutcome::FitsNode(node),
        };
        outcomes.push((*count, outcome));
    }
    if let Some((claim, count)) = &need.on_claims {
        outcomes.push((*count, PendingOutcome::FitsClaim(claim.clone())));
    }
    let mut launched: BTreeMap<ClaimName, u32> = BTreeMap::new();
    for (claim, count) in &need.launched {
        *launched.entry(claim.clone()).or_default() += count;
    }
    if !launched.is_empty() {
        let count = launched.values().sum();
        outcomes.push((
            count,
            PendingOutcome::Launching(launched.into_keys().collect()),
        ));
    }
    if need.left > 0 {
        outcomes.push((need.left, unhelped(need, has_pools)));
    }
    if need.later > 0 {
        outcomes.push((need.later, PendingOutcome::LaterTick));
    }
    outcomes
}

fn unhelped(need: &Need<'_>, has_pools: bool) -> PendingOutcome {
    if let Some(outcome) = &need.unserved {
        outcome.clone()
    } else if !has_pools {
        PendingOutcome::NoPool
    } else {
        PendingOutcome::Unhelped(
            need.whys
                .iter()
                .map(|(pool, why)| (pool.clone(), why.clone()))
                .collect(),
        )
    }
}
