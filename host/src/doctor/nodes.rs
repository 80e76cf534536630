//! Nodes that a person should look at, and what NodeClasses expect of Nodes.

use std::collections::BTreeMap;

use kproxide_planner::keys::{CLAIM, UNREGISTERED_TAINT};
use kproxide_planner::world::{NodeView, World};

use super::cluster::Seen;
use super::finding::{Finding, Group};
use super::{named, reasons};

pub(super) fn check(world: &World, seen: &Seen) -> Vec<Finding> {
    let mut findings = twins(seen);
    findings.extend(without_claim(world));
    findings.extend(drivers(world, seen));
    findings
}

/// Two machines of one ID confuse DHCP servers and journals, and show that the template was started after its making.
fn twins(seen: &Seen) -> Vec<Finding> {
    let mut by_id: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, id) in &seen.machine_ids {
        by_id.entry(id).or_default().push(node);
    }
    let twice = by_id.into_iter().filter(|(_, nodes)| nodes.len() > 1);
    twice
        .map(|(id, nodes)| {
            let text = format!("the Nodes {} have the machine ID {id}", nodes.join(", "));
            let object = named("Node", nodes[0]);
            Finding::warning(Group::Nodes, object, &reasons::MACHINE_ID_TWICE, text)
        })
        .collect()
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
            "the Node {sign}, and no NodeClaim has it. If its machine is gone: `kubectl delete node {name}`"
        );
        let object = named("Node", name);
        findings.push(Finding::warning(
            Group::Nodes,
            object,
            &reasons::NODE_WITHOUT_CLAIM,
            text,
        ));
    }
    findings
}

fn drivers(world: &World, seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, class) in world.classes() {
        let claims = world.claims().values();
        let claims = claims.filter(|claim| claim.spec.class == *name);
        let nodes: Vec<_> = claims.filter_map(|claim| world.node_of(claim)).collect();
        for setting in &class.csi {
            let has = |node: &NodeView<'_>| {
                let drivers = node.csi().map(|csi| &csi.drivers);
                drivers.is_some_and(|drivers| drivers.contains_key(&setting.driver))
            };
            if seen.drivers.contains(&*setting.driver)
                && !nodes.is_empty()
                && !nodes.iter().any(has)
            {
                let text = format!(
                    "spec.csi: the CSI driver {} has registered on none of its {} Nodes",
                    setting.driver,
                    nodes.len()
                );
                let reason = &reasons::CSI_NODE_MISSING;
                findings.push(Finding::warning(
                    Group::Configuration,
                    named("NodeClass", name),
                    reason,
                    text,
                ));
            }
            if !seen.drivers.contains(&*setting.driver) {
                let there: Vec<&str> = seen.drivers.iter().map(String::as_str).collect();
                let text = format!(
                    "spec.csi: there is no CSIDriver {}; there is {}",
                    setting.driver,
                    crate::reporter::judging::listed(&there)
                );
                let object = named("NodeClass", name);
                let reason = &reasons::CSI_DRIVER_MISSING;
                findings.push(Finding::warning(Group::Configuration, object, reason, text));
            }
        }
    }
    findings
}
