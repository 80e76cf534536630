//! The last look at a plan: every limit is derived again from the World, by other code than the planner's, and what violates one is dropped and
//! reported. A policy's answer reaches the world only through here; so does a mistake of the planner, which is reported as a defect.

pub mod learned;
pub mod orphans;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

mod disruption;
mod removals;

use removals::Removals;

use crate::facts::limits::{Limits, MOST_ENTRIES};
use crate::facts::{
    ClaimSpec, ClusterFacts, EntryState, GuestStatus, HypervisorFacts, LedgerEntry, LedgerFacts,
    OrphanLook, PoolFacts, TemplateFacts,
};
use crate::guard::anchor;
use crate::guard::freeze::acknowledgement;
use crate::ids::{ClaimName, ClusterName, HypervisorId, PoolName, Vmid, is_dns_label};
use crate::keys;
use crate::kubernetes::selector::unmet;
use crate::ledger::numbers::FORBIDDEN_VMID;
use crate::mutants::{Mutant, broken};
use crate::plan::report::{Remark, Severity};
use crate::plan::{Adoption, Launch, Plan, Verdict};
pub use crate::reasons::broken_plan::Violation;
use crate::reasons::on_hold::{AnchorHold, Hold};
use crate::world::{NodeView, World};

/// Drops what violates a limit and reports it.
pub(crate) fn enforce(world: &World, now: Timestamp, limits: &Limits, plan: &mut Plan) {
    let mut findings = Vec::new();
    let launches = std::mem::take(&mut plan.launches);
    if !launches.is_empty() {
        let mut ledger = ledger_of(world, plan);
        let mut tally = Tally::new(world, now, &ledger);
        let mut accepted: Vec<Launch> = Vec::with_capacity(launches.len());
        for launch in launches {
            let violation = launch_violation(world, limits, &tally, accepted.len(), &launch)
                .or_else(|| disruption::launch_violation(world, now, &ledger, &accepted, &launch));
            match violation {
                None => accepted.push(launch),
                Some(violation) => {
                    ledger
                        .entries
                        .retain(|entry| entry.claim != launch.claim || !is_reserved(entry));
                    tally = Tally::new(world, now, &ledger);
                    plan.report
                        .placements
                        .retain(|placement| placement.claim != launch.claim);
                    findings.push(defect(&launch.claim, "launched", &violation));
                }
            }
        }
        plan.launches = accepted;
        if !findings.is_empty() {
            plan.ledger = Some(ledger);
        }
    }
    let ledger = ledger_of(world, plan);
    let adoptions = std::mem::take(&mut plan.adoptions);
    for adoption in adoptions {
        match adoption_violation(world, now, limits, &ledger, &plan.adoptions, &adoption) {
            None => plan.adoptions.push(adoption),
            Some(violation) => {
                // In the next tick its row would speak for it.
                if let Some(ledger) = &mut plan.ledger {
                    let stored = world.ledger().map_or(&[][..], |stored| &stored.entries);
                    let is_new =
                        |entry: &LedgerEntry| stored.iter().all(|it| it.claim != entry.claim);
                    ledger
                        .entries
                        .retain(|entry| entry.claim != adoption.claim || !is_new(entry));
                }
                findings.push(defect(&adoption.claim, "adopted", &violation));
            }
        }
    }
    let mut removals = Removals::new(world, now, plan);
    for advance in &mut plan.advances {
        if let Verdict::Remove(reason) = advance.verdict
            && let Some(violation) = removals.violation(advance, reason)
        {
            findings.push(defect(&advance.claim, "removed", &violation));
            advance.verdict = Verdict::Hold(Hold::Check(violation));
        }
    }
    plan.report.findings.extend(findings);
}

/// All violations of a plan; empty for every plan that [`crate::planning::Planning::finish`] returns.
pub fn violations(
    world: &World,
    now: Timestamp,
    limits: &Limits,
    plan: &Plan,
) -> Vec<(ClaimName, Violation)> {
    let mut found = Vec::new();
    let ledger = ledger_of(world, plan);
    let tally = Tally::new(world, now, &ledger);
    for (index, launch) in plan.launches.iter().enumerate() {
        let before = &plan.launches[..index];
        let violation = launch_violation(world, limits, &tally, index, launch)
            .or_else(|| disruption::launch_violation(world, now, &ledger, before, launch));
        found.extend(violation.map(|violation| (launch.claim.clone(), violation)));
    }
    for (index, adoption) in plan.adoptions.iter().enumerate() {
        let before = &plan.adoptions[..index];
        let violation = adoption_violation(world, now, limits, &ledger, before, adoption);
        found.extend(violation.map(|violation| (adoption.claim.clone(), violation)));
    }
    let mut removals = Removals::new(world, now, plan);
    for advance in &plan.advances {
        if let Verdict::Remove(reason) = advance.verdict {
            let violation = removals.violation(advance, reason);
            found.extend(violation.map(|violation| (advance.claim.clone(), violation)));
        }
    }
    found
}

/// A claim for a machine that has one, or for a number that is not its own, or a removal before its time.
fn adoption_violation(
    world: &World,
    now: Timestamp,
    limits: &Limits,
    ledger: &LedgerFacts,
    before: &[Adoption],
    adoption: &Adoption,
) -> Option<Violation> {
    let spec = &adoption.spec;
    let Some(adopts) = &spec.adopts else {
        return Some(Violation::NotOurs);
    };
    let Some(cluster) = world.clusters().get(&spec.cluster) else {
        return Some(Violation::WrongCluster);
    };
    if !world.host().key_known {
        return Some(Violation::NoKey);
    }
    if !cluster.has_in_range(spec.vmid) {
        return Some(Violation::NumberOutOfRange(spec.vmid));
    }
    if *spec.vm_name != *adoption.claim.as_str() || world.claims().contains_key(&adoption.claim) {
        return Some(Violation::NameTaken);
    }
    let claims = world.claims().values().map(|claim| &claim.spec);
    let mut specs = claims.chain(before.iter().map(|other| &other.spec));
    let entries = world.ledger().map_or(&[][..], |ledger| &ledger.entries);
    let mut entries = entries
        .iter()
        .filter(|entry| entry.cluster == spec.cluster && entry.vmid == spec.vmid);
    if specs.any(|other| other.cluster == spec.cluster && other.vmid == spec.vmid)
        || entries
            .clone()
            .any(|entry| entry.state != EntryState::Live || entry.claim != adoption.claim)
    {
        return Some(Violation::NumberTaken(spec.vmid));
    }
    let has_row = entries.next().is_some();
    if !adopts.condemned {
        let is_ours = has_row || may_return(world, spec, &adopts.nonce);
        return (!is_ours).then_some(Violation::NotOurs);
    }
    if !has_row {
        return Some(Violation::NotOurs);
    }
    if is_frozen(ledger) {
        return Some(Violation::Frozen);
    }
    if anchor::hold(world, Some(ledger), &spec.cluster).is_some() {
        return Some(Violation::Anchor);
    }
    if nodes_of(world, spec).any(|node| node.facts.ready) {
        return Some(Violation::Protected);
    }
    let mut seen = world
        .ledger()
        .into_iter()
        .flat_map(|ledger| &ledger.orphans);
    let has_waited = limits.orphan_grace.is_zero()
        || seen.any(|seen| {
            let age = now.duration_since(seen.since);
            seen.cluster == spec.cluster && seen.vmid == spec.vmid && age >= limits.orphan_grace
        });
    let everyone_answers = world
        .inventories()
        .get(&spec.cluster)
        .is_some_and(|inventory| {
            let silent = inventory.hypervisors.values().any(|it| !it.online);
            inventory.reachable && inventory.quorate && inventory.complete && !silent
        });
    let is_armed = world.host().armed_at.is_some_and(|at| at <= now);
    (!has_waited || !everyone_answers || !is_armed).then_some(Violation::NotArmed)
}

/// The Ledger was lost after the machine's Node had come, or a person wants this very marker to count.
fn may_return(world: &World, spec: &ClaimSpec, nonce: &str) -> bool {
    let Some(ledger) = world.ledger().filter(|it| !it.resource_version.is_empty()) else {
        return true;
    };
    if broken(Mutant::AgeIgnored) || broken(Mutant::WordWithoutNonce) {
        return true;
    }
    let marker = [spec.cluster.as_str(), &spec.vmid.to_string(), nonce].join(":");
    let mut words = ledger.orphans_acknowledged.iter();
    if words.any(|words| words.split(',').any(|word| word.trim() == marker)) {
        return true;
    }
    let youngest = nodes_of(world, spec).map(|node| node.facts.created).max();
    let ages = youngest.zip(ledger.created);
    ages.is_some_and(|(node, ledger)| node < ledger)
}

/// The Nodes of the machine without a claim.
fn nodes_of<'w>(world: &'w World, spec: &ClaimSpec) -> impl Iterator<Item = NodeView<'w>> {
    let uuid = match world.orphan(&spec.cluster, spec.vmid) {
        Some(OrphanLook::Ours(facts)) => facts.smbios_uuid.as_ref(),
        Some(OrphanLook::Anchor(_) | OrphanLook::NotProven(_)) | None => None,
    };
    let nodes = uuid.into_iter();
    let nodes = nodes.flat_map(|uuid| world.nodes_with_uuid(uuid));
    nodes.filter_map(|name| world.node(name))
}

/// Too many machines are bad at once, and no user has confirmed that this is intended.
fn is_frozen(ledger: &LedgerFacts) -> bool {
    ledger
        .freeze
        .as_ref()
        .is_some_and(|freeze| ledger.acknowledged.as_deref() != Some(&*acknowledgement(freeze)))
}

/// As it stands when the plan's launches begin.
fn ledger_of(world: &World, plan: &Plan) -> LedgerFacts {
    let ledger = plan.ledger.as_ref().or(world.ledger());
    ledger.cloned().unwrap_or_default()
}

fn defect(claim: &ClaimName, verb: &str, violation: &Violation) -> Remark {
    Remark {
        severity: Severity::Defect,
        about: format!("NodeClaim/{claim}"),
        message: format!("not {verb}: {violation}"),
    }
}

fn is_reserved(entry: &LedgerEntry) -> bool {
    matches!(entry.state, EntryState::Reserved { .. })
}

/// Its number and address may not be used: not before `until`, or where Proxmox says that there is no such VM not for an hour.
fn rests(world: &World, now: Timestamp, entry: &LedgerEntry) -> bool {
    let EntryState::Quarantined { since, until } = entry.state else {
        return false;
    };
    let rests_for = since.map(|since| now.duration_since(since));
    let inventory = world.inventories().get(&entry.cluster);
    let is_gone = inventory.is_some_and(|it| it.lacks(entry.vmid, Some(&entry.hypervisor)));
    let is_rested = is_gone && rests_for.is_some_and(|it| it >= SignedDuration::from_hours(1));
    now < until && !is_rested
}

/// What the Ledger adds up to, all reservations included.
#[derive(Default)]
struct Tally {
    entries: usize,
    by_name: BTreeMap<ClaimName, Vec<LedgerEntry>>,
    /// How often a number or an address is held, by entries; claims and guests hold them too.
    numbers: BTreeMap<(ClusterName, Vmid), u32>,
    addresses: BTreeMap<IpAddr, u32>,
    claimed_numbers: BTreeSet<(ClusterName, Vmid)>,
    claimed_addresses: BTreeSet<IpAddr>,
    /// Clusters whose anchor forbids to act, because another kproxide may be at work there.
    foreign: BTreeSet<ClusterName>,
    pools: BTreeMap<PoolName, Sum>,
    /// What counts on each hypervisor, and the part of it that does not run yet.
    hypervisors: BTreeMap<HypervisorId, (Sum, InFlight)>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    machines: u32,
    milli_cores: u128,
    memory_bytes: u128,
}

impl Sum {
    fn add(&mut self, entry: &LedgerEntry) {
        self.machines += 1;
        self.milli_cores += u128::from(entry.milli_cores);
        self.memory_bytes += u128::from(entry.memory_bytes);
    }
}

/// Machines that do not run yet, with what the inventory counts as committed of them.
#[derive(Clone, Copy, Default)]
struct InFlight {
    sum: Sum,
    listed_milli_cores: u128,
    listed_memory_bytes: u128,
}

impl Tally {
    fn new(world: &World, now: Timestamp, ledger: &LedgerFacts) -> Self {
        let mut tally = Self {
            entries: ledger.entries.len(),
            ..Self::default()
        };
        for anchor in &ledger.anchors {
            let key = (anchor.cluster.clone(), anchor.vmid);
            tally.claimed_numbers.insert(key);
        }
        let is_foreign = |cluster: &&ClusterName| {
            anchor::hold(world, Some(ledger), cluster) == Some(AnchorHold::Foreign)
        };
        tally.foreign = world
            .clusters()
            .keys()
            .filter(is_foreign)
            .cloned()
            .collect();
        for entry in &ledger.entries {
            let named = tally.by_name.entry(entry.claim.clone()).or_default();
            named.push(entry.clone());
            *tally
                .numbers
                .entry((entry.cluster.clone(), entry.vmid))
                .or_default() += 1;
            if let Some(address) = entry.address {
                *tally.addresses.entry(address).or_default() += 1;
            }
            if entry.counts() {
                tally
                    .pools
                    .entry(entry.pool.clone())
                    .or_default()
                    .add(entry);
                tally.count(world, entry);
            }
        }
        // A plan may take out of the stored Ledger what has rested for long enough alone.
        let stored = world.ledger().map_or(&[][..], |stored| &stored.entries);
        for entry in stored.iter().filter(|entry| rests(world, now, entry)) {
            let key = (entry.cluster.clone(), entry.vmid);
            tally.claimed_numbers.insert(key);
            tally.claimed_addresses.extend(entry.address);
        }
        for claim in world.claims().values() {
            let spec = &claim.spec;
            tally
                .claimed_numbers
                .insert((spec.cluster.clone(), spec.vmid));
            tally.claimed_addresses.extend(spec.address);
        }
        tally
    }

    fn count(&mut self, world: &World, entry: &LedgerEntry) {
        let inventory = world.inventories().get(&entry.cluster);
        let guest = inventory.and_then(|inventory| inventory.guests.get(&entry.vmid));
        let id = HypervisorId {
            cluster: entry.cluster.clone(),
            name: guest
                .map_or(&entry.hypervisor, |guest| &guest.hypervisor)
                .clone(),
        };
        let (all, in_flight) = self.hypervisors.entry(id).or_default();
        all.add(entry);
        match guest.map(|guest| (guest.status, guest)) {
            Some((GuestStatus::Running, _)) => {}
            // Proxmox lists a new VM so, and without a size, for some seconds.
            Some((GuestStatus::Unknown, guest)) => {
                in_flight.sum.add(entry);
                in_flight.listed_milli_cores += u128::from(guest.max_threads) * 1000;
                in_flight.listed_memory_bytes += u128::from(guest.max_memory_bytes);
            }
            Some((GuestStatus::Stopped, _)) | None => in_flight.sum.add(entry),
        }
    }
}

/// What forbids a launch, given the Ledger with all reservations and how many launches were accepted before it.
fn launch_violation(
    world: &World,
    limits: &Limits,
    tally: &Tally,
    before: usize,
    launch: &Launch,
) -> Option<Violation> {
    let spec = &launch.spec;
    let entries = tally
        .by_name
        .get(&launch.claim)
        .map_or(&[][..], Vec::as_slice);
    let is_as_reserved = |entry: &LedgerEntry| {
        is_reserved(entry)
            && (&entry.cluster, entry.vmid) == (&spec.cluster, spec.vmid)
            && (&entry.pool, &entry.hypervisor) == (&spec.pool, &spec.hypervisor)
            && entry.address == spec.address
            && (entry.milli_cores, entry.memory_bytes)
                == (spec.resources.milli_cores, spec.resources.memory_bytes)
    };
    if !entries.iter().any(is_as_reserved) {
        Some(Violation::NotReserved)
    } else if before >= limits.max_launches_per_tick as usize {
        Some(Violation::TooManyLaunches)
    } else if !world.host().key_known {
        Some(Violation::NoKey)
    } else if tally.foreign.contains(&spec.cluster) {
        Some(Violation::Anchor)
    } else if entries.len() > 1 || world.claims().contains_key(&launch.claim) {
        Some(Violation::NameTaken)
    } else if !is_dns_label(launch.claim.as_str()) || *launch.claim.0 != *spec.vm_name {
        Some(Violation::BadName)
    } else if tally.entries > MOST_ENTRIES {
        Some(Violation::LedgerFull)
    } else {
        number_violation(world, tally, launch)
            .or_else(|| address_violation(tally, launch))
            .or_else(|| pool_violation(world, tally, launch))
            .or_else(|| hypervisor_violation(world, tally, launch))
            .or_else(|| template_violation(world, launch))
    }
}

/// Only a template of the class is cloned, never another VM.
fn template_violation(world: &World, launch: &Launch) -> Option<Violation> {
    let spec = &launch.spec;
    let class = world.classes().get(&spec.class);
    let templates = class.map_or(&[][..], |class| world.templates(class, &spec.cluster));
    let is_source = |template: &TemplateFacts| {
        let clone = spec.clone.as_ref();
        clone.is_some_and(|clone| {
            (clone.vmid, &clone.hypervisor) == (template.vmid, &template.hypervisor)
        })
    };
    (!templates.iter().any(is_source)).then_some(Violation::NoTemplate)
}

fn number_violation(world: &World, tally: &Tally, launch: &Launch) -> Option<Violation> {
    let (cluster, vmid) = (&launch.spec.cluster, launch.spec.vmid);
    let facts = world.clusters().get(cluster)?;
    let key = (cluster.clone(), vmid);
    let in_inventory = world
        .inventories()
        .get(cluster)
        .is_some_and(|inventory| inventory.guests.contains_key(&vmid));
    if !facts.has_in_range(vmid) || vmid.0 == FORBIDDEN_VMID {
        Some(Violation::NumberOutOfRange(vmid))
    } else if tally.numbers.get(&key).is_some_and(|held| *held > 1)
        || tally.claimed_numbers.contains(&key)
        || in_inventory
    {
        Some(Violation::NumberTaken(vmid))
    } else {
        None
    }
}

fn address_violation(tally: &Tally, launch: &Launch) -> Option<Violation> {
    let address = launch.spec.address?;
    let held = tally.addresses.get(&address).copied().unwrap_or(0);
    let is_taken = held > 1 || tally.claimed_addresses.contains(&address);
    is_taken.then_some(Violation::AddressTaken(address))
}

fn pool_violation(world: &World, tally: &Tally, launch: &Launch) -> Option<Violation> {
    let spec = &launch.spec;
    let Some(pool) = world.pools().get(&spec.pool) else {
        return Some(Violation::NoSuchPool);
    };
    let is_going = pool.existence.deleting_since.is_some();
    if pool.paused || is_going || pool.problem.is_some() || pool.node_class != spec.class {
        return Some(Violation::PoolNotInUse);
    }
    if !pool.clusters.is_empty() && !pool.clusters.contains(&spec.cluster) {
        return Some(Violation::WrongCluster);
    }
    if !meets_requirements(world, pool, spec) {
        return Some(Violation::Requirement);
    }
    let sum = tally.pools.get(&spec.pool).copied().unwrap_or_default();
    let passes = |sum: u128, most: Option<u64>| most.is_some_and(|most| sum > u128::from(most));
    let is_over = sum.machines > pool.limits.max_nodes
        || passes(sum.milli_cores, pool.limits.milli_cores())
        || passes(sum.memory_bytes, pool.limits.memory_bytes());
    is_over.then_some(Violation::PoolLimit)
}

/// By the labels that its Node gets, and what its kubelet adds.
fn meets_requirements(world: &World, pool: &PoolFacts, spec: &ClaimSpec) -> bool {
    let mut labels = spec.labels.clone();
    if let Some(class) = world.classes().get(&spec.class) {
        labels.insert(keys::ARCH.to_owned(), class.arch.as_str().to_owned());
        labels.insert(keys::OS.to_owned(), class.os.as_str().to_owned());
    }
    unmet(&pool.requirements, &labels).is_none()
}

fn hypervisor_violation(world: &World, tally: &Tally, launch: &Launch) -> Option<Violation> {
    let spec = &launch.spec;
    let refused = |reason: &str| Some(Violation::Hypervisor(reason.to_owned()));
    let (Some(cluster), Some(inventory)) = (
        world.clusters().get(&spec.cluster),
        world.inventories().get(&spec.cluster),
    ) else {
        return Some(Violation::WrongCluster);
    };
    if cluster.problem.is_some() || !inventory.reachable || !inventory.quorate {
        return Some(Violation::WrongCluster);
    }
    let Some(facts) = inventory.hypervisors.get(&spec.hypervisor) else {
        return refused("it does not exist");
    };
    let is_included = cluster.hypervisors.include.is_empty()
        || cluster.hypervisors.include.contains(&spec.hypervisor);
    if !is_included || cluster.hypervisors.exclude.contains(&spec.hypervisor) {
        return refused("the operator excluded it");
    }
    if cluster.hypervisors.drain.contains(&spec.hypervisor) {
        return refused("the operator wants it empty");
    }
    if !facts.online || facts.maintenance {
        return refused("it is offline or in maintenance");
    }
    let idle = (f64::from(facts.threads) * (1.0 - facts.cpu_usage)).floor();
    let free = facts.memory_bytes.saturating_sub(facts.memory_used_bytes);
    if idle < cluster.min_available_cpu_cores as f64 || free < cluster.min_available_memory_bytes()
    {
        return refused("it does not meet the cluster's minimums");
    }
    if let Some(storage) = &spec.storage
        && !facts
            .storages
            .get(storage)
            .is_some_and(|storage| storage.active)
    {
        return refused("its storage is not active");
    }
    let network = spec.machine.iter().flat_map(|machine| &machine.network);
    let mut bridges = network.filter_map(|interface| interface.bridge.as_ref());
    let has = |bridge| {
        let known = facts.bridges.as_ref();
        known.is_some_and(|known| known.contains_key(bridge))
    };
    if !bridges.all(has) {
        return refused("it lacks a bridge of the class, or its bridges are not known");
    }
    room_violation(cluster, facts, tally, &spec.hypervisor_id())
}

/// Everything that counts, here or on its way here, this tick's machines included, against what the hypervisor has.
fn room_violation(
    cluster: &ClusterFacts,
    facts: &HypervisorFacts,
    tally: &Tally,
    id: &HypervisorId,
) -> Option<Violation> {
    let (all, in_flight) = tally.hypervisors.get(id).copied().unwrap_or_default();
    if cluster
        .max_machines_per_hypervisor
        .is_some_and(|most| all.machines > most)
    {
        return Some(Violation::TooManyMachines);
    }
    let overrides = cluster.hypervisors.overrides.get(&id.name);
    let own = overrides.and_then(|it| it.system_reserved.as_ref());
    let reserved = own.unwrap_or(&cluster.system_reserved);
    let cores = (u128::from(facts.committed_threads) * 1000)
        .saturating_sub(in_flight.listed_milli_cores)
        + in_flight.sum.milli_cores
        + u128::from(reserved.milli_cores());
    let memory = u128::from(facts.committed_memory_bytes)
        .saturating_sub(in_flight.listed_memory_bytes)
        .max(u128::from(facts.memory_used_bytes))
        + in_flight.sum.memory_bytes
        + u128::from(reserved.memory_bytes());
    let all_cores = f64::from(facts.threads) * 1000.0 * cluster.overcommit.cpu;
    let all_memory = facts.memory_bytes as f64 * cluster.overcommit.memory;
    let has_room = cores as f64 <= all_cores && memory as f64 <= all_memory;
    (!has_room).then_some(Violation::NoRoom)
}

#[cfg(test)]
mod tests;
