//! How many machines go at once: `disruption.budgets` beside `scaleDown.budget`.

use super::windows::recurring;
use super::*;
use crate::facts::*;
use crate::plan::RemovalReason;

fn budget(nodes: Share, reasons: &[DisruptionReason]) -> DisruptionBudget {
    DisruptionBudget {
        nodes,
        reasons: reasons.to_vec(),
        when: None,
    }
}

const LARGE: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Empty machines.
fn empty(count: usize) -> Scene {
    let mut scene = Scene::default();
    for name in &LARGE[..count] {
        scene.machine(name, "alpha");
    }
    scene
}

fn names(plan: &Plan) -> Vec<&str> {
    let launches = plan.launches.iter();
    let replaced = launches.filter_map(|launch| launch.spec.replaces.as_ref());
    replaced.map(|old| old.as_str()).collect()
}

#[test]
fn the_strictest_budget_bounds_what_goes_at_once() {
    use DisruptionReason::{Empty, Expired};
    let mut scene = empty(6);
    let goes = |scene: &Scene| {
        let plan = scene.plan();
        check_sound(&plan);
        removed(&plan).len()
    };
    for (budgets, expected) in [
        (vec![budget(Share::Nodes(4), &[])], 4),
        (
            vec![
                budget(Share::Nodes(4), &[]),
                budget(Share::Percent(34), &[Empty]),
            ],
            3,
        ),
        (
            vec![
                budget(Share::Nodes(0), &[Expired]),
                budget(Share::Nodes(2), &[]),
            ],
            2,
        ),
        (vec![budget(Share::Nodes(0), &[])], 0),
        // None names the reason: a tenth.
        (vec![budget(Share::Nodes(4), &[Expired])], 1),
    ] {
        scene.workers().disruption.budgets = budgets.clone();
        assert_eq!(goes(&scene), expected, "{budgets:?}");
    }
    let plan = scene.plan();
    assert_eq!(
        kept(&plan, "f").unwrap(),
        "as many machines of NodePool workers are going or not Ready as disruption.budgets allow for Empty (10%)"
    );
    // One that is under way takes its part, as does a broken one of a share.
    scene.workers().disruption.budgets = vec![budget(Share::Percent(50), &[])];
    super::lifecycle::draining(&mut scene, "g", RemovalReason::Empty);
    assert_eq!(goes(&scene), 4, "one of four is under way");
    let node = scene.nodes.get_mut("a").unwrap();
    (node.ready, node.ready_since) = (false, at(NOW - 1));
    assert_eq!(goes(&scene), 3);
    scene.workers().disruption.budgets = vec![budget(Share::Nodes(4), &[])];
    assert_eq!(goes(&scene), 4, "a number is not less for it");
}

#[test]
fn a_budget_holds_while_it_is_active() {
    let mut scene = empty(6);
    let mut strict = budget(Share::Nodes(0), &[]);
    strict.when = Some(recurring(30, 60));
    scene.workers().disruption.budgets = vec![budget(Share::Nodes(3), &[]), strict.clone()];
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
    strict.when = Some(recurring(60, 60));
    scene.workers().disruption.budgets[1] = strict;
    assert_eq!(removed(&scene.plan()).len(), 3);
}

#[test]
fn empty_and_used_machines_have_budgets_of_their_own() {
    use DisruptionReason::{Empty, Underutilized};
    let mut scene = empty(2);
    for name in ["used-a", "used-b"] {
        scene.machine(name, "beta");
        scene.running(name, 1, name, spec("cpu=500m"));
    }
    scene.node("static", node("cpu=16 memory=32Gi"));
    let goes = |scene: &Scene| {
        let plan = scene.plan();
        check_sound(&plan);
        removed(&plan)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    scene.workers().disruption.budgets = vec![
        budget(Share::Nodes(0), &[Empty]),
        budget(Share::Nodes(2), &[Underutilized]),
    ];
    assert_eq!(goes(&scene), ["used-a", "used-b"]);
    scene.workers().disruption.budgets = vec![
        budget(Share::Nodes(2), &[Empty]),
        budget(Share::Nodes(0), &[Underutilized]),
    ];
    assert_eq!(goes(&scene), ["a", "b"]);
}

#[test]
fn a_replacement_counts_from_when_its_claim_exists() {
    let mut scene = Scene::default();
    for (name, on) in [("a", "alpha"), ("b", "beta")] {
        scene.machine(name, on);
        scene.running(&format!("web-{name}"), 2, name, spec("cpu=1500m"));
        scene.claim(name).replace = true;
    }
    scene.machine("idle", "alpha");
    scene.running("more", 2, "idle", spec("cpu=1500m"));
    scene.workers().disruption.budgets = vec![budget(Share::Nodes(1), &[])];
    assert_eq!(names(&scene.plan()), ["a"]);
    scene.coming_machine("new", "gamma", Phase::Launching);
    scene.claim("new").spec.replaces = Some("b".into());
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(names(&plan), [] as [&str; 0]);
    assert_eq!(
        kept(&plan, "a").unwrap(),
        "as many machines of NodePool workers are going as disruption.budgets allow for Replace (1)"
    );
    scene.workers().disruption.budgets = vec![budget(Share::Nodes(2), &[])];
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(names(&plan), ["a"]);
    // Nothing empty goes beside it either.
    scene.workers().disruption.budgets = vec![budget(Share::Nodes(1), &[])];
    scene.machine("empty", "gamma");
    scene.workers().scale_down.budget = 5;
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
}

#[test]
fn what_is_ordered_takes_its_part_in_the_same_tick() {
    let mut scene = empty(2);
    scene.machine("old", "beta");
    let mut there = spec("cpu=1500m");
    there.node_selector = [(crate::keys::ZONE.to_owned(), "beta".to_owned())].into();
    scene.running("web", 2, "old", there);
    scene.claim("old").replace = true;
    for (most, goes) in [(1, 0), (2, 1), (3, 2)] {
        scene.workers().disruption.budgets = vec![budget(Share::Nodes(most), &[])];
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!((names(&plan), removed(&plan).len()), (vec!["old"], goes));
    }
}

#[test]
fn a_machine_that_was_kept_after_all_takes_no_part_an_hour_later() {
    let mut scene = empty(2);
    scene
        .machine("old", "beta")
        .successor("new", "gamma", "old");
    for name in ["old", "new"] {
        scene.running(name, 2, name, spec("cpu=1500m"));
    }
    scene.workers().disruption.budgets = vec![budget(Share::Nodes(1), &[])];
    let in_service = |scene: &mut Scene, since: i64| {
        let conditions = &mut scene.claim("new").status.conditions;
        *conditions = vec![condition(Condition::Initialized, at(since))];
    };
    for (since, goes) in [(NOW - 3599, 0), (NOW - 3600, 1)] {
        in_service(&mut scene, since);
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(removed(&plan).len(), goes);
        assert_eq!(plan.wake_at == Some(at(NOW + 1)), goes == 0);
    }
    // It is to go by its age, as it was when the new one was made.
    scene.claim("old").created = at(NOW - 90_000);
    scene.claim("new").created = at(NOW - 3600);
    for (days, goes) in [(1, "old"), (2, "a")] {
        scene.workers().expire_after = Some(Period::minutes(days * 1440));
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(removed(&plan), [goes], "{days}");
    }
}

/// With budgets, `scaleDown.budget` is for repairs: one Node that is not Ready does not stop its own.
#[test]
fn a_broken_machine_is_repaired_whatever_the_budgets_say() {
    let mut scene = empty(2);
    for name in ["a", "b"] {
        scene.running(name, 2, name, spec("cpu=1500m"));
    }
    let node = scene.nodes.get_mut("a").unwrap();
    (node.ready, node.ready_since) = (false, at(NOW - 3600));
    for nodes in [Share::Nodes(0), Share::Percent(0), Share::Percent(10)] {
        scene.workers().disruption.budgets = vec![budget(nodes, &[])];
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(names(&plan), ["a"], "{nodes}");
        scene.workers().scale_down.budget = 0;
        assert_eq!(names(&scene.plan()), [] as [&str; 0], "{nodes}");
        scene.workers().scale_down.budget = 1;
    }
    // A removal that kproxide has chosen does not stop it either.
    super::lifecycle::draining(&mut scene, "c", RemovalReason::Empty);
    assert_eq!(names(&scene.plan()), ["a"]);
    scene.workers().disruption.budgets = vec![];
    assert_eq!(names(&scene.plan()), [] as [&str; 0], "as without budgets");
}

#[test]
fn what_a_person_asks_for_a_machine_that_is_not_ready_is_not_kept_by_budgets() {
    let mut scene = empty(2);
    scene.running("web", 2, "b", spec("cpu=1500m"));
    scene.workers().scale_down.enabled = false;
    scene.workers().disruption.budgets = vec![budget(Share::Nodes(0), &[])];
    let node = scene.nodes.get_mut("a").unwrap();
    (node.ready, node.ready_since) = (false, at(NOW - 1));
    scene.claim("a").replace = true;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["a"]);
    scene.nodes.get_mut("a").unwrap().ready = true;
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
}

#[test]
fn a_deleted_pool_goes_by_its_own_budget() {
    let mut scene = empty(3);
    scene.workers().existence.deleting_since = Some(at(NOW - 1));
    scene.workers().disruption.budgets = vec![budget(Share::Nodes(0), &[])];
    scene.workers().scale_down.budget = 2;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["a", "b"]);
}
