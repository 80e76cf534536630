//! The report on pending pods: per shape what becomes of them, and why.

use std::collections::BTreeMap;

use super::Planning;
use super::schedule::Need;
use crate::ids::{ClaimName, PodKey};
use crate::report::{PendingOutcome, PendingShape};

/// Pods that a row names; it counts all of them.
const MOST_NAMED: usize = 1000;

impl Planning<'_> {
    /// One row per shape and outcome; pods of a shape are told apart by nothing but their names, so the first by name get the first outcome.
    pub(super) fn report_pending(&mut self) {
        let has_pools = !self.pools.is_empty();
        for need in &self.needs {
            let mut first = 0;
            for (count, outcome) in outcomes(need, has_pools) {
                let names: Vec<PodKey> = need
                    .pods
                    .iter()
                    .skip(first)
                    .take((count as usize).min(MOST_NAMED))
                    .map(|pod| pod.key())
                    .collect();
                first += count as usize;
                let Some(example) = names.first().cloned() else {
                    continue;
                };
                self.report.pending.push(PendingShape {
                    example,
                    pods: names,
                    count,
                    outcome,
                });
            }
        }
        self.report
            .pending
            .sort_by(|a, b| a.example.cmp(&b.example));
        self.report_rejected();
    }
}

fn outcomes(need: &Need<'_>, has_pools: bool) -> Vec<(u32, PendingOutcome)> {
    let mut outcomes = Vec::new();
    if let Some((node, count)) = &need.on_nodes {
        outcomes.push((*count, PendingOutcome::FitsNode(node.clone())));
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
    outcomes
}

fn unhelped(need: &Need<'_>, has_pools: bool) -> PendingOutcome {
    if let Some(field) = &need.unsupported {
        PendingOutcome::NotSupported(field.to_string())
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
