//! How many removals of each pool may still begin in this tick.
//!
//! Without `disruption.budgets`, `scaleDown.budget` counts all of them. With them, it counts repairs, deleted Nodes and the
//! deletion of the pool alone, and the budgets count what kproxide chooses: a replacement from when its claim exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::claim::{Condition, Phase};
use crate::facts::{Going, Left, PoolFacts, RemovalReason, strictest};
use crate::ids::PoolName;
use crate::plan::Verdict;
use crate::planning::Planning;
use crate::planning::claims::pool_times::Shares;
use crate::planning::claims::stages::{ClaimState, Stage};
use crate::reasons::kept::{Kept, Replacing};
use crate::reasons::on_hold::{BudgetWhy, Hold};

/// Of one pool.
#[derive(Clone, Default)]
struct Count {
    /// Whatever their reasons.
    under_way: u32,
    /// For reasons that `disruption.budgets` do not name.
    forced: u32,
    going: Going,
    shares: Arc<Shares>,
}

impl Count {
    /// By `disruption.budgets`. `None`: the pool has none, or they do not name the reason.
    fn left(&self, reason: RemovalReason) -> Option<Left> {
        let shares = self.shares.get(&reason.disruption()?)?;
        strictest(shares, self.going)
    }
}

pub(in crate::planning) struct Budgets {
    by_pool: BTreeMap<PoolName, Count>,
}

impl Budgets {
    /// How many more removals of the pool may begin for this reason.
    pub(in crate::planning) fn left(
        &self,
        name: &PoolName,
        pool: &PoolFacts,
        reason: RemovalReason,
    ) -> u32 {
        let Some(count) = self.by_pool.get(name) else {
            return 0;
        };
        let counted = match pool.disruption.budgets.is_empty() {
            true => count.under_way,
            false => count.forced,
        };
        let otherwise = pool.scale_down.budget.saturating_sub(counted);
        count.left(reason).map_or(otherwise, |left| left.machines)
    }

    /// Whether one more removal, of this machine, may begin.
    pub(in crate::planning) fn allow(
        &self,
        row: &ClaimState<'_>,
        pool: &PoolFacts,
        reason: RemovalReason,
    ) -> bool {
        let is_asked_for = reason.disruption().is_some_and(|it| it.is_asked_for());
        let is_free = is_asked_for && !row.is_ready() && !pool.disruption.budgets.is_empty();
        is_free || self.left(&row.claim.spec.pool, pool, reason) > 0
    }

    /// Which budget allows no more.
    pub(in crate::planning) fn why(&self, name: &PoolName, reason: RemovalReason) -> Kept {
        let left = self.by_pool.get(name).and_then(|count| count.left(reason));
        let why = left
            .zip(reason.disruption())
            .map(|(left, reason)| BudgetWhy {
                pool: name.clone(),
                reason,
                by: left.by,
            });
        why.map_or(Kept::Budget, |why| Kept::Held(Hold::Budget(why)))
    }

    /// One begins.
    pub(in crate::planning) fn take(&mut self, row: &ClaimState<'_>, reason: RemovalReason) {
        let count = self.by_pool.entry(row.claim.spec.pool.clone()).or_default();
        count.under_way += 1;
        count.going.out += u32::from(row.is_ready());
        match reason.disruption() {
            Some(_) => count.going.disrupted += 1,
            None => count.forced += 1,
        }
    }
}

impl ClaimState<'_> {
    fn is_ready(&self) -> bool {
        self.node.is_some_and(|node| node.facts.ready)
    }

    /// Why it goes, if it does.
    fn goes_for(&self) -> Option<RemovalReason> {
        let decided = match self.verdict {
            Verdict::Remove(reason) => Some(reason),
            Verdict::Keep | Verdict::GiveUp(_) | Verdict::Hold(_) => {
                self.reviewed.or(self.outgoing)
            }
        };
        decided.or(self.claim.status.removal())
    }
}

impl Planning<'_> {
    /// As of now.
    pub(in crate::planning) fn budgets(&self) -> Budgets {
        let mut by_pool: BTreeMap<PoolName, Count> = BTreeMap::new();
        for row in &self.rows {
            let pool = &row.claim.spec.pool;
            let count = by_pool.entry(pool.clone()).or_insert_with(|| {
                let times = self.tick.pool_times.get(pool);
                Count {
                    shares: times.map(|it| it.shares.clone()).unwrap_or_default(),
                    ..Count::default()
                }
            });
            let is_under_way = row.is_under_way();
            // It has begun when its replacement's claim exists, or is about to.
            let is_ordered = matches!(row.replacing, Some(Replacing::Ordered));
            let has_replacement = row.has_successor || is_ordered;
            let has_begun = is_under_way || has_replacement && row.stage != Stage::Leaving;
            // A removal whose reason nobody has written down is one that kproxide has chosen.
            let is_limited = row.goes_for().is_none_or(|it| it.disruption().is_some());
            count.under_way += u32::from(is_under_way);
            count.forced += u32::from(is_under_way && !is_limited);
            count.going.disrupted += u32::from(has_begun && is_limited);
            if row.claim.status.phase >= Phase::Initialized
                && row.claim.status.since(Condition::Initialized).is_some()
            {
                count.going.initialized += 1;
                let is_out = has_begun || !row.is_ready() && !row.gave_place_back;
                count.going.out += u32::from(is_out);
            }
        }
        Budgets { by_pool }
    }
}
