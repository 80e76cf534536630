//! What one namespace asks of planning does not stop it for the others.

use super::scale_down::idle;
use super::*;
use crate::eviction::Blocker;
use crate::limits::MOST_TERMS;
use crate::reasons::Kept;

/// What becomes of the pods of this namespace.
fn outcomes<'p>(plan: &'p Plan, namespace: &str) -> Vec<&'p PendingOutcome> {
    let rows = plan.report.pending.iter();
    let rows = rows.filter(|row| &*row.example.namespace == namespace);
    rows.map(|row| &row.outcome).collect()
}

#[test]
fn s12_a_pod_with_more_terms_than_kproxide_looks_at_gets_no_machine_and_the_reason() {
    let mut scene = Scene::default();
    at_odds(&mut scene, 1, MOST_TERMS + 1);
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches, []);
    assert_eq!(
        outcomes(&plan, "hostile"),
        [&PendingOutcome::TooManyTerms(51)]
    );

    let mut scene = Scene::default();
    at_odds(&mut scene, 1, MOST_TERMS);
    assert_eq!(launches(&scene), 1);
}

#[test]
fn s12_a_node_with_such_a_pod_stays_and_the_reason_says_so() {
    let mut scene = idle();
    let node = scene.nodes.keys().next().cloned().expect("idle has a Node");
    let (key, mut pod) = {
        let mut hostile = Scene::default();
        at_odds(&mut hostile, 1, MOST_TERMS + 1);
        hostile.pods.pop_first().expect("one pod")
    };
    pod.node = Some(node.clone());
    pod.phase = crate::facts::PodPhase::Running;
    pod.unschedulable_since = None;
    scene.pods.insert(key.clone(), pod);
    let plan = scene.plan();
    let rows = plan.report.nodes.iter();
    let kept = rows.filter(|row| row.node == node).map(|row| &row.outcome);
    let blocked = Kept::Pod(key, Blocker::TooManyTerms(51));
    assert_eq!(
        kept.collect::<Vec<_>>(),
        [&NodeOutcome::Kept(blocked.clone())]
    );
    assert!(blocked.to_string().contains("51 terms"), "{blocked}");
}
