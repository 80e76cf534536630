//! What is waited for, and for how long: turns to be cloned, drains that came to nothing, pods on their way out.

use super::*;
use crate::claim::GIVEN_UP;
use crate::facts::{PodSpec, Taint, TaintEffect};
use crate::plan::RemovalReason;

#[test]
fn a_claim_that_waits_for_its_turn_to_be_cloned_is_capacity_for_as_long_as_it_takes() {
    let mut scene = Scene::default();
    scene.coming_machine("queued", "alpha", Phase::Pending);
    scene.pending("web", 1, spec("cpu=1"));
    scene.claim("queued").created = at(NOW - 3600);
    assert_eq!(launches(&scene), 0);

    // Its own time runs from the first intent.
    let claim = scene.claim("queued");
    claim.status.phase = Phase::Launching;
    claim.status.conditions = vec![condition(Condition::Reserved, at(NOW - 299))];
    let plan = scene.plan();
    assert_eq!((plan.launches.len(), plan.wake_at), (0, Some(at(NOW + 1))));
    scene.claim("queued").status.conditions[0].since = at(NOW - 300);
    assert_eq!(launches(&scene), 1);
}

#[test]
fn a_claim_that_somebody_holds_before_its_clone_is_no_capacity_past_its_deadline() {
    let mut scene = Scene::default();
    scene.coming_machine("held", "alpha", Phase::Pending);
    scene.pending("web", 1, spec("cpu=1"));
    scene.claim("held").paused = true;
    assert_eq!(launches(&scene), 0);
    scene.claim("held").created = at(NOW - 300);
    assert_eq!(launches(&scene), 1);
}

/// A drain of it lasted for a quarter of an hour, and was given up at that moment.
fn gave_up(scene: &mut Scene, name: &str, at_second: i64) {
    let given_up = |kind, since| ClaimCondition {
        status: false,
        reason: GIVEN_UP.to_owned(),
        ..condition(kind, since)
    };
    let conditions = &mut scene.claim(name).status.conditions;
    conditions.push(given_up(Condition::Unneeded, at(at_second)));
    conditions.push(given_up(Condition::Drained, at(at_second - 900)));
}

#[test]
fn a_node_whose_drain_was_given_up_leaves_its_turn_to_others_for_a_while() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha");
    gave_up(&mut scene, "a", NOW - 60);
    let plan = scene.tell_removable().plan();
    assert_eq!(
        (removed(&plan), plan.wake_at),
        (vec![], Some(at(NOW + 840)))
    );
    assert_eq!(plan.unneeded, [], "the moment stays");
    scene.claim("a").replace = true;
    assert_eq!(removed(&scene.plan()), Vec::<&str>::new());
    scene.claim("a").replace = false;

    scene.machine("b", "beta");
    assert_eq!(removed(&scene.plan()), ["b"]);
    scene.claims.remove("b");
    scene.nodes.remove("b");
    let conditions = &mut scene.claim("a").status.conditions;
    conditions.retain(|condition| condition.status);
    gave_up(&mut scene, "a", NOW - 900);
    assert_eq!(removed(&scene.plan()), ["a"]);
}

#[test]
fn f70_a_node_is_not_empty_while_a_pod_is_on_its_way_out() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    assert_eq!(
        verdict(&scene.plan(), "m"),
        Verdict::Remove(RemovalReason::Empty)
    );
    scene.running("web", 1, "m", spec("cpu=1"));
    scene.pod("web-00000").deleting = true;
    let reason = kept(&scene.plan(), "m").unwrap();
    assert!(reason.contains("loadHeadroom"), "{reason}");
    scene.node("static", node("cpu=40 memory=80Gi"));
    assert_eq!(
        verdict(&scene.plan(), "m"),
        Verdict::Remove(RemovalReason::Underutilized)
    );
}

#[test]
fn a_claim_without_its_finalizer_is_told_of_and_not_removed() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.claim("m").has_finalizer = false;
    for replace in [false, true] {
        scene.claim("m").replace = replace;
        let plan = scene.plan();
        assert_eq!(removed(&plan), Vec::<&str>::new());
        let finding = &plan.report.findings[0];
        assert_eq!(finding.about, "NodeClaim/m");
        assert!(finding.message.contains("finalizer"), "{finding:?}");
    }
}

#[test]
fn f48_a_claim_goes_whose_hypervisor_is_withdrawn_before_its_clone_and_stays_after() {
    type Edit = fn(&mut Scene);
    let cases: [(&str, Edit); 4] = [
        ("excluded", |scene| {
            scene.cluster.hypervisors.exclude = vec!["alpha".into()]
        }),
        ("excluded", |scene| {
            scene.cluster.hypervisors.include = vec!["beta".into()]
        }),
        ("maintenance", |scene| {
            scene.hypervisor("alpha").maintenance = true;
        }),
        ("not in its cluster", |scene| {
            scene.inventory.hypervisors.remove("alpha");
        }),
    ];
    for (why, withdraw) in cases {
        let mut scene = Scene::default();
        scene.coming_machine("m", "alpha", Phase::Pending);
        scene.pending("web", 1, spec("cpu=1"));
        assert_eq!(verdict(&scene.plan(), "m"), Verdict::Keep);
        withdraw(&mut scene);
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(
            verdict(&plan, "m"),
            Verdict::Remove(RemovalReason::LaunchFailed)
        );
        let told = &plan.report.findings[0];
        assert!(told.message.contains(why), "{told:?}");
        // Its pod is not left waiting, and the next machine is made elsewhere.
        let [launch] = &plan.launches[..] else {
            panic!("{why}: {} launches", plan.launches.len());
        };
        assert_ne!(&*launch.spec.hypervisor, "alpha", "{why}");

        // Nothing is removed yet: it must not be cloned either.
        let mut starting = scene.clone();
        starting.host.armed_at = None;
        let verdict_then = verdict(&starting.plan(), "m");
        assert!(matches!(verdict_then, Verdict::Hold(_)), "{verdict_then:?}");

        for phase in [Phase::Launching, Phase::Launched, Phase::Registered] {
            scene.claim("m").status.phase = phase;
            assert_eq!(verdict(&scene.plan(), "m"), Verdict::Keep, "{phase:?}");
        }
    }
}

#[test]
fn f48_a_hypervisor_that_is_silent_for_a_moment_keeps_its_claims() {
    let mut scene = Scene::default();
    scene.workers().limits.min_nodes = 1;
    scene.coming_machine("m", "alpha", Phase::Pending);
    scene.hypervisor("alpha").online = false;
    assert_eq!(verdict(&scene.plan(), "m"), Verdict::Keep);
    scene.inventory.hypervisors.remove("alpha");
    scene.inventory.complete = false;
    assert_eq!(verdict(&scene.plan(), "m"), Verdict::Keep);
}

/// Idle machines that were made for the pods of these requests, and that somebody has tainted.
fn tainted(count: usize, pods: PodSpec) -> Scene {
    let mut scene = Scene::default();
    scene.workers().scale_down.enabled = false;
    for index in 0..count {
        let name = format!("m{index}");
        scene.machine(&name, "alpha");
        scene.nodes.get_mut(&*name).unwrap().taints.push(Taint {
            key: "example.com/theirs".into(),
            value: "".into(),
            effect: TaintEffect::NoSchedule,
        });
    }
    scene.pending("web", 1, pods);
    for index in 0..count {
        super::loops::made_for_pod(&mut scene, "web-00000", &format!("m{index}"));
    }
    scene
}

fn of_pool(requests: &str) -> PodSpec {
    let mut spec = spec(requests);
    spec.node_selector = [("kproxide.dev/pool".to_owned(), "workers".to_owned())].into();
    spec
}

#[test]
fn kproxide_looks_again_when_a_machine_has_stood_unused_for_three_minutes() {
    for (served, left) in [(120, 60), (179, 1)] {
        let mut scene = tainted(1, spec("cpu=1"));
        scene.claim("m0").status.conditions[0].since = at(NOW - served);
        let wake_at = scene.plan().wake_at;
        assert_eq!(wake_at, Some(at(NOW + left)), "in service for {served} s");
    }
}

#[test]
fn f115_machines_that_do_not_take_their_pods_are_not_made_without_end() {
    assert_eq!(launches(&tainted(0, of_pool("cpu=1"))), 1);
    let text = why(&tainted(2, of_pool("cpu=1"))).to_string();
    assert!(
        text.contains("kproxide made Node m0 for these pods")
            && text.contains("taint example.com/theirs:NoSchedule"),
        "{text}"
    );

    // It is of use, is cordoned, has yet to come into service, or never promised it: nothing is known of the next one.
    let changes: [fn(&mut Scene); 4] = [
        |scene| {
            scene.running("other", 1, "m0", spec("cpu=1"));
        },
        |scene| scene.nodes.get_mut("m0").unwrap().unschedulable = true,
        |scene| scene.nodes.get_mut("m0").unwrap().ready = false,
        |scene| scene.claim("m0").spec.labels.clear(),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut scene = tainted(1, of_pool("cpu=1"));
        assert_eq!(launches(&scene), 0);
        change(&mut scene);
        assert_eq!(launches(&scene), 1, "change {index}");
    }
}

#[test]
fn f115_a_label_that_is_taken_off_and_a_kubelet_that_offers_less_are_found_out_too() {
    let mut of_class = spec("cpu=1");
    of_class.node_selector = [("kproxide.dev/class".to_owned(), "standard".to_owned())].into();
    let mut scene = tainted(2, of_class);
    for node in scene.nodes.values_mut() {
        node.taints.clear();
    }
    assert_eq!(launches(&scene), 0, "they take the pod");
    for node in scene.nodes.values_mut() {
        node.labels.remove("kproxide.dev/class");
    }
    let text = why(&scene).to_string();
    assert!(text.contains("kproxide.dev/class"), "{text}");
}

#[test]
fn a_machine_for_the_pods_of_two_workloads_counts_as_made_for_both() {
    let mut scene = Scene::default();
    // The pods have one shape, and belong to two owners in turn.
    scene.pending("web", 4, spec("cpu=1"));
    for (index, owner) in ["red", "blue", "red", "blue"].into_iter().enumerate() {
        scene.pod(&format!("web-{index:05}")).owner = Some(crate::facts::Owner {
            kind: "StatefulSet".into(),
            name: owner.into(),
            uid: owner.into(),
        });
    }
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 1);
    let ledger = plan.ledger.unwrap();
    let made_for = ledger
        .tries
        .iter()
        .map(|row| (&*row.workload, row.machines.len()));
    assert_eq!(
        made_for.collect::<Vec<_>>(),
        [
            ("StatefulSet default/red", 1),
            ("StatefulSet default/blue", 1)
        ]
    );
}
