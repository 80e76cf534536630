use super::*;
use crate::claim::{Condition, Phase};
use crate::facts::*;
use crate::ids::Vmid;
use crate::keys::SCALE_DOWN_DISABLED;
use crate::plan::RemovalReason;
use crate::reasons::kept::GiveUp;
use crate::reasons::on_hold::Hold;
use jiff::SignedDuration;

/// A machine whose drain has begun for this reason.
pub(super) fn draining(scene: &mut Scene, name: &str, reason: RemovalReason) {
    scene.machine(name, "alpha");
    let claim = scene.claim(name);
    claim.status.phase = Phase::Draining;
    claim.status.draining_since = Some(at(NOW - 60));
    claim.status.conditions.push(ClaimCondition {
        status: false,
        reason: reason.as_str().to_owned(),
        ..condition(Condition::Drained, at(NOW - 60))
    });
    let node = scene.nodes.get_mut(name).unwrap();
    node.unschedulable = true;
    node.taints = vec![taint("kproxide.dev/draining", TaintEffect::NoSchedule)];
}

fn hold(plan: &Plan, claim: &str) -> String {
    let verdict = verdict(plan, claim);
    let Verdict::Hold(reason) = verdict else {
        panic!("{verdict:?}");
    };
    reason.to_string()
}

/// Why its drain is given up.
fn given_up(plan: &Plan, claim: &str) -> String {
    let verdict = verdict(plan, claim);
    let Verdict::GiveUp(why) = verdict else {
        panic!("{verdict:?}");
    };
    why.to_string()
}

#[test]
fn every_claim_gets_a_verdict_by_name() {
    let mut scene = Scene::default();
    scene
        .machine("b", "alpha")
        .coming_machine("a", "alpha", Phase::Launching);
    let names: Vec<String> = scene
        .plan()
        .advances
        .iter()
        .map(|advance| advance.claim.to_string())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(verdict(&scene.plan(), "a"), Verdict::Keep);
}

#[test]
fn a_drain_goes_on_while_its_pods_fit_elsewhere() {
    let mut scene = Scene::default();
    draining(&mut scene, "m", RemovalReason::Underutilized);
    scene.running("web", 1, "m", spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(
        given_up(&plan, "m"),
        "pod default/web-00000 fits on no other Node"
    );

    scene.node("static", node("cpu=4 memory=8Gi"));
    assert_eq!(
        verdict(&scene.plan(), "m"),
        Verdict::Remove(RemovalReason::Underutilized)
    );
}

#[test]
fn a_drain_is_given_up_when_pending_pods_can_use_the_node() {
    let mut scene = Scene::default();
    draining(&mut scene, "m", RemovalReason::Empty);
    scene.pending("web", 2, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(
        given_up(&plan, "m"),
        "pod default/web-00000 is pending and fits on this Node"
    );
    assert_eq!(plan.launches, [], "its room is counted at once");
}

#[test]
fn a_drain_for_a_reason_that_stands_is_never_given_up() {
    for reason in [
        RemovalReason::Expired,
        RemovalReason::Replace,
        RemovalReason::Repair,
    ] {
        let mut scene = Scene::default();
        draining(&mut scene, "m", reason);
        scene.running("web", 1, "m", spec("cpu=1"));
        assert_eq!(verdict(&scene.plan(), "m"), Verdict::Remove(reason));
    }
}

#[test]
fn a_drain_is_given_up_when_the_operator_says_so() {
    let check = |change: fn(&mut Scene), expected: &str| {
        let mut scene = Scene::default();
        draining(&mut scene, "m", RemovalReason::Empty);
        change(&mut scene);
        assert_eq!(given_up(&scene.plan(), "m"), expected);
    };
    check(
        |scene| scene.workers().scale_down.enabled = false,
        "scale-down was disabled",
    );
    check(
        |scene| scene.claim("m").do_not_disrupt = true,
        "the annotation kproxide.dev/do-not-disrupt (or Karpenter's of that name) is set",
    );
    check(|scene| scene.pools.clear(), "its pool is gone");
}

#[test]
fn r22_a_node_that_is_to_stay_though_unneeded_ends_its_drain_and_expires_all_the_same() {
    for reason in [RemovalReason::Empty, RemovalReason::Expired] {
        let mut scene = Scene::default();
        draining(&mut scene, "m", reason);
        let annotations = &mut scene.nodes.get_mut("m").unwrap().annotations;
        annotations.insert(SCALE_DOWN_DISABLED.to_owned(), "true".to_owned());
        let plan = scene.plan();
        if reason == RemovalReason::Empty {
            assert_eq!(
                given_up(&plan, "m"),
                "its annotation cluster-autoscaler.kubernetes.io/scale-down-disabled is set"
            );
        } else {
            assert_eq!(verdict(&plan, "m"), Verdict::Remove(reason));
        }
    }
}

#[test]
fn a_claim_deleted_by_hand_is_removed_for_good() {
    let mut scene = Scene::default();
    scene
        .machine("m", "alpha")
        .coming_machine("young", "alpha", Phase::Launching);
    scene.running("web", 1, "m", spec("cpu=1"));
    for name in ["m", "young"] {
        scene.claim(name).deleting_since = Some(at(NOW));
    }
    let plan = scene.plan();
    assert_eq!(removed(&plan), ["m", "young"]);
    assert_eq!(verdict(&plan, "m"), Verdict::Remove(RemovalReason::Deleted));
}

#[test]
fn termination_goes_on_for_the_reason_it_began_with() {
    let mut scene = Scene::default();
    draining(&mut scene, "m", RemovalReason::Empty);
    scene.claim("m").status.phase = Phase::Terminating;
    scene.claim("m").deleting_since = Some(at(NOW));
    scene.pending("web", 2, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(verdict(&plan, "m"), Verdict::Remove(RemovalReason::Empty));
    assert_eq!(
        plan.launches.len(),
        1,
        "past the point of no return it is no capacity"
    );
}

#[test]
fn replacement_waits_for_its_turn() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "alpha");
    scene.claim("a").replace = true;
    scene.claim("b").replace = true;
    assert_eq!(removed(&scene.plan()), ["a"], "the budget is one");
    scene.claim("a").do_not_disrupt = true;
    assert_eq!(removed(&scene.plan()), ["b"]);
}

#[test]
fn an_old_machine_is_replaced_when_its_turn_comes() {
    let mut scene = Scene::default();
    scene
        .machine("a", "alpha")
        .machine("b", "alpha")
        .machine("young", "alpha");
    let hour = SignedDuration::from_hours(1);
    scene.workers().scale_down.enabled = false;
    for (name, age) in [("a", 3600), ("b", 7200), ("young", 3599)] {
        scene.claim(name).created = at(NOW - age);
        scene.running(name, 1, name, spec("cpu=1"));
    }
    assert_eq!(
        removed(&scene.plan()),
        [] as [&str; 0],
        "a pool that says nothing keeps them"
    );
    scene.workers().expire_after = Some(hour.into());
    let plan = scene.plan();
    assert_eq!(removed(&plan), ["a"], "the budget is one");
    assert_eq!(verdict(&plan, "a"), Verdict::Remove(RemovalReason::Expired));
    scene.workers().scale_down.budget = 3;
    assert_eq!(removed(&scene.plan()), ["a", "b"]);
    scene.claim("a").do_not_disrupt = true;
    assert_eq!(removed(&scene.plan()), ["b"]);
    scene.workers().paused = true;
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
    scene.workers().paused = false;
    scene.claim("b").replace = true;
    scene.workers().scale_down.budget = 1;
    scene.claim("a").do_not_disrupt = false;
    assert_eq!(
        removed(&scene.plan()),
        ["b"],
        "what a person asks for comes first"
    );
}

#[test]
fn kproxide_looks_again_when_the_next_machine_expires() {
    let mut scene = Scene::default();
    scene.workers().scale_down.enabled = false;
    scene.machine("m", "alpha");
    scene.running("web", 1, "m", spec("cpu=1"));
    scene.claim("m").created = at(NOW - 3000);
    scene.workers().expire_after = Some(SignedDuration::from_hours(1).into());
    let plan = scene.tell_removable().plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(plan.wake_at, Some(at(NOW + 600)));
}

#[test]
fn a_node_whose_machine_may_not_be_touched_stays_and_others_go() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    for name in ["a", "b"] {
        let unneeded = condition(Condition::Unneeded, at(NOW - 3600));
        scene.claim(name).status.conditions.push(unneeded);
    }
    let conditions = &mut scene.claim("a").status.conditions;
    conditions.push(ClaimCondition {
        message: "its protection flag is set".to_owned(),
        ..condition(Condition::ProtectedVM, at(NOW - 60))
    });
    let plan = scene.plan();
    assert_eq!(removed(&plan), ["b"]);
    assert_eq!(
        kept(&plan, "a"),
        Ok("its protection flag is set".to_owned())
    );

    scene.claim("a").replace = true;
    scene.claim("b").replace = true;
    assert_eq!(removed(&scene.plan()), ["b"]);
}

#[test]
fn what_is_paused_is_left_exactly_as_it_is() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.claim("m").deleting_since = Some(at(NOW));
    scene.claim("m").paused = true;
    assert_eq!(
        hold(&scene.plan(), "m"),
        "paused by the annotation kproxide.dev/pause"
    );
    scene.claim("m").paused = false;
    scene.workers().paused = true;
    assert_eq!(hold(&scene.plan(), "m"), "NodePool workers is paused");
}

#[test]
fn a_paused_pool_begins_nothing_and_finishes_what_is_under_way() {
    let mut scene = Scene::default();
    scene
        .coming_machine("new", "alpha", Phase::Pending)
        .coming_machine("young", "alpha", Phase::Launching)
        .coming_machine("joining", "alpha", Phase::Registered)
        .machine("serving", "beta");
    draining(&mut scene, "spared", RemovalReason::Empty);
    draining(&mut scene, "broken", RemovalReason::Repair);
    draining(&mut scene, "going", RemovalReason::Empty);
    scene.claim("going").status.phase = Phase::Terminating;
    scene.claim("going").deleting_since = Some(at(NOW));
    for name in ["young", "serving"] {
        scene.claim(name).replace = true;
    }
    scene.workers().paused = true;
    let plan = scene.plan();
    check_sound(&plan);
    let paused = Hold::PoolPaused("workers".into());
    for (claim, expected) in [
        ("new", Verdict::Hold(paused.clone())),
        ("young", Verdict::Keep),
        ("joining", Verdict::Keep),
        ("serving", Verdict::Hold(paused.clone())),
        (
            "spared",
            Verdict::GiveUp(GiveUp::PoolPaused("workers".into())),
        ),
        ("broken", Verdict::Remove(RemovalReason::Repair)),
        ("going", Verdict::Remove(RemovalReason::Empty)),
    ] {
        assert_eq!(verdict(&plan, claim), expected, "{claim}");
    }

    // The annotation on a claim stops even that.
    for claim in scene.claims.values_mut() {
        claim.paused = true;
    }
    let held = scene.plan().advances.len();
    assert_eq!(held, 7);
    for advance in scene.plan().advances {
        assert!(matches!(advance.verdict, Verdict::Hold(_)), "{advance:?}");
    }
}

#[test]
fn f78_nothing_is_removed_in_the_first_minute() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha").machine("empty", "beta");
    scene.claim("m").deleting_since = Some(at(NOW));
    scene.host.armed_at = Some(at(NOW + 30));
    let plan = scene.plan();
    let until = format!("It removes nothing before {:.0}", at(NOW + 30));
    for said in [hold(&plan, "m"), kept(&plan, "empty").unwrap()] {
        assert!(said.contains(&until), "{said}");
    }
    assert_eq!((removed(&plan), plan.wake_at), (vec![], Some(at(NOW + 30))));
    scene.host.armed_at = None;
    assert!(
        hold(&scene.plan(), "m").contains("just started"),
        "not yet known is not yet"
    );
    // Whoever never gets through that minute makes machines all the same.
    scene.pending("web", 3, spec("cpu=4"));
    let plan = scene.plan();
    assert!(!plan.launches.is_empty());
    assert_eq!(removed(&plan), [] as [&str; 0]);
}

#[test]
fn f35_without_key_or_quorum_nothing_is_done_to_machines() {
    let mut scene = Scene::default();
    scene
        .machine("gone", "alpha")
        .machine("serving", "alpha")
        .coming_machine("young", "alpha", Phase::Launching);
    scene.claim("gone").deleting_since = Some(at(NOW));
    scene.host.key_known = false;
    let plan = scene.plan();
    for claim in ["gone", "young"] {
        assert_eq!(hold(&plan, claim), "the ownership key is missing");
    }
    assert_eq!(verdict(&plan, "serving"), Verdict::Keep);
    // What was launched needs nothing of Proxmox any more.
    scene.claim("young").status.phase = Phase::Launched;
    assert_eq!(verdict(&scene.plan(), "young"), Verdict::Keep);
    scene.claim("young").status.phase = Phase::Launching;

    scene.host.key_known = true;
    scene.inventory.quorate = false;
    let plan = scene.plan();
    for claim in ["gone", "young"] {
        assert_eq!(hold(&plan, claim), "Proxmox cluster pve has no quorum");
    }
}

#[test]
fn f64_nothing_is_removed_while_a_watch_fails() {
    let mut scene = Scene::default();
    scene
        .machine("gone", "alpha")
        .coming_machine("young", "alpha", Phase::Launching);
    scene.claim("gone").deleting_since = Some(at(NOW));
    scene.host.failing_watches = vec!["poddisruptionbudgets".to_owned()];
    let plan = scene.plan();
    assert_eq!(
        hold(&plan, "gone"),
        "the watch of poddisruptionbudgets is failing"
    );
    assert_eq!(verdict(&plan, "young"), Verdict::Keep);
}

#[test]
fn f76_nothing_is_removed_while_the_clocks_disagree() {
    let mut scene = Scene::default();
    scene
        .machine("gone", "alpha")
        .coming_machine("young", "alpha", Phase::Launching);
    scene.claim("gone").deleting_since = Some(at(NOW));
    assert_eq!(removed(&scene.plan()), ["gone"]);
    scene.host.clock_problem = Some("the clocks disagree".to_owned());
    scene.pending("web", 1, spec("cpu=3"));
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(hold(&plan, "gone"), "the clocks disagree");
    assert_eq!(verdict(&plan, "young"), Verdict::Keep);
}

#[test]
fn f111_claims_that_go_with_their_definition_are_left_alone() {
    let mut scene = Scene::default();
    scene.machine("swept", "alpha");
    scene.claim("swept").deleting_since = Some(at(NOW));
    scene.host.definition_problem = Some("the definition is being deleted".to_owned());
    let plan = scene.plan();
    assert_eq!(hold(&plan, "swept"), "the definition is being deleted");

    scene.host.definition_problem = None;
    let plan = scene.plan();
    assert_eq!(
        verdict(&plan, "swept"),
        Verdict::Remove(RemovalReason::Deleted)
    );
}

#[test]
fn f118_b13_the_node_that_runs_kproxide_is_never_removed() {
    let mut scene = Scene::default();
    scene.machine("own", "alpha");
    scene.claim("own").deleting_since = Some(at(NOW));
    scene.host.own_node = Some("own".into());
    let plan = scene.plan();
    assert_eq!(
        hold(&plan, "own"),
        "kproxide itself runs on this Node, so it never drains it"
    );
    assert_eq!(
        plan.report.findings[0].severity,
        Severity::Warning,
        "and it says so"
    );
}

#[test]
fn f86_a_control_plane_is_never_removed() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.claim("m").deleting_since = Some(at(NOW));
    let node = scene.nodes.get_mut("m").unwrap();
    node.labels.insert(
        "node-role.kubernetes.io/control-plane".to_owned(),
        String::new(),
    );
    assert_eq!(
        hold(&scene.plan(), "m"),
        "kproxide never drains control-plane Nodes"
    );
}

#[test]
fn a_lost_machine_is_removed_at_once_and_a_broken_one_after_a_while() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    let node = scene.nodes.get_mut("m").unwrap();
    node.ready = false;
    node.ready_since = at(NOW - 10);
    assert_eq!(verdict(&scene.plan(), "m"), Verdict::Keep);
    scene.inventory.guests.clear();
    assert_eq!(
        verdict(&scene.plan(), "m"),
        Verdict::Remove(RemovalReason::Lost)
    );
    scene.inventory.complete = false;
    assert_eq!(
        verdict(&scene.plan(), "m"),
        Verdict::Keep,
        "a partial list proves nothing"
    );
}

#[test]
fn f40_f50_an_inventory_without_its_own_hypervisor_loses_no_machine() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    let node = scene.nodes.get_mut("m").unwrap();
    node.ready = false;
    node.ready_since = at(NOW - 10);
    scene.inventory.guests.clear();
    scene.hypervisor("alpha").online = false;
    assert_eq!(verdict(&scene.plan(), "m"), Verdict::Keep);
    scene.inventory.hypervisors.remove("alpha");
    assert_eq!(verdict(&scene.plan(), "m"), Verdict::Keep);
}

#[test]
fn f49_a_ready_node_is_believed_more_than_the_inventory() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.running("web", 1, "m", spec("cpu=1"));
    scene.inventory.guests.clear();
    assert_eq!(verdict(&scene.plan(), "m"), Verdict::Keep);
}

#[test]
fn f28_a_machine_whose_node_was_deleted_is_repaired_if_it_stays_away() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.nodes.clear();
    assert_eq!(verdict(&scene.plan(), "m"), Verdict::Keep);

    let missing = |seconds| condition(Condition::NodeMissing, at(NOW - seconds));
    scene.claim("m").status.conditions.push(missing(590));
    let plan = scene.plan();
    assert_eq!(verdict(&plan, "m"), Verdict::Keep);
    assert_eq!(plan.wake_at, Some(at(NOW + 10)));

    scene.claim("m").status.conditions.push(missing(600));
    scene.claim("m").status.conditions.swap_remove(1);
    assert_eq!(
        verdict(&scene.plan(), "m"),
        Verdict::Remove(RemovalReason::NodeDeleted)
    );
    // kproxide starts it again. If that does not help, the machine is broken.
    let mut stopped = scene.clone();
    stopped.guest("m", Some(GuestStatus::Stopped));
    let verdict_then = verdict(&stopped.plan(), "m");
    assert_eq!(verdict_then, Verdict::Remove(RemovalReason::Repair));

    scene.inventory.guests.clear();
    assert_eq!(
        verdict(&scene.plan(), "m"),
        Verdict::Remove(RemovalReason::Lost)
    );
}

#[test]
fn f68_when_most_nodes_break_at_once_none_is_repaired() {
    let mut scene = Scene::default();
    scene.workers().scale_down.budget = 10;
    for index in 0..8 {
        scene.machine(&format!("m{index}"), "alpha");
    }
    let mut broken = 0;
    for node in scene.nodes.values_mut().take(4) {
        node.ready = false;
        node.ready_since = at(0);
        broken += 1;
    }
    let plan = scene.plan();
    assert_eq!(broken, 4);
    assert!(
        plan.report
            .frozen
            .as_ref()
            .unwrap()
            .message
            .contains("4 of 8 managed machines went bad at once (4 Nodes that are not Ready)")
    );
    assert!(
        !plan
            .advances
            .iter()
            .any(|advance| advance.verdict == Verdict::Remove(RemovalReason::Repair))
    );
    scene.nodes.get_mut("m0").unwrap().ready = true;
    let plan = scene.plan();
    assert_eq!(
        plan.advances
            .iter()
            .filter(|advance| advance.verdict == Verdict::Remove(RemovalReason::Repair))
            .count(),
        1,
        "of the three the breaker lets one go within ten minutes"
    );
}

/// What changes under machines that are in use is drift, which nobody asked to be rid of.
#[test]
fn f98_limits_ranges_and_templates_that_change_remove_nothing() {
    let changes: [fn(&mut Scene); 8] = [
        |scene| scene.workers().limits.max_nodes = 1,
        |scene| scene.workers().limits.cpu_cores = Some(0),
        |scene| scene.pools.clear(),
        |scene| scene.workers().node_class = "other".into(),
        |scene| {
            (
                scene.cluster.vmid_range.first,
                scene.cluster.vmid_range.last,
            ) = (Vmid(5000), Vmid(6000))
        },
        |scene| scene.class.instance_types = vec![instance_type("other", 1, 1)],
        |scene| scene.class.template.name = Some("other".into()),
        |scene| scene.inventory.templates.clear(),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut scene = Scene::default();
        scene.workers().scale_down.budget = 10;
        for name in ["a", "b", "c"] {
            scene.machine(name, "alpha");
            scene.running(&format!("web-{name}"), 1, name, spec("cpu=3"));
        }
        change(&mut scene);
        let plan = scene.plan();
        assert_eq!(removed(&plan), [] as [&str; 0], "change {index}");
        for name in ["a", "b", "c"] {
            assert_eq!(verdict(&plan, name), Verdict::Keep, "change {index}");
        }
    }
}
