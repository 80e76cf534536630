//! The breaker limits how many removals of machines in service begin within [`WINDOW`]. It counts rows of the Ledger,
//! so that a restart or another leader does not start the count anew.
//!
//! There are two allowances. Repairs, which no user asked for and which destroy an existing machine: 10 % of the
//! machines, at least 1. All removals together (scale-down, deleted claims, replacements, machines that are gone
//! already): 50 % of the machines, at least [`LEAST_REMOVALS`]. A machine that never was in service does not count, and
//! its removal does not wait.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::facts::Removal;
use crate::facts::removal::Allowance;
use crate::ids::ClaimName;
use crate::plan::RemovalReason;
pub use crate::reasons::on_hold::WINDOW;
use crate::reasons::on_hold::Wait;
use crate::time::later;

/// Removals that even the smallest cluster may begin within the window, so that it can shrink as fast as the pool's
/// budget says.
pub const LEAST_REMOVALS: u32 = 20;

/// A removal that begins again within this time (after a crash, say) counts as the same one and keeps its row, so that
/// not every tick writes the Ledger.
const SAME: SignedDuration = SignedDuration::from_secs(60);

/// How many removals may begin within [`WINDOW`]. `machines`: those in service, and those that were removed within it.
fn allowed(allowance: Allowance, machines: u32) -> u32 {
    match allowance {
        Allowance::Repairs => (machines / 10).max(1),
        Allowance::All => (machines / 2).max(LEAST_REMOVALS),
    }
}

impl Allowance {
    fn covers(self, row: &Removal) -> bool {
        match self {
            Self::Repairs => row.reason.allowance() == Self::Repairs,
            Self::All => true,
        }
    }
}

/// Forgets what is older than the window. A time in the future comes from a clock that has been set back. It counts as
/// now, so that nothing waits longer than the window. Returns when the next row expires.
pub fn forget(removals: &mut Vec<Removal>, now: Timestamp) -> Option<Timestamp> {
    for row in removals.iter_mut() {
        row.at = row.at.min(now);
    }
    removals.retain(|row| now < later(row.at, WINDOW));
    removals.iter().map(|row| later(row.at, WINDOW)).min()
}

/// Counts a removal that begins now, or says until when it has to wait. Call [`forget`] first, with the same `now`. The
/// rows must be in the Ledger before the removal begins. A claim that was counted within the window is not counted
/// twice.
///
/// # Errors
/// An allowance is used up; the rows are as they were.
pub fn count(
    removals: &mut Vec<Removal>,
    machines: u32,
    claim: &ClaimName,
    reason: RemovalReason,
    now: Timestamp,
) -> Result<(), Wait> {
    let reason = reason.in_ledger();
    let new = Removal {
        claim: claim.clone(),
        at: now,
        reason,
    };
    let known = removals.iter().position(|row| row.claim == *claim);
    for allowance in [Allowance::Repairs, Allowance::All] {
        let is_counted = known.is_some_and(|index| allowance.covers(&removals[index]));
        if allowance.covers(&new) && !is_counted {
            room(removals, allowance, machines, now)?;
        }
    }
    match known {
        Some(index) => {
            let row = &mut removals[index];
            if row.reason.allowance() != Allowance::Repairs {
                row.reason = reason;
            }
            if now >= later(row.at, SAME) {
                row.at = now;
            }
        }
        None => removals.push(new),
    }
    Ok(())
}

/// Whether one more removal could be counted now.
pub(crate) fn has_room(removals: &[Removal], machines: u32, now: Timestamp) -> Result<(), Wait> {
    room(removals, Allowance::All, machines, now)
}

fn room(
    removals: &[Removal],
    allowance: Allowance,
    machines: u32,
    now: Timestamp,
) -> Result<(), Wait> {
    let rows = removals.iter().filter(|row| allowance.covers(row));
    let mut moments: Vec<Timestamp> = rows.map(|row| row.at).collect();
    let allowed = allowed(allowance, machines);
    let most = usize::try_from(allowed).unwrap_or(usize::MAX);
    let Some(too_many) = moments.len().checked_sub(most) else {
        return Ok(());
    };
    moments.sort_unstable();
    let freed = moments.get(too_many).copied().unwrap_or(now);
    Err(Wait {
        allowance,
        counted: u32::try_from(moments.len()).unwrap_or(u32::MAX),
        allowed,
        until: later(freed, WINDOW),
    })
}

/// Number of machines of which the allowances are shares: those in service, and those removed within the window.
/// Without the latter each removal would make the next allowance smaller.
pub(crate) fn machines<'a>(
    in_service: impl Iterator<Item = &'a ClaimName>,
    removals: &'a [Removal],
) -> u32 {
    let went = removals.iter().map(|row| &row.claim);
    let all: BTreeSet<&ClaimName> = in_service.chain(went).collect();
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
