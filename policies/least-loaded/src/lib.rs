//! `least-loaded`: the node whose pods ask for least goes first. The default.

use std::collections::BinaryHeap;

use kproxide_policy_sdk::{
    About, Candidate, Context, NoSettings, Node, Plan, Policy, PolicyError, Removal, Resources,
    ScaleDown, percent,
};

/// Moves as little as possible; among nodes loaded alike, takes away the smallest and oldest.
pub struct LeastLoaded;

impl Policy for LeastLoaded {
    const ABOUT: About = About {
        name: "least-loaded",
        version: env!("CARGO_PKG_VERSION"),
        description: "the least requested node first; among nodes within 5 % the smaller, then the older",
        settings_schema: NoSettings::SCHEMA,
    };
    type Settings = NoSettings;
}

impl ScaleDown for LeastLoaded {
    fn order(
        _: &Context,
        _: &NoSettings,
        _: &str,
        nodes: &[Node],
        _: &[Candidate],
        _: u32,
    ) -> Result<Plan, PolicyError> {
        Ok(order(nodes))
    }
}

/// All nodes, so that kproxide has another when one no longer can go. Scores are places in the order, which keeps every
/// criterion apart from the next: load in steps of 5 %, smaller memory, fewer cores, older, name.
fn order(nodes: &[Node]) -> Plan {
    let order = (0_u32..).zip(nodes).map(|(index, node)| {
        let Resources {
            milli_cores,
            memory_bytes,
        } = node.allocatable;
        (
            load_step(node),
            memory_bytes,
            milli_cores,
            node.created,
            node.name.as_str(),
            index,
        )
    });
    // Sorting with a heap makes for a component smaller by 10 KiB.
    let order = BinaryHeap::from_iter(order).into_sorted_vec();
    let removals = order
        .iter()
        .enumerate()
        .map(|(place, (.., index))| Removal {
            index: *index,
            score: (nodes.len() - place) as f64 / nodes.len() as f64,
            reason: reason(&nodes[*index as usize]),
        });
    Plan {
        removals: removals.collect(),
        state: None,
    }
}

/// ⌊share / 0.05⌋ of the larger share, in whole numbers: 0.15 / 0.05 is less than 3 in floating point.
fn load_step(node: &Node) -> u128 {
    let step = |requested: u64, allocatable: u64| match allocatable {
        0 => STEPS,
        allocatable => u128::from(requested) * STEPS / u128::from(allocatable),
    };
    let Resources {
        milli_cores,
        memory_bytes,
    } = node.requested;
    step(milli_cores, node.allocatable.milli_cores)
        .max(step(memory_bytes, node.allocatable.memory_bytes))
}

/// 1 / 0.05: the step of a node that is full. A node without anything allocatable counts as one.
const STEPS: u128 = 20;

fn reason(node: &Node) -> String {
    let share = |requested: u64, allocatable: u64| match allocatable {
        0 => 1.0,
        allocatable => requested as f64 / allocatable as f64,
    };
    format!(
        "{} % of its CPU and {} % of its memory are requested, {} pods would move",
        percent(share(
            node.requested.milli_cores,
            node.allocatable.milli_cores
        )),
        percent(share(
            node.requested.memory_bytes,
            node.allocatable.memory_bytes
        )),
        node.movable_pods
    )
}

kproxide_policy_sdk::export_scale_down!(LeastLoaded);

#[cfg(test)]
mod tests;
