//! The last machine of a class whose launch failed, kept for a person to look at.

use super::*;
use crate::claim::{Condition, KEPT_FAILED, Phase};
use crate::facts::*;
use crate::plan::RemovalReason;
use crate::planning::Limits;
use jiff::SignedDuration;

const DESTROY: Verdict = Verdict::Remove(RemovalReason::LaunchFailed);

/// A machine that never joined, and has been stopped since then.
fn failed(scene: &mut Scene, name: &str, hypervisor: &str, stopped: i64) {
    scene.coming_machine(name, hypervisor, Phase::Terminating);
    let claim = scene.claim(name);
    let not = |kind, reason: &str, since| ClaimCondition {
        status: false,
        reason: reason.to_owned(),
        message: "no Node joined".to_owned(),
        ..condition(kind, since)
    };
    claim.deleting_since = Some(at(stopped));
    claim.status.smbios_uuid = Some("u".into());
    claim.status.draining_since = Some(at(stopped - 5));
    claim.status.conditions.extend([
        not(Condition::Registered, "JoinTimeout", at(stopped - 5)),
        not(Condition::Drained, "LaunchFailed", at(stopped - 5)),
        ClaimCondition {
            reason: KEPT_FAILED.to_owned(),
            ..condition(Condition::InstanceTerminating, at(stopped))
        },
    ]);
}

/// Two that failed, in a class that keeps them for an hour.
fn scene() -> Scene {
    let mut scene = Scene::default();
    scene.class.join.keep_failed = Some(SignedDuration::from_hours(1).into());
    failed(&mut scene, "older", "beta", NOW - 700);
    failed(&mut scene, "newer", "alpha", NOW - 600);
    scene
}

#[test]
fn the_last_failed_machine_of_a_class_is_kept_until_its_time_is_over() {
    let plan = scene().plan();
    check_sound(&plan);
    assert_eq!(verdict(&plan, "newer"), Verdict::Keep);
    assert_eq!(verdict(&plan, "older"), DESTROY);
    assert_eq!(plan.wake_at, Some(at(NOW + 3000)));
    // The other one is of another class.
    let mut apart = scene();
    apart.claim("older").spec.class = "other".into();
    let mut world = apart.world();
    let other = Box::new(apart.class.clone());
    world.apply(Delta::Class("other".into(), Some(other)));
    let plan = crate::fixtures::plan(&world, at(NOW), Limits::default(), reasonable);
    for name in ["older", "newer"] {
        assert_eq!(verdict(&plan, name), Verdict::Keep);
    }
    type Edit = fn(&mut Scene);
    let ends: [(&str, Edit); 5] = [
        ("over", |scene| {
            scene.class.join.keep_failed = Some(SignedDuration::from_secs(600).into())
        }),
        ("off", |scene| {
            scene.class.join.keep_failed = Some(SignedDuration::ZERO.into())
        }),
        ("class goes", |scene| {
            scene.class.existence.deleting_since = Some(at(NOW));
        }),
        ("pool goes", |scene| {
            scene.workers().existence.deleting_since = Some(at(NOW));
        }),
        ("deleted by a person", |scene| {
            for condition in &mut scene.claim("newer").status.conditions {
                if condition.kind == Condition::Drained {
                    condition.reason = "Deleted".to_owned();
                }
            }
        }),
    ];
    for (why, change) in ends {
        let mut scene = scene();
        change(&mut scene);
        let plan = scene.plan();
        assert!(
            matches!(verdict(&plan, "newer"), Verdict::Remove(_)),
            "{why}"
        );
    }
}

#[test]
fn a_kept_machine_counts_in_the_limits_and_goes_when_what_it_takes_is_needed() {
    let wanted = |change: fn(&mut Scene)| {
        let mut scene = scene();
        scene.claims.remove("older");
        scene
            .ledger
            .entries
            .retain(|it| it.claim.as_str() == "newer");
        scene.pending("web", 1, spec("cpu=3"));
        change(&mut scene);
        let plan = scene.plan();
        check_sound(&plan);
        (plan.launches.len(), verdict(&plan, "newer"))
    };
    assert_eq!(wanted(|_| ()), (1, Verdict::Keep));
    type Edit = fn(&mut Scene);
    let needs: [(&str, Edit); 4] = [
        ("maxNodes", |scene| scene.workers().limits.max_nodes = 1),
        ("VMIDs", |scene| {
            let vmid = scene.claim("newer").spec.vmid;
            (
                scene.cluster.vmid_range.first,
                scene.cluster.vmid_range.last,
            ) = (vmid, vmid);
        }),
        ("machines on the server", |scene| {
            scene.cluster.hypervisors.exclude = vec!["beta".into(), "gamma".into()];
            scene.cluster.max_machines_per_hypervisor = Some(1);
        }),
        ("minNodes", |scene| {
            scene.pods.clear();
            scene.workers().limits.min_nodes = 1;
            scene.workers().limits.max_nodes = 1;
        }),
    ];
    for (why, change) in needs {
        assert_eq!(wanted(change), (0, DESTROY), "{why}");
    }
    // What is short elsewhere is no reason.
    let elsewhere = wanted(|scene| {
        scene.cluster.hypervisors.exclude = vec!["alpha".into()];
        scene.cluster.max_machines_per_hypervisor = Some(0);
    });
    assert_eq!(elsewhere, (0, Verdict::Keep));
}
