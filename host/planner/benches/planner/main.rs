//! What planning costs. Every plan is checked before it is measured, so that no figure is one of a wrong answer.
//!
//! The inputs are fixed: those that the Cluster Autoscaler's benches publish, and clusters at the sizes that people run.

mod burst;
mod cluster;
mod diverse;
mod estimate;
mod hostile;
mod spread;
mod thinning;

use criterion::{criterion_group, criterion_main};
use kproxide_planner::World;
use kproxide_planner::fixtures::{NOW, at};
use kproxide_planner::plan::Plan;
use kproxide_planner::plan::report::PendingOutcome;
use kproxide_planner::planning::Limits;

criterion_group!(
    benches,
    burst::benches,
    cluster::benches,
    diverse::benches,
    estimate::benches,
    hostile::benches,
    thinning::benches
);
criterion_main!(benches);

/// The plan of one tick that may begin and end so many machines: in production it begins 20, and a bench shows the whole cost.
fn planned(world: &World, max_launches_per_tick: u32, max_removals_per_tick: u32) -> Plan {
    let limits = Limits {
        max_launches_per_tick,
        max_removals_per_tick,
        ..Limits::default()
    };
    kproxide_planner::fixtures::plan(world, at(NOW), limits, spread::spread)
}

/// Every pending pod gets a machine.
fn check_launching(plan: &Plan) {
    for row in &plan.report.pending {
        assert!(
            matches!(row.outcome, PendingOutcome::Launching(_)),
            "{row:?}"
        );
    }
}
