//! What is wrong with the policies that pools use, whether or not they are asked now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kproxide_planner::facts::{PolicyRef, PolicyUse};
use kproxide_planner::ids::PoolName;

use super::{Budget, Library, Record};
use crate::engine::CallError;

/// What is wrong with the policies of pools, beside their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfit {
    /// What they say of their settings, where they do not accept them.
    pub settings: BTreeMap<(PoolName, PolicyRef), String>,
    /// Why kproxide does not call them any more.
    pub given_up: BTreeMap<(PoolName, PolicyRef), String>,
    /// Whose files are being loaded for the first time, and what for.
    pub loading: BTreeMap<Arc<str>, String>,
}

impl Library {
    /// What is wrong with what pools use. Settings are checked once, when they or the policy are new; where the budget ends, the rest waits for the next
    /// time.
    pub async fn judge(
        &self,
        pools: impl Iterator<Item = (PoolName, PolicyUse)>,
        budget: &mut Budget,
    ) -> Unfit {
        let mut unfit = Unfit {
            loading: self.loading(),
            ..Unfit::default()
        };
        let pools: Vec<_> = pools.collect();
        self.note_uses(pools.iter().map(|(pool, used)| (pool, used)));
        for (pool, used) in &pools {
            for used in used.each() {
                self.judge_one(pool, &used, budget, &mut unfit).await;
            }
            self.judge_together(pool, used, &mut unfit);
        }
        self.rest();
        unfit
    }

    /// Processes of files that no pool uses end. Those of files that are being tried are none of theirs.
    fn rest(&self) {
        let state = self.lock();
        let used = state.named();
        let of = |is_used: bool| {
            let files = state.overrides.iter();
            let files = files.filter(|(name, _)| used.contains(*name) == is_used);
            files
                .map(|(_, it)| it.module.digest().clone())
                .collect::<BTreeSet<_>>()
        };
        let (used, mut unused) = (of(true), of(false));
        unused.retain(|digest| !used.contains(digest));
        self.engine.rest(&unused);
    }

    /// Several that decide together may use up what one question may take, or the memory for all, without a fault of any alone.
    fn judge_together(&self, pool: &PoolName, used: &PolicyUse, unfit: &mut Unfit) {
        let Some(whole) = self.whole(used) else {
            return;
        };
        let given_up = || {
            let state = self.lock();
            let reason = state.records.get(&whole).and_then(Record::given_up)?;
            Some(format!("as one of several, {reason}"))
        };
        let Some(reason) = self.crowded(used).or_else(given_up) else {
            return;
        };
        for used in used.each() {
            let subject = (pool.clone(), used.policy);
            // What is wrong with it alone is said rather.
            unfit.given_up.entry(subject).or_insert(reason.clone());
        }
    }

    async fn judge_one(
        &self,
        pool: &PoolName,
        used: &PolicyUse,
        budget: &mut Budget,
        unfit: &mut Unfit,
    ) {
        let PolicyUse {
            policy, settings, ..
        } = used;
        let Ok(module) = self.module(policy).await else {
            return;
        };
        let subject = (pool.clone(), policy.clone());
        let key = (module.digest().clone(), settings.clone());
        let (given_up, rests, was_checked) = match self.lock().records.get(&key) {
            Some(it) => (it.given_up(), it.rests().is_some(), it.checked.is_some()),
            None => (None, false, false),
        };
        unfit
            .given_up
            .extend(given_up.map(|reason| (subject.clone(), reason)));
        if rests {
            return;
        }
        if budget.is_used_up() || !module.kinds().contains(&policy.kind) {
            return;
        }
        let check = self.check_settings(&module, &policy.name, settings);
        match budget.time(check).await {
            Some(Err(error)) if error.is_deterministic() => {
                unfit.settings.insert(subject, error.to_string());
            }
            // It is asked again with the next pass, but not for ever.
            Some(Err(error)) if !matches!(error, CallError::Starting | CallError::NoRoom(_)) => {
                self.record(key, |record| record.fail(&error));
            }
            // Only this check had failed so far: nothing is asked of a policy before.
            Some(Ok(())) if !was_checked => {
                unfit.given_up.remove(&subject);
                self.record(key, |record| record.failures = 0);
            }
            Some(Ok(()) | Err(_)) | None => {}
        }
    }
}
