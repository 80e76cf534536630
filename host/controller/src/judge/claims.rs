//! NodeClaims: their Nodes, their servers, and what needs a person, or may.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::claim::{Condition, Phase, Waits, ZONE_OUTDATED};
use kproxide_planner::facts::{ClaimCondition, ClaimFacts};
use kproxide_planner::ids::ClaimName;
use kproxide_planner::world::World;

use super::{Finding, Group, Reason, named, reasons};

/// What keeps a claim from going on is told after so long.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn check(
    world: &World,
    held_up: &BTreeMap<ClaimName, Waits>,
    now: Timestamp,
) -> Vec<Finding> {
    let claims = world.claims().iter();
    let found = claims.flat_map(|(name, claim)| {
        let ready = not_ready(world, name, claim);
        let conditions = claim.status.conditions.iter();
        let held = conditions.filter_map(|condition| of_condition(world, name, claim, condition));
        let mut held: Vec<Finding> = held.collect();
        // What a removal waits for is mostly one of the others.
        if held.len() > 1 {
            held.retain(|it| *it.reason != reasons::STALLED);
        }
        let waits = held_up.get(name).filter(|waits| {
            held.is_empty() && ready.is_none() && now.duration_since(waits.since) >= PATIENCE
        });
        let waits = waits.map(|waits| {
            let object = named("NodeClaim", name);
            let message = format!("it waits: {}", waits.why);
            Finding::warning(Group::Nodes, object, &reasons::WAITS, message).since(waits.since)
        });
        ready.into_iter().chain(held).chain(waits)
    });
    found.collect()
}

/// A machine in service whose Node is not, or whose server is off.
fn not_ready(world: &World, name: &ClaimName, claim: &ClaimFacts) -> Option<Finding> {
    if claim.status.phase != Phase::Initialized {
        return None;
    }
    let object = named("NodeClaim", name);
    let server = claim.hypervisor();
    let inventory = world.inventories().get(&claim.spec.cluster);
    let group = Group::Nodes;
    if inventory.is_some_and(|inventory| inventory.is_off(server)) {
        let message = format!("its server {server} is offline, as Proxmox says");
        let reason = &reasons::SERVER_OFFLINE;
        return Some(Finding::warning(group, object, reason, message));
    }
    let Some(node) = world.node_of(claim) else {
        let since = claim.status.since(Condition::NodeMissing)?;
        let message = "its Node is gone, and its machine is there. kproxide replaces it after repairAfter, and at once if you delete the NodeClaim";
        let reason = &reasons::NODE_GONE;
        let finding = Finding::warning(group, object, reason, message).since(since);
        return Some(finding.typing([format!("kubectl delete nodeclaim {name}")]));
    };
    let mut conditions = claim.status.conditions.iter();
    let ready = conditions.find(|it| it.kind == Condition::Ready);
    if let Some(ready) = ready.filter(|it| node.facts.ready && it.reason == ZONE_OUTDATED) {
        let reason = &reasons::ZONE_OUTDATED;
        let finding = Finding::warning(group, object, reason, &*ready.message);
        return Some(finding.since(ready.since));
    }
    (!node.facts.ready).then(|| {
        let message = format!("Node {} is not Ready", node.name());
        let reason = &reasons::NODE_NOT_READY;
        Finding::warning(group, object, reason, message).since(node.facts.ready_since)
    })
}

fn of_condition(
    world: &World,
    name: &ClaimName,
    claim: &ClaimFacts,
    condition: &ClaimCondition,
) -> Option<Finding> {
    if !condition.status {
        return None;
    }
    let reason: &'static Reason = match condition.kind {
        Condition::StuckLocked => &reasons::STUCK_LOCKED,
        Condition::OwnershipMismatch => &reasons::OWNERSHIP_MISMATCH,
        Condition::ProtectedVM => &reasons::PROTECTED_VM,
        Condition::NotProvenOff => &reasons::NOT_PROVEN_OFF,
        Condition::Stalled => &reasons::STALLED,
        Condition::Reserved
        | Condition::Launched
        | Condition::Registered
        | Condition::Initialized
        | Condition::Unneeded
        | Condition::Removable
        | Condition::NodeMissing
        | Condition::Drained
        | Condition::VolumesDetached
        | Condition::InstanceTerminating
        | Condition::Ready => return None,
    };
    let object = named("NodeClaim", name);
    let finding = Finding::warning(Group::Nodes, object, reason, &*condition.message);
    let commands = command(world, claim, condition.kind);
    Some(finding.since(condition.since).typing(commands))
}

/// What a person can type, where it follows from what is known here. The message has the rest.
fn command(world: &World, claim: &ClaimFacts, kind: Condition) -> Option<String> {
    let server = claim.hypervisor();
    let cluster = &claim.spec.cluster;
    let inventory = world.inventories().get(cluster);
    let answers = inventory.is_some_and(|it| it.reachable && it.answers(server));
    let may_be_off = kind == Condition::NotProvenOff && !answers;
    may_be_off.then(|| {
        format!("kubectl annotate proxmoxcluster {cluster} kproxide.dev/hypervisor-off={server}")
    })
}
