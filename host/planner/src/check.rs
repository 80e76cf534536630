//! The last look at a plan: every limit is derived again from the World, by other code than the planner's, and what violates one is dropped and
//! reported. A policy's answer reaches the world only through here; so does a mistake of the planner, which is reported as a defect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use crate::claim::Phase;
use crate::facts::{ClaimFacts, EntryState, GuestStatus, LedgerEntry, LedgerFacts, PoolFacts};
use crate::ids::{ClaimName, PoolName, Vmid};
use crate::ledger::{FORBIDDEN_VMID, MOST_ENTRIES};
use crate::plan::{Advance, Launch, Plan, RemovalReason, Verdict};
use crate::planning::Limits;
use crate::report::{Finding, Severity};
use crate::world::World;

/// What a plan must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    TooManyLaunches,
    NotReserved,
    NameTaken,
    BadName,
    NoSuchPool,
    PoolNotInUse,
    PoolLimit,
    NumberTaken(Vmid),
    NumberOutOfRange(Vmid),
    AddressTaken(std::net::IpAddr),
    LedgerFull,
    WrongCluster,
    NoKey,
    Hypervisor(String),
    NoRoom,
    TooManyMachines,
    NoSuchClaim,
    NotOurs,
    OwnNode,
    ControlPlane,
    Protected,
    NotArmed,
    Budget,
    MinNodes,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyLaunches => f.write_str("more launches than one tick may begin"),
            Self::NotReserved => f.write_str("nothing is reserved for it in the Ledger"),
            Self::NameTaken => f.write_str("its name is taken"),
            Self::BadName => f.write_str("its name is no DNS label"),
            Self::NoSuchPool => f.write_str("its pool does not exist"),
            Self::PoolNotInUse => f.write_str("its pool is paused or cannot be used"),
            Self::PoolLimit => f.write_str("it would pass a limit of its pool"),
            Self::NumberTaken(vmid) => write!(f, "VMID {vmid} is in use"),
            Self::NumberOutOfRange(vmid) => write!(f, "VMID {vmid} is outside the cluster's range"),
            Self::AddressTaken(address) => write!(f, "address {address} is in use"),
            Self::LedgerFull => f.write_str("the Ledger is full"),
            Self::WrongCluster => {
                f.write_str("its Proxmox cluster is not its pool's, or cannot be written to")
            }
            Self::NoKey => f.write_str("the key for ownership proofs is missing"),
            Self::Hypervisor(reason) => write!(f, "its hypervisor cannot take it: {reason}"),
            Self::NoRoom => f.write_str("its hypervisor has no room for it"),
            Self::TooManyMachines => f.write_str("its hypervisor would hold too many machines"),
            Self::NoSuchClaim => f.write_str("the claim does not exist"),
            Self::NotOurs => f.write_str("the claim is another one of that name"),
            Self::OwnNode => f.write_str("kproxide runs on its Node"),
            Self::ControlPlane => f.write_str("its Node is a control plane"),
            Self::Protected => f.write_str("it must not be disrupted"),
            Self::NotArmed => f.write_str("nothing may be removed yet"),
            Self::Budget => f.write_str("more removals than its pool's budget"),
            Self::MinNodes => f.write_str("its pool would fall below minNodes"),
        }
    }
}

/// Drops what violates a limit and reports it.
pub(crate) fn enforce(world: &World, now: Timestamp, limits: &Limits, plan: &mut Plan) {
    let mut ledger = plan
        .ledger
        .clone()
        .or_else(|| world.ledger().cloned())
        .unwrap_or_default();
    let mut findings = Vec::new();
    let launches = std::mem::take(&mut plan.launches);
    let mut accepted: Vec<Launch> = Vec::new();
    for launch in launches {
        match launch_violation(world, limits, &ledger, &accepted, &launch) {
            None => accepted.push(launch),
            Some(violation) => {
                ledger
                    .entries
                    .retain(|entry| entry.claim != launch.claim || !is_reserved(entry));
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
    let mut removals = Removals::new(world, now, plan);
    for advance in &mut plan.advances {
        if let Verdict::Remove(reason) = advance.verdict
            && let Some(violation) = removals.violation(advance, reason)
        {
            findings.push(defect(&advance.claim, "removed", &violation));
            advance.verdict = Verdict::Hold(format!("the plan's check refused it: {violation}"));
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
    let ledger = plan
        .ledger
        .clone()
        .or_else(|| world.ledger().cloned())
        .unwrap_or_default();
    let mut found = Vec::new();
    for (index, launch) in plan.launches.iter().enumerate() {
        let violation = launch_violation(world, limits, &ledger, &plan.launches[..index], launch);
        found.extend(violation.map(|violation| (launch.claim.clone(), violation)));
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

fn defect(claim: &ClaimName, verb: &str, violation: &Violation) -> Finding {
    Finding {
        severity: Severity::Defect,
        about: format!("NodeClaim/{claim}"),
        message: format!("not {verb}: {violation}"),
    }
}

fn is_reserved(entry: &LedgerEntry) -> bool {
    matches!(entry.state, EntryState::Reserved { .. })
}

/// What stands against a launch, given the Ledger with all reservations and the launches accepted before it.
fn launch_violation(
    world: &World,
    limits: &Limits,
    ledger: &LedgerFacts,
    before: &[Launch],
    launch: &Launch,
) -> Option<Violation> {
    let spec = &launch.spec;
    let is_its = |entry: &&LedgerEntry| {
        entry.claim == launch.claim
            && is_reserved(entry)
            && entry.vmid == spec.vmid
            && entry.cluster == spec.cluster
    };
    let Some(entry) = ledger.entries.iter().find(is_its) else {
        return Some(Violation::NotReserved);
    };
    let is_as_reserved = entry.pool == spec.pool
        && entry.hypervisor == spec.hypervisor
        && entry.address == spec.address
        && (entry.milli_cores, entry.memory_bytes) == (spec.milli_cores, spec.memory_bytes);
    let names = ledger
        .entries
        .iter()
        .filter(|entry| entry.claim == launch.claim)
        .count();
    if !is_as_reserved {
        Some(Violation::NotReserved)
    } else if before.len() >= limits.max_launches_per_tick as usize {
        Some(Violation::TooManyLaunches)
    } else if !world.host().key_known {
        Some(Violation::NoKey)
    } else if names > 1 || world.claims().contains_key(&launch.claim) {
        Some(Violation::NameTaken)
    } else if !is_dns_label(launch.claim.as_str()) || *launch.claim.0 != *spec.vm_name {
        Some(Violation::BadName)
    } else if ledger.entries.len() > MOST_ENTRIES {
        Some(Violation::LedgerFull)
    } else {
        number_violation(world, ledger, launch)
            .or_else(|| address_violation(world, ledger, launch))
            .or_else(|| pool_violation(world, ledger, launch))
            .or_else(|| hypervisor_violation(world, ledger, launch))
    }
}

fn number_violation(world: &World, ledger: &LedgerFacts, launch: &Launch) -> Option<Violation> {
    let (cluster, vmid) = (&launch.spec.cluster, launch.spec.vmid);
    let facts = world.clusters().get(cluster)?;
    let entries = ledger
        .entries
        .iter()
        .filter(|entry| entry.cluster == *cluster && entry.vmid == vmid)
        .count();
    let in_claim = world
        .claims()
        .values()
        .any(|claim| claim.spec.cluster == *cluster && claim.spec.vmid == vmid);
    let in_inventory = world
        .inventories()
        .get(cluster)
        .is_some_and(|inventory| inventory.guests.contains_key(&vmid));
    if vmid < facts.vmid_first || vmid > facts.vmid_last || vmid.0 == FORBIDDEN_VMID {
        Some(Violation::NumberOutOfRange(vmid))
    } else if entries > 1 || in_claim || in_inventory {
        Some(Violation::NumberTaken(vmid))
    } else {
        None
    }
}

fn address_violation(world: &World, ledger: &LedgerFacts, launch: &Launch) -> Option<Violation> {
    let address = launch.spec.address?;
    let entries = ledger
        .entries
        .iter()
        .filter(|entry| entry.address == Some(address))
        .count();
    let in_claim = world
        .claims()
        .values()
        .any(|claim| claim.spec.address == Some(address));
    (entries > 1 || in_claim).then_some(Violation::AddressTaken(address))
}

fn pool_violation(world: &World, ledger: &LedgerFacts, launch: &Launch) -> Option<Violation> {
    let spec = &launch.spec;
    let Some(pool) = world.pools().get(&spec.pool) else {
        return Some(Violation::NoSuchPool);
    };
    if pool.paused || pool.problem.is_some() || pool.class != spec.class {
        return Some(Violation::PoolNotInUse);
    }
    if !pool.clusters.is_empty() && !pool.clusters.contains(&spec.cluster) {
        return Some(Violation::WrongCluster);
    }
    let entries = ledger
        .entries
        .iter()
        .filter(|entry| entry.pool == spec.pool && entry.counts());
    let nodes = entries.clone().count();
    let cores: u128 = entries
        .clone()
        .map(|entry| u128::from(entry.milli_cores))
        .sum();
    let memory: u128 = entries.map(|entry| u128::from(entry.memory_bytes)).sum();
    let passes = |sum: u128, most: Option<u64>| most.is_some_and(|most| sum > u128::from(most));
    let is_over = nodes > pool.max_nodes as usize
        || passes(cores, pool.max_milli_cores)
        || passes(memory, pool.max_memory_bytes);
    is_over.then_some(Violation::PoolLimit)
}

fn hypervisor_violation(world: &World, ledger: &LedgerFacts, launch: &Launch) -> Option<Violation> {
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
    let is_included = cluster.include.is_empty() || cluster.include.contains(&spec.hypervisor);
    if !is_included || cluster.exclude.contains(&spec.hypervisor) {
        return refused("the operator excluded it");
    }
    if !facts.online || facts.maintenance {
        return refused("it is offline or in maintenance");
    }
    let idle = (f64::from(facts.threads) * (1.0 - facts.cpu_usage)).floor();
    let free = facts.memory_bytes.saturating_sub(facts.memory_used_bytes);
    if idle < cluster.min_available_cpu_cores as f64 || free < cluster.min_available_memory_bytes {
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

    // Room: everything that counts, here or on its way here, this tick's machines included.
    let id = spec.hypervisor_id();
    let mut machines = 0u32;
    let (mut cores, mut memory) = (0u128, 0u128);
    let (mut counted_cores, mut counted_memory) = (0u128, 0u128);
    for entry in ledger
        .entries
        .iter()
        .filter(|entry| entry.counts() && entry.cluster == spec.cluster)
    {
        let guest = inventory.guests.get(&entry.vmid);
        let at = guest.map_or(&entry.hypervisor, |guest| &guest.hypervisor);
        if *at != id.name {
            continue;
        }
        machines += 1;
        match guest.map(|guest| (guest.status, guest)) {
            Some((GuestStatus::Running | GuestStatus::Unknown, _)) => continue,
            Some((GuestStatus::Stopped, guest)) => {
                counted_cores += u128::from(guest.max_threads) * 1000;
                counted_memory += u128::from(guest.max_memory_bytes);
            }
            None => {}
        }
        cores += u128::from(entry.milli_cores);
        memory += u128::from(entry.memory_bytes);
    }
    if cluster
        .max_machines_per_hypervisor
        .is_some_and(|most| machines > most)
    {
        return Some(Violation::TooManyMachines);
    }
    let committed_cores =
        (u128::from(facts.committed_threads) * 1000).saturating_sub(counted_cores);
    let committed_memory = u128::from(facts.committed_memory_bytes)
        .saturating_sub(counted_memory)
        .max(u128::from(facts.memory_used_bytes));
    let all_cores = f64::from(facts.threads) * 1000.0 * cluster.overcommit_cpu;
    let all_memory = facts.memory_bytes as f64 * cluster.overcommit_memory;
    let is_over = (committed_cores + cores + u128::from(cluster.system_reserved_milli_cores))
        as f64
        > all_cores
        || (committed_memory + memory + u128::from(cluster.system_reserved_memory_bytes)) as f64
            > all_memory;
    is_over.then_some(Violation::NoRoom)
}

fn is_dns_label(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Removals looked at one after the other, in the plan's order.
struct Removals<'w> {
    world: &'w World,
    now: Timestamp,
    /// Nodes of each pool whose removal has begun or begins now.
    under_way: BTreeMap<PoolName, u32>,
    /// Machines of each pool that stay.
    staying: BTreeMap<PoolName, u32>,
    seen: BTreeSet<ClaimName>,
}

impl<'w> Removals<'w> {
    /// A drain that the plan gives up is under way until it is undone, and its machine stays.
    fn new(world: &'w World, now: Timestamp, plan: &Plan) -> Self {
        let given_up: BTreeSet<&ClaimName> = plan
            .advances
            .iter()
            .filter(|advance| matches!(advance.verdict, Verdict::GiveUp(_)))
            .map(|advance| &advance.claim)
            .collect();
        let mut removals = Self {
            world,
            now,
            under_way: BTreeMap::new(),
            staying: BTreeMap::new(),
            seen: BTreeSet::new(),
        };
        for (name, claim) in world.claims() {
            let pool = &claim.spec.pool;
            if has_begun(claim) && claim.status.node_name.is_some() {
                *removals.under_way.entry(pool.clone()).or_default() += 1;
            }
            if !has_begun(claim) || given_up.contains(name) {
                *removals.staying.entry(pool.clone()).or_default() += 1;
            }
        }
        removals
    }

    fn violation(&mut self, advance: &Advance, reason: RemovalReason) -> Option<Violation> {
        let world = self.world;
        let Some(claim) = world.claims().get(&advance.claim) else {
            return Some(Violation::NoSuchClaim);
        };
        if claim.uid != advance.uid || !self.seen.insert(advance.claim.clone()) {
            return Some(Violation::NotOurs);
        }
        if let Some(violation) = self.node_violation(claim) {
            return Some(violation);
        }
        let armed_at = world.host().armed_at;
        if armed_at.is_none_or(|moment| self.now < moment) {
            return Some(Violation::NotArmed);
        }
        let is_protected = claim.paused
            || world
                .pools()
                .get(&claim.spec.pool)
                .is_some_and(|pool| pool.paused);
        if is_protected || (reason.is_voluntary() && claim.do_not_disrupt) {
            return Some(Violation::Protected);
        }
        if has_begun(claim) {
            return None;
        }
        self.begin(claim, reason)
    }

    fn node_violation(&self, claim: &ClaimFacts) -> Option<Violation> {
        let node = self.world.node_of(claim)?;
        let labels = &node.facts.labels;
        if self.world.host().own_node.as_ref() == Some(node.name()) {
            Some(Violation::OwnNode)
        } else if labels.contains_key("node-role.kubernetes.io/control-plane")
            || labels.contains_key("node-role.kubernetes.io/master")
        {
            Some(Violation::ControlPlane)
        } else {
            None
        }
    }

    /// Counts a removal that begins now against its pool's budget and, if it is of our own choice, `minNodes`.
    fn begin(&mut self, claim: &ClaimFacts, reason: RemovalReason) -> Option<Violation> {
        let name = &claim.spec.pool;
        let pool: Option<&PoolFacts> = self.world.pools().get(name);
        let under_way = self.under_way.entry(name.clone()).or_default();
        let staying = self.staying.entry(name.clone()).or_default();
        match reason {
            RemovalReason::Lost | RemovalReason::LaunchFailed | RemovalReason::Deleted => {}
            RemovalReason::Empty
            | RemovalReason::Underutilized
            | RemovalReason::Replace
            | RemovalReason::Repair => {
                if pool.is_none_or(|pool| *under_way >= pool.scale_down.budget) {
                    return Some(Violation::Budget);
                }
            }
        }
        if reason.is_voluntary() && pool.is_none_or(|pool| *staying <= pool.min_nodes) {
            return Some(Violation::MinNodes);
        }
        if claim.status.node_name.is_some() {
            *under_way += 1;
        }
        *staying = staying.saturating_sub(1);
        None
    }
}

/// Its removal is recorded in the claim itself.
fn has_begun(claim: &ClaimFacts) -> bool {
    claim.deleting_since.is_some() || claim.status.phase > Phase::Initialized
}

#[cfg(test)]
mod tests;
