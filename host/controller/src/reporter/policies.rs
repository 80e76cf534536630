//! What goes wrong with a pool's policies: files that are refused, and answers that fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::facts::{PolicyKind, PolicyRef, PolicyUse, PoolFacts};
use kproxide_planner::ids::PoolName;
use kproxide_planner::plan::report::Report;
use kproxide_planner::world::World;

use super::Reporter;
use crate::judge::{Failures, reasons};
use kproxide_kube::convert::truncated;
use kproxide_kube::crd::PolicyStatus;
use kproxide_kube::events::{About, Event};
use kproxide_policy::{Answering, Refusal, Unfit};

/// The Event, and the reason of a pool that is not ready for it.
const POLICY_FAILED: &str = reasons::POLICY_FAILED.word;
const POLICY_REFUSED: &str = reasons::POLICY_REFUSED.word;

/// The policies that failed in a tick, each with the last failure.
pub(super) type Failed = BTreeMap<(PoolName, PolicyKind), String>;

/// Those that another policy stood in for too.
pub(super) fn failed(report: &Report) -> Failed {
    let fallbacks = report.placements.iter().filter_map(|it| {
        let key = (it.pool.clone(), PolicyKind::HostSelection);
        Some((key, it.fallback.clone()?))
    });
    let failures = report.policy_failures.iter();
    let failures = failures.map(|it| ((it.pool.clone(), it.policy.kind), it.reason.clone()));
    failures.chain(fallbacks).collect()
}

/// The names of the policies that a pool uses.
pub(super) fn used_by(pool: &PoolFacts) -> BTreeSet<Arc<str>> {
    let used = pool.policies.each().into_iter();
    used.map(|(_, used)| used.policy.name).collect()
}

/// What all pools use.
pub fn used(world: &World) -> impl Iterator<Item = (PoolName, PolicyUse)> {
    world.pools().iter().flat_map(|(name, pool)| {
        let used = pool.policies.by_field();
        used.map(|(_, used)| (name.clone(), used.clone()))
    })
}

impl Reporter {
    /// What is wrong with the policies of pools from now on, beside their files.
    pub fn judge_policies(&mut self, unfit: Unfit) {
        self.unfit = unfit;
    }

    /// What answers for which name from now on.
    pub fn answering(&mut self, answering: BTreeMap<PolicyRef, Answering>) {
        self.answering = answering;
    }

    /// The policies of a pool as its status shows them, each as if it were new now.
    pub(super) fn shown(
        &self,
        name: &PoolName,
        pool: &PoolFacts,
        failed: &Failed,
        now: Timestamp,
    ) -> Vec<PolicyStatus> {
        let shown = |(field, used): (String, PolicyUse)| {
            let answering = self.answering.get(&used.policy);
            let key = (name.clone(), used.policy.clone());
            let refusal = self
                .refusals
                .get(&used.policy.name)
                .map(ToString::to_string);
            let unfit = self.unfit.settings.get(&key);
            let error = refusal
                .or_else(|| unfit.or(self.unfit.given_up.get(&key)).cloned())
                .or_else(|| {
                    let failed = failed.get(&(name.clone(), used.policy.kind))?;
                    // Of several that decide together one has failed, and its name comes first.
                    let it = &used.policy.name;
                    let is_it = !field.contains('.')
                        || failed.starts_with(&format!("policy {it}: "))
                        || failed.contains(&format!(": {it}: "));
                    is_it.then(|| failed.clone())
                });
            PolicyStatus {
                kind: field.split('.').next().unwrap_or_default().to_owned(),
                name: used.policy.name.to_string(),
                version: answering.map(|it| it.version.clone()),
                digest: answering.map(|it| format!("sha256:{}", it.digest)),
                file: answering.and_then(|it| it.file.as_deref().map(str::to_owned)),
                since: format!("{now:.0}"),
                last_error_time: error.as_ref().map(|_| format!("{now:.0}")),
                last_error: error.map(|it| truncated(&it, 1000)),
            }
        };
        pool.policies.each().into_iter().map(shown).collect()
    }

    /// Which files are refused from now on.
    pub fn refuse(&mut self, refusals: BTreeMap<Arc<str>, Refusal>) {
        self.refusals = refusals;
    }

    /// Once each pool, whichever of the two came first: a file may be refused before any pool is known.
    pub(super) fn report_refusals(&mut self, world: &World, now: Timestamp) {
        let mut told = BTreeSet::new();
        for (name, pool) in world.pools() {
            for policy in used_by(pool) {
                let Some(refusal) = self.refusals.get(&policy) else {
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
