//! The Ledger's rows, as pure functions: quarantine, back-off, policy state, and what counts.
//!
//! Every limit is computed from the Ledger, so in doubt an entry counts. It stops counting only after the proof that
//! its machine is gone ([`quarantine`], which the owner of the proof calls), or if it can never have become a machine.

pub(crate) mod numbers;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::facts::{
    Backoff, ClaimFacts, EntryState, FailedLaunches, LaunchFailure, LedgerEntry, LedgerFacts,
    PolicyKind, PolicyState,
};
use crate::ids::{ClaimName, ClassName, HypervisorId, PoolName, StorageName};
use crate::time::later;
use crate::world::World;

/// Rows of policy state, and bytes in each.
pub const MOST_STATES: usize = 64;
pub const MOST_STATE_BYTES: usize = 4096;

/// A reservation without a claim after this long never becomes a machine, because `act` reads its entry again before
/// the clone.
pub const RESERVATION_LASTS: SignedDuration = SignedDuration::from_secs(60);

/// So long a number rests at least: longer than a late request can take.
pub(crate) const SHORTEST_REST: SignedDuration = SignedDuration::from_hours(1);

/// Characters of a failure's message that a row of back-off keeps.
const MOST_MESSAGE_CHARS: usize = 200;

/// A pool whose last launches failed, this many, is not Ready.
pub(crate) const MOST_FAILED_LAUNCHES: u32 = 3;

const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(30);
pub(crate) const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_mins(30);

/// The Ledger after its machine was proven absent: number and address rest until `until`.
pub fn quarantine(
    ledger: &LedgerFacts,
    claim: &ClaimName,
    since: Timestamp,
    until: Timestamp,
) -> LedgerFacts {
    let mut ledger = ledger.clone();
    for entry in &mut ledger.entries {
        if entry.claim == *claim && entry.counts() {
            let since = Some(since);
            entry.state = EntryState::Quarantined { since, until };
        }
    }
    ledger
}

/// The Ledger after something failed on a hypervisor (with a storage, where one was involved).
pub fn record_failure(
    ledger: &LedgerFacts,
    hypervisor: &HypervisorId,
    storage: Option<&StorageName>,
    failure: &LaunchFailure,
    now: Timestamp,
) -> LedgerFacts {
    let is_it = |row: &Backoff| {
        row.node_class.is_none()
            && row.hypervisor == *hypervisor
            && row.storage.as_ref() == storage
            && row.class == failure.class
    };
    let place = (hypervisor.clone(), storage.cloned(), None);
    record(ledger, is_it, place, failure, now)
}

/// The Ledger after one more launch of a pool failed.
pub(crate) fn record_failed_launch(
    ledger: &LedgerFacts,
    pool: &PoolName,
    failure: &LaunchFailure,
    now: Timestamp,
) -> LedgerFacts {
    let mut ledger = ledger.clone();
    let rows = &mut ledger.failed_launches;
    let before = rows.iter().find(|row| row.pool == *pool);
    let in_a_row = before.map_or(1, |row| row.in_a_row.saturating_add(1));
    rows.retain(|row| row.pool != *pool);
    rows.push(FailedLaunches {
        pool: pool.clone(),
        in_a_row: in_a_row.min(MOST_FAILED_LAUNCHES),
        message: in_one_line(&failure.message),
        at: now,
    });
    rows.sort_by(|a, b| a.pool.cmp(&b.pool));
    ledger
}

/// It becomes part of a sentence.
fn in_one_line(message: &str) -> String {
    let mut line = String::new();
    for word in message.split_whitespace() {
        let room = MOST_MESSAGE_CHARS.saturating_sub(line.chars().count() + 2);
        if word.chars().count() > room {
            if line.is_empty() {
                line.extend(word.chars().take(room));
            }
            line.push('…');
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Each failure doubles the pause, from 30 s to 30 min.
pub(crate) fn record(
    ledger: &LedgerFacts,
    is_it: impl Fn(&Backoff) -> bool,
    (hypervisor, storage, node_class): (HypervisorId, Option<StorageName>, Option<ClassName>),
    failure: &LaunchFailure,
    now: Timestamp,
) -> LedgerFacts {
    let LaunchFailure { class, message } = failure;
    let message = in_one_line(message);
    let mut ledger = ledger.clone();
    let before = ledger.backoff.iter().position(is_it);
    let before = before.map(|index| ledger.backoff.remove(index));
    let failures = before.as_ref().map_or(0, |row| row.failures);
    let failures = failures.saturating_add(1);
    let until = later(now, pause_after(failures));
    ledger.backoff.push(Backoff {
        hypervisor,
        storage,
        node_class,
        class: class.clone(),
        message,
        failures,
        // What failed earlier may be noted later.
        until: before.map_or(until, |row| row.until.max(until)),
    });
    let key = |row: &Backoff| {
        let Backoff {
            hypervisor,
            storage,
            node_class,
            class,
            ..
        } = row.clone();
        (hypervisor, storage, class, node_class)
    };
    ledger.backoff.sort_by_key(key);
    ledger
}

/// How long a back-off lasts after this many failures.
pub(crate) fn pause_after(failures: u32) -> SignedDuration {
    let doublings = failures.saturating_sub(1).min(10);
    FIRST_BACKOFF
        .checked_mul(1 << doublings)
        .unwrap_or(LONGEST_BACKOFF)
        .min(LONGEST_BACKOFF)
}

/// Reservations that are old enough to be given up, and whose claims no watch has shown. Such a claim may exist all the
/// same, even with its machine: the API server must be asked
/// ([`HostFacts::unclaimed`](crate::facts::HostFacts::unclaimed)).
pub fn overdue(world: &World, now: Timestamp) -> impl Iterator<Item = &LedgerEntry> {
    let entries = world.ledger().map_or(&[][..], |ledger| &ledger.entries);
    let is_overdue = move |entry: &&LedgerEntry| {
        let EntryState::Reserved { since } = entry.state else {
            return false;
        };
        now >= later(since.min(now), RESERVATION_LASTS)
            && world
                .claims()
                .get(&entry.claim)
                .is_none_or(|claim| !is_of_claim(entry, claim))
    };
    entries.iter().filter(is_overdue)
}

/// The claim of that name holds the entry's number.
pub fn is_of_claim(entry: &LedgerEntry, claim: &ClaimFacts) -> bool {
    claim.spec.vmid == entry.vmid && claim.spec.cluster == entry.cluster
}

/// The inventory says that there is no such VM.
pub fn is_absent(world: &World, entry: &LedgerEntry) -> bool {
    let inventory = world.inventories().get(&entry.cluster);
    inventory.is_some_and(|inventory| inventory.lacks(entry.vmid, Some(&entry.hypervisor)))
}

/// Entries whose number and address may be used again before their time if no other is free: they rest for an hour, nothing else holds the number or the
/// address, and Proxmox lists no such VM. The longest rest comes first.
pub(crate) fn rested<'l>(
    world: &World,
    ledger: &'l LedgerFacts,
    now: Timestamp,
) -> Vec<&'l LedgerEntry> {
    let began = |entry: &LedgerEntry| match entry.state {
        EntryState::Quarantined { since, .. } => since,
        EntryState::Reserved { .. } | EntryState::Live => None,
    };
    let is_over =
        |entry: &&LedgerEntry| began(entry).is_some_and(|since| now >= later(since, SHORTEST_REST));
    let mut rested: Vec<&LedgerEntry> = ledger.entries.iter().filter(is_over).collect();
    if rested.is_empty() {
        return rested;
    }
    let claims = world.claims().values().map(|claim| &claim.spec);
    let claims = claims.map(|spec| (&spec.cluster, spec.vmid, spec.address));
    let entries = ledger.entries.iter();
    let entries = entries.map(|entry| (&entry.cluster, entry.vmid, entry.address));
    let anchors = ledger.anchors.iter();
    let anchors = anchors.map(|anchor| (&anchor.cluster, anchor.vmid, None));
    let mut numbers: BTreeMap<_, u32> = BTreeMap::new();
    let mut addresses: BTreeMap<_, u32> = BTreeMap::new();
    for (cluster, vmid, address) in entries.chain(claims).chain(anchors) {
        *numbers.entry((cluster, vmid)).or_default() += 1;
        if let Some(address) = address {
            *addresses.entry(address).or_default() += 1;
        }
    }
    rested.retain(|entry| {
        let address = entry.address.as_ref();
        numbers[&(&entry.cluster, entry.vmid)] == 1
            && address.is_none_or(|address| addresses[address] == 1)
            && is_absent(world, entry)
    });
    rested.sort_by_key(|entry| (began(entry), entry.vmid));
    rested
}

/// The state that a pool's policy of this kind left behind; a fresh one if another policy is in use now.
pub(crate) fn policy_state(
    ledger: &LedgerFacts,
    pool: &PoolName,
    kind: PolicyKind,
    policy: &str,
) -> PolicyState {
    ledger
        .policy_state
        .iter()
        .find(|row| row.pool == *pool && row.kind == kind && &*row.policy == policy)
        .cloned()
        .unwrap_or_else(|| PolicyState {
            pool: pool.clone(),
            kind,
            policy: policy.into(),
            sequence: 0,
            previous: None,
            state: Vec::new(),
        })
}

/// Replaces the row of this pool, kind and policy.
pub(crate) fn set_policy_state(ledger: &mut LedgerFacts, row: PolicyState) {
    let rows = &mut ledger.policy_state;
    let key = |row: &PolicyState| (row.pool.clone(), row.kind, row.policy.clone());
    match rows.binary_search_by_key(&key(&row), key) {
        Ok(index) => rows[index] = row,
        Err(index) if rows.len() < MOST_STATES => rows.insert(index, row),
        Err(_) => {}
    }
}

/// What the counting entries of each pool add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) nodes: u32,
    pub(crate) milli_cores: u64,
    pub(crate) memory_bytes: u64,
}

pub(crate) fn usage_by_pool(ledger: &LedgerFacts) -> BTreeMap<PoolName, Usage> {
    let mut usage: BTreeMap<PoolName, Usage> = BTreeMap::new();
    for entry in ledger.entries.iter().filter(|entry| entry.counts()) {
        let pool = usage.entry(entry.pool.clone()).or_default();
        pool.nodes = pool.nodes.saturating_add(1);
        pool.milli_cores = pool.milli_cores.saturating_add(entry.milli_cores);
        pool.memory_bytes = pool.memory_bytes.saturating_add(entry.memory_bytes);
    }
    usage
}

#[cfg(test)]
pub(crate) mod tests;
