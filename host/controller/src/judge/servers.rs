//! Proxmox servers: those that do not work, and the machines on them.

use jiff::Timestamp;
use kproxide_planner::claim::Condition;
use kproxide_planner::facts::{ClaimFacts, HypervisorFacts};
use kproxide_planner::ids::{ClusterName, HypervisorId};
use kproxide_planner::planning::Offer;
use kproxide_planner::reasons::kept::REMOVING;
use kproxide_planner::world::World;

use super::{Finding, Group, Level, Stops, listed, named, reasons};

/// A server that is in maintenance is as somebody wishes, and one that machines may not be on concerns nobody as long as none is there.
pub(super) fn check(world: &World, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (cluster, inventory) in world.inventories() {
        // A cluster that does not answer, or a server that does not see the others, tells nothing of them. The cluster says why.
        if !inventory.reachable || !inventory.quorate {
            continue;
        }
        for (name, facts) in &inventory.hypervisors {
            let settings = world.clusters().get(cluster);
            let is_used = settings.is_some_and(|it| !it.excludes(name));
            let machines = machines_on(world, cluster, name);
            if is_used || !machines.is_empty() {
                findings.extend(of_server(cluster, name, facts, &machines));
                findings.extend(held(world, cluster, name, now));
            }
        }
    }
    findings
}

fn of_server(
    cluster: &ClusterName,
    name: &str,
    facts: &HypervisorFacts,
    machines: &[&str],
) -> Option<Finding> {
    let with = match machines {
        [] => "no machine is on it".to_owned(),
        [one] => format!("1 machine is on it: {one}"),
        many => format!("{} machines are on it: {}", many.len(), listed(many)),
    };
    let off = off_command(facts, machines, cluster, name);
    let (reason, message) = match (&facts.problem, facts.online) {
        (Some(problem), _) => (
            &reasons::HYPERVISOR_SILENT,
            format!(
                "server {name} is online, as Proxmox says, but does not answer ({problem}); {with}"
            ),
        ),
        (None, false) => (
            &reasons::HYPERVISOR_OFFLINE,
            match off {
                None => format!("server {name} is offline, as Proxmox says; {with}"),
                Some(_) => format!(
                    "server {name} is offline, as Proxmox says; {with}. Start it. If it is certainly off and will not come back, say so, and kproxide replaces them"
                ),
            },
        ),
        (None, true) => return None,
    };
    let level = match machines {
        [] => Level::Warning,
        [_, ..] => Level::Error,
    };
    let finding = Finding::new(
        level,
        Group::Proxmox,
        object(cluster, name),
        reason,
        message,
    );
    let stops = match machines {
        [] => Stops::Nothing,
        [_, ..] => finding.stops,
    };
    Some(Finding { stops, ..finding }.typing(off))
}

/// A machine that is still on a server that is to be emptied, and the reason of its condition Removable.
pub struct Holding<'w> {
    pub claim: &'w str,
    pub reason: Option<&'w str>,
}

/// The machines on a server that a person, or its maintenance mode, wants empty; none: it is. `None`: nobody wants that.
pub fn emptying<'w>(
    world: &'w World,
    cluster: &ClusterName,
    name: &str,
    now: Timestamp,
) -> Option<Vec<Holding<'w>>> {
    world
        .empties_from(cluster, name)
        .filter(|from| *from <= now)?;
    let claims = world.claims().iter();
    let here = claims.filter(|(_, it)| is_on(it, cluster, name));
    let holding = here.map(|(claim, facts)| {
        let mut conditions = facts.status.conditions.iter();
        let removable = conditions.find(|it| it.kind == Condition::Removable);
        Holding {
            claim: claim.as_str(),
            reason: removable.map(|it| &*it.reason),
        }
    });
    Some(holding.collect())
}

/// Reasons of Removable that pass by themselves.
const ON_ITS_WAY: [&str; 4] = [
    REMOVING,
    "AwaitsReplacement",
    "ReplacesAnother",
    "MaxDeletionCountReached",
];

/// Machines that do not leave a server that is to be emptied.
fn held(world: &World, cluster: &ClusterName, name: &str, now: Timestamp) -> Option<Finding> {
    let machines = emptying(world, cluster, name, now)?;
    let stays = |it: &&Holding<'_>| it.reason.is_some_and(|word| !ON_ITS_WAY.contains(&word));
    let staying: Vec<String> = machines
        .iter()
        .filter(stays)
        .map(|it| format!("{} ({})", it.claim, it.reason.unwrap_or_default()))
        .collect();
    let first = machines.iter().find(stays)?.claim;
    let listed = listed(&staying.iter().map(String::as_str).collect::<Vec<_>>());
    let text = format!("server {name} is to be emptied, and these machines stay: {listed}");
    let finding = Finding::warning(
        Group::Proxmox,
        object(cluster, name),
        &reasons::NOT_EMPTIED,
        text,
    );
    Some(finding.typing([format!("kproxide explain claim {first}")]))
}

/// Only a person knows that a server will not come back.
fn off_command(
    facts: &HypervisorFacts,
    machines: &[&str],
    cluster: &ClusterName,
    name: &str,
) -> Option<String> {
    let may_be_off = facts.problem.is_none() && !machines.is_empty();
    may_be_off.then(|| {
        format!("kubectl annotate proxmoxcluster {cluster} kproxide.dev/hypervisor-off={name}")
    })
}

/// What a server is good for now, the worst first, and the NodeClaims whose VMs are on it.
pub struct Server<'w> {
    /// `None`: it takes machines.
    pub why_not: Option<String>,
    pub machines: Vec<&'w str>,
}

/// What is said of one Proxmox server, by what is seen of it now.
pub fn server<'w>(
    world: &'w World,
    cluster: &ClusterName,
    name: &str,
    facts: &HypervisorFacts,
    offers: &[Offer<'_>],
) -> Server<'w> {
    let inventory = world.inventories().get(cluster);
    let settings = world.clusters().get(cluster);
    let here = || {
        let here =
            |it: &&Offer<'_>| it.hypervisor.cluster == *cluster && *it.hypervisor.name == *name;
        offers.iter().filter(here)
    };
    let why_not = if inventory.is_some_and(|it| !it.reachable) {
        Some("its Proxmox cluster does not answer".to_owned())
    } else if inventory.is_some_and(|it| !it.quorate) {
        Some("its Proxmox cluster has no quorum".to_owned())
    } else if let Some(problem) = &facts.problem {
        Some(format!(
            "it is online, as Proxmox says, but does not answer ({problem})"
        ))
    } else if !facts.online {
        Some("it is offline, as Proxmox says".to_owned())
    } else if facts.maintenance {
        Some("it is in maintenance".to_owned())
    } else if settings.is_some_and(|it| it.excludes(name)) {
        Some("spec.hypervisors of the ProxmoxCluster excludes it".to_owned())
    } else if settings.is_some_and(|it| it.drains(name)) {
        Some("it is to be emptied (spec.hypervisors.drain of the ProxmoxCluster)".to_owned())
    } else {
        // The last size says what is nearest to fitting.
        let all_refuse = here().next().is_some() && here().all(|it| it.refusal.is_some());
        let last = here().next_back().and_then(|it| it.refusal.as_ref());
        last.filter(|_| all_refuse).map(ToString::to_string)
    };
    Server {
        why_not,
        machines: machines_on(world, cluster, name),
    }
}

/// `Hypervisor/home/pve1`.
fn object(cluster: &ClusterName, name: &str) -> String {
    named(
        "Hypervisor",
        HypervisorId {
            cluster: cluster.clone(),
            name: name.into(),
        },
    )
}

/// Claims whose VMs are there.
fn machines_on<'w>(world: &'w World, cluster: &ClusterName, name: &str) -> Vec<&'w str> {
    let claims = world.claims().iter();
    let here = claims.filter(|(_, it)| is_on(it, cluster, name));
    here.map(|(claim, _)| claim.as_str()).collect()
}

/// Its VM is there.
fn is_on(claim: &ClaimFacts, cluster: &ClusterName, name: &str) -> bool {
    claim.spec.cluster == *cluster && **claim.hypervisor() == *name
}
