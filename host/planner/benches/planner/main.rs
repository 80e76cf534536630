//! What planning costs. Every plan is checked before it is measured, so that no figure is one of a wrong answer.
//!
//! The inputs are fixed: those that the Cluster Autoscaler's benches publish, and clusters at the sizes that people run.

mod burst;
mod cluster;
mod diverse;
mod estimate;
mod spread;
mod thinning;

use criterion::{criterion_group, criterion_main};

criterion_group!(
    benches,
    burst::benches,
    cluster::benches,
    diverse::benches,
    estimate::benches,
    thinning::benches
);
criterion_main!(benches);
