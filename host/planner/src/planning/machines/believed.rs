//! One Node does not speak for its type. Whoever is root there writes what the Node offers, and which pods stand on it.

use std::collections::BTreeMap;

use super::learned::{Seen, TypeKey};
use crate::facts::LearnedNode;
use crate::ids::NodeName;
use crate::kubernetes::resources::Resources;
use crate::plan::report::Doubt;

/// Kubelets say these of every Node. What is plugged in is no size: a Node in service that loses a device unlearns
/// nothing ([`crate::check::learned::kept`]).
const FIGURES: [&str; 4] = ["cpu", "memory", DISK, "pods"];
const DISK: &str = "ephemeral-storage";

/// Of these Nodes the least of each resource. Less than half of the nominal size, or than four fifths of what the next
/// Node shows, counts only if a second Node shows as little.
pub(in crate::planning) fn least(
    key: &TypeKey,
    nodes: &[Seen],
    nominal: &Resources,
    doubts: &mut Vec<Doubt>,
) -> Option<Resources> {
    let (first, others) = nodes.split_first()?;
    let mut least = first.offered.clone();
    for other in others {
        least.lower_to(&other.offered);
    }
    for resource in FIGURES {
        let mut shown: Vec<(i64, &NodeName)> = nodes
            .iter()
            .map(|it| (it.offered.amount(resource), &it.node))
            .collect();
        shown.sort_unstable();
        let (amount, node) = shown[0];
        let whole = nominal.amount(resource);
        // More than there can be makes no other Node look small.
        let next = shown.get(1).map(|(next, _)| match whole {
            0 => *next,
            whole => (*next).min(whole),
        });
        let instead = match next {
            Some(next) if times(amount, 5) < times(next, 4) => next,
            None if times(amount, 2) < i128::from(whole) => whole,
            Some(_) | None => continue,
        };
        least.set_amount(resource, instead);
        // Some kubelets say nothing of their disk.
        if amount > 0 || resource != DISK {
            doubts.push(doubt(key, node, resource, amount, whole, false));
        }
    }
    Some(least)
}

/// What the static pods ask that stand on most of these Nodes, each as on the newest, but no more than on a second one.
/// Of one Node alone up to a quarter of the nominal size.
pub(in crate::planning) fn statics(
    key: &TypeKey,
    rows: &[&LearnedNode],
    nominal: &Resources,
    most: impl Fn(usize) -> bool,
    doubts: &mut Vec<Doubt>,
) -> Resources {
    if let [only] = rows {
        let mut sum = sum_of(only);
        cap(
            key,
            &only.node,
            &mut sum,
            &Resources::default(),
            nominal,
            doubts,
        );
        return sum;
    }
    let mut of_name: BTreeMap<_, Vec<Resources>> = BTreeMap::new();
    for row in rows {
        for name in row.static_pods.keys() {
            let on = of_name.entry(name).or_default();
            on.extend(row.static_pod(name));
        }
    }
    let mut sum = Resources::default();
    for mut on in of_name.into_values().filter(|on| most(on.len())) {
        let second = second(&on);
        if let Some(newest) = on.first_mut() {
            for resource in FIGURES {
                newest.set_amount(
                    resource,
                    newest.amount(resource).min(second.amount(resource)),
                );
            }
            sum.add(newest);
        }
    }
    sum
}

/// What the static pods ask on Nodes of which the class's status does not know yet. `rows`: those that it knows.
pub(in crate::planning) fn new_statics(
    key: &TypeKey,
    new: &[(NodeName, Resources)],
    rows: &[&LearnedNode],
    nominal: &Resources,
    doubts: &mut Vec<Doubt>,
) -> Resources {
    let sums = new.iter().map(|(_, sum)| sum.clone());
    let all: Vec<Resources> = sums.chain(rows.iter().map(|row| sum_of(row))).collect();
    let second = second(&all);
    let mut most = Resources::default();
    for (node, sum) in new {
        let mut sum = sum.clone();
        cap(key, node, &mut sum, &second, nominal, doubts);
        most.raise_to(&sum);
    }
    most
}

/// What lasts of the sum: what a second Node shows too, or a quarter of the nominal size.
fn cap(
    key: &TypeKey,
    node: &NodeName,
    sum: &mut Resources,
    second: &Resources,
    nominal: &Resources,
    doubts: &mut Vec<Doubt>,
) {
    for resource in FIGURES {
        let (amount, whole) = (sum.amount(resource), nominal.amount(resource));
        let most = second.amount(resource).max(whole / 4);
        if amount > most {
            sum.set_amount(resource, most);
            if times(amount, 4) > times(most, 5) {
                doubts.push(doubt(key, node, resource, amount, whole, true));
            }
        }
    }
}

fn sum_of(row: &LearnedNode) -> Resources {
    let mut sum = Resources::default();
    for name in row.static_pods.keys() {
        if let Some(pod) = row.static_pod(name) {
            sum.add(&pod);
        }
    }
    sum
}

/// The second largest of each figure.
fn second(all: &[Resources]) -> Resources {
    let mut second = Resources::default();
    for resource in FIGURES {
        let mut amounts: Vec<i64> = all.iter().map(|it| it.amount(resource)).collect();
        amounts.sort_unstable();
        second.set_amount(resource, amounts.iter().rev().nth(1).copied().unwrap_or(0));
    }
    second
}

fn times(amount: i64, factor: i64) -> i128 {
    i128::from(amount) * i128::from(factor)
}

fn doubt(
    (class, instance_type, ..): &TypeKey,
    node: &NodeName,
    resource: &str,
    amount: i64,
    nominal: i64,
    by_static_pods: bool,
) -> Doubt {
    Doubt {
        class: class.clone(),
        instance_type: instance_type.clone(),
        node: node.clone(),
        resource: resource.into(),
        amount,
        nominal,
        by_static_pods,
    }
}
