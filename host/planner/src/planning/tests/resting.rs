//! Nodes that rest, because something that stands there kept their drains from ending.

use super::scale_down::idle;
use super::*;
use crate::claim::{Condition, GIVEN_UP, Phase, retry_digest};
use crate::facts::*;
use crate::ids::{ObjectKey, PodKey};
use crate::planning::keepers;

/// The second drain in a row of that machine was given up a minute ago, because its pod stayed.
fn gave_up(scene: &mut Scene, name: &str) {
    scene.claim(name).status.phase = Phase::Draining;
    let keepers = keepers(&scene.world(), &scene.claims[name]);
    let given_up = |kind, message: &str| ClaimCondition {
        status: false,
        reason: GIVEN_UP.to_owned(),
        message: message.to_owned(),
        ..condition(kind, at(NOW - 60))
    };
    let status = &mut scene.claim(name).status;
    status.phase = Phase::Initialized;
    status.blocked_drains = Some(BlockedDrains {
        in_a_row: 2,
        at: at(NOW - 60),
        pods: keepers.into_values().collect(),
        retry: retry_digest(None),
    });
    let why = format!("1 pods are leaving: default/web-{name}-00000");
    status.conditions.push(given_up(Condition::Unneeded, ""));
    status.conditions.push(given_up(Condition::Drained, &why));
}

/// Two machines of little load, both of which rest. One could go.
fn resting() -> Scene {
    let mut scene = idle();
    scene.pod("web-a-00000").labels = labels("app=web");
    scene
        .budgets
        .insert(ObjectKey::new("default", "web"), budget(0));
    gave_up(&mut scene, "a");
    gave_up(&mut scene, "b");
    scene
}

/// Of `web-a-00000`.
fn budget(allowed: i32) -> DisruptionBudgetFacts {
    DisruptionBudgetFacts {
        selector: Some(LabelSelector {
            match_labels: labels("app=web"),
            match_expressions: vec![],
        }),
        disruptions_allowed: allowed,
        ..DisruptionBudgetFacts::default()
    }
}

#[test]
fn what_rests_says_why_and_until_when() {
    let plan = resting().tell_removable().plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), [] as [&str; 0]);
    for name in ["a", "b"] {
        assert_eq!(
            kept(&plan, name).unwrap(),
            format!(
                "kproxide gave its drain up: 1 pods are leaving: default/web-{name}-00000. It tries again at {:.0}, or once that has changed, or if you give the NodePool a new value of the annotation kproxide.dev/retry",
                at(NOW + 1140)
            )
        );
    }
    assert_eq!(plan.wake_at, Some(at(NOW + 1140)));
}

#[test]
fn what_never_keeps_a_node_is_no_reason_to_try_again() {
    let mut scene = resting();
    scene.claim("a").status.phase = Phase::Draining;
    for (name, change) in [
        ("static", (|pod| pod.mirror = true) as fn(&mut PodFacts)),
        ("done", |pod| pod.phase = PodPhase::Succeeded),
        ("agent", |pod| pod.owner = Some(owner("DaemonSet"))),
    ] {
        let mut pod = running_pod("a", spec("cpu=100m"));
        change(&mut pod);
        scene.pods.insert(PodKey::new("kube-system", name), pod);
    }
    let keepers = keepers(&scene.world(), &scene.claims["a"]);
    let names: Vec<&str> = keepers.keys().map(|key| &*key.name).collect();
    assert_eq!(names, ["web-a-00000"]);
}

#[test]
fn a_rest_ends_with_its_time_or_once_what_kept_the_node_has_changed() {
    type Edit = fn(&mut Scene);
    let changes: [(&str, Edit, &[&str]); 6] = [
        (
            "its time is over",
            |scene| {
                let drains = &mut scene.claim("b").status.blocked_drains;
                drains.as_mut().unwrap().at = at(NOW - 1200);
            },
            &["b"],
        ),
        (
            "the pod is gone",
            |scene| {
                scene.pods.remove(&PodKey::new("default", "web-b-00000"));
            },
            &["b"],
        ),
        (
            "a successor stands there",
            |scene| {
                let key = |index| PodKey::new("default", &format!("web-b-0000{index}"));
                let pod = scene.pods.remove(&key(0)).unwrap();
                scene.pods.insert(key(1), pod);
            },
            &[],
        ),
        (
            "a successor stands there that asks for something else",
            |scene| {
                scene.running("web-b", 1, "b", spec("cpu=400m memory=512Mi"));
            },
            &["b"],
        ),
        (
            "its budget allows one",
            |scene| {
                *scene.budgets.values_mut().next().unwrap() = budget(1);
            },
            &["a"],
        ),
        (
            "a person wants another try",
            |scene| scene.workers().retry = Some("1".into()),
            &["b"],
        ),
    ];
    for (what, change, expected) in changes {
        let mut scene = resting();
        change(&mut scene);
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(removed(&plan), expected, "{what}");
    }
}
