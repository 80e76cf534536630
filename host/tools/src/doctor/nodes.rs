//! Nodes that a person should look at, and what NodeClasses expect of Nodes.

use std::collections::BTreeMap;

use kproxide_planner::world::{NodeView, World};

use super::cluster::Seen;
use kproxide_controller::judge::{Finding, Group, named, reasons};

pub(super) fn check(world: &World, seen: &Seen) -> Vec<Finding> {
    let mut findings = twins(seen);
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
                    kproxide_controller::judge::listed(&there)
                );
                let object = named("NodeClass", name);
                let reason = &reasons::CSI_DRIVER_MISSING;
                findings.push(Finding::warning(Group::Configuration, object, reason, text));
            }
        }
    }
    findings
}
