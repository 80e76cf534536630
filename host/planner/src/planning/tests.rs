//! What a tick decides, scene by scene. Properties over many worlds are in [`properties`].

mod acceptance;
mod answers;
mod attributes;
mod awaited;
mod backoff;
mod blockers;
mod breaking;
mod bridges;
mod budgets;
mod clones;
mod coming_room;
mod deletion;
mod drawn;
mod emptying;
mod fit;
mod gates;
mod given_up;
mod headroom;
mod hostile;
mod kept;
mod learned;
mod leaving;
mod lifecycle;
mod loops;
mod machines;
mod offers;
mod optimum;
mod orphans;
mod outdated;
mod patience;
mod placement;
mod ports;
mod preferred;
mod properties;
mod registering;
mod removable;
mod replacing;
mod required;
mod resting;
mod scale_down;
mod scale_up;
mod schedules;
mod served;
mod topology;
mod two;
mod volumes;
mod windows;

use crate::claim::{Condition, Phase};
use crate::facts::limits::Limits;
use crate::facts::{ClaimCondition, ClaimFacts, ClaimStatus};
use crate::fixtures::*;
use crate::plan::report::{NodeOutcome, PendingOutcome, Severity, Why};
use crate::plan::{Launch, Plan, Verdict};

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
        NodeOutcome::Kept(reason) => Ok(reason.to_string()),
        NodeOutcome::Removing(reason) => Err(reason.to_string()),
    }
}

/// What the plan says of policies that failed the pool of the scene.
fn failed(plan: &Plan) -> Vec<String> {
    let failures = plan.report.policy_failures.iter();
    failures
        .inspect(|failure| assert_eq!(failure.pool.as_str(), "workers"))
        .map(ToString::to_string)
        .collect()
}

/// Names of the claims that the plan removes.
fn removed(plan: &Plan) -> Vec<&str> {
    plan.advances
        .iter()
        .filter(|advance| matches!(advance.verdict, Verdict::Remove(_)))
        .map(|advance| advance.claim.as_str())
        .collect()
}

/// The scene after a plan was acted on, as far as that takes no time: the Ledger, new claims, drains that begin and drains that are given up.
fn acted(scene: &Scene, plan: &Plan) -> Scene {
    let mut scene = scene.clone();
    if let Some(ledger) = &plan.ledger {
        scene.ledger = ledger.clone();
    }
    for Launch { claim, spec, .. } in &plan.launches {
        let facts = ClaimFacts {
            uid: format!("claim-{claim}").into(),
            created: at(NOW),
            deleting_since: None,
            has_finalizer: true,
            other_finalizers: vec![],
            spec: spec.clone(),
            status: ClaimStatus::default(),
            replace: false,
            discard_local_volumes: false,
            do_not_disrupt: false,
            paused: false,
        };
        scene.claims.insert(claim.clone(), facts);
    }
    for advance in &plan.advances {
        let status = &mut scene.claims.get_mut(&advance.claim).unwrap().status;
        let (phase, drained) = match (&advance.verdict, status.phase) {
            (Verdict::GiveUp(_), Phase::Draining) => (Phase::Initialized, None),
            (Verdict::Remove(reason), Phase::Initialized) => (Phase::Draining, Some(reason)),
            _ => continue,
        };
        status.phase = phase;
        status
            .conditions
            .retain(|condition| condition.kind != Condition::Drained);
        status
            .conditions
            .extend(drained.map(|reason| ClaimCondition {
                status: false,
                reason: reason.as_str().to_owned(),
                ..condition(Condition::Drained, at(NOW))
            }));
        if let Some(node) = status
            .node_name
            .as_ref()
            .and_then(|name| scene.nodes.get_mut(name))
        {
            node.unschedulable = drained.is_some();
        }
    }
    scene
}
