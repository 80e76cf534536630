//! Capacity before it is asked for: `schedules`.

use super::loops::Play;
use super::windows::recurring;
use super::*;
use crate::facts::*;

fn schedule(minutes_ago: i64, minutes: i64, min_nodes: u32) -> CapacitySchedule {
    CapacitySchedule {
        when: recurring(minutes_ago, minutes),
        min_nodes,
        headroom: Headroom::default(),
    }
}

#[test]
fn the_largest_of_all_that_are_open_holds() {
    let mut scene = Scene::default();
    scene.workers().limits.min_nodes = 1;
    scene.workers().schedules = vec![
        schedule(30, 60, 3),
        schedule(10, 60, 2),
        schedule(-10, 60, 5),
    ];
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches.len(), 3);
    assert_eq!(
        plan.launches[0].reason,
        "NodePool workers has fewer than 3 machines (schedules)"
    );
    scene.workers().limits.min_nodes = 4;
    assert_eq!(launches(&scene), 4);
}

#[test]
fn machines_of_a_schedule_stay_until_it_ends_and_go_by_the_budget_then() {
    let mut scene = Scene::default();
    for name in ["a", "b", "c"] {
        scene.machine(name, "alpha");
    }
    scene.workers().schedules = vec![schedule(30, 60, 3)];
    let plan = scene.tell_removable().plan();
    check_sound(&plan);
    assert_eq!((removed(&plan), plan.launches.len()), (vec![], 0));
    assert_eq!(
        kept(&plan, "a").unwrap(),
        "its pool keeps 3 machines now (schedules)"
    );
    assert_eq!(plan.wake_at, Some(at(NOW + 1800)));
    // An old one gets a new one first.
    let mut old = scene.clone();
    old.workers().expire_after = Some(Period::minutes(60));
    old.claim("a").created = at(NOW - 7200);
    assert_eq!(launches(&old), 1);
    scene.workers().schedules = vec![schedule(60, 60, 3)];
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan).len(), 1);
}

#[test]
fn room_of_a_schedule_is_kept_free() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha");
    scene.running("web", 3, "a", spec("cpu=1"));
    scene.workers().headroom = headroom("memory=1Gi");
    let mut with_room = schedule(30, 60, 0);
    with_room.headroom = headroom("cpu=3");
    assert_eq!(launches(&scene), 0);
    scene.workers().schedules = vec![with_room.clone()];
    assert_eq!(launches(&scene), 1);
    with_room.when = recurring(60, 60);
    scene.workers().schedules = vec![with_room];
    assert_eq!(launches(&scene), 0);
}

/// Machines that stand unused until the end of their schedule were not made in vain: the next day they are made at once.
#[test]
fn machines_that_stood_by_until_the_end_of_a_schedule_were_not_made_in_vain() {
    let mut play = Play::new();
    play.scene.workers().schedules = vec![schedule(-1, 120, 2)];
    play.run(24 * 3600);
    assert_eq!(play.made.len(), 2, "{:?}", play.made);
    assert!(play.scene.claims.is_empty() && play.scene.ledger.in_vain.is_empty());
    play.run(24 * 3600);
    let second_day: Vec<i64> = play.made[2..].iter().map(|it| it - 24 * 3600).collect();
    assert_eq!(second_day, [60, 60], "{:?}", play.made);
    // With a minimum that goes and comes by hand they were.
    let mut play = Play::new();
    play.scene.workers().limits.min_nodes = 2;
    play.run(2 * 3600);
    play.scene.workers().limits.min_nodes = 0;
    play.run(3600);
    assert!(play.scene.claims.is_empty());
}
