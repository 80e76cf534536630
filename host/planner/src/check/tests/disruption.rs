//! Removals and launches keep to the windows and budgets of their pool.

use super::removals::{removals_refused, removing};
use super::rules::found;
use super::*;
use crate::claim::Phase;
use crate::facts::{
    DisruptionBudget, DisruptionReason, DisruptionWindow, Period, Recurring, Share,
};

/// For all reasons, and not now.
fn closed() -> Vec<DisruptionWindow> {
    vec![DisruptionWindow {
        reasons: DisruptionReason::ALL.to_vec(),
        when: never_now(),
    }]
}

fn never_now() -> Recurring {
    let hour = at(NOW - 3600).to_zoned(jiff::tz::TimeZone::UTC).hour();
    Recurring::new(&format!("0 {hour} * * *"), Period::minutes(30), None)
}

fn budget(nodes: Share) -> Vec<DisruptionBudget> {
    vec![DisruptionBudget {
        nodes,
        reasons: vec![],
        when: None,
    }]
}

#[test]
fn removals_that_could_wait_keep_to_the_strictest_budget_and_others_do_not() {
    use RemovalReason::{Empty, Expired, PoolDeleted, Repair, Replace, Underutilized};
    for reason in [Empty, Underutilized, Expired, Replace] {
        for (nodes, refused) in [
            (Share::Nodes(3), 0),
            (Share::Nodes(2), 1),
            (Share::Nodes(0), 3),
            (Share::Percent(34), 1),
            (Share::Percent(0), 3),
        ] {
            let (mut scene, plan) = removing(reason);
            scene.workers().disruption.budgets = budget(nodes);
            scene.workers().scale_down.budget = 0;
            let found = removals_refused(&scene, &plan, &Violation::Budget);
            assert_eq!(found, refused, "{reason} {nodes}");
        }
        // Of a share one that is not Ready takes a part, of a number it does not.
        for (nodes, refused) in [(Share::Percent(34), 1), (Share::Nodes(2), 0)] {
            let (mut scene, mut plan) = removing(reason);
            scene.workers().disruption.budgets = budget(nodes);
            scene.nodes.get_mut("c").unwrap().ready = false;
            plan.advances.retain(|it| it.claim.as_str() != "c");
            let found = removals_refused(&scene, &plan, &Violation::Budget);
            assert_eq!(found, refused, "{reason} {nodes}");
        }
    }
    for reason in [Repair, PoolDeleted] {
        let (mut scene, plan) = removing(reason);
        scene.workers().disruption.budgets = budget(Share::Nodes(0));
        for (budget, refused) in [(3, 0), (1, 2)] {
            scene.workers().scale_down.budget = budget;
            let found = removals_refused(&scene, &plan, &Violation::Budget);
            assert_eq!(found, refused, "{reason} {budget}");
        }
    }
    // Somebody asks for a new one in the place of one that is not Ready.
    let (mut scene, plan) = removing(Replace);
    scene.workers().disruption.budgets = budget(Share::Nodes(0));
    for name in ["a", "b", "c"] {
        scene.nodes.get_mut(name).unwrap().ready = false;
    }
    assert_eq!(found(&scene, &plan), None);
}

#[test]
fn removals_that_could_wait_begin_in_their_windows() {
    use RemovalReason::{Deleted, Empty, Expired, Lost, Repair, Replace, Underutilized};
    for (reason, refused) in [
        (Empty, 3),
        (Underutilized, 3),
        (Expired, 3),
        (Replace, 3),
        (Repair, 0),
        (Lost, 0),
        (Deleted, 0),
    ] {
        let (mut scene, plan) = removing(reason);
        scene.workers().disruption.windows = closed();
        let found = removals_refused(&scene, &plan, &Violation::Window);
        assert_eq!(found, refused, "{reason}");
        // What cannot be read is never open.
        scene.workers().disruption.windows = vec![];
        scene.workers().scale_up.windows = vec![Recurring::new("", Period::default(), None)];
        let found = removals_refused(&scene, &plan, &Violation::Window);
        assert_eq!(found, refused, "{reason}");
    }
    // One that has a replacement has begun.
    let (mut scene, plan) = removing(Expired);
    scene.workers().disruption.windows = closed();
    scene.coming_machine("new", "beta", Phase::Launching);
    scene.claim("new").spec.replaces = Some("b".into());
    assert_eq!(removals_refused(&scene, &plan, &Violation::Window), 2);
}

#[test]
fn launches_keep_to_the_times_of_their_pools_too() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!((plan.launches.len(), found(&scene, &plan)), (1, None));
    scene.workers().scale_up.windows = vec![never_now()];
    assert_eq!(found(&scene, &plan), Some(Violation::Window));

    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    for name in ["a", "b"] {
        scene.running(name, 2, name, spec("cpu=1500m"));
        scene.claim(name).replace = true;
    }
    scene.cluster.hypervisors.exclude = vec!["alpha".into(), "beta".into()];
    scene.workers().scale_down.budget = 2;
    let plan = scene.plan();
    assert_eq!((plan.launches.len(), found(&scene, &plan)), (2, None));
    scene.workers().disruption.budgets = budget(Share::Nodes(1));
    assert_eq!(found(&scene, &plan), Some(Violation::Budget));
    scene.workers().disruption.windows = closed();
    assert_eq!(found(&scene, &plan), Some(Violation::Window));
    // Each reason has its own windows.
    let now = DisruptionReason::Maintenance;
    let others = DisruptionReason::ALL.into_iter().filter(|it| *it != now);
    scene.workers().disruption.budgets = vec![];
    scene.workers().disruption.windows[0].reasons = others.collect();
    for name in ["a", "b"] {
        scene.claim(name).replace = false;
    }
    assert_eq!(found(&scene, &plan), Some(Violation::Window));
    scene.cluster.hypervisors.drain = vec!["alpha".into(), "beta".into()];
    assert_eq!(found(&scene, &plan), None);
}

#[test]
fn a_machine_that_was_kept_needs_a_window_again() {
    let (mut scene, plan) = removing(RemovalReason::Replace);
    scene.workers().disruption.windows = closed();
    scene.successor("new", "beta", "b");
    assert_eq!(removals_refused(&scene, &plan, &Violation::Window), 2);
    let conditions = &mut scene.claim("new").status.conditions;
    conditions[0].since = at(NOW - 3600);
    assert_eq!(removals_refused(&scene, &plan, &Violation::Window), 3);
}
