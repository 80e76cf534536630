//! The breaker in a plan: the Ledger counts every removal of a machine in service before it begins, or the removal
//! waits.

use crate::claim::{Condition, Phase};
use crate::guard::breaker;
use crate::ids::PoolName;
use crate::plan::{RemovalReason, Verdict};
use crate::planning::Planning;
use crate::planning::claims::stages::Stage;
use crate::reasons::on_hold::{Hold, Wait};

impl Planning<'_> {
    /// Counts removals that need no choice. Those counted before come first, then those that cost least.
    pub(in crate::planning) fn count_decided(&mut self) {
        let claims = self.tick.world.claims().iter();
        let in_service = claims
            .filter(|(_, claim)| claim.status.since(Condition::Initialized).is_some())
            .map(|(name, _)| name);
        self.machines = breaker::machines(in_service, &self.ledger.removals);
        let mut begins: Vec<(bool, std::cmp::Reverse<RemovalReason>, usize)> = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let Verdict::Remove(reason) = row.verdict else {
                continue;
            };
            if row.claim.status.phase == Phase::Initialized {
                let is_new = !self.is_counted(index);
                begins.push((is_new, std::cmp::Reverse(reason), index));
            }
        }
        begins.sort_unstable();
        for (_, std::cmp::Reverse(reason), index) in begins {
            let Some(wait) = self.count_removal(index, reason) else {
                continue;
            };
            let row = &mut self.rows[index];
            if row.claim.deleting_since.is_some() {
                row.verdict = Verdict::Hold(Hold::Breaker(wait));
            } else {
                row.verdict = Verdict::Keep;
                row.stage = Stage::InService;
                row.waiting = Some(Hold::Breaker(wait));
            }
        }
    }

    /// Counts a removal that begins with this plan, or says what it has to wait for.
    pub(in crate::planning) fn count_removal(
        &mut self,
        index: usize,
        reason: RemovalReason,
    ) -> Option<Wait> {
        let name = self.rows[index].name;
        let rows = &mut self.ledger.removals;
        let wait = breaker::count(rows, self.machines, name, reason, self.tick.now).err()?;
        let pool = self.rows[index].claim.spec.pool.clone();
        self.tell_wait(&pool, &wait);
        Some(wait)
    }

    /// Why none of these Nodes of a pool could begin to go.
    pub(in crate::planning) fn none_can_begin(
        &mut self,
        pool: &PoolName,
        rows: &[usize],
    ) -> Option<Wait> {
        if rows.iter().any(|row| self.is_counted(*row)) {
            return None;
        }
        let wait = breaker::has_room(&self.ledger.removals, self.machines, self.tick.now).err()?;
        self.tell_wait(pool, &wait);
        Some(wait)
    }

    fn is_counted(&self, index: usize) -> bool {
        let name = self.rows[index].name;
        self.ledger.removals.iter().any(|row| row.claim == *name)
    }

    fn tell_wait(&mut self, pool: &PoolName, wait: &Wait) {
        self.tick.reached(wait.until);
        let told = &mut self.report.waiting;
        if !told.iter().any(|(other, _)| other == pool) {
            told.push((pool.clone(), wait.to_string()));
        }
    }
}
