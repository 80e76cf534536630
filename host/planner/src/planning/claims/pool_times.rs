//! What the clock says of each pool in this tick: for which reasons no removal may begin, whether pods get no machine, how
//! many machines the pool keeps, and how much room.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::facts::{
    Closed, DisruptionReason, PoolFacts, RemovalReason, Share, next_start, open_until,
};
use crate::ids::PoolName;
use crate::kubernetes::resources::Resources;
use crate::planning::{Planning, Tick};
use crate::reasons::on_hold::{Hold, WindowWhy};
use crate::time::later;

/// The active budgets of a pool, by what they limit.
pub(super) type Shares = BTreeMap<DisruptionReason, Vec<Share>>;

/// Of one pool, now.
pub(in crate::planning) struct PoolTimes {
    closed: BTreeMap<DisruptionReason, Closed>,
    is_unreadable: bool,
    /// The active budgets for each reason. Empty: the pool has none.
    pub(super) shares: Arc<Shares>,
    /// Until when windows for a reason are open without a break, as far as somebody has asked.
    open_until: BTreeMap<DisruptionReason, Timestamp>,
    /// No machine for pods until then.
    pub(in crate::planning) no_launches: Option<Closed>,
    least: u32,
    keeps_free: Resources,
}

impl PoolTimes {
    fn of(pool: &PoolFacts, now: Timestamp) -> Self {
        let reasons = DisruptionReason::ALL.into_iter();
        let closed = reasons.filter_map(|it| Some((it, pool.disruption.closed_until(it, now)?)));
        let reasons = DisruptionReason::ALL.into_iter();
        let shares = reasons.map(|it| (it, pool.disruption.shares(it, now)));
        Self {
            shares: Arc::new(shares.collect()),
            open_until: BTreeMap::new(),
            closed: closed.collect(),
            is_unreadable: pool.times().any(|(_, when)| when.problem().is_some()),
            no_launches: pool.scale_up.closed_until(now),
            least: pool.least(now),
            keeps_free: pool.keeps_free(now),
        }
    }
}

impl Tick<'_> {
    /// What the pool's times say against a removal for this reason that is to begin now.
    pub(in crate::planning) fn out_of_time(
        &self,
        name: &PoolName,
        reason: RemovalReason,
    ) -> Option<Hold> {
        let reason = reason.disruption()?;
        let times = self.pool_times.get(name)?;
        if times.is_unreadable {
            return Some(Hold::TimesUnreadable(name.clone()));
        }
        let closed = times.closed.get(&reason)?;
        Some(Hold::Window(WindowWhy {
            pool: name.clone(),
            reason,
            opens: closed.opens,
            needs: None,
        }))
    }
}

impl Planning<'_> {
    /// Before all else. When something opens or closes, a tick is due.
    pub(in crate::planning) fn read_times(&mut self) {
        let (world, now) = (self.tick.world, self.tick.now);
        for (name, pool) in world.pools() {
            for (_, when) in pool.times() {
                if let Some(change) = when.next_change(now) {
                    self.tick.reached(change);
                }
            }
            let times = PoolTimes::of(pool, now);
            self.tick.pool_times.insert(name.clone(), times);
        }
    }

    /// So many machines the pool keeps now.
    pub(in crate::planning) fn least(&self, pool: &PoolName) -> u32 {
        self.tick
            .pool_times
            .get(pool)
            .map_or(0, |times| times.least)
    }

    /// The room that the pool keeps free now.
    pub(in crate::planning) fn keeps_free(&self, pool: &PoolName) -> Resources {
        let times = self.tick.pool_times.get(pool);
        times
            .map(|times| times.keeps_free.clone())
            .unwrap_or_default()
    }

    /// Why no replacement may be ordered that takes so long to come: it would not be in service before the windows close.
    pub(in crate::planning) fn comes_too_late(
        &mut self,
        name: &PoolName,
        reason: RemovalReason,
        needs: SignedDuration,
    ) -> Option<Hold> {
        let reason = reason.disruption()?;
        let (world, now) = (self.tick.world, self.tick.now);
        let windows = world.pools().get(name)?.disruption.windows_for(reason);
        windows.clone().next()?;
        let times = self.tick.pool_times.get_mut(name)?;
        let until = times.open_until.entry(reason).or_insert_with(|| {
            let longest = world.classes().values().map(|class| class.comes_within());
            open_until(
                windows.clone(),
                now,
                later(now, longest.max().unwrap_or(needs)),
            )
        });
        (*until < later(now, needs)).then(|| {
            Hold::Window(WindowWhy {
                pool: name.clone(),
                reason,
                opens: next_start(windows, now),
                needs: Some(needs),
            })
        })
    }
}
