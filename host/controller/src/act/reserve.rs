//! Before any machine: first write the Ledger, then create the claim.

use std::collections::BTreeSet;

use futures::future::join_all;
use jiff::Timestamp;
use kproxide_planner::facts::{ClaimSpec, LedgerFacts};
use kproxide_planner::ids::{ClaimName, Uid};
use kproxide_planner::ledger::{is_of_claim, overdue};
use kproxide_planner::mutants::{Mutant, broken};
use kproxide_planner::plan::Plan;
use kproxide_planner::world::World;

use super::Context;
use super::pause::Pause;
use kproxide_common::chain::chain;
use kproxide_kube::claims::{self, Creation, StoredClaim};
use kproxide_kube::client::Client;
use kproxide_kube::error::Cas;
use kproxide_kube::ledger;

/// What became of a plan's Ledger.
pub(super) enum Reservation {
    Stands(Box<LedgerFacts>),
    /// There was nothing to write.
    Unneeded,
    /// Another writer was faster, or the write failed. What the plan reserves is not reserved.
    Refused,
}

/// One write per plan, compare-and-set on the version that was planned on.
pub(super) async fn write_ledger(kube: &Client, plan: &Plan) -> Reservation {
    let Some(wanted) = &plan.ledger else {
        return Reservation::Unneeded;
    };
    if wanted.resource_version.is_empty() {
        // It was deleted, or the watch has not shown it yet. Create an empty one. The next plan adds the existing
        // claims.
        match ledger::get_or_create(kube).await {
            Ok(_) => tracing::warn!("there was no Ledger; it is made anew from the claims"),
            Err(error) => {
                tracing::warn!(error = chain(&error), "the Ledger could not be made");
            }
        }
        return Reservation::Refused;
    }
    if broken(Mutant::CountsInMemory) {
        return Reservation::Stands(Box::new(wanted.clone()));
    }
    match ledger::replace(kube, wanted).await {
        Ok(Cas::Written(written)) => Reservation::Stands(Box::new(written)),
        Ok(Cas::Conflict | Cas::Gone) => {
            tracing::debug!(
                "the Ledger has changed since it was planned on; the next tick plans anew"
            );
            Reservation::Refused
        }
        Err(error) => {
            tracing::warn!(error = chain(&error), "the Ledger could not be written");
            Reservation::Refused
        }
    }
}

/// How many reservations are looked at in one tick. The others wait.
const LOOKS_PER_TICK: usize = 20;

/// Reservations that are old enough to be given up and whose claims do not exist. If a claim could not be read, its
/// reservation still counts.
pub(super) async fn unclaimed(kube: &Client, world: &World, now: Timestamp) -> BTreeSet<ClaimName> {
    let overdue = overdue(world, now).take(LOOKS_PER_TICK);
    let looks = overdue.map(|entry| async move {
        let name = &entry.claim;
        match claims::get(kube, name).await {
            // Also if another claim has this name: it is not of this VMID.
            Ok(claim) if claim.as_ref().is_none_or(|claim| !is_of_claim(entry, &claim.facts)) => {
                Some(name.clone())
            }
            Ok(_) => {
                tracing::info!(claim = %name, "the claim exists; the watch of claims lags behind");
                None
            }
            Err(error) => {
                tracing::warn!(claim = %name, error = chain(&error), "whether the claim exists is not known; its reservation counts");
                None
            }
        }
    });
    join_all(looks).await.into_iter().flatten().collect()
}

/// Creates the claim, with its finalizer. Can be repeated: a claim of the same name and spec is this one.
pub(super) async fn create_claim(
    context: &Context,
    name: &ClaimName,
    spec: &ClaimSpec,
    term: &str,
) -> Result<StoredClaim, Pause> {
    if !context.fence.leads_in(term) {
        return Err(Pause::Done);
    }
    match claims::create(&context.kube, name, spec).await {
        Ok(Creation::Created(claim)) => return Ok(*claim),
        Ok(Creation::AlreadyExists) => {}
        Err(error) => {
            // If the claim does not exist, its reservation goes into quarantine after a minute.
            tracing::warn!(claim = %name, error = chain(&error), "the claim could not be created");
            return Err(Pause::Done);
        }
    }
    match claims::get(&context.kube, name).await {
        Ok(Some(claim)) if claim.facts.spec == *spec => Ok(claim),
        Ok(Some(_)) => {
            tracing::error!(claim = %name, "another claim has this name; nothing is launched for it");
            Err(Pause::Done)
        }
        Ok(None) => Err(Pause::Done),
        Err(error) => Err(Pause::after(&error, context.clock.now())),
    }
}

/// The claim as it stands now, if it is still the one that was planned for.
pub(super) async fn read_claim(
    context: &Context,
    name: &ClaimName,
    uid: &Uid,
) -> Result<StoredClaim, Pause> {
    match claims::get(&context.kube, name).await {
        Ok(Some(claim)) if claim.facts.uid == *uid => Ok(claim),
        Ok(Some(_) | None) => Err(Pause::Done),
        Err(error) => Err(Pause::after(&error, context.clock.now())),
    }
}
