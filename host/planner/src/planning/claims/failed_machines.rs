//! The last machine of each class whose launch failed: it may stay for a while, stopped, for a person to look at
//! (`join.keepFailed`). It goes once another one has failed, or when a machine that is wanted lacks what it takes.

use std::collections::BTreeSet;

use crate::claim::Condition;
use crate::facts::ClaimFacts;
use crate::ids::{ClaimName, HypervisorId, PoolName};
use crate::plan::report::{Severity, Why};
use crate::plan::{RemovalReason, Verdict};
use crate::planning::{Planning, Tick};
use crate::reasons::no_hypervisor::{Refusal, Refused};
use crate::time::later;
use crate::world::World;

/// The claim's machine may stay for now. Then its verdict is to keep it, whatever its phase is.
pub(in crate::planning) fn is_kept(
    tick: &mut Tick<'_>,
    name: &ClaimName,
    claim: &ClaimFacts,
) -> bool {
    let Some(time) = keep_time(tick.world, claim) else {
        return false;
    };
    let failed = tick.world.claims().iter().filter(|(_, other)| {
        other.spec.class == claim.spec.class && other.status.is_failed_launch()
    });
    let newest = failed.max_by_key(|(name, other)| (other.status.draining_since, *name));
    if newest.is_none_or(|(newest, _)| newest != name) {
        return false;
    }
    let stopped = claim.status.since(Condition::InstanceTerminating);
    stopped.is_none_or(|since| !tick.reached(later(since, time)))
}

/// `None`: it goes at once.
fn keep_time(world: &World, claim: &ClaimFacts) -> Option<jiff::SignedDuration> {
    let class = world.classes().get(&claim.spec.class)?;
    let pool = world.pools().get(&claim.spec.pool)?;
    let stays = class.existence.deleting_since.is_none() && pool.going_since().is_none();
    let is_kept =
        stays && class.join.keeps_failed().is_positive() && claim.status.is_failed_launch();
    is_kept.then_some(class.join.keeps_failed())
}

/// Notes why a machine that is wanted cannot be made, for [`Planning::give_up_kept`].
pub(in crate::planning) fn note(lacking: &mut Vec<(PoolName, Why)>, pool: &PoolName, why: &Why) {
    if matches!(why, Why::Limit(_) | Why::NoHypervisor(_)) {
        lacking.push((pool.clone(), why.clone()));
    }
}

impl Planning<'_> {
    /// Machines that are wanted lack what these take: they go now, and the next plans make the others.
    pub(in crate::planning) fn give_up_kept(&mut self) {
        let mut given_up = BTreeSet::new();
        for (index, row) in self.rows.iter().enumerate() {
            let is_kept = row.verdict == Verdict::Keep && row.claim.status.is_failed_launch();
            let mut lacking = self.placing.lacking.iter();
            if is_kept && lacking.any(|(pool, why)| frees(row.claim, pool, why)) {
                given_up.insert(index);
            }
        }
        for index in given_up {
            let row = &mut self.rows[index];
            row.verdict = Verdict::Remove(RemovalReason::LaunchFailed);
            let about = format!("NodeClaim/{}", row.name);
            let text = "its launch failed. kproxide keeps its machine no longer (join.keepFailed), because another machine needs its room";
            self.tick.found(Severity::Notice, about, text);
        }
    }
}

/// Whether the end of this claim's machine brings nearer what a machine of the pool lacks. Its VMID and its address
/// rest first.
fn frees(claim: &ClaimFacts, pool: &PoolName, why: &Why) -> bool {
    let is_own_limit = matches!(why, Why::Limit(_)) && claim.spec.pool == *pool;
    let is_of_place = |refused: &Refused| frees_there(claim, refused);
    is_own_limit || matches!(why, Why::NoHypervisor(all) if all.iter().any(is_of_place))
}

fn frees_there(claim: &ClaimFacts, (at, refusal): &Refused) -> bool {
    let stands_at = HypervisorId {
        name: claim.hypervisor().clone(),
        ..claim.spec.hypervisor_id()
    };
    let is_of_place = matches!(
        refusal,
        Refusal::Lacks { .. } | Refusal::TooManyMachines(_) | Refusal::StorageFull { .. }
    );
    let is_of_number =
        matches!(refusal, Refusal::NoNumber { cluster, .. } if *cluster == claim.spec.cluster);
    let is_of_address = matches!(refusal, Refusal::NoAddress(class) if *class == claim.spec.class);
    let is_of_ledger = matches!(refusal, Refusal::LedgerFull);
    (is_of_place && *at == stands_at) || is_of_number || is_of_address || is_of_ledger
}
