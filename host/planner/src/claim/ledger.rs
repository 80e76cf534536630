//! What closing a claim changes in the Ledger.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::observed::EntryLook;
use super::reasons::REFUSED_EVERYWHERE;
use crate::facts::{
    Backoff, ClaimSpec, Condition, EntryState, FailedLaunches, LaunchFailure, LedgerEntry,
    LedgerFacts,
};
use crate::ids::{ClaimName, PoolName};
use crate::ledger::{
    MOST_FAILED_LAUNCHES, quarantine, record, record_failed_launch, record_failure,
};
use crate::world::World;

/// A claim that is closed, or whose VMID can no longer be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Closing<'a> {
    pub claim: &'a ClaimName,
    pub spec: &'a ClaimSpec,
    /// When its number begins to rest, and until when it does.
    pub since: Timestamp,
    pub until: Timestamp,
    pub failure: Option<LaunchFailure>,
}

/// What the Ledger says of a claim's VMID.
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

/// The Ledger with the claim's entry in quarantine (created if it was missing), and with its failure noted for
/// hypervisor and storage. An entry that is in quarantine already stays as it is: another leader, or a write whose
/// answer was lost, has noted the failure, which must count only once. A place rests from when the launch failed,
/// however long its VM took to go.
pub fn close(ledger: &LedgerFacts, closing: &Closing<'_>, failed_at: Timestamp) -> LedgerFacts {
    let Closing {
        claim,
        spec,
        since,
        until,
        failure,
    } = closing;
    if entry_of(ledger, claim, spec) == EntryLook::Quarantined {
        return rest_longer(ledger, closing);
    }
    let mut ledger = quarantine(ledger, claim, *since, *until);
    if !ledger.entries.iter().any(|entry| is_of(entry, claim, spec)) {
        let rests = EntryState::Quarantined {
            since: Some(*since),
            until: *until,
        };
        ledger.entries.push(LedgerEntry::of(claim, spec, rests));
    }
    match failure {
        Some(failure) => record_launch(&ledger, spec, failure, failed_at),
        None => ledger,
    }
}

/// One leader may have closed the claim as if no clone was asked for while the other one asked for it.
fn rest_longer(ledger: &LedgerFacts, closing: &Closing<'_>) -> LedgerFacts {
    let mut ledger = ledger.clone();
    let rows = ledger.entries.iter_mut();
    for entry in rows.filter(|entry| is_of(entry, closing.claim, closing.spec)) {
        if let EntryState::Quarantined { since, until } = &mut entry.state
            && *until < closing.until
        {
            (*since, *until) = (Some(closing.since), closing.until);
        }
    }
    ledger
}

/// The Ledger after a launch failed: of its pool, and on its hypervisor with its storage, or for its class wherever it is
/// tried.
fn record_launch(
    ledger: &LedgerFacts,
    spec: &ClaimSpec,
    failure: &LaunchFailure,
    now: Timestamp,
) -> LedgerFacts {
    // The same failure has the same text, whichever machine it was.
    let of_pool = LaunchFailure {
        class: failure.class.clone(),
        message: (failure.message).replace(&format!("VM {}", spec.vmid), "its VM"),
    };
    let ledger = &record_failed_launch(ledger, &spec.pool, &of_pool, now);
    let hypervisor = spec.hypervisor_id();
    if *failure.class != *REFUSED_EVERYWHERE {
        return record_failure(ledger, &hypervisor, spec.storage.as_ref(), failure, now);
    }
    let is_it = |row: &Backoff| {
        row.node_class.as_ref() == Some(&spec.class)
            && row.hypervisor.cluster == hypervisor.cluster
            && row.class == failure.class
    };
    let place = (hypervisor.clone(), None, Some(spec.class.clone()));
    record(ledger, is_it, place, failure, now)
}

/// The Ledger's back-off, and that of failed launches whose claims are not closed yet: a cold start, or a VM that cannot
/// be removed, keeps them open for long.
pub(crate) fn backoff_with_open_claims(ledger: &LedgerFacts, world: &World) -> Vec<Backoff> {
    with_open_claims(ledger, world).backoff
}

/// The pools whose last 3 launches failed, with no machine of theirs that has come into service since: the text of the last
/// failure of each.
pub fn failing_pools(world: &World) -> BTreeMap<PoolName, String> {
    let nothing = LedgerFacts::default();
    let rows = with_open_claims(world.ledger().unwrap_or(&nothing), world).failed_launches;
    let is_failing =
        |row: &FailedLaunches| row.in_a_row >= MOST_FAILED_LAUNCHES && !is_over(world, row);
    let failing = rows.into_iter().filter(is_failing);
    failing.map(|row| (row.pool, row.message)).collect()
}

/// A machine of the pool has come into service since.
pub(crate) fn is_over(world: &World, row: &FailedLaunches) -> bool {
    let mut claims = world.claims().values();
    claims.any(|claim| {
        let since = claim.status.since(Condition::Initialized);
        claim.spec.pool == row.pool && since.is_some_and(|since| since > row.at)
    })
}

/// The Ledger's rows of failed launches, with those whose claims are not closed yet.
fn with_open_claims(ledger: &LedgerFacts, world: &World) -> LedgerFacts {
    let mut failed: Vec<_> = world
        .claims()
        .iter()
        .filter_map(|(name, claim)| {
            let failure = claim.status.launch_failure()?;
            let since = claim.status.draining_since?;
            let is_open = entry_of(ledger, name, &claim.spec) == EntryLook::Ours;
            is_open.then_some((since, name, claim, failure))
        })
        .collect();
    failed.sort_by_key(|(since, name, ..)| (*since, *name));
    let rows = LedgerFacts {
        backoff: ledger.backoff.clone(),
        failed_launches: ledger.failed_launches.clone(),
        ..LedgerFacts::default()
    };
    failed
        .into_iter()
        .fold(rows, |rows, (since, _, claim, failure)| {
            record_launch(&rows, &claim.spec, &failure, since)
        })
}

fn is_of(entry: &LedgerEntry, claim: &ClaimName, spec: &ClaimSpec) -> bool {
    entry.claim == *claim && entry.vmid == spec.vmid && entry.cluster == spec.cluster
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::Phase;
    use super::super::tests::fixture;
    use super::*;
    use crate::time::later;

    fn failed<'a>(name: &'a ClaimName, spec: &'a ClaimSpec) -> Closing<'a> {
        Closing {
            claim: name,
            spec,
            since: fixture::at(10),
            until: fixture::at(100),
            failure: Some(LaunchFailure {
                class: "HypervisorUnfit".into(),
                message: "it is off".to_owned(),
            }),
        }
    }

    #[test]
    fn f44_f72_a_failure_that_two_leaders_close_counts_once() {
        let (a, b) = (ClaimName::from("workers-a"), ClaimName::from("workers-b"));
        let spec = fixture::claim(Phase::Terminating).spec;
        let mut other = spec.clone();
        other.vmid.0 += 1;
        let failures = |ledger: &LedgerFacts| ledger.backoff[0].failures;
        let once = close(&LedgerFacts::default(), &failed(&a, &spec), fixture::at(0));
        let twice = close(&once, &failed(&a, &spec), fixture::at(1));
        assert_eq!(twice, once);
        let both = close(&twice, &failed(&b, &other), fixture::at(1));
        assert_eq!((failures(&once), failures(&both)), (1, 2));
    }

    #[test]
    fn three_failed_launches_in_a_row_are_told_of_their_pool_alone() {
        let spec = fixture::claim(Phase::Terminating).spec;
        let mut ledger = LedgerFacts::default();
        for number in 0..4 {
            let (name, mut spec) = (ClaimName::from(format!("workers-{number}")), spec.clone());
            spec.vmid.0 += number;
            let mut closing = failed(&name, &spec);
            let message = format!("starting VM {} failed: no", spec.vmid);
            closing.failure = Some(LaunchFailure {
                class: "HypervisorUnfit".into(),
                message,
            });
            ledger = close(&ledger, &closing, fixture::at(number.into()));
            let [row] = &ledger.failed_launches[..] else {
                panic!("{:?}", ledger.failed_launches);
            };
            assert_eq!((&row.pool, row.in_a_row), (&spec.pool, 3.min(number + 1)));
            assert_eq!(row.message, "starting its VM failed: no");
        }
    }

    #[test]
    fn a_closed_claim_rests_whether_its_entry_was_there_or_not() {
        let name = ClaimName::from("workers-a");
        let spec = fixture::claim(Phase::Terminating).spec;
        let closing = failed(&name, &spec);
        let empty = LedgerFacts::default();
        assert_eq!(entry_of(&empty, &name, &spec), EntryLook::Missing);
        let mut ledger = close(&empty, &closing, fixture::at(0));
        assert_eq!(entry_of(&ledger, &name, &spec), EntryLook::Quarantined);
        assert_eq!((ledger.entries.len(), ledger.backoff.len()), (1, 1));

        ledger.entries[0].state = EntryState::Live;
        assert_eq!(entry_of(&ledger, &name, &spec), EntryLook::Ours);
        let ledger = close(&ledger, &closing, fixture::at(0));
        assert_eq!(entry_of(&ledger, &name, &spec), EntryLook::Quarantined);
        assert_eq!((ledger.entries.len(), ledger.backoff[0].failures), (1, 2));
        // Closed once more: the longer rest counts, and the failure does not count again.
        let longer = later(closing.until, SignedDuration::from_secs(70));
        let before = closing.since;
        let since = later(before, SignedDuration::from_secs(9));
        let closings = [
            (fixture::at(0), before, closing.until),
            (longer, since, longer),
        ];
        for (until, begun, expected) in closings {
            let again = Closing {
                since,
                until,
                ..closing.clone()
            };
            let ledger = close(&ledger, &again, fixture::at(0));
            let rests = EntryState::Quarantined {
                since: Some(begun),
                until: expected,
            };
            assert_eq!(
                (ledger.entries[0].state, ledger.backoff[0].failures),
                (rests, 2)
            );
        }
    }

    #[test]
    fn a_launch_that_every_server_refuses_is_counted_for_its_class() {
        let spec = fixture::claim(Phase::Terminating).spec;
        let mut ledger = LedgerFacts::default();
        for (number, class) in ["k3s", "other", "k3s"].into_iter().enumerate() {
            let name = ClaimName::from(format!("workers-{number}"));
            let mut spec = spec.clone();
            spec.vmid.0 += u32::try_from(number).unwrap();
            spec.class = class.into();
            let mut closing = failed(&name, &spec);
            closing.failure.as_mut().unwrap().class = REFUSED_EVERYWHERE.into();
            ledger = close(&ledger, &closing, fixture::at(0));
        }
        let rows = ledger.backoff.iter();
        let rows = rows.map(|row| (row.node_class.as_ref().unwrap().as_str(), row.failures));
        assert_eq!(rows.collect::<Vec<_>>(), [("k3s", 2), ("other", 1)]);
    }

    #[test]
    fn a_closed_claim_gets_an_entry_of_its_own_beside_one_with_its_old_number() {
        let spec = fixture::claim(Phase::Terminating).spec;
        let (old, new) = (
            ClaimName::from("workers-old"),
            ClaimName::from("workers-new"),
        );
        let ledger = close(
            &LedgerFacts::default(),
            &failed(&old, &spec),
            fixture::at(0),
        );
        let ledger = close(&ledger, &failed(&new, &spec), fixture::at(0));
        let entries = ledger.entries.iter().map(|entry| &entry.claim);
        assert!(entries.eq([&old, &new]));
    }
}
