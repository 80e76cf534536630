//! What closing a claim changes in the Ledger.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::observed::EntryLook;
use super::subject::later;
use crate::facts::{Backoff, ClaimSpec, EntryState, LedgerEntry, LedgerFacts};
use crate::ids::ClaimName;

/// The first pause after a failed launch on a hypervisor and storage; doubled for each further one.
const BACKOFF_FIRST: SignedDuration = SignedDuration::from_mins(5);
const BACKOFF_MOST: SignedDuration = SignedDuration::from_mins(30);
/// So long after the last failure, counting begins anew.
const BACKOFF_FORGOTTEN: SignedDuration = SignedDuration::from_hours(3);

/// A claim that is closed, or whose VMID is out of use for good.
#[derive(Clone, Debug, PartialEq)]
pub struct Closing<'a> {
    pub claim: &'a ClaimName,
    pub spec: &'a ClaimSpec,
    pub until: Timestamp,
    pub failure: Option<Arc<str>>,
}

/// The Ledger's word on a claim's VMID.
pub fn entry_of(ledger: &LedgerFacts, claim: &ClaimName, spec: &ClaimSpec) -> EntryLook {
    let entry = ledger
        .entries
        .iter()
        .find(|entry| is_of(entry, claim, spec));
    match entry.map(|entry| entry.state) {
        Some(EntryState::Reserved { .. } | EntryState::Live) => EntryLook::Ours,
        Some(EntryState::Quarantined { .. }) => EntryLook::Quarantined,
        None => EntryLook::Missing,
    }
}

/// Quarantines the claim's entry (making it, if it is not there) and notes the failure against its hypervisor and storage.
pub fn close(ledger: &mut LedgerFacts, closing: &Closing<'_>, now: Timestamp) {
    let Closing {
        claim,
        spec,
        until,
        failure,
    } = closing;
    let state = EntryState::Quarantined { until: *until };
    match ledger.entries.iter_mut().find(|e| is_of(e, claim, spec)) {
        Some(entry) => entry.state = state,
        None => ledger.entries.push(LedgerEntry {
            claim: (*claim).clone(),
            pool: spec.pool.clone(),
            cluster: spec.cluster.clone(),
            vmid: spec.vmid,
            hypervisor: spec.hypervisor.clone(),
            storage: spec.storage.clone(),
            milli_cores: spec.milli_cores,
            memory_bytes: spec.memory_bytes,
            disk_bytes: spec.disk_bytes.unwrap_or(0),
            address: spec.address,
            state,
        }),
    }
    if let Some(class) = failure {
        note_failure(ledger, spec, class, now);
    }
}

fn note_failure(ledger: &mut LedgerFacts, spec: &ClaimSpec, class: &Arc<str>, now: Timestamp) {
    let hypervisor = spec.hypervisor_id();
    let known = ledger.backoff.iter_mut().find(|backoff| {
        backoff.hypervisor == hypervisor
            && backoff.storage == spec.storage
            && backoff.class == *class
    });
    let failures = match &known {
        Some(backoff) if now < later(backoff.until, BACKOFF_FORGOTTEN) => {
            backoff.failures.saturating_add(1)
        }
        Some(_) | None => 1,
    };
    let doubled = BACKOFF_FIRST * (1_i32 << (failures - 1).min(8));
    let until = later(now, doubled.min(BACKOFF_MOST));
    match known {
        Some(backoff) => {
            backoff.failures = failures;
            backoff.until = until;
        }
        None => ledger.backoff.push(Backoff {
            hypervisor,
            storage: spec.storage.clone(),
            class: class.clone(),
            failures,
            until,
        }),
    }
}

fn is_of(entry: &LedgerEntry, claim: &ClaimName, spec: &ClaimSpec) -> bool {
    entry.claim == *claim && entry.vmid == spec.vmid && entry.cluster == spec.cluster
}
