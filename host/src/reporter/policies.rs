//! What goes wrong with a pool's policies: files that are refused, and answers that fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::facts::{PoolFacts, PoolPolicies};
use kproxide_planner::ids::PoolName;
use kproxide_planner::report::PolicyFailure;
use kproxide_planner::world::World;

use super::{Reporter, reasons};
use crate::kube::events::{About, Event};
use crate::policy::Refusal;

/// The Event, and the reason of a pool that is not ready for it.
const POLICY_FAILED: &str = reasons::POLICY_FAILED.word;
const POLICY_REFUSED: &str = reasons::POLICY_REFUSED.word;

/// What failed a pool, in one text: it is compared with what was said last.
pub(super) type Failures = BTreeMap<PoolName, String>;

pub(super) fn by_pool(failures: &[PolicyFailure]) -> Failures {
    let mut by_pool = Failures::new();
    for failure in failures {
        let text = by_pool.entry(failure.pool.clone()).or_default();
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&failure.to_string());
    }
    by_pool
}

/// The names of the policies that a pool uses.
pub(super) fn used_by(pool: &PoolFacts) -> BTreeSet<&Arc<str>> {
    let PoolPolicies {
        host_selection,
        scale_down,
        labels,
    } = &pool.policies;
    [host_selection, scale_down, labels]
        .map(|used| &used.policy.name)
        .into()
}

impl Reporter {
    /// Which files are refused from now on.
    pub fn refuse(&mut self, refusals: BTreeMap<Arc<str>, Refusal>) {
        self.refusals = refusals;
    }

    /// Once each pool, whichever of the two came first: a file may be refused before any pool is known.
    pub(super) fn report_refusals(&mut self, world: &World, now: Timestamp) {
        let mut told = BTreeSet::new();
        for (name, pool) in world.pools() {
            for policy in used_by(pool) {
                let Some(refusal) = self.refusals.get(policy) else {
                    continue;
                };
                let about = About::pool(name, &pool.existence.uid);
                let subject = (about.clone(), refusal.to_string());
                if !self.refusals_reported.contains(&subject) {
                    let message = refusal.to_string();
                    // So that the condition Ready does not tell it once more.
                    self.news(&about, POLICY_REFUSED, &message, now);
                    self.events
                        .say(Event::warning(about, POLICY_REFUSED, message));
                }
                told.insert(subject);
            }
        }
        self.refusals_reported = told;
    }

    pub(super) fn report_failures(&mut self, failures: &Failures, world: &World, now: Timestamp) {
        for (name, message) in failures {
            if let Some(pool) = world.pools().get(name) {
                self.warn(
                    About::pool(name, &pool.existence.uid),
                    POLICY_FAILED,
                    message,
                    now,
                );
            }
        }
    }
}
