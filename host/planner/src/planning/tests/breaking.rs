//! The breaker and the freeze in plans: how many machines begin to go within a while, over restarts, and when none does.

use super::*;
use crate::facts::EntryState;
use crate::plan::RemovalReason;
use crate::planning::Limits;
use crate::reasons::kept::GiveUp;
use crate::reasons::on_hold::Hold;

/// Machines of which the first are not Ready, and that scale-down leaves alone.
fn machines(all: usize, broken: usize) -> Scene {
    let mut scene = Scene::default();
    scene.workers().scale_down.budget = 1000;
    scene.workers().scale_down.enabled = false;
    for index in 0..all {
        scene.machine(&format!("m{index:02}"), "alpha");
    }
    for node in scene.nodes.values_mut().take(broken) {
        node.ready = false;
        node.ready_since = at(0);
    }
    scene
}

fn plan_at(scene: &Scene, second: i64) -> Plan {
    let plan = plan(&scene.world(), at(second), Limits::default(), reasonable);
    check_sound(&plan);
    plan
}

/// The scene after this machine is gone for good.
fn without(scene: &Scene, name: &str) -> Scene {
    let mut scene = scene.clone();
    scene.guest(name, None);
    scene.claims.remove(name);
    scene.nodes.remove(name);
    let entries = &mut scene.ledger.entries;
    entries.retain(|entry| entry.claim.as_str() != name);
    scene
}

#[test]
fn f77_a_restart_does_not_refill_the_breaker() {
    let mut scene = machines(10, 2);
    let plan = plan_at(scene.tell_removable(), NOW);
    assert_eq!(removed(&plan), ["m00"]);
    let wait = format!(
        "waiting: kproxide repaired 1 machine in the last 10 minutes, and the limit is 1. The next may go at {:.0}. To have a machine removed at once, delete its NodeClaim",
        at(NOW + 600)
    );
    assert_eq!(kept(&plan, "m01").unwrap(), wait);
    assert_eq!(plan.report.waiting, [("workers".into(), wait)]);
    assert_eq!(plan.wake_at, Some(at(NOW + 600)));

    // F16: a crash before the claim says anything of it. The same removal begins again, and is not charged again.
    scene.ledger = plan.ledger.unwrap();
    let plan = plan_at(&scene, NOW + 30);
    assert_eq!(removed(&plan), ["m00"]);
    assert_eq!(plan.ledger, None);

    // It is gone, and whoever leads now knows nothing but the objects.
    let scene = without(&scene, "m00");
    assert_eq!(removed(&plan_at(&scene, NOW + 599)), [] as [&str; 0]);
    let plan = plan_at(&scene, NOW + 600);
    assert_eq!(removed(&plan), ["m01"]);
    let rows = plan.ledger.unwrap().removals;
    assert_eq!(rows.len(), 1, "what is older than the window is forgotten");
}

#[test]
fn nodes_that_somebody_deleted_neither_count_as_repairs_nor_wait_for_them() {
    let mut scene = machines(10, 1);
    for name in ["m04", "m05"] {
        scene.nodes.remove(name);
        let gone = condition(Condition::NodeMissing, at(NOW - 3600));
        scene.claim(name).status.conditions.push(gone);
    }
    let plan = plan_at(&scene, NOW);
    assert_eq!(removed(&plan), ["m00", "m04", "m05"]);
    assert_eq!(
        verdict(&plan, "m00"),
        Verdict::Remove(RemovalReason::Repair)
    );
    let deleted = Verdict::Remove(RemovalReason::NodeDeleted);
    assert_eq!(verdict(&plan, "m04"), deleted);
    let rows = plan.ledger.clone().unwrap().removals;
    let repairs = rows
        .iter()
        .filter(|row| row.reason == RemovalReason::Repair);
    assert_eq!((rows.len(), repairs.count()), (3, 1));

    // The repair has its allowance however many went before.
    let mut left = without(&without(&machines(10, 0), "m04"), "m05");
    left.ledger.removals = rows;
    left.ledger
        .removals
        .retain(|row| row.reason != RemovalReason::Repair);
    left.nodes.get_mut("m01").unwrap().ready = false;
    left.nodes.get_mut("m01").unwrap().ready_since = at(0);
    assert_eq!(removed(&plan_at(&left, NOW)), ["m01"]);
}

#[test]
fn f77_old_rows_keep_nothing_waiting() {
    let mut scene = machines(10, 1);
    for (index, age) in [600, 601, 100_000].into_iter().enumerate() {
        scene.ledger.removals.push(crate::facts::Removal {
            claim: format!("gone{index}").as_str().into(),
            at: at(NOW - age),
            reason: RemovalReason::Repair,
        });
    }
    assert_eq!(removed(&plan_at(&scene, NOW)), ["m00"]);
}

#[test]
fn f29_machines_that_somebody_destroyed_are_counted_and_replaced() {
    let mut scene = machines(10, 3);
    for name in ["m00", "m01", "m02"] {
        scene.guest(name, None);
    }
    let plan = plan_at(&scene, NOW);
    assert_eq!(removed(&plan), ["m00", "m01", "m02"]);
    let rows = plan.ledger.unwrap().removals;
    assert!(rows.iter().all(|row| row.reason == RemovalReason::Lost) && rows.len() == 3);
}

#[test]
fn a_launch_that_failed_takes_nothing_from_the_breaker_and_does_not_wait_for_it() {
    let mut scene = machines(10, 2);
    scene.ledger.removals = (0..20)
        .map(|index| crate::facts::Removal {
            claim: format!("gone{index}").as_str().into(),
            at: at(NOW - 10),
            reason: RemovalReason::Repair,
        })
        .collect();
    scene.coming_machine("failed", "alpha", Phase::Launched);
    scene.claim("failed").deleting_since = Some(at(NOW - 1));
    let plan = plan_at(&scene, NOW);
    assert_eq!(removed(&plan), ["failed"]);
    assert_eq!(plan.ledger, None);
}

#[test]
fn empty_nodes_go_as_their_budget_says_up_to_half_of_the_machines() {
    let mut scene = machines(50, 0);
    scene.workers().scale_down.enabled = true;
    let plan = plan_at(&scene, NOW);
    assert_eq!(removed(&plan).len(), 25);
    let wait = "waiting: kproxide removed 25 machines in the last 10 minutes, and the limit is 25";
    let waits = |name: &str| kept(&plan, name).is_ok_and(|why| why.to_string().starts_with(wait));
    let names = scene.nodes.keys().filter(|name| waits(name.as_str()));
    assert_eq!(names.count(), 25);
    scene.ledger = plan.ledger.unwrap();
    let gone: Vec<String> = removed(&plan_at(&scene, NOW + 1))
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(gone.len(), 25, "those that were counted");
    let left = gone
        .iter()
        .fold(scene.clone(), |scene, name| without(&scene, name));
    let plan = plan_at(&left, NOW + 2);
    assert_eq!((removed(&plan).len(), plan.report.waiting.len()), (0, 1));
    assert_eq!(removed(&plan_at(&left, NOW + 600)).len(), 20);
}

#[test]
fn a_claim_that_somebody_deletes_waits_for_the_breaker_too() {
    let mut scene = machines(50, 0);
    for index in 0..30 {
        scene.ledger.removals.push(crate::facts::Removal {
            claim: format!("gone{index}").as_str().into(),
            at: at(NOW - 10),
            reason: RemovalReason::Empty,
        });
    }
    scene.claim("m00").deleting_since = Some(at(NOW));
    assert_eq!(
        removed(&plan_at(&scene, NOW)),
        ["m00"],
        "40 of 80 are allowed"
    );
    for index in 30..100 {
        scene.ledger.removals.push(crate::facts::Removal {
            claim: format!("gone{index}").as_str().into(),
            at: at(NOW - 10),
            reason: RemovalReason::Empty,
        });
    }
    let Verdict::Hold(why) = verdict(&plan_at(&scene, NOW), "m00") else {
        panic!("it was to wait");
    };
    assert!(
        why.to_string()
            .starts_with("waiting: kproxide removed 100 machines"),
        "{why}"
    );
}

#[test]
fn a_removal_that_the_ledger_does_not_count_yet_rests_on_its_write() {
    let mut scene = machines(10, 1);
    let plan = plan_at(&scene, NOW);
    let world = scene.world();
    let resting = |plan: &Plan, world: &crate::world::World| -> Vec<String> {
        let mut advances = plan.advances.clone();
        advances.retain(|advance| plan.rests_on_ledger(advance, world.ledger()));
        let names = advances.iter().map(|advance| advance.claim.to_string());
        names.collect()
    };
    assert_eq!(resting(&plan, &world), ["m00"]);
    scene.ledger = plan.ledger.unwrap();
    assert_eq!(
        resting(&plan_at(&scene, NOW + 1), &scene.world()),
        [] as [&str; 0]
    );
}

/// The value that acknowledges what this plan says of its freeze.
fn acknowledgement(plan: &Plan) -> String {
    let text = &plan.report.frozen.as_ref().expect("it is frozen").message;
    let (_, value) = text.split_once("acknowledge-removal=").unwrap();
    value.to_owned()
}

/// Broken machines that a repair is due for, one whose drain can be undone, and an empty one.
fn disaster() -> Scene {
    let mut scene = machines(10, 6);
    scene.workers().scale_down.enabled = true;
    let drain = scene.claim("m09");
    drain.status.phase = Phase::Draining;
    drain.status.conditions.push(ClaimCondition {
        status: false,
        reason: RemovalReason::Empty.as_str().to_owned(),
        ..condition(Condition::Drained, at(NOW - 5))
    });
    scene
}

#[test]
fn f68_f45_when_most_nodes_are_not_ready_nothing_is_removed() {
    let mut scene = disaster();
    // Not even after a restart within the time that a repair waits for.
    for node in scene.nodes.values_mut().filter(|node| !node.ready) {
        node.ready_since = at(NOW - 1);
    }
    let plan = plan_at(&scene, NOW);
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(
        verdict(&plan, "m09"),
        Verdict::GiveUp(GiveUp::Frozen),
        "a drain of our own choice gives its Node back"
    );
    assert_eq!(kept(&plan, "m08").unwrap(), Hold::Frozen.to_string());
    let text = &plan.report.frozen.as_ref().unwrap().message;
    assert!(
        text.starts_with(
            "frozen: 6 of 10 managed machines went bad at once (6 Nodes that are not Ready)"
        ),
        "{text}"
    );
    let ledger = plan.ledger.unwrap();
    assert_eq!(
        (
            &ledger.removals[..],
            ledger.freeze.as_ref().map(|freeze| freeze.machines)
        ),
        (&[][..], Some(6))
    );

    // They are back: it is over, by itself.
    scene.ledger = ledger;
    for node in scene.nodes.values_mut() {
        node.ready = true;
    }
    let plan = plan_at(&scene, NOW + 60);
    assert_eq!(plan.report.frozen, None);
    assert_eq!(plan.ledger.unwrap().freeze, None);
}

#[test]
fn f68_a_freeze_is_acknowledged_by_its_own_word_and_by_no_other() {
    let mut scene = disaster();
    let plan = plan_at(&scene, NOW);
    let word = acknowledgement(&plan);
    assert_eq!(word, format!("6@{:.0}", at(NOW)));
    scene.ledger = plan.ledger.unwrap();

    for wrong in ["true", "6", "7@1970-01-01T00:00:00Z"] {
        scene.ledger.acknowledged = Some(wrong.into());
        assert_eq!(acknowledgement(&plan_at(&scene, NOW + 10)), word);
    }
    scene.ledger.acknowledged = Some(word.as_str().into());
    let plan = plan_at(&scene, NOW + 10);
    assert_eq!(plan.report.frozen, None);
    assert!(
        removed(&plan).contains(&"m00") && !removed(&plan).contains(&"m01"),
        "one after the other, as the breaker allows"
    );

    // One more than was acknowledged.
    scene.nodes.get_mut("m06").unwrap().ready = false;
    let grown = plan_at(&scene, NOW + 20);
    assert_eq!(acknowledgement(&grown), format!("7@{:.0}", at(NOW + 20)));

    // Over: the word is taken away, and would not fit the next one.
    for node in scene.nodes.values_mut() {
        node.ready = true;
    }
    let over = plan_at(&scene, NOW + 30).ledger.unwrap();
    assert_eq!((over.freeze, over.acknowledged), (None, None));
}

#[test]
fn f111_claims_that_somebody_deletes_all_at_once_are_not_drained() {
    let mut scene = machines(10, 0);
    for claim in scene.claims.values_mut() {
        claim.deleting_since = Some(at(NOW));
    }
    let plan = plan_at(&scene, NOW);
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(verdict(&plan, "m00"), Verdict::Hold(Hold::Frozen));
    let word = acknowledgement(&plan);
    scene.ledger = plan.ledger.unwrap();
    scene.ledger.acknowledged = Some(word.as_str().into());
    let mut plan = plan_at(&scene, NOW + 1);
    assert_eq!(removed(&plan).len(), 10);
    // The word holds to the end, also for whoever leads then.
    for index in 0..10 {
        scene.ledger = plan.ledger.unwrap_or(scene.ledger);
        scene = without(&scene, &format!("m{index:02}"));
        plan = plan_at(&scene, NOW + 2 + index);
        assert_eq!(plan.report.frozen, None);
    }
}

#[test]
fn f111_claims_that_are_deleted_one_by_one_are_as_many() {
    let mut scene = machines(8, 0);
    for index in 0..4 {
        let name = format!("m{index:02}");
        scene.claim(&name).deleting_since = Some(at(NOW + index));
        let plan = plan_at(&scene, NOW + index);
        assert_eq!(
            removed(&plan).len(),
            usize::from(index < 3),
            "claim {index}"
        );
        if index < 3 {
            scene.ledger = plan.ledger.unwrap();
            scene = without(&scene, &name);
        }
    }
}

#[test]
fn vms_that_vanish_all_at_once_are_not_believed_to_be_gone() {
    let mut scene = machines(10, 5);
    scene.inventory.guests.clear();
    let plan = plan_at(&scene, NOW);
    assert_eq!(removed(&plan), [] as [&str; 0]);
    let text = plan.report.frozen.unwrap().message;
    assert!(text.contains("10 VMs that are gone from Proxmox"), "{text}");

    // An inventory that was taken before their service began says nothing of them.
    scene.inventory.taken_at = Some(at(50));
    for node in scene.nodes.values_mut() {
        node.ready = true;
    }
    assert_eq!(plan_at(&scene, NOW).report.frozen, None);

    // With the claims gone too, no number is given up while it lasts.
    let mut scene = machines(10, 6);
    scene.claims.retain(|name, _| name.as_str() >= "m06");
    scene.inventory.guests.retain(|vmid, _| vmid.0 != 1005);
    let plan = plan_at(&scene, NOW);
    let entries = plan.ledger.unwrap().entries;
    assert!(entries.iter().all(|entry| entry.state == EntryState::Live));
}

/// Kubernetes cuts the time of a condition down to whole seconds; that of an inventory has milliseconds.
#[test]
fn r34_an_inventory_of_the_second_in_which_a_machine_came_into_service_says_nothing_of_its_vm() {
    let mut scene = machines(4, 0);
    let in_service = scene.claims["m00"]
        .status
        .since(Condition::Initialized)
        .unwrap();
    scene.inventory.guests.clear();
    for (millis, frozen) in [
        (-1, false),
        (0, false),
        (400, false),
        (999, false),
        (1000, true),
    ] {
        let taken = in_service + jiff::SignedDuration::from_millis(millis);
        scene.inventory.taken_at = Some(taken);
        let plan = plan_at(&scene, NOW);
        assert_eq!(plan.report.frozen.is_some(), frozen, "{millis} ms later");
    }
}

#[test]
fn a_few_machines_are_no_mass_however_few_there_are() {
    for (all, bad, frozen) in [
        (3, 3, false),
        (4, 4, true),
        (8, 4, true),
        (9, 4, false),
        (20, 9, false),
        (20, 10, true),
    ] {
        let plan = plan_at(&machines(all, bad), NOW);
        assert_eq!(plan.report.frozen.is_some(), frozen, "{bad} of {all}");
    }
}
