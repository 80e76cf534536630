//! A NodePool that somebody deletes: its machines go one after the other, or stay without it.

use super::*;
use crate::facts::{ClusterFacts, EntryState};
use crate::plan::report::NodeOutcome;
use crate::plan::{FinalizerStep, Needed, RemovalReason};
use crate::reasons::kept::Kept;
use crate::reasons::no_machine::Unusable;
use crate::reasons::on_hold::Hold;

/// Two pools with two machines each. Somebody deletes the first, `workers`, a minute after kproxide began to lead.
fn deleted() -> Scene {
    let mut scene = Scene::default();
    for name in ["a", "b", "c", "d"] {
        scene.machine(name, "alpha");
    }
    scene.workers().scale_down.enabled = false;
    let other = scene.workers().clone();
    scene.pools.insert("other".into(), other);
    for name in ["c", "d"] {
        scene.claim(name).spec.pool = "other".into();
        let entries = &mut scene.ledger.entries;
        let entry = entries
            .iter_mut()
            .find(|entry| entry.claim.as_str() == name);
        entry.unwrap().pool = "other".into();
    }
    scene.host.leads_since = Some(at(NOW - 120));
    scene.workers().existence.deleting_since = Some(at(NOW - 60));
    scene
}

fn stays<'p>(plan: &'p Plan, name: &str) -> Option<&'p Kept> {
    let mut nodes = plan.report.nodes.iter();
    nodes.find_map(|node| match &node.outcome {
        NodeOutcome::Kept(why) if node.node.as_str() == name => Some(why),
        NodeOutcome::Kept(_) | NodeOutcome::Removing(_) => None,
    })
}

/// The scene after the first machine of its plan has gone.
fn without(scene: &Scene, name: &str) -> Scene {
    let mut scene = acted(scene, &scene.plan());
    scene.guest(name, None);
    scene.claims.remove(name);
    scene.nodes.remove(name);
    scene
        .ledger
        .entries
        .retain(|entry| entry.claim.as_str() != name);
    scene
}

#[test]
fn a_deleted_pool_loses_its_machines_one_after_the_other_and_no_other_pool_loses_one() {
    let scene = deleted();
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["a"]);
    assert_eq!(
        verdict(&plan, "a"),
        Verdict::Remove(RemovalReason::PoolDeleted)
    );
    // Neither that scale-down is off nor what it looks at keeps b: it waits for its turn.
    assert_eq!(stays(&plan, "b"), Some(&Kept::Budget));
    assert_eq!(stays(&plan, "c"), Some(&Kept::ScaleDownOff));
    let scene = acted(&scene, &plan);
    assert_eq!(removed(&scene.plan()), ["a"], "the budget is 1");
    let scene = without(&scene, "a");
    let plan = scene.plan();
    assert_eq!(removed(&plan), ["b"]);
    assert_eq!(plan.finalizers, [], "b still needs the pool");
    let plan = without(&scene, "b").plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    let off = FinalizerStep {
        object: Needed::Pool("workers".into()),
        uid: "pool".into(),
        in_use: false,
        answering: vec![],
    };
    assert_eq!(plan.finalizers, [off]);
}

/// It took the turn of the others, and said that as many removals were under way as the budget allows.
#[test]
fn a_machine_that_is_held_takes_no_turn_of_the_others_of_a_deleted_pool() {
    let mut scene = deleted();
    scene.claim("a").paused = true;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["b"]);
    assert_eq!(verdict(&plan, "a"), Verdict::Hold(Hold::ClaimPaused));
}

#[test]
fn a_deleted_pool_launches_nothing_and_withdraws_what_is_not_cloned_yet() {
    let mut scene = deleted();
    scene.pools.remove("other");
    for name in ["c", "d"] {
        scene.claims.remove(name);
    }
    scene.workers().limits.min_nodes = 5;
    scene.coming_machine("early", "beta", Phase::Pending);
    scene.class.instance_types[0].cores = 8;
    scene.pending("web", 3, spec("cpu=6"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches, []);
    assert_eq!(
        verdict(&plan, "early"),
        Verdict::Remove(RemovalReason::LaunchFailed)
    );
    let PendingOutcome::Unhelped(whys) = &plan.report.pending[0].outcome else {
        panic!("{:?}", plan.report.pending);
    };
    let gone = Why::Unusable(Unusable::BeingDeleted("workers".into()));
    assert_eq!(whys[0].1, gone);
}

#[test]
fn r39_nothing_is_made_from_a_class_that_is_being_deleted() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha");
    scene.class.existence.deleting_since = Some(at(NOW - 10));
    scene.pending("web", 3, spec("cpu=3"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches, []);
    let gone = Why::Unusable(Unusable::ClassBeingDeleted("standard".into()));
    let unhelped = PendingOutcome::Unhelped(vec![("workers".into(), gone)]);
    let outcomes: Vec<_> = plan.report.pending.iter().map(|row| &row.outcome).collect();
    assert_eq!(outcomes, [&PendingOutcome::FitsNode("a".into()), &unhelped]);
    assert_eq!(verdict(&plan, "a"), Verdict::Keep, "its machines stay");
}

#[test]
fn machines_that_are_to_be_kept_lose_the_pool_and_nothing_else() {
    let mut scene = deleted();
    scene.workers().keep_machines = true;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(
        plan.finalizers,
        [FinalizerStep {
            object: Needed::Pool("workers".into()),
            uid: "pool".into(),
            in_use: false,
            answering: vec![],
        }]
    );
    // Said when the first machine drains already.
    let mut scene = acted(&deleted(), &deleted().plan());
    scene.workers().keep_machines = true;
    let plan = scene.plan();
    assert!(matches!(verdict(&plan, "a"), Verdict::GiveUp(_)));
}

#[test]
fn a_deletion_that_kproxide_finds_is_frozen_until_you_say_what_you_want() {
    let mut scene = deleted();
    scene.host.leads_since = Some(at(NOW - 60));
    assert_eq!(
        scene.plan().report.frozen,
        None,
        "kproxide began to lead in the second of the deletion"
    );
    scene.host.leads_since = Some(at(NOW - 59));
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    let text = &plan.report.frozen.as_ref().unwrap().message;
    assert!(
        text.contains("NodePool workers was being deleted already"),
        "{text}"
    );
    let value = text.rsplit_once('=').unwrap().1.to_owned();
    assert!(value.starts_with("2@"), "{text}");
    scene = acted(&scene, &plan);
    scene.ledger.acknowledged = Some(value.as_str().into());
    let plan = scene.plan();
    assert_eq!(plan.report.frozen, None);
    assert_eq!(removed(&plan), ["a"]);
    // Once it was confirmed, it is confirmed for every later leader.
    let mut scene = without(&scene, "a");
    scene.ledger.acknowledged = None;
    scene.host.leads_since = Some(at(NOW - 1));
    let plan = scene.plan();
    assert_eq!(plan.report.frozen, None);
    assert_eq!(removed(&plan), ["b"]);
}

#[test]
fn a_leader_that_follows_goes_on_with_a_deletion_that_was_seen_to_begin() {
    let scene = deleted();
    let mut scene = acted(&scene, &scene.plan());
    scene.host.leads_since = Some(at(NOW - 1));
    assert_eq!(scene.plan().report.frozen, None);
    // Another pool of that name is another matter.
    scene.workers().existence.uid = "another".into();
    let frozen = scene.plan().report.frozen;
    assert!(frozen.unwrap().message.contains("already"));
}

#[test]
fn the_deletion_of_most_machines_at_once_is_frozen() {
    let mut scene = deleted();
    for name in ["e", "f"] {
        scene.machine(name, "beta");
    }
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(
        plan.report
            .frozen
            .unwrap()
            .message
            .split(", which")
            .next()
            .unwrap(),
        "frozen: 4 of 6 managed machines went bad at once (4 machines of NodePools that are being deleted)"
    );
    // Three are few.
    let mut scene = deleted();
    scene.machine("e", "beta");
    assert_eq!(removed(&scene.plan()), ["a"]);
}

#[test]
fn what_machines_need_carries_a_finalizer_before_the_first_launch() {
    let mut scene = Scene::default();
    scene.workers().existence.in_use = false;
    scene.class.existence.in_use = false;
    scene.cluster.existence.in_use = false;
    assert_eq!(scene.plan().finalizers, [], "nothing needs them");
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 1);
    let steps: Vec<_> = plan.finalizers.iter().map(|step| step.in_use).collect();
    assert_eq!(steps, [true, true, true]);
    // Nobody can put one on an object that is being deleted.
    let ClusterFacts { existence, .. } = &mut scene.cluster;
    existence.deleting_since = Some(at(NOW));
    assert_eq!(scene.plan().finalizers.len(), 2);
}

#[test]
fn no_finalizer_goes_while_a_claim_is_not_seen_yet() {
    let mut scene = Scene::default();
    assert_eq!(scene.plan().finalizers.len(), 3);
    scene.machine("a", "alpha");
    scene.claims.remove("a");
    scene.ledger.entries[0].state = EntryState::Reserved { since: at(NOW) };
    assert_eq!(scene.plan().finalizers, []);
}
