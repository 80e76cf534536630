//! Each rule of the check refuses a removal that breaks it, and nothing that keeps to it just so.

use super::rules::found;
use super::*;
use crate::claim::{Condition, Phase};
use crate::facts::{Freeze, Removal};
use crate::fixtures::condition;

/// Three empty machines, all of which a plan removes for this reason.
pub(super) fn removing(reason: RemovalReason) -> (Scene, Plan) {
    let mut scene = Scene::default();
    for name in ["a", "b", "c"] {
        scene.machine(name, "alpha");
    }
    scene.workers().scale_down.budget = 3;
    let goes = reason == RemovalReason::PoolDeleted;
    scene.workers().existence.deleting_since = goes.then(|| at(NOW));
    if reason == RemovalReason::Maintenance {
        scene.cluster.hypervisors.drain = vec!["alpha".into()];
    }
    let mut plan = scene.plan();
    for advance in &mut plan.advances {
        advance.verdict = Verdict::Remove(reason);
    }
    count(&mut plan, &["a", "b", "c"], reason);
    (scene, plan)
}

fn count(plan: &mut Plan, claims: &[&str], reason: RemovalReason) {
    let row = |claim: &&str| Removal {
        claim: (*claim).into(),
        at: at(NOW),
        reason,
    };
    ledger(plan).removals = claims.iter().map(row).collect();
}

pub(super) fn removals_refused(scene: &Scene, plan: &Plan, expected: &Violation) -> usize {
    let found = violations(&scene.world(), at(NOW), &Limits::default(), plan);
    for (claim, violation) in &found {
        assert_eq!(violation, expected, "{claim}");
    }
    found.len()
}

#[test]
fn removals_keep_to_the_budget_of_their_pool_all_together() {
    use RemovalReason::{Deleted, Empty, LaunchFailed, Lost, Repair, Replace, Underutilized};
    for reason in [Empty, Underutilized, Replace, Repair] {
        let (mut scene, plan) = removing(reason);
        for (budget, refused) in [(3, 0), (2, 1), (0, 3)] {
            scene.workers().scale_down.budget = budget;
            let found = removals_refused(&scene, &plan, &Violation::Budget);
            assert_eq!(found, refused, "{reason} {budget}");
        }
        // One that is under way takes its part, and goes on.
        scene.workers().scale_down.budget = 2;
        scene.claim("c").status.phase = Phase::Draining;
        let draining = condition(Condition::Drained, at(NOW - 60));
        scene.claim("c").status.conditions.push(draining);
        assert_eq!(removals_refused(&scene, &plan, &Violation::Budget), 1);
    }
    for reason in [Lost, LaunchFailed, Deleted] {
        let (mut scene, plan) = removing(reason);
        scene.workers().scale_down.budget = 0;
        assert_eq!(found(&scene, &plan), None, "{reason}");
    }
}

#[test]
fn removals_of_our_own_choice_leave_min_nodes_all_together() {
    use RemovalReason::{Empty, Repair, Replace, Underutilized};
    for reason in [Empty, Underutilized] {
        let (mut scene, plan) = removing(reason);
        for (min_nodes, refused) in [(0, 0), (1, 1), (3, 3)] {
            scene.workers().limits.min_nodes = min_nodes;
            let found = removals_refused(&scene, &plan, &Violation::MinNodes);
            assert_eq!(found, refused, "{reason} {min_nodes}");
        }
        // A drain that is given up leaves a machine that stays.
        let (mut scene, mut plan) = removing(reason);
        scene.workers().limits.min_nodes = 1;
        scene.claim("c").status.phase = Phase::Draining;
        assert_eq!(removals_refused(&scene, &plan, &Violation::MinNodes), 1);
        plan.advances[2].verdict = Verdict::GiveUp(crate::reasons::kept::GiveUp::ScaleDownOff);
        assert_eq!(removals_refused(&scene, &plan, &Violation::MinNodes), 0);
    }
    for reason in [Repair, Replace] {
        let (mut scene, plan) = removing(reason);
        scene.workers().limits.min_nodes = 3;
        assert_eq!(found(&scene, &plan), None, "{reason}");
    }
}

#[test]
fn machines_go_with_their_pool_only_while_somebody_deletes_it_with_them() {
    let (mut scene, plan) = removing(RemovalReason::PoolDeleted);
    scene.workers().keep_machines = true;
    assert_eq!(removals_refused(&scene, &plan, &Violation::PoolStays), 3);
    scene.workers().keep_machines = false;
    scene.workers().existence.deleting_since = None;
    assert_eq!(removals_refused(&scene, &plan, &Violation::PoolStays), 3);
}

#[test]
fn machines_leave_a_server_only_while_somebody_wants_it_empty() {
    let (mut scene, plan) = removing(RemovalReason::Maintenance);
    assert_eq!(found(&scene, &plan), None);
    scene.cluster.hypervisors.drain = vec!["beta".into()];
    assert_eq!(removals_refused(&scene, &plan, &Violation::ServerStays), 3);
    scene.hypervisor("alpha").maintenance = true;
    assert_eq!(removals_refused(&scene, &plan, &Violation::ServerStays), 3);
    scene.cluster.hypervisors.on_maintenance = crate::facts::OnMaintenance::Replace;
    assert_eq!(found(&scene, &plan), None);
    scene.hypervisor("alpha").maintenance_since = Some(at(NOW - 119));
    assert_eq!(removals_refused(&scene, &plan, &Violation::ServerStays), 3);
    scene.hypervisor("alpha").maintenance_since = Some(at(NOW - 120));
    assert_eq!(found(&scene, &plan), None);
}

#[test]
fn removals_wait_until_they_are_armed() {
    for reason in RemovalReason::ALL {
        let (mut scene, plan) = removing(reason);
        for (armed_at, refused) in [(Some(at(NOW)), 0), (Some(at(NOW + 1)), 3), (None, 3)] {
            scene.host.armed_at = armed_at;
            let found = removals_refused(&scene, &plan, &Violation::NotArmed);
            assert_eq!(found, refused, "{reason}");
        }
    }
}

#[test]
fn a_freeze_stops_all_removals_but_those_of_failed_launches() {
    for reason in RemovalReason::ALL {
        let (scene, mut plan) = removing(reason);
        let freeze = Freeze {
            since: at(NOW),
            machines: 4,
        };
        let word = acknowledgement(&freeze);
        ledger(&mut plan).freeze = Some(freeze);
        let refused = if reason == RemovalReason::LaunchFailed {
            0
        } else {
            3
        };
        let frozen = removals_refused(&scene, &plan, &Violation::Frozen);
        assert_eq!(frozen, refused, "{reason}");
        ledger(&mut plan).acknowledged = Some("another".into());
        let frozen = removals_refused(&scene, &plan, &Violation::Frozen);
        assert_eq!(frozen, refused, "{reason}");
        ledger(&mut plan).acknowledged = Some(word.into());
        assert_eq!(found(&scene, &plan), None, "{reason}");
    }
}

#[test]
fn who_asks_that_a_machine_stays_is_heard_against_our_own_choice() {
    for reason in RemovalReason::ALL {
        let (mut scene, plan) = removing(reason);
        scene.claim("b").do_not_disrupt = true;
        let labelled = &mut scene.nodes.get_mut("c").unwrap().annotations;
        labelled.insert(crate::keys::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        let refused = removals_refused(&scene, &plan, &Violation::Protected);
        assert_eq!(
            refused,
            if reason.is_voluntary() { 2 } else { 0 },
            "{reason}"
        );
        // A word that says nothing.
        scene.claim("b").do_not_disrupt = false;
        let labelled = &mut scene.nodes.get_mut("c").unwrap().annotations;
        labelled.insert(crate::keys::DO_NOT_DISRUPT.to_owned(), "false".to_owned());
        assert_eq!(found(&scene, &plan), None, "{reason}");
        let mut karpenters = scene.clone();
        let labelled = &mut karpenters.nodes.get_mut("c").unwrap().annotations;
        labelled.insert(
            crate::keys::KARPENTER_DO_NOT_DISRUPT.to_owned(),
            "true".to_owned(),
        );
        assert_eq!(
            removals_refused(&karpenters, &plan, &Violation::Protected),
            usize::from(reason.is_voluntary()),
            "{reason}"
        );

        // Of a paused pool nothing begins, and what has begun is finished.
        scene.workers().paused = true;
        scene.claim("a").status.phase = Phase::Draining;
        let refused = removals_refused(&scene, &plan, &Violation::Protected);
        assert_eq!(refused, 2, "{reason}");
    }
}

#[test]
fn every_removal_of_a_machine_in_service_is_counted_first() {
    let (mut scene, mut plan) = removing(RemovalReason::Empty);
    count(&mut plan, &["a", "c"], RemovalReason::Empty);
    assert_eq!(removals_refused(&scene, &plan, &Violation::NotCounted), 1);
    // One that never came into service takes nothing away.
    scene.claim("b").status.phase = Phase::Registered;
    assert_eq!(found(&scene, &plan), None);
}
