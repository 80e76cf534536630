//! The breaker: how many machines in service may begin to go within a while, counted in rows of the Ledger, so that no restart and no other
//! leader begins to count anew.
//!
//! Two allowances, both over [`WINDOW`]. Repairs, which nobody asked for and which take a machine that is there: a tenth of the machines, at
//! least one. Everything together (scale-down that policy and budget want, what people delete or have replaced, machines that are gone
//! already): half of them, at least [`LEAST_REMOVALS`]. A machine that never was in service is not counted: its cleanup neither waits nor
//! takes anything from others.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::facts::Removal;
pub use crate::hold::WINDOW;
use crate::hold::Wait;
use crate::ids::ClaimName;
use crate::mutants::{Mutant, broken};
use crate::plan::RemovalReason;
use crate::removal::Allowance;
use crate::time::later;

/// Removals that the smallest cluster is allowed within the window: it may shrink as fast as its owner's budget says.
pub const LEAST_REMOVALS: u32 = 20;

/// Within this time a removal that begins again (after a crash, say) is the same one, and its row stays as it is: no write per tick.
const SAME: SignedDuration = SignedDuration::from_secs(60);

/// Removals that begin within [`WINDOW`], at most, with so many machines in service, those counted that went within it.
fn allowed(allowance: Allowance, machines: u32) -> u32 {
    match allowance {
        Allowance::Repairs if broken(Mutant::RepairsUnlimited) => u32::MAX,
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

/// Forgets what is older than the window. A moment that is yet to come was written by a clock that has been set back: it counts from now, so
/// that it keeps nothing waiting for longer than the window. Returns when time alone will change the rows.
pub fn forget(removals: &mut Vec<Removal>, now: Timestamp) -> Option<Timestamp> {
    for row in removals.iter_mut() {
        row.at = row.at.min(now);
    }
    removals.retain(|row| now < later(row.at, WINDOW));
    removals.iter().map(|row| later(row.at, WINDOW)).min()
}

/// Counts a removal that begins now, or says until when it has to wait. The rows must be those of [`forget`] at the same moment, and must stand
/// in the Ledger before the removal begins. A claim whose removal was counted within the window is not counted twice.
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

/// Whether a removal of this kind could be counted now that has not been yet.
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

/// Machines that the allowances are shares of: those in service, and those that went within the window. Were these left out, every removal would
/// make the next one's share smaller.
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
