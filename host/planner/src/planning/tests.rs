//! What a tick decides, scene by scene. Properties over many worlds are in [`properties`].

mod acceptance;
mod lifecycle;
mod placement;
mod properties;
mod scale_down;
mod scale_up;

use crate::fixtures::*;
use crate::plan::{Plan, Verdict};
use crate::report::{NodeOutcome, PendingOutcome, Severity, Why};

/// How many machines the scene wants.
fn launches(scene: &Scene) -> usize {
    let plan = scene.plan();
    check_sound(&plan);
    plan.launches.len()
}

/// Well-behaved policies never make the planner propose what its check must drop.
fn check_sound(plan: &Plan) {
    let defects: Vec<_> = plan
        .report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Defect)
        .collect();
    assert!(defects.is_empty(), "{defects:#?}");
}

/// The only reason that the report gives for pending pods.
fn why(scene: &Scene) -> Why {
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches, [], "nothing is to be launched");
    let [row] = &plan.report.pending[..] else {
        panic!("{:?}", plan.report.pending);
    };
    let PendingOutcome::Unhelped(whys) = &row.outcome else {
        panic!("{row:?}");
    };
    assert_eq!(whys.len(), 1);
    whys[0].1.clone()
}

fn verdict(plan: &Plan, claim: &str) -> Verdict {
    let advance = plan
        .advances
        .iter()
        .find(|advance| advance.claim.as_str() == claim);
    advance.expect("a verdict for each claim").verdict.clone()
}

/// Why a Node stays, or `Err` if it goes.
fn kept(plan: &Plan, node: &str) -> Result<String, String> {
    let report = plan
        .report
        .nodes
        .iter()
        .find(|report| report.node.as_str() == node);
    match &report.expect("a report on each managed Node").outcome {
        NodeOutcome::Kept(reason) => Ok(reason.clone()),
        NodeOutcome::Removing(reason) => Err(reason.to_string()),
    }
}

/// Names of the claims that the plan removes.
fn removed(plan: &Plan) -> Vec<&str> {
    plan.advances
        .iter()
        .filter(|advance| matches!(advance.verdict, Verdict::Remove(_)))
        .map(|advance| advance.claim.as_str())
        .collect()
}
