//! Nodes that a person should look at.

use kproxide_planner::claim::Phase;
use kproxide_planner::facts::{Taint, TaintEffect};
use kproxide_planner::keys::{CLAIM, UNREGISTERED_TAINT};
use kproxide_planner::taints::is_passing;
use kproxide_planner::world::World;

use super::{Finding, Group, named, reasons};

pub(super) fn check(world: &World) -> Vec<Finding> {
    let mut findings = without_claim(world);
    findings.extend(set_aside(world));
    findings
}
/// Nodes with our label, our taint or the name of a VM in our Proxmox pool, and no claim.
fn without_claim(world: &World) -> Vec<Finding> {
    let is_claimed = |name: &str| {
        let mut claims = world.claims().iter();
        claims.any(|(claim, facts)| {
            let node = world.node_of(facts);
            claim.as_str() == name || node.is_some_and(|node| node.name().as_str() == name)
        })
    };
    let is_vm = |name: &str| {
        let mut inventories = world.inventories().iter();
        inventories.any(|(cluster, inventory)| {
            let pool = world.clusters().get(cluster).map(|facts| &facts.pool);
            let mut guests = inventory.guests.values();
            guests.any(|guest| {
                guest.name.as_deref() == Some(name)
                    && guest.pool.as_ref() == pool
                    && !guest.template
            })
        })
    };
    let mut findings = Vec::new();
    for node in world.nodes() {
        let name = node.name().as_str();
        let label = node.facts.labels.get(CLAIM);
        let is_tainted = node.facts.taints.iter();
        let is_tainted = is_tainted
            .clone()
            .any(|taint| &*taint.key == UNREGISTERED_TAINT);
        let of_label = label.is_some_and(|claim| {
            let mut claims = world.claims().keys();
            !claims.any(|it| it.as_str() == &**claim)
        });
        let sign = match (of_label, is_tainted, is_vm(name)) {
            (true, _, _) => format!("has the label {CLAIM}"),
            (false, true, _) => format!("has the taint {UNREGISTERED_TAINT}"),
            (false, false, true) => "is a VM of the Proxmox pool".to_owned(),
            (false, false, false) => continue,
        };
        if is_claimed(name) {
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
