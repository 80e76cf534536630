//! What a person changes about a world in thought: other numbers of replicas, one more size, one hypervisor less.

use std::collections::BTreeMap;
use std::str::FromStr;

use kproxide_planner::facts::{Delta, InstanceType, LedgerFacts, PodFacts};
use kproxide_planner::ids::{ClaimName, InstanceTypeName, NodeName};
use kproxide_planner::keys;
use kproxide_planner::world::{PodView, World};

use super::Trouble;
use crate::manifest::Replicas;

/// All changes of one question.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub replicas: Vec<Replicas>,
    pub types: Vec<AddType>,
    pub without: Vec<String>,
}

/// One more instance type of every NodeClass, written like `big=8x32`: 8 cores and 32 GiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddType {
    name: String,
    cores: u32,
    memory_gib: u32,
}

impl FromStr for AddType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (name, size) = text.split_once('=')?;
            let (cores, memory) = size.split_once('x')?;
            let one = Self {
                name: name.to_owned(),
                cores: cores.parse().ok()?,
                memory_gib: memory.parse().ok()?,
            };
            let is_sound = !name.is_empty() && (1..=512).contains(&one.cores) && one.memory_gib > 0;
            is_sound.then_some(one)
        };
        read().ok_or_else(|| {
            format!("{text:?} is not NAME=CORESxGIB, such as big=8x32 for 8 cores and 32 GiB")
        })
    }
}

impl Changes {
    /// Types and hypervisors; the replicas have been changed before pods were made.
    pub(super) fn apply(&self, world: &mut World) -> Result<(), Trouble> {
        for one in &self.types {
            add_type(world, one);
        }
        for hypervisor in &self.without {
            take_away(world, hypervisor)?;
        }
        Ok(())
    }
}

fn add_type(world: &mut World, one: &AddType) {
    let added = InstanceType {
        name: InstanceTypeName::from(one.name.as_str()),
        family: None,
        cores: one.cores,
        memory_mib: one.memory_gib.saturating_mul(1 << 10),
        disk_gib: None,
        // The kubelet's default.
        max_pods: 110,
        extended_resources: BTreeMap::new(),
    };
    let classes = world.classes().clone();
    for (name, class) in classes {
        let mut class = (*class).clone();
        class.instance_types.retain(|size| size.name != added.name);
        class.instance_types.push(added.clone());
        world.apply(Delta::Class(name, Some(Box::new(class))));
    }
}

/// The hypervisor is gone with all that stood on it: its machines, their Nodes and claims. Their pods look for another
/// place.
fn take_away(world: &mut World, name: &str) -> Result<(), Trouble> {
    let mut is_known = false;
    for (cluster, mut inventory) in world.inventories().clone() {
        if inventory.hypervisors.remove(name).is_none() {
            continue;
        }
        is_known = true;
        inventory
            .guests
            .retain(|_, guest| *guest.hypervisor != *name);
        for templates in inventory.templates.values_mut() {
            templates.retain(|template| *template.hypervisor != *name);
        }
        world.apply(Delta::Inventory(cluster, Some(Box::new(inventory))));
    }
    if !is_known {
        let all = world.inventories().values();
        let all: Vec<&str> = all
            .flat_map(|one| one.hypervisors.keys())
            .map(|one| &**one)
            .collect();
        return Err(Trouble::Flag(format!(
            "--without-hypervisor: there is no hypervisor {name}; there are {}",
            all.join(", ")
        )));
    }
    let claims: Vec<ClaimName> = world
        .claims()
        .iter()
        .filter(|(_, claim)| **claim.hypervisor() == *name)
        .map(|(claim, _)| claim.clone())
        .collect();
    let stands_there = |labels: &kproxide_planner::facts::Labels| {
        labels.get(keys::ZONE).is_some_and(|zone| zone == name)
    };
    let of_claims = claims
        .iter()
        .filter_map(|claim| world.node_of(&world.claims()[claim]));
    let of_claims = of_claims.map(|node| node.name().clone());
    let of_zone = world
        .nodes()
        .filter(|node| stands_there(&node.facts.labels));
    let of_zone = of_zone.map(|node| node.name().clone());
    let nodes: Vec<NodeName> = of_claims.chain(of_zone).collect();
    for node in nodes {
        remove_node(world, &node);
    }
    if let Some(ledger) = world.ledger() {
        let mut ledger: LedgerFacts = ledger.clone();
        ledger
            .entries
            .retain(|entry| !claims.contains(&entry.claim));
        world.apply(Delta::Ledger(Some(Box::new(ledger))));
    }
    for claim in claims {
        world.apply(Delta::Claim(claim, None));
    }
    Ok(())
}

fn remove_node(world: &mut World, name: &NodeName) {
    let Some(node) = world.node(name) else { return };
    let with_claims = |pod: PodView<'_>| PodFacts {
        claims: world.volume_claims_of(&pod.key()).to_vec(),
        ..pod.to_facts()
    };
    let pods: Vec<_> = node
        .pods()
        .map(|pod| (pod.key(), pod.is_movable().then(|| with_claims(pod))))
        .collect();
    for (key, facts) in pods {
        let pending = facts.map(|facts| {
            Box::new(PodFacts {
                node: None,
                ready: false,
                phase: kproxide_planner::facts::PodPhase::Pending,
                unschedulable_since: Some(facts.created),
                ..facts
            })
        });
        world.apply(Delta::Pod(key, pending));
    }
    world.apply(Delta::Node(name.clone(), None));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read() {
        let big: AddType = "big=8x32".parse().unwrap();
        assert_eq!(
            (big.name.as_str(), big.cores, big.memory_gib),
            ("big", 8, 32)
        );
        for wrong in ["8x32", "big=8", "big=0x1", "big=8xmuch", "=1x1"] {
            let problem = wrong.parse::<AddType>().unwrap_err();
            assert!(problem.contains("NAME=CORESxGIB"), "{problem}");
        }
    }
}
