//! What failed lately rests: a hypervisor with its storage, or a class.

use super::placement::rejections;
use super::*;
use crate::facts::Backoff;
use crate::ids::HypervisorId;

#[test]
fn p5_what_fails_alike_everywhere_rests_its_class_and_no_other() {
    for (class, rests) in [("standard", true), ("other", false)] {
        let mut scene = Scene::default();
        scene.ledger.backoff.push(Backoff {
            hypervisor: HypervisorId::new("pve", "alpha"),
            storage: None,
            node_class: Some(class.into()),
            class: "RefusedEverywhere".into(),
            message: "tag owned is reserved".to_owned(),
            failures: 1,
            until: at(NOW + 20),
        });
        scene.pending("web", 2, spec("cpu=1"));
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(plan.launches.is_empty(), rests, "{class}");
    }
}

#[test]
fn f44_what_failed_lately_is_left_alone() {
    let mut scene = Scene::default();
    for name in ["alpha", "beta"] {
        scene.ledger.backoff.push(Backoff {
            hypervisor: HypervisorId::new("pve", name),
            storage: Some("shared".into()),
            node_class: None,
            class: "HypervisorUnfit".into(),
            message: match name {
                "alpha" => "cloning on alpha failed: storage shared is full".to_owned(),
                _ => String::new(),
            },
            failures: if name == "alpha" { 1 } else { 3 },
            until: at(NOW + 20),
        });
    }
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(&*plan.launches[0].spec.hypervisor, "gamma");
    assert_eq!(plan.wake_at, Some(at(NOW + 20)));
    let until = format!(
        "kproxide launches nothing there until {:.0}, after",
        at(NOW + 20)
    );
    assert_eq!(
        rejections(&plan),
        [
            format!("{until} a failed launch: cloning on alpha failed: storage shared is full"),
            format!("{until} 3 failed launches, the last: HypervisorUnfit"),
        ]
    );
}
