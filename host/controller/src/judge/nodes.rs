//! Nodes that a person should look at.

use std::collections::BTreeSet;

use kproxide_planner::claim::Phase;
use kproxide_planner::facts::{EntryState, Taint, TaintEffect};
use kproxide_planner::keys::{CLAIM, UNREGISTERED_TAINT};
use kproxide_planner::kubernetes::taints::is_passing;
use kproxide_planner::world::World;

use super::{Finding, Group, named, reasons};

pub(super) fn check(world: &World, sees_books: bool) -> Vec<Finding> {
    let mut findings = match sees_books {
        true => without_claim(world),
        false => Vec::new(),
    };
    findings.extend(set_aside(world));
    findings.extend(copies(world));
    findings
}

/// Nodes that show the UUID of a machine, and are not its Node.
fn copies(world: &World) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, claim) in world.claims() {
        let uuid = claim.status.smbios_uuid.iter();
        let its = world.nodes_of(claim);
        for node in uuid.flat_map(|uuid| world.nodes_with_uuid(uuid)) {
            if its.iter().any(|it| it.name() == node) {
                continue;
            }
            let other = match &its[..] {
                [it] => format!(" (that is {})", it.name()),
                _ => String::new(),
            };
            let text = format!(
                "it shows the UUID of the machine of NodeClaim {name}, and is not its Node{other}. A kubelet can write any UUID. Find out what runs there, and delete the Node that is not the machine's"
            );
            let object = named("Node", node);
            let reason = &reasons::NODE_UUID_COPIED;
            findings.push(Finding::warning(Group::Nodes, object, reason, text));
        }
    }
    findings
}

/// Nodes with our label, our taint or the name of a VM in our Proxmox pool, and no claim. A machine that has lost its claim
/// has a row in the Ledger, and is another finding.
fn without_claim(world: &World) -> Vec<Finding> {
    let rows = world.ledger().into_iter().flat_map(|it| &it.entries);
    let of_machines = rows.filter(|row| match row.state {
        EntryState::Reserved { .. } | EntryState::Live => true,
        EntryState::Quarantined { .. } => false,
    });
    let in_books: BTreeSet<&str> = of_machines.map(|row| row.claim.as_str()).collect();
    let of_vms = world.inventories().iter().flat_map(|(cluster, inventory)| {
        let pool = world.clusters().get(cluster).map(|facts| &facts.pool);
        let guests = inventory.guests.values();
        let ours = guests.filter(move |it| it.pool.as_ref() == pool && !it.template);
        ours.filter_map(|guest| guest.name.as_deref())
    });
    let of_vms: BTreeSet<&str> = of_vms.collect();
    let of_claims = world.claims().iter().flat_map(|(name, facts)| {
        let node = world.node_of(facts).map(|node| node.name().as_str());
        [Some(name.as_str()), node].into_iter().flatten()
    });
    let of_claims: BTreeSet<&str> = of_claims.collect();
    let mut findings = Vec::new();
    for node in world.nodes() {
        let name = node.name().as_str();
        let label = node.facts.labels.get(CLAIM);
        let is_tainted = node.facts.taints.iter();
        let is_tainted = is_tainted
            .clone()
            .any(|taint| &*taint.key == UNREGISTERED_TAINT);
        let of_label = label.is_some_and(|claim| !of_claims.contains(claim.as_str()));
        let sign = match (of_label, is_tainted, of_vms.contains(name)) {
            (true, _, _) => format!("has the label {CLAIM}"),
            (false, true, _) => format!("has the taint {UNREGISTERED_TAINT}"),
            (false, false, true) => "is a VM of the Proxmox pool".to_owned(),
            (false, false, false) => continue,
        };
        let label = label.map(String::as_str);
        let is_machine = |name: &str| of_claims.contains(name) || in_books.contains(name);
        if is_machine(name) || label.is_some_and(|claim| in_books.contains(claim)) {
            continue;
        }
        let text = format!(
            "the Node {sign}, and no NodeClaim has it. If its machine is gone, delete the Node"
        );
        let object = named("Node", name);
        let reason = &reasons::NODE_WITHOUT_CLAIM;
        let finding = Finding::warning(Group::Nodes, object, reason, text);
        findings.push(finding.typing([format!("kubectl delete node {name}")]));
    }
    findings
}

/// A cordon, or a taint that nobody named: new pods do not go to the Node, and it counts in limits all the same.
fn set_aside(world: &World) -> Vec<Finding> {
    let claims = world.claims().values();
    let found = claims.filter_map(|claim| {
        // kproxide cordons the Nodes that it drains.
        if claim.status.phase != Phase::Initialized || claim.deleting_since.is_some() {
            return None;
        }
        let node = world.node_of(claim)?;
        let name = node.name();
        let object = named("Node", name);
        let (what, command) = match node.facts.unschedulable {
            true => (
                "somebody has cordoned it".to_owned(),
                format!("kubectl uncordon {name}"),
            ),
            false => {
                let pool = world.pools().get(&claim.spec.pool)?;
                let mut taints = node.facts.taints.iter();
                let foreign = taints.find(|taint| {
                    let is = |named: &Taint| (&named.key, named.effect) == (&taint.key, taint.effect);
                    taint.effect != TaintEffect::PreferNoSchedule
                        && !is_of_kubernetes(taint)
                        && !pool.taints.iter().any(is)
                        && !pool.startup_taints.iter().any(is)
                })?;
                (
                    format!("it has the taint {foreign}, which spec.taints of NodePool {} does not name", claim.spec.pool),
                    format!("kubectl taint node {name} {foreign}-"),
                )
            }
        };
        let text = format!("{what}, so new pods do not go there");
        let finding = Finding::warning(Group::Nodes, object, &reasons::NODE_SET_ASIDE, text);
        Some(finding.typing([command]))
    });
    found.collect()
}

/// Kubernetes and kproxide set and remove these by themselves.
fn is_of_kubernetes(taint: &Taint) -> bool {
    let mut of = ["node.kubernetes.io/", "kproxide.dev/"].iter();
    is_passing(taint) || of.any(|prefix| taint.key.starts_with(prefix))
}
