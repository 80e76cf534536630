//! The freeze: if most machines go bad or vanish at once, the cause is hardly the machines. It is the network, the
//! control plane, an inventory or a user's mistake. Then kproxide removes nothing, and concludes nothing from what is
//! gone, until fewer machines are bad or a user confirms that this is intended.
//!
//! A NodePool that somebody deletes counts with all its machines. One whose deletion kproxide did not see begin freezes
//! in any case: a controller that was away for a week must not carry out what it finds.
//!
//! The Ledger records it. A user confirms one freeze by its [`acknowledgement`], which names the time when it began and
//! the number of machines. So an old confirmation does not fit another freeze, nor one that has grown.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::claim::{Condition, GuestHint, Phase};
use crate::facts::removal::Loss;
use crate::facts::{
    ClaimFacts, EntryState, Freeze, GuestStatus, LedgerEntry, LedgerFacts, OrphanLook,
    PoolDeletion, PoolFacts,
};
use crate::ids::{ClaimName, PoolName};
use crate::ledger::is_of_claim;
use crate::plan::report::Frozen;
use crate::world::World;

/// This many machines may be bad at once without a freeze, in a cluster of any size.
const FEW: usize = 3;
/// A freeze needs more than this share of bad machines, in percent.
const MOST_PERCENT: usize = 45;

/// The Ledger holds this many deletions of NodePools.
const MOST_DELETIONS: usize = 1000;

/// What is bad now.
struct Mass {
    bad: usize,
    all: usize,
    /// How many of each kind, for people.
    kinds: [(usize, &'static str); 5],
    /// A NodePool that was being deleted already when kproxide began to lead, with how many machines.
    found: Option<(PoolName, usize)>,
}

/// The annotation's value that acknowledges this freeze, and no other.
pub fn acknowledgement(freeze: &Freeze) -> String {
    format!("{}@{:.0}", freeze.machines, freeze.since)
}

/// Too many machines are bad at once, and no user has confirmed that this is intended.
pub(crate) fn is_frozen(ledger: &LedgerFacts) -> bool {
    let freeze = ledger.freeze.as_ref();
    freeze.is_some_and(|freeze| ledger.acknowledged.as_deref() != Some(&*acknowledgement(freeze)))
}

/// Updates the Ledger's freeze, and which pools may go. Returns what users have to know of the freeze. `None`: there is
/// none, or it is confirmed.
///
/// If more machines are bad than before, it is a new freeze, because fewer were confirmed.
pub(crate) fn review(world: &World, ledger: &mut LedgerFacts, now: Timestamp) -> Option<Frozen> {
    let mass = Mass::of(world, ledger);
    let frozen = mass.review(ledger, now);
    if frozen.is_none() {
        note_deletions(world, ledger);
    }
    frozen
}

/// From now on the machines of pools that are being deleted may go, whoever leads.
fn note_deletions(world: &World, ledger: &mut LedgerFacts) {
    let going = world.pools().iter();
    let going = going.filter(|(_, pool)| pool.going_since().is_some());
    ledger.deletions = going
        .map(|(name, pool)| PoolDeletion {
            pool: name.clone(),
            uid: pool.existence.uid.clone(),
        })
        .take(MOST_DELETIONS)
        .collect();
}

/// The pool's deletion began before this process led, and nothing says that anybody has seen it begin.
fn is_found(world: &World, ledger: &LedgerFacts, pool: &PoolFacts) -> bool {
    let leads_since = world.host().leads_since;
    let before = pool
        .going_since()
        .zip(leads_since)
        .is_some_and(|(since, lead)| since < lead);
    let mut known = ledger.deletions.iter();
    before && !known.any(|row| row.uid == pool.existence.uid)
}

impl Mass {
    /// Updates the Ledger's freeze.
    fn review(&self, ledger: &mut LedgerFacts, now: Timestamp) -> Option<Frozen> {
        if !self.is_most() && self.found.is_none() {
            ledger.freeze = None;
            // The annotation has done its work.
            ledger.acknowledged = None;
            return None;
        }
        let machines = u32::try_from(self.bad).unwrap_or(u32::MAX);
        let known = ledger.freeze.take();
        let freeze = match known.filter(|freeze| machines <= freeze.machines) {
            Some(freeze) => freeze,
            None => Freeze {
                since: now,
                machines,
            },
        };
        let wanted = acknowledgement(&freeze);
        ledger.freeze = Some(freeze);
        is_frozen(ledger).then(|| self.told(&wanted))
    }

    fn of(world: &World, ledger: &LedgerFacts) -> Self {
        let mut all: BTreeSet<&ClaimName> = BTreeSet::new();
        let mut kinds: [BTreeSet<&ClaimName>; 5] = Default::default();
        let [not_ready, no_vm, deleted, no_claim, of_pool] = &mut kinds;
        let mut found: BTreeMap<&PoolName, usize> = BTreeMap::new();
        for (name, claim) in world.claims() {
            let was_in_service = claim.status.since(Condition::Initialized).is_some();
            // A machine that is being drained counts too: its drain may be given up, which must not end the freeze.
            if claim.status.phase == Phase::Initialized
                || (claim.status.phase == Phase::Draining && was_in_service)
            {
                all.insert(name);
            }
            if claim.status.phase != Phase::Initialized {
                continue;
            }
            let pool = world.pools().get(&claim.spec.pool);
            let pool = pool.filter(|pool| pool.going_since().is_some());
            if pool.is_some_and(|pool| is_found(world, ledger, pool)) {
                *found.entry(&claim.spec.pool).or_default() += 1;
            }
            if claim.deleting_since.is_some() {
                deleted.insert(name);
            } else if pool.is_some() {
                of_pool.insert(name);
            } else if has_no_vm(world, claim) {
                no_vm.insert(name);
            } else if !has_ready_node(world, claim) {
                not_ready.insert(name);
            }
        }
        // Machines removed in the last minutes count too: deleting a hundred claims takes a while.
        for row in &ledger.removals {
            let kind = match row.reason.loss() {
                Some(Loss::Deleted) => &mut *deleted,
                Some(Loss::NoVm) => &mut *no_vm,
                Some(Loss::PoolDeleted) => &mut *of_pool,
                None => continue,
            };
            all.insert(&row.claim);
            kind.insert(&row.claim);
        }
        for entry in &ledger.entries {
            let is_claimed = world
                .claims()
                .get(&entry.claim)
                .is_some_and(|claim| is_of_claim(entry, claim));
            // A claim that kproxide has closed leaves no running VM, and recent removals were counted above.
            if entry.state == EntryState::Live
                && !is_claimed
                && is_running(world, entry)
                && !is_left_to_people(world, entry)
                && !ledger.removals.iter().any(|row| row.claim == entry.claim)
            {
                all.insert(&entry.claim);
                no_claim.insert(&entry.claim);
            }
        }
        let bad: BTreeSet<&&ClaimName> = kinds.iter().flatten().collect();
        let [not_ready, no_vm, deleted, no_claim, of_pool] = kinds.each_ref().map(BTreeSet::len);
        Self {
            bad: bad.len(),
            all: all.len(),
            kinds: [
                (not_ready, "Nodes that are not Ready"),
                (no_vm, "VMs that are gone from Proxmox"),
                (deleted, "NodeClaims that were deleted"),
                (no_claim, "NodeClaims that vanished"),
                (of_pool, "machines of NodePools that are being deleted"),
            ],
            found: found
                .into_iter()
                .next()
                .map(|(pool, count)| (pool.clone(), count)),
        }
    }

    fn is_most(&self) -> bool {
        self.bad > FEW && self.bad * 100 > self.all * MOST_PERCENT
    }

    fn told(&self, acknowledgement: &str) -> Frozen {
        let meant = format!(
            "kubectl annotate ledger kproxide --overwrite kproxide.dev/acknowledge-removal={acknowledgement}"
        );
        if let Some((pool, count)) = &self.found {
            let keep = format!("kubectl annotate nodepool {pool} kproxide.dev/keep-machines=true");
            return Frozen {
                message: format!(
                    "frozen: NodePool {pool} was being deleted already when this kproxide began to lead, and {count} of its machines are in service. kproxide removes and repairs nothing until you say what you want. To keep the machines: {keep}. To remove them: {meant}"
                ),
                commands: vec![keep, meant],
            };
        }
        let kinds: Vec<String> = self
            .kinds
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| format!("{count} {kind}"))
            .collect();
        let message = format!(
            "frozen: {} of {} managed machines went bad at once ({}), which looks like a failure of the network or the control plane, or like a mistake. kproxide removes and repairs nothing until at most {FEW} machines, or at most {MOST_PERCENT} % of them, are bad. If you meant it: {meant}",
            self.bad,
            self.all,
            kinds.join(", ")
        );
        Frozen {
            message,
            commands: vec![meant],
        }
    }
}

fn has_ready_node(world: &World, claim: &ClaimFacts) -> bool {
    match world.node_of(claim) {
        Some(node) => node.facts.ready,
        // The Node counts as missing only once the claim says so, because the watch of Nodes may lag behind that of
        // claims.
        None => claim.status.since(Condition::NodeMissing).is_none(),
    }
}

fn is_running(world: &World, entry: &LedgerEntry) -> bool {
    let inventory = world.inventories().get(&entry.cluster);
    let guest = inventory.and_then(|inventory| inventory.guests.get(&entry.vmid));
    guest.is_some_and(|guest| guest.status == GuestStatus::Running)
}

/// A user has removed our marker from its description, in order to keep the VM.
fn is_left_to_people(world: &World, entry: &LedgerEntry) -> bool {
    let look = world.orphan(&entry.cluster, entry.vmid);
    matches!(look, Some(OrphanLook::NotProven(_)))
}

/// An inventory that was taken after the machine came into service does not list its VM.
fn has_no_vm(world: &World, claim: &ClaimFacts) -> bool {
    let Some(inventory) = world.inventories().get(&claim.spec.cluster) else {
        return false;
    };
    let in_service = claim.status.since(Condition::Initialized);
    // Kubernetes keeps a condition's time in whole seconds, so within that second nobody knows which came first.
    let is_newer = inventory
        .taken_at
        .zip(in_service)
        .is_some_and(|(taken, since)| taken.as_second() > since.as_second());
    is_newer && GuestHint::of(claim, inventory) == GuestHint::Absent
}
