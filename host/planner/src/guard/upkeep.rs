//! Brings the Ledger up to date: entries of new and closed claims, rows whose time is over, the anchors, the breaker
//! and the freeze.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::claim::is_over;
use crate::facts::{
    Backoff, ClaimFacts, Condition, EntryState, LedgerEntry, LedgerFacts, OrphanLook, PolicyKind,
    PolicyState, PolicyUse,
};
use crate::guard::{anchor, breaker, freeze, loops};
use crate::ids::ClaimName;
use crate::ledger::{
    MOST_STATES, RESERVATION_LASTS, SHORTEST_REST, is_absent, is_of_claim, pause_after,
};
use crate::mutants::{Mutant, broken};
use crate::plan::report::{Frozen, Remark, Severity};
use crate::time::later;
use crate::world::World;

/// This long after a back-off ended, its failures are forgotten.
const BACKOFF_MEMORY: SignedDuration = SignedDuration::from_hours(3);

/// Brings the Ledger in line with the claims that exist. The result is what must stand before anything is launched.
pub(crate) struct Upkeep {
    pub(crate) ledger: LedgerFacts,
    pub(crate) findings: Vec<Remark>,
    /// Nothing is removed: what a person has to know.
    pub(crate) frozen: Option<Frozen>,
    pub(crate) anchors: anchor::Review,
    /// When time alone will change it.
    pub(crate) wake_at: Option<Timestamp>,
}

pub(crate) fn upkeep(world: &World, now: Timestamp, quarantine: SignedDuration) -> Upkeep {
    let mut upkeep = Upkeep {
        ledger: world.ledger().cloned().unwrap_or_default(),
        findings: Vec::new(),
        frozen: None,
        anchors: anchor::Review::default(),
        wake_at: None,
    };
    upkeep.anchors = anchor::review(world, &mut upkeep.ledger, now);
    for moment in std::mem::take(&mut upkeep.anchors.wake_at) {
        wake(&mut upkeep.wake_at, moment, now);
    }
    if let Some(moment) = breaker::forget(&mut upkeep.ledger.removals, now) {
        wake(&mut upkeep.wake_at, moment, now);
    }
    upkeep.frozen = freeze::review(world, &mut upkeep.ledger, now);
    let entries = std::mem::take(&mut upkeep.ledger.entries);
    for entry in entries {
        if let Some(entry) = upkeep.keep(entry, world, now, quarantine) {
            upkeep.ledger.entries.push(entry);
        }
    }
    upkeep.adopt(world);
    for moment in loops::review(world, &mut upkeep.ledger, now) {
        wake(&mut upkeep.wake_at, moment, now);
    }
    let wake_at = &mut upkeep.wake_at;
    upkeep.ledger.backoff.retain_mut(|row| {
        // A pause that is longer was written by a clock that was ahead, perhaps by years.
        row.until = row.until.min(later(now, pause_after(row.failures)));
        if is_overcome(world, row) {
            return false;
        }
        let forgotten = later(row.until, BACKOFF_MEMORY);
        let next = if now < row.until {
            row.until
        } else {
            forgotten
        };
        wake(wake_at, next, now);
        now < forgotten
    });
    upkeep.ledger.failed_launches.retain_mut(|row| {
        row.at = row.at.min(now);
        let forgotten = later(row.at, BACKOFF_MEMORY);
        wake(wake_at, forgotten, now);
        now < forgotten && !is_over(world, row) && world.pools().contains_key(&row.pool)
    });
    upkeep.trim_states(world);
    upkeep
}

fn wake(wake_at: &mut Option<Timestamp>, moment: Timestamp, now: Timestamp) {
    if moment > now {
        *wake_at = Some(wake_at.map_or(moment, |earlier| earlier.min(moment)));
    }
}

impl Upkeep {
    fn keep(
        &mut self,
        mut entry: LedgerEntry,
        world: &World,
        now: Timestamp,
        quarantine: SignedDuration,
    ) -> Option<LedgerEntry> {
        let claim = world.claims().get(&entry.claim);
        let claimed = claim.is_some_and(|claim| is_of_claim(&entry, claim));
        let quarantined = EntryState::Quarantined {
            since: Some(now),
            until: later(now, quarantine),
        };
        match entry.state {
            EntryState::Reserved { .. } if claimed => entry.state = EntryState::Live,
            EntryState::Reserved { since } => {
                // A clock that was ahead must not make it count for longer.
                let since = since.min(now);
                entry.state = EntryState::Reserved { since };
                let end = later(since, RESERVATION_LASTS);
                wake(&mut self.wake_at, end, now);
                let is_unclaimed = world.host().unclaimed.contains(&entry.claim);
                if now >= end && is_unclaimed {
                    // Without a claim there was no machine. Were every refused claim's number to rest as long as a machine's, a webhook that refuses
                    // claims would use up the range within minutes.
                    entry.state = EntryState::Quarantined {
                        since: Some(now),
                        until: later(now, quarantine.min(SHORTEST_REST)),
                    };
                }
            }
            EntryState::Live if claimed => {}
            // In a freeze nothing is concluded from claims that are gone.
            EntryState::Live if self.frozen.is_some() => {}
            EntryState::Live if is_absent(world, &entry) => entry.state = quarantined,
            EntryState::Live => self.report_unclaimed(world, &entry),
            EntryState::Quarantined { until, .. } => {
                wake(&mut self.wake_at, until, now);
                if now >= until && !claimed {
                    return None;
                }
            }
        }
        Some(entry)
    }

    /// The claim is gone, and its machine is not certainly so. What is provably ours is the orphans' matter.
    fn report_unclaimed(&mut self, world: &World, entry: &LedgerEntry) {
        let LedgerEntry {
            claim,
            vmid,
            cluster,
            ..
        } = entry;
        let message = match world.orphan(cluster, *vmid) {
            Some(OrphanLook::Ours(_) | OrphanLook::Anchor(_)) => return,
            Some(OrphanLook::NotProven(why)) => format!(
                "the claim is gone, and VM {vmid} of cluster {cluster} is not provably its machine: {why}. kproxide does not touch it, and it still counts in the limits. Remove the VM by hand if you do not want it"
            ),
            None if is_out_of_sight(world, entry) => format!(
                "the claim is gone, and VM {vmid} of cluster {cluster} is now a template, or outside of kproxide's resource pool. kproxide does not touch it, and it still counts in the limits. Remove the VM by hand if you do not want it"
            ),
            None => match place(world, entry) {
                Place::Listed => format!(
                    "the claim is gone, and VM {vmid} of cluster {cluster} could not be read yet. It counts in the limits until kproxide can read it, or it is gone"
                ),
                Place::Unlisted => format!(
                    "the claim is gone and Proxmox does not list VM {vmid}, but the list of cluster {cluster} is incomplete or without quorum. The VM counts in the limits until the list is complete"
                ),
                Place::On(hypervisor) => format!(
                    "the claim is gone, but VM {vmid} of cluster {cluster} may still exist on {hypervisor}. It counts in the limits until that server answers. If the server is gone for good: kubectl edit ledgers kproxide, and remove the entry of {claim} from spec.entries"
                ),
            },
        };
        self.findings.push(Remark {
            severity: Severity::Warning,
            about: format!("NodeClaim/{claim}"),
            message,
        });
    }

    /// Claims that the Ledger does not know (it was lost, or restored from an old copy) count from now on.
    fn adopt(&mut self, world: &World) {
        // A mistake: what was in memory alone and is forgotten does not count again.
        if broken(Mutant::CountsInMemory) {
            return;
        }
        let entries = self.ledger.entries.iter();
        let known: BTreeSet<&ClaimName> = entries.map(|entry| &entry.claim).collect();
        let is_unknown = |(name, claim): &(&ClaimName, &ClaimFacts)| {
            !known.contains(name) && claim.has_finalizer
        };
        let unknown: Vec<_> = world.claims().iter().filter(is_unknown).collect();
        for (name, claim) in unknown {
            self.ledger.entries.push(entry_of(name, claim));
            self.findings.push(Remark {
                severity: Severity::Notice,
                about: format!("NodeClaim/{name}"),
                message: "the Ledger did not know this NodeClaim. It counts again".to_owned(),
            });
        }
    }

    fn trim_states(&mut self, world: &World) {
        self.ledger.policy_state.retain(|row| {
            let policies = world.pools().get(&row.pool).map(|pool| &pool.policies);
            let current = policies.map(|policies| match row.kind {
                PolicyKind::HostSelection => &policies.host_selection,
                PolicyKind::ScaleDown => &policies.scale_down,
                PolicyKind::Labels => &policies.labels,
            });
            let names = |current: &PolicyUse| {
                let mut members = current.members.iter().map(|it| &it.policy.name);
                current.policy.name == row.policy || members.any(|name| *name == row.policy)
            };
            current.is_some_and(names)
        });
        let rows = &mut self.ledger.policy_state;
        let key = |row: &PolicyState| (row.pool.clone(), row.kind, row.policy.clone());
        rows.sort_by_key(key);
        rows.dedup_by_key(|row| key(row));
        if rows.len() > MOST_STATES {
            rows.truncate(MOST_STATES);
            self.findings.push(Remark {
                severity: Severity::Warning,
                about: "Ledger".to_owned(),
                message: format!("policies keep more than {MOST_STATES} states. kproxide dropped those of the last pools by name"),
            });
        }
    }
}

/// A machine made on the same hypervisor and storage has come into service since the last of these failures. Short of that nothing is certain:
/// one that was merely started says nothing of those that started and never joined.
fn is_overcome(world: &World, row: &Backoff) -> bool {
    let Ok(failed_at) = row.until.checked_sub(pause_after(row.failures)) else {
        return false;
    };
    world.claims().values().any(|claim| {
        let in_service = claim.status.since(Condition::Initialized);
        let is_here = match &row.node_class {
            Some(class) => {
                claim.spec.class == *class && claim.spec.cluster == row.hypervisor.cluster
            }
            None => {
                claim.spec.hypervisor_id() == row.hypervisor
                    && (row.storage.is_none() || row.storage == claim.spec.storage)
            }
        };
        is_here && in_service.is_some_and(|since| since > failed_at)
    })
}

/// Where the VM of an entry is, as far as the inventory tells.
enum Place<'w> {
    /// On a hypervisor that answers.
    Listed,
    /// Nowhere, though the hypervisor answers on which it was made.
    Unlisted,
    /// On this hypervisor, or last seen there: it does not answer.
    On(&'w str),
}

fn place<'w>(world: &'w World, entry: &'w LedgerEntry) -> Place<'w> {
    let inventory = world.inventories().get(&entry.cluster);
    let guest = inventory.and_then(|inventory| inventory.guests.get(&entry.vmid));
    let hypervisor: &str = guest.map_or(&entry.hypervisor, |guest| &guest.hypervisor);
    let answers = inventory.is_some_and(|it| it.reachable && it.answers(hypervisor));
    match (answers, guest) {
        (false, _) => Place::On(hypervisor),
        (true, Some(_)) => Place::Listed,
        (true, None) => Place::Unlisted,
    }
}

/// Users have moved it to where kproxide's machines never are, so kproxide does not read it.
fn is_out_of_sight(world: &World, entry: &LedgerEntry) -> bool {
    let inventory = world.inventories().get(&entry.cluster);
    let guest = inventory.and_then(|inventory| inventory.guests.get(&entry.vmid));
    let cluster = world.clusters().get(&entry.cluster);
    guest.zip(cluster).is_some_and(|(guest, cluster)| {
        guest.template || guest.pool.as_deref() != Some(&*cluster.pool)
    })
}

fn entry_of(name: &ClaimName, claim: &ClaimFacts) -> LedgerEntry {
    LedgerEntry {
        hypervisor: claim.hypervisor().clone(),
        ..LedgerEntry::of(name, &claim.spec, EntryState::Live)
    }
}

#[cfg(test)]
mod tests;
