//! When removals may begin: `disruption.windows`. When pods may launch machines: `scaleUp.windows`.

use super::*;
use crate::facts::*;
use crate::plan::RemovalReason;

/// From so many minutes before now on for so long.
pub(super) fn recurring(minutes_ago: i64, minutes: i64) -> Recurring {
    let start = at(NOW - minutes_ago * 60).to_zoned(jiff::tz::TimeZone::UTC);
    let schedule = format!("{} {} * * *", start.minute(), start.hour());
    let it = Recurring::new(&schedule, Period::minutes(minutes), None);
    assert_eq!(it.problem(), None);
    it
}

fn window(reasons: &[DisruptionReason], when: Recurring) -> DisruptionWindow {
    DisruptionWindow {
        reasons: reasons.to_vec(),
        when,
    }
}

/// `a` and `b` are older than an hour and full of pods; `c` is empty.
fn old() -> Scene {
    let mut scene = Scene::default();
    for (name, on) in [("a", "alpha"), ("b", "beta")] {
        scene.machine(name, on);
        scene.running(&format!("web-{name}"), 2, name, spec("cpu=1500m"));
        scene.claim(name).created = at(NOW - 7200);
    }
    scene.workers().expire_after = Some(Period::minutes(60));
    scene
}

/// Each new claim's old one.
fn replaced(plan: &Plan) -> Vec<&str> {
    let launches = plan.launches.iter();
    let replaced = launches.filter_map(|launch| launch.spec.replaces.as_ref());
    replaced.map(|old| old.as_str()).collect()
}

#[test]
fn a_replacement_is_ordered_in_a_window_that_is_open_for_long_enough() {
    let mut scene = old();
    let needs = scene.class.comes_within();
    let needs_minutes = needs.as_secs() / 60;
    for (opened, lasts, ordered) in [
        // It opens in ten minutes, is open for long enough, and for one minute less.
        (-10, 600, false),
        (10, 10 + needs_minutes, true),
        (10, 9 + needs_minutes, false),
        // It was open.
        (60, 60, false),
    ] {
        scene.workers().disruption.windows = vec![window(&[], recurring(opened, lasts))];
        let plan = scene.plan();
        check_sound(&plan);
        let expected = if ordered { vec!["a"] } else { vec![] };
        assert_eq!(replaced(&plan), expected, "{opened} {lasts}");
        if !ordered {
            let said = kept(&plan, "a").unwrap();
            let opens = at(NOW + (1440 - opened) % 1440 * 60);
            assert!(
                said.contains("windows of NodePool workers (disruption.windows)"),
                "{said}"
            );
            assert!(
                said.ends_with(&format!(". The next one opens at {opens:.0}")),
                "{said}"
            );
        }
    }
    // Two that follow each other are one.
    scene.workers().disruption.windows = vec![
        window(&[], recurring(10, 15)),
        window(&[], recurring(-5, needs_minutes)),
    ];
    assert_eq!(replaced(&scene.plan()), ["a"]);
}

#[test]
fn a_machine_that_needs_no_replacement_goes_to_the_last_moment_of_its_window() {
    let mut scene = old();
    scene.machine("spare", "gamma");
    scene.workers().disruption.windows = vec![window(&[], recurring(10, 11))];
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["a"]);
    scene.workers().disruption.windows = vec![window(&[], recurring(10, 10))];
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
}

#[test]
fn a_removal_has_begun_with_its_replacements_claim_and_goes_to_its_end() {
    let mut scene = old();
    let closed = window(&[], recurring(60, 60));
    scene.workers().disruption.windows = vec![closed];
    for (phase, goes) in [(Phase::Launching, false), (Phase::Initialized, true)] {
        let mut scene = scene.clone();
        scene.coming_machine("new", "gamma", phase);
        scene.claim("new").spec.replaces = Some("b".into());
        if goes {
            scene.successor("new", "gamma", "b");
        }
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(replaced(&plan), [] as [&str; 0], "{phase:?}");
        assert_eq!(
            removed(&plan),
            if goes { vec!["b"] } else { vec![] },
            "{phase:?}"
        );
    }
    // Its replacement failed: another one is made in the next window.
    let mut failed = scene.clone();
    failed.coming_machine("new", "gamma", Phase::Launching);
    failed.claim("new").spec.replaces = Some("b".into());
    failed.claim("new").deleting_since = Some(at(NOW - 1));
    assert_eq!(replaced(&failed.plan()), [] as [&str; 0]);
    // A drain that has begun goes on.
    super::lifecycle::draining(&mut scene, "d", RemovalReason::Empty);
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(verdict(&plan, "d"), Verdict::Remove(RemovalReason::Empty));
}

#[test]
fn each_reason_keeps_to_the_windows_that_name_it() {
    use DisruptionReason::{Empty, Expired, Replace, Underutilized};
    let closed = || recurring(60, 60);
    // `empty` could go at once, `used` for its pod's place elsewhere.
    let mut scene = Scene::default();
    scene
        .machine("empty", "alpha")
        .machine("used", "beta")
        .machine("more", "gamma");
    scene.running("web", 1, "used", spec("cpu=1"));
    scene.running("other", 2, "more", spec("cpu=1"));
    scene.workers().scale_down.budget = 3;
    for (reasons, goes, stays) in [
        (&[Empty][..], Some("used"), Some("empty")),
        (&[Underutilized], Some("empty"), Some("used")),
        (&[Empty, Underutilized], None, Some("empty")),
        (&[], None, Some("used")),
        (&[Expired, Replace], Some("empty"), None),
    ] {
        scene.workers().disruption.windows = vec![window(reasons, closed())];
        let plan = scene.plan();
        check_sound(&plan);
        let gone = removed(&plan);
        assert!(
            goes.is_none_or(|it| gone.contains(&it)),
            "{reasons:?}: {gone:?}"
        );
        assert!(
            stays.is_none_or(|it| !gone.contains(&it)),
            "{reasons:?}: {gone:?}"
        );
        assert_eq!(gone.is_empty(), goes.is_none(), "{reasons:?}");
    }
    // An expired machine that waits may go because nothing needs it.
    let mut scene = old();
    scene.machine("c", "gamma");
    scene.claim("c").created = at(NOW - 7200);
    scene.workers().disruption.windows = vec![window(&[Expired, Underutilized], closed())];
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(verdict(&plan, "c"), Verdict::Remove(RemovalReason::Empty));
    // What a person asks for does not wait, unless a window names it.
    let mut scene = old();
    scene.claim("b").replace = true;
    scene.workers().disruption.windows = vec![window(&[], closed())];
    assert_eq!(replaced(&scene.plan()), ["b"]);
    scene
        .workers()
        .disruption
        .windows
        .push(window(&[Replace], closed()));
    assert_eq!(replaced(&scene.plan()), [] as [&str; 0]);
}

#[test]
fn repairs_and_deletions_ask_for_no_window() {
    let mut scene = old();
    scene.workers().disruption.windows = vec![window(&DisruptionReason::ALL, recurring(60, 60))];
    let node = scene.nodes.get_mut("b").unwrap();
    (node.ready, node.ready_since) = (false, at(NOW - 3600));
    assert_eq!(replaced(&scene.plan()), ["b"]);
    let mut scene = old();
    scene.workers().disruption.windows = vec![window(&DisruptionReason::ALL, recurring(60, 60))];
    scene.claim("a").deleting_since = Some(at(NOW - 1));
    assert_eq!(removed(&scene.plan()), ["a"]);
    scene.workers().existence.deleting_since = Some(at(NOW - 1));
    scene.workers().scale_down.budget = 2;
    assert_eq!(removed(&scene.plan()), ["a", "b"]);
}

#[test]
fn a_pool_whose_times_cannot_be_read_begins_no_removal_that_could_wait() {
    let bad = || Recurring::new("0 0 30 2 *", Period::minutes(60), None);
    let break_ = |scene: &mut Scene, place: usize| {
        let pool = scene.workers();
        match place {
            0 => {
                pool.disruption.windows = vec![window(&[], recurring(10, 600)), window(&[], bad())]
            }
            1 => {
                pool.disruption.budgets = vec![DisruptionBudget {
                    nodes: Share::Nodes(5),
                    reasons: vec![],
                    when: Some(bad()),
                }];
            }
            2 => pool.scale_up.windows = vec![bad()],
            _ => {
                pool.schedules = vec![CapacitySchedule {
                    when: bad(),
                    min_nodes: 1,
                    headroom: Headroom::default(),
                }];
            }
        }
    };
    for place in 0..4 {
        let mut scene = old();
        scene.machine("c", "gamma");
        scene.claim("b").replace = true;
        break_(&mut scene, place);
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(
            (removed(&plan), replaced(&plan)),
            (vec![], vec![]),
            "{place}"
        );
        for node in ["a", "b", "c"] {
            assert_eq!(
                kept(&plan, node).unwrap(),
                "a schedule or a time zone of NodePool workers cannot be read, so kproxide begins no removal there that could wait. The condition Ready of the NodePool names the field"
            );
        }
        // A repair waits for nothing of it.
        let node = scene.nodes.get_mut("a").unwrap();
        (node.ready, node.ready_since) = (false, at(NOW - 3600));
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(
            (removed(&plan), replaced(&plan)),
            (vec!["a"], vec![]),
            "{place}"
        );
    }
}

#[test]
fn kproxide_looks_again_when_something_opens_or_closes() {
    let plan = |windows: Vec<Recurring>| {
        let mut scene = Scene::default();
        scene.workers().scale_up.windows = windows;
        scene.plan().wake_at
    };
    assert_eq!(plan(vec![]), None);
    assert_eq!(
        plan(vec![recurring(-30, 60), recurring(-20, 60)]),
        Some(at(NOW + 1200))
    );
    assert_eq!(plan(vec![recurring(30, 60)]), Some(at(NOW + 1800)));
}

#[test]
fn c2_7_pods_launch_machines_only_in_the_windows_of_a_pool() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    scene.workers().scale_up.windows = vec![recurring(-30, 60)];
    let opens = at(NOW + 1800);
    assert_eq!(
        why(&scene).to_string(),
        format!(
            "the pool launches machines for pods only in its windows (scaleUp.windows). The next one opens at {opens:.0}"
        )
    );
    // Another pool helps.
    let mut always = scene.workers().clone();
    always.scale_up.windows = vec![];
    scene.pools.insert("always".into(), always);
    let plan = scene.plan();
    check_sound(&plan);
    let of: Vec<_> = plan
        .launches
        .iter()
        .map(|it| it.spec.pool.as_str())
        .collect();
    assert_eq!(of, ["always"]);
    scene.pools.remove("always");
    scene.workers().scale_up.windows = vec![recurring(10, 60)];
    assert_eq!(launches(&scene), 1);
}

#[test]
fn what_no_pod_asks_for_is_made_at_any_time() {
    let closed = || vec![recurring(-30, 60)];
    let mut scene = Scene::default();
    scene.workers().scale_up.windows = closed();
    scene.workers().limits.min_nodes = 1;
    assert_eq!(launches(&scene), 1, "minNodes");
    scene.workers().limits.min_nodes = 0;
    scene.workers().headroom = headroom("cpu=1");
    assert_eq!(launches(&scene), 1, "headroom");
    let mut scene = old();
    scene.workers().scale_up.windows = closed();
    assert_eq!(replaced(&scene.plan()), ["a"], "expiry");
    scene.workers().expire_after = None;
    let node = scene.nodes.get_mut("b").unwrap();
    (node.ready, node.ready_since) = (false, at(NOW - 3600));
    assert_eq!(replaced(&scene.plan()), ["b"], "repair");
}
