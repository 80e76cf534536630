//! Claims say why their machines stay.

use super::*;
use crate::plan::{Removable, RemovalReason};

/// Two machines in service. Both their pods fit on one, which then has no headroom.
fn busy() -> Scene {
    let mut scene = Scene::default();
    for name in ["a", "b"] {
        scene.machine(name, "alpha");
        scene.running(&format!("on-{name}"), 1, name, spec("cpu=1700m"));
    }
    scene
}

/// What is written at that second, after the plan before. The claims say it from then on.
fn written(scene: &mut Scene, before: &mut Option<Plan>, second: i64) -> Vec<String> {
    let mut world = scene.world();
    if let Some(before) = before {
        world.remember(before);
    }
    let mut plan = crate::fixtures::plan(&world, at(second), Limits::default(), reasonable);
    check_sound(&plan);
    for change in &plan.removable {
        let status = &mut scene.claim(change.claim.as_str()).status;
        crate::claim::removable(change, at(second)).apply(status, "", "");
    }
    let told = plan.removable.iter().map(tell).collect();
    // The scene may change before the next plan.
    plan.settled_at = None;
    *before = Some(plan);
    told
}

fn tell(change: &Removable) -> String {
    let Removable {
        claim,
        may_go,
        reason,
        message,
        ..
    } = change;
    format!("{claim} {may_go} {reason}: {message}")
}

#[test]
fn the_reason_is_written_after_a_minute_and_once() {
    let mut scene = busy();
    scene.claim("b").do_not_disrupt = true;
    let annotation =
        "the annotation kproxide.dev/do-not-disrupt (or Karpenter's of that name) is set";
    let mut last = None;
    let mut told = |second| written(&mut scene, &mut last, NOW + second);
    assert_eq!(told(0), [] as [&str; 0]);
    assert_eq!(told(59), [] as [&str; 0]);
    assert_eq!(
        told(60),
        [
            "a false HeadroomNeeded: without it the cluster would not keep its headroom of 20% (loadHeadroom)",
            &format!("b false ScaleDownDisabledAnnotation: {annotation}"),
        ]
    );
    for second in [61, 120, 600, 3600] {
        assert_eq!(told(second), [] as [&str; 0]);
    }
}

#[test]
fn a_reason_that_changes_all_the_time_is_written_every_five_minutes_at_most() {
    let mut scene = busy();
    let (mut last, mut writes) = (None, 0);
    for second in (0..3600).step_by(10) {
        scene.claim("a").do_not_disrupt = (second / 90) % 2 == 0;
        let told = written(&mut scene, &mut last, NOW + second);
        writes += told.iter().filter(|text| text.starts_with("a ")).count();
    }
    assert!((8..=12).contains(&writes), "{writes}");
}

#[test]
fn a_reason_is_written_once_its_text_has_stood_for_a_minute() {
    let mut scene = busy();
    let mut last = None;
    assert_eq!(written(&mut scene, &mut last, NOW), [] as [&str; 0]);
    scene.workers().scale_down.load_headroom = 0.3;
    for second in [30, 60, 89] {
        let told = written(&mut scene, &mut last, NOW + second);
        assert_eq!(told, [] as [&str; 0], "{second}");
    }
    let told = written(&mut scene, &mut last, NOW + 90);
    assert!(told[0].contains("headroom of 30%"), "{told:?}");
}

#[test]
fn a_machine_that_goes_says_so() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    scene.host.removing = [("a".into(), RemovalReason::Empty)].into();
    let mut last = None;
    written(&mut scene, &mut last, NOW);
    let told = written(&mut scene, &mut last, NOW + 60);
    assert_eq!(
        told,
        [
            "a true CurrentlyBeingDeleted: being removed: no pod needs it",
            "b false MaxDeletionCountReached: as many removals of its pool are under way as its budget allows (scaleDown.budget)",
        ]
    );
}

#[test]
fn after_a_start_what_is_written_stands() {
    let mut scene = busy();
    scene.tell_removable();
    scene.host.armed_at = None;
    let mut last = None;
    for second in [0, 60, 600] {
        let told = written(&mut scene, &mut last, NOW + second);
        assert_eq!(told, [] as [&str; 0]);
    }
}

#[test]
fn the_list_of_reasons_has_those_that_are_written() {
    let source = include_str!("../../reasons/kept.rs");
    let body = |function: &str| {
        let (_, rest) = source.split_once(function).unwrap();
        rest.split_once("\n    }\n").unwrap().0
    };
    let quoted = |text: &'static str| text.split('"').skip(1).step_by(2);
    let mut written: Vec<&str> = quoted(body("pub fn event(&self)"))
        .chain(quoted(body("pub fn word(&self)")))
        .chain([crate::reasons::kept::REMOVING])
        .collect();
    let mut listed: Vec<&str> = crate::reasons::kept::REMOVABLE_REASONS
        .iter()
        .map(|(word, _)| *word)
        .collect();
    written.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, written);
}

#[test]
fn a_claim_has_the_reason_of_its_own_node() {
    let mut scene = busy();
    // The Node of the first claim has the last name.
    let node = scene.nodes.remove("a").unwrap();
    scene.nodes.insert("z".into(), node);
    scene.claim("a").status.node_name = Some("z".into());
    for pod in scene.pods.values_mut() {
        if pod.node.as_ref().is_some_and(|node| node.as_str() == "a") {
            pod.node = Some("z".into());
        }
    }
    scene.claim("a").do_not_disrupt = true;
    let mut last = None;
    written(&mut scene, &mut last, NOW);
    let told = written(&mut scene, &mut last, NOW + 60);
    let starts: Vec<bool> = [
        "a false ScaleDownDisabledAnnotation",
        "b false HeadroomNeeded",
    ]
    .iter()
    .zip(&told)
    .map(|(start, told)| told.starts_with(start))
    .collect();
    assert_eq!(starts, [true, true], "{told:?}");
}
