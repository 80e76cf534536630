//! What is waited for, and for how long: turns to be cloned, drains that came to nothing, pods on their way out.

use super::*;
use crate::claim::GIVEN_UP;
use crate::plan::RemovalReason;

#[test]
fn a_claim_that_waits_for_its_turn_to_be_cloned_is_capacity_for_as_long_as_it_takes() {
    let mut scene = Scene::default();
    scene.coming_machine("queued", "alpha", Phase::Pending);
    scene.pending("web", 1, spec("cpu=1"));
    scene.claim("queued").created = at(NOW - 3600);
    assert_eq!(launches(&scene), 0);

    // Its own time runs from the first intent.
    let claim = scene.claim("queued");
    claim.status.phase = Phase::Launching;
    claim.status.conditions = vec![condition(Condition::Reserved, at(NOW - 299))];
    let plan = scene.plan();
    assert_eq!((plan.launches.len(), plan.wake_at), (0, Some(at(NOW + 1))));
    scene.claim("queued").status.conditions[0].since = at(NOW - 300);
    assert_eq!(launches(&scene), 1);
}

#[test]
fn a_claim_that_somebody_holds_before_its_clone_is_no_capacity_past_its_deadline() {
    let mut scene = Scene::default();
    scene.coming_machine("held", "alpha", Phase::Pending);
    scene.pending("web", 1, spec("cpu=1"));
    scene.claim("held").paused = true;
    assert_eq!(launches(&scene), 0);
    scene.claim("held").created = at(NOW - 300);
    assert_eq!(launches(&scene), 1);
}

/// A drain of it lasted for a quarter of an hour, and was given up at that moment.
fn gave_up(scene: &mut Scene, name: &str, at_second: i64) {
    let given_up = |kind, since| ClaimCondition {
        status: false,
        reason: GIVEN_UP.to_owned(),
        ..condition(kind, since)
    };
    let conditions = &mut scene.claim(name).status.conditions;
    conditions.push(given_up(Condition::Unneeded, at(at_second)));
    conditions.push(given_up(Condition::Drained, at(at_second - 900)));
}

#[test]
fn a_node_whose_drain_was_given_up_leaves_its_turn_to_others_for_a_while() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha");
    gave_up(&mut scene, "a", NOW - 60);
    let plan = scene.plan();
    assert_eq!(
        (removed(&plan), plan.wake_at),
        (vec![], Some(at(NOW + 840)))
    );
    assert_eq!(plan.unneeded, [], "the moment stays");
    scene.claim("a").replace = true;
    assert_eq!(removed(&scene.plan()), Vec::<&str>::new());
    scene.claim("a").replace = false;

    scene.machine("b", "beta");
    assert_eq!(removed(&scene.plan()), ["b"]);
    scene.claims.remove("b");
    scene.nodes.remove("b");
    let conditions = &mut scene.claim("a").status.conditions;
    conditions.retain(|condition| condition.status);
    gave_up(&mut scene, "a", NOW - 900);
    assert_eq!(removed(&scene.plan()), ["a"]);
}

#[test]
fn f70_a_node_is_not_empty_while_a_pod_is_on_its_way_out() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    assert_eq!(
        verdict(&scene.plan(), "m"),
        Verdict::Remove(RemovalReason::Empty)
    );
    scene.running("web", 1, "m", spec("cpu=1"));
    scene.pod("web-00000").deleting = true;
    let reason = kept(&scene.plan(), "m").unwrap();
    assert!(reason.contains("loadHeadroom"), "{reason}");
    scene.node("static", node("cpu=40 memory=80Gi"));
    assert_eq!(
        verdict(&scene.plan(), "m"),
        Verdict::Remove(RemovalReason::Underutilized)
    );
}

#[test]
fn a_claim_without_its_finalizer_is_told_of_and_not_removed() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.claim("m").has_finalizer = false;
    for replace in [false, true] {
        scene.claim("m").replace = replace;
        let plan = scene.plan();
        assert_eq!(removed(&plan), Vec::<&str>::new());
        let finding = &plan.report.findings[0];
        assert_eq!(finding.about, "NodeClaim/m");
        assert!(finding.message.contains("finalizer"), "{finding:?}");
    }
}
