//! What the tick found, in numbers.

use std::collections::BTreeSet;

use kproxide_planner::claim::Phase;
use kproxide_planner::facts::GuestStatus;
use kproxide_planner::report::{NodeOutcome, NodeReport, PendingOutcome, Report};
use kproxide_planner::world::World;

use super::Reporter;
use crate::metrics::KproximateGauges;

impl Reporter {
    /// A removal is counted when it begins, however long it takes.
    pub(super) fn count_removals(&mut self, nodes: &[NodeReport], world: &World) {
        let mut removing = BTreeSet::new();
        for node in nodes {
            if let NodeOutcome::Removing(reason) = &node.outcome {
                removing.insert(&node.claim);
                if self.counted.insert(node.claim.clone()) {
                    self.metrics
                        .removals
                        .with_label_values(&[node.pool.as_str(), reason.as_str()])
                        .inc();
                }
            }
        }
        self.counted.retain(|name| {
            let claim = world.claims().get(name);
            claim.is_some_and(|claim| {
                removing.contains(name) || claim.status.phase > Phase::Initialized
            })
        });
    }

    pub(super) fn measure(&self, report: &Report, world: &World) {
        self.metrics.pending_pods.reset();
        for shape in &report.pending {
            let outcome = match &shape.outcome {
                PendingOutcome::FitsNode(_) => "fits-node",
                PendingOutcome::Refused(_) => "refused",
                PendingOutcome::FitsClaim(_) => "machine-coming",
                PendingOutcome::Launching(_) => "launching",
                PendingOutcome::Unhelped(_) | PendingOutcome::NoPool => "unhelped",
                PendingOutcome::NotSupported(_) => "not-supported",
                PendingOutcome::Expendable { .. } | PendingOutcome::OtherScheduler { .. } => {
                    "not-served"
                }
            };
            self.metrics
                .pending_pods
                .with_label_values(&[outcome])
                .add(i64::from(shape.count));
        }
        self.metrics.claims.reset();
        for claim in world.claims().values() {
            let phase = format!("{:?}", claim.status.phase).to_lowercase();
            self.metrics
                .claims
                .with_label_values(&[claim.spec.pool.as_str(), &phase])
                .inc();
        }
        self.metrics.clusters.reset();
        for (cluster, inventory) in world.inventories() {
            let usable = inventory.reachable && inventory.quorate;
            self.metrics
                .clusters
                .with_label_values(&[cluster.as_str()])
                .set(i64::from(usable));
        }
        self.metrics.set_kproximate(&kproximate_gauges(world));
    }
}

/// kproximate's numbers, from claims, the inventory and their Nodes.
fn kproximate_gauges(world: &World) -> KproximateGauges {
    const MILLI: f64 = 1000.0;
    let mut gauges = KproximateGauges::default();
    for claim in world.claims().values() {
        let guest = world
            .inventories()
            .get(&claim.spec.cluster)
            .and_then(|cluster| cluster.guests.get(&claim.spec.vmid));
        if guest.is_some_and(|guest| guest.status != GuestStatus::Unknown || guest.name.is_some()) {
            gauges.machines += 1;
        }
        let Some(node) = world.node_of(claim).filter(|node| node.facts.ready) else {
            continue;
        };
        let (allocatable, requested) = (&node.facts.allocatable, node.requested());
        gauges.running += 1;
        gauges.cpu_provisioned_cores += claim.spec.resources.milli_cores as f64 / MILLI;
        gauges.memory_provisioned_bytes += claim.spec.resources.memory_bytes as f64;
        gauges.cpu_allocatable_cores += allocatable.milli_cores as f64 / MILLI;
        gauges.memory_allocatable_bytes += allocatable.memory_bytes as f64;
        gauges.cpu_allocated_cores += requested.milli_cores as f64 / MILLI;
        gauges.memory_allocated_bytes += requested.memory_bytes as f64;
    }
    gauges
}
