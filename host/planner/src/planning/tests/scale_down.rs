use std::collections::BTreeMap;

use super::*;
use crate::claim::{Condition, Phase};
use crate::facts::*;
use crate::ids::ObjectKey;
use crate::keys::SCALE_DOWN_DISABLED;
use crate::plan::question::*;
use crate::plan::{RemovalReason, Standing};
use crate::reasons::on_hold::Hold;

/// Two machines that share little load: one of them can go.
pub(super) fn idle() -> Scene {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    scene.running("web-a", 1, "a", spec("cpu=1 memory=1Gi"));
    scene.running("web-b", 1, "b", spec("cpu=500m memory=512Mi"));
    scene
}

#[test]
fn the_least_loaded_of_two_idle_nodes_goes() {
    let plan = idle().plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["b"]);
    assert_eq!(kept(&plan, "b").unwrap_err(), "its pods fit on other Nodes");
    assert_eq!(
        kept(&plan, "a").unwrap(),
        "as many removals of its pool are under way as its budget allows (scaleDown.budget)"
    );
}

#[test]
fn c2_8_a_pod_that_no_machine_helps_keeps_no_node() {
    let mut scene = idle();
    scene.pending("huge", 1, spec("cpu=500"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["b"]);
}

#[test]
fn headroom_is_held_against_requests_and_capacity_of_the_cluster() {
    // A × 1.2 < T − K with T = 8 cores, K = 4: up to 3.33 cores.
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    scene.running("web", 3, "a", spec("cpu=1 memory=1Gi"));
    scene.running("one", 1, "b", spec("cpu=300m"));
    assert_eq!(removed(&scene.plan()), ["b"]);
    scene.running("one", 1, "b", spec("cpu=400m"));
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
    scene.workers().scale_down.load_headroom = 0.1;
    assert_eq!(removed(&scene.plan()), ["b"]);
}

#[test]
fn o4_a_node_stays_for_its_pod_and_its_pool_before_any_headroom() {
    let mut scene = Scene::default();
    scene.workers().scale_down.load_headroom = 0.0;
    scene.machine("a", "alpha");
    scene.running("web", 1, "a", spec("cpu=1"));
    assert_eq!(
        kept(&scene.plan(), "a").unwrap(),
        "pod default/web-00000 fits on no other Node"
    );
    // Two machines: the pods of one fit on the other, which then has no headroom left.
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    scene.running("web-a", 2, "a", spec("cpu=1"));
    scene.running("web-b", 1, "b", spec("cpu=1800m"));
    let headroom = "without it the cluster would not keep its headroom of 20% (loadHeadroom)";
    assert_eq!(kept(&scene.plan(), "a").unwrap(), headroom);
    scene.workers().limits.min_nodes = 2;
    assert_eq!(
        kept(&scene.plan(), "a").unwrap(),
        "its pool keeps 2 machines (minNodes)"
    );
}

#[test]
fn kproximates_reference_cases_hold() {
    // A=5, T=10, K=2, H=0.2: yes. A=7: no.
    for (requested, expected) in [(5, 1), (7, 0)] {
        let mut scene = Scene::default();
        scene.class.instance_types = vec![instance_type("small", 2, 8)];
        for index in 0..5 {
            scene.machine(&format!("m{index}"), "alpha");
        }
        for index in 0..requested {
            scene.running(
                &format!("web{index}"),
                1,
                &format!("m{}", index % 5),
                spec("cpu=1"),
            );
        }
        assert_eq!(removed(&scene.plan()).len(), expected, "A={requested}");
    }
}

#[test]
fn pods_must_fit_elsewhere_not_only_on_average() {
    let mut scene = Scene::default();
    scene.workers().scale_down.load_headroom = 0.0;
    scene
        .machine("a", "alpha")
        .machine("b", "beta")
        .machine("c", "gamma");
    scene.running("web-a", 1, "a", spec("cpu=2500m"));
    scene.running("web-b", 1, "b", spec("cpu=2500m"));
    scene.running("web-c", 1, "c", spec("cpu=2"));
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(
        kept(&plan, "c").unwrap(),
        "pod default/web-c-00000 fits on no other Node"
    );
}

#[test]
fn pods_move_to_static_nodes_but_not_to_cordoned_or_tainted_ones() {
    for (spoil, expected) in [
        ((|_| ()) as fn(&mut NodeFacts), 1),
        (|node| node.unschedulable = true, 0),
        (
            |node| node.taints = vec![taint("dedicated", TaintEffect::NoSchedule)],
            0,
        ),
        (|node| node.ready = false, 0),
    ] {
        let mut scene = Scene::default();
        scene.machine("m", "alpha");
        scene.running("web", 1, "m", spec("cpu=1"));
        spoil(scene.node("static", node("cpu=8 memory=16Gi")));
        assert_eq!(removed(&scene.plan()).len(), expected);
    }
}

#[test]
fn two_removals_do_not_share_one_hole() {
    let mut scene = Scene::default();
    scene.workers().scale_down.budget = 2;
    scene.workers().scale_down.load_headroom = 0.0;
    scene.machine("a", "alpha").machine("b", "beta");
    scene.node("static", node("cpu=4 memory=80Gi"));
    scene.node("far", node("cpu=400 memory=80Gi")).labels = labels("far=yes");
    for name in ["a", "b"] {
        let mut near = spec("cpu=3");
        near.node_affinity = Some(vec![NodeSelectorTerm {
            match_expressions: vec![Requirement {
                key: "far".into(),
                operator: Operator::DoesNotExist,
                values: vec![],
            }],
            match_fields: vec![],
        }]);
        scene.running(&format!("web-{name}"), 1, name, near);
    }
    let plan = scene.plan();
    assert_eq!(removed(&plan).len(), 1);
    assert_eq!(
        kept(&plan, "b").unwrap(),
        "after the removals of this tick pod default/web-b-00000 fits on no other Node"
    );
}

#[test]
fn budgets_of_pools_bound_removals_under_way() {
    let mut scene = Scene::default();
    for name in ["a", "b", "c", "d"] {
        scene.machine(name, "alpha");
    }
    assert_eq!(removed(&scene.plan()).len(), 1);
    scene.workers().scale_down.budget = 3;
    assert_eq!(removed(&scene.plan()).len(), 3);
    scene.claim("a").status.phase = Phase::Draining;
    scene.claim("b").deleting_since = Some(at(NOW));
    assert_eq!(removed(&scene.plan()).len(), 3, "two go on, one begins");
}

#[test]
fn f61_a_removal_that_its_claim_does_not_show_yet_counts() {
    let mut scene = Scene::default();
    for name in ["a", "b", "c"] {
        scene.machine(name, "alpha");
    }
    scene.host.removing = [("c".into(), RemovalReason::Empty)].into();
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["c"], "it goes on, and no other begins");
    assert_eq!(
        kept(&plan, "a").unwrap(),
        "as many removals of its pool are under way as its budget allows (scaleDown.budget)"
    );
}

#[test]
fn min_nodes_stay_even_when_empty() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    scene.workers().scale_down.budget = 5;
    scene.workers().limits.min_nodes = 1;
    assert_eq!(removed(&scene.plan()).len(), 1);
    scene.workers().limits.min_nodes = 2;
    let plan = scene.plan();
    assert_eq!(
        kept(&plan, "a").unwrap(),
        "its pool keeps 2 machines (minNodes)"
    );
}

#[test]
fn pool_headroom_stays_free() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    scene.workers().headroom = headroom("cpu=5");
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(
        kept(&plan, "a").unwrap(),
        "the pool would not keep its headroom: needs 5 of cpu, 4 left"
    );
    scene.workers().headroom = headroom("cpu=4");
    assert_eq!(removed(&scene.plan()).len(), 1);
}

#[test]
fn f114_young_nodes_and_recent_joins_wait() {
    let mut scene = idle();
    scene.nodes.get_mut("b").unwrap().created = at(NOW - 599);
    let plan = scene.plan();
    assert_eq!(
        (removed(&plan), plan.wake_at),
        (vec!["a"], Some(at(NOW + 1))),
        "the next candidate goes"
    );

    let mut scene = idle();
    scene.claim("a").status.conditions = vec![condition(Condition::Initialized, at(NOW - 299))];
    let plan = scene.plan();
    assert_eq!((removed(&plan), plan.wake_at), (vec![], Some(at(NOW + 1))));
    assert!(
        kept(&plan, "b")
            .unwrap()
            .contains("came into service a short time ago")
    );
}

#[test]
fn f114_unneeded_time_runs_in_the_claims_condition() {
    let mut scene = idle();
    scene.workers().scale_down.unneeded_time = jiff::SignedDuration::from_secs(60).into();
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    let noted: Vec<_> = plan
        .unneeded
        .iter()
        .map(|noted| (noted.claim.as_str(), &noted.standing))
        .collect();
    assert_eq!(
        noted,
        [("a", &Standing::CouldGo), ("b", &Standing::CouldGo)]
    );

    for (name, since) in [("a", NOW - 59), ("b", NOW - 60)] {
        scene
            .claim(name)
            .status
            .conditions
            .push(condition(Condition::Unneeded, at(since)));
    }
    let plan = scene.plan();
    assert_eq!((removed(&plan), plan.unneeded.len()), (vec!["b"], 0));

    scene.claim("a").do_not_disrupt = true;
    let plan = scene.plan();
    assert_eq!(
        (plan.unneeded[0].claim.as_str(), &plan.unneeded[0].standing),
        ("a", &Standing::Needed)
    );
}

#[test]
fn a_node_that_pending_pods_will_use_stays() {
    let mut scene = idle();
    scene.pending("new", 1, spec("cpu=3"));
    let plan = scene.plan();
    assert_eq!(plan.launches, []);
    assert_eq!(kept(&plan, "a").unwrap(), "pending pods will run on it");
    assert_eq!(
        removed(&plan),
        [] as [&str; 0],
        "and their requests count in the headroom"
    );
}

#[test]
fn nodes_stay_for_reasons_that_say_so() {
    let check = |change: fn(&mut Scene), expected: &str| {
        let mut scene = Scene::default();
        scene.machine("m", "alpha");
        change(&mut scene);
        let plan = scene.plan();
        check_sound(&plan);
        let reason = kept(&plan, "m").unwrap();
        assert!(reason.contains(expected), "{reason}");
    };
    check(
        |scene| scene.workers().scale_down.enabled = false,
        "scale-down is disabled",
    );
    check(
        |scene| scene.claim("m").do_not_disrupt = true,
        "kproxide.dev/do-not-disrupt",
    );
    check(
        |scene| {
            let annotations = &mut scene.nodes.get_mut("m").unwrap().annotations;
            annotations.insert("kproxide.dev/do-not-disrupt".to_owned(), "true".to_owned());
        },
        "kproxide.dev/do-not-disrupt",
    );
    // R22
    check(
        |scene| {
            let annotations = &mut scene.nodes.get_mut("m").unwrap().annotations;
            annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "25h".to_owned());
        },
        "Karpenter's of that name",
    );
    check(
        |scene| {
            let annotations = &mut scene.nodes.get_mut("m").unwrap().annotations;
            annotations.insert(SCALE_DOWN_DISABLED.to_owned(), "true".to_owned());
        },
        "its annotation cluster-autoscaler.kubernetes.io/scale-down-disabled",
    );
    check(
        |scene| scene.host.own_node = Some("m".into()),
        "kproxide itself runs on this Node",
    );
    check(
        |scene| scene.nodes.get_mut("m").unwrap().unschedulable = true,
        "a user cordoned it",
    );
    check(|scene| scene.inventory.quorate = false, "no quorum");
    check(
        |scene| scene.host.key_known = false,
        "ownership key is missing",
    );
    check(
        |scene| scene.host.definition_problem = Some("the claims are swept away".to_owned()),
        "the claims are swept away",
    );
    check(
        |scene| scene.host.failing_watches = vec!["pods".to_owned()],
        "the watch of pods is failing",
    );
    check(
        |scene| scene.claim("m").status.phase = Phase::Registered,
        "not in service yet",
    );
    check(|scene| scene.pools.clear(), "its pool is gone");
    check(
        |scene| {
            let node = scene.nodes.get_mut("m").unwrap();
            (node.ready, node.ready_since) = (false, at(NOW - 1));
        },
        "not Ready",
    );
}

#[test]
fn f88_the_policy_orders_and_may_leave_out() {
    let order = |wanted: &[(u32, f64)]| {
        let mut scene = Scene::default();
        scene.workers().scale_down.budget = 2;
        for name in ["a", "b", "c"] {
            scene.machine(name, "alpha");
        }
        let removals = wanted.iter().map(|(index, score)| Scored {
            index: *index,
            score: *score,
            reason: String::new(),
        });
        let removals: Vec<Scored> = removals.collect();
        let plan = scene.plan_with(|question| match question {
            Question::Order(order) => {
                assert_eq!((order.nodes.len(), order.max_removals), (3, 2));
                answered(
                    question,
                    AnswerBody::Removals(Removals {
                        removals: removals.clone(),
                        state: Some(vec![1]),
                    }),
                )
            }
            Question::Rank(_) | Question::Decorate(_) => reasonable(question),
        });
        check_sound(&plan);
        (removed(&plan).join(" "), kept(&plan, "a"))
    };
    assert_eq!(order(&[(0, 0.1), (1, 0.9), (2, 0.5)]).0, "b c");
    assert_eq!(
        order(&[(2, 0.5), (1, 0.5), (0, 0.5)]).0,
        "a b",
        "ties by name"
    );
    assert_eq!(
        order(&[(1, 1.0)]),
        (
            "b".to_owned(),
            Ok("scale-down policy least-loaded keeps it".to_owned())
        )
    );
    assert_eq!(
        order(&[(9, 1.0), (1, f64::NAN), (2, 0.1), (2, 0.2)]).0,
        "c",
        "nonsense is passed over"
    );
}

#[test]
fn f80_a_scale_down_policy_that_fails_removes_nothing() {
    for (body, failures) in [
        (
            AnswerBody::Failed("trap".to_owned()),
            &["scale-down policy least-loaded: it failed: trap"][..],
        ),
        (AnswerBody::NoCandidate("at night".to_owned()), &[]),
        (AnswerBody::Deferred, &[]),
    ] {
        let plan = idle().plan_with(|question| match question {
            Question::Order(_) => answered(question, body.clone()),
            Question::Rank(_) | Question::Decorate(_) => reasonable(question),
        });
        assert_eq!(removed(&plan), [] as [&str; 0]);
        assert!(
            kept(&plan, "b")
                .unwrap()
                .starts_with("scale-down policy least-loaded: ")
        );
        assert_eq!(failed(&plan), failures);
    }
}

#[test]
fn pools_take_turns() {
    let mut scene = Scene::default();
    let mut pools = BTreeMap::new();
    for name in ["p", "q"] {
        let mut pool = scene.workers().clone();
        pool.scale_down.budget = 5;
        pools.insert(name.into(), pool);
    }
    scene.pools = pools;
    for name in ["p1", "p2", "q1", "q2"] {
        scene.machine(name, "alpha");
        scene.claim(name).spec.pool = name[..1].into();
    }
    for entry in &mut scene.ledger.entries {
        entry.pool = entry.claim.as_str()[..1].into();
    }
    // Room for the pods of two Nodes only.
    scene.node("static", node("cpu=2 memory=64Gi"));
    scene.node("big", node("cpu=100 memory=64Gi")).unschedulable = false;
    scene.nodes.get_mut("big").unwrap().taints = vec![taint("big", TaintEffect::NoSchedule)];
    for name in ["p1", "p2", "q1", "q2"] {
        scene.running(&format!("web-{name}"), 1, name, spec("cpu=1"));
        let full = spec("cpu=3");
        let mut pod = running_pod(name, full);
        pod.owner = Some(owner("DaemonSet"));
        scene
            .pods
            .insert(ObjectKey::new("default", &format!("agent-{name}")), pod);
    }
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["p1", "q1"]);
}

#[test]
fn an_order_question_tells_what_there_is_to_know() {
    let scene = idle();
    let mut asked = None;
    let _ = scene.plan_with(|question| {
        if let Question::Order(order) = question {
            asked = Some(order.clone());
        }
        reasonable(question)
    });
    let order = asked.expect("an Order question");
    let node = &order.nodes[1];
    assert_eq!(
        (node.name.as_str(), node.movable_pods, node.on),
        ("b", 1, Some(1))
    );
    assert_eq!(
        node.requested,
        Size {
            milli_cores: 500,
            memory_bytes: GIB / 2
        }
    );
    assert_eq!(
        node.allocatable,
        Size {
            milli_cores: 4000,
            memory_bytes: 8 * GIB
        }
    );
    assert_eq!((order.hypervisors[1].machines, order.max_removals), (1, 1));
}

/// Its pvestatd hangs on a dead NFS, say: the server and its VMs show as unknown, and everything runs.
#[test]
fn r32_a_machine_on_a_server_that_is_not_well_is_not_chosen() {
    let mut scene = idle();
    scene.hypervisor("beta").online = false;
    scene.guest("b", Some(GuestStatus::Unknown));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["a"], "it takes no place in the budget");
    let why = kept(&plan, "b").unwrap();
    assert!(why.contains("server beta does not answer"), "{why}");

    // Its removal was about to begin. It is recalled.
    let begun = RemovalReason::Underutilized;
    scene.host.removing = [("b".into(), begun)].into();
    let held = verdict(&scene.plan(), "b");
    assert_eq!(held, Verdict::Hold(Hold::HypervisorUnknown("beta".into())));

    // Only what is said of the VM is missing.
    let mut scene = idle();
    scene.guest("b", Some(GuestStatus::Unknown));
    let plan = scene.plan();
    assert_eq!(removed(&plan), ["a"]);
    let why = kept(&plan, "b").unwrap();
    assert!(why.contains("Proxmox does not say whether VM"), "{why}");
}

/// Past the point of no return, and nothing of it goes on.
fn stalled(reason: RemovalReason, seconds: i64) -> Scene {
    let mut scene = Scene::default();
    for name in ["stalled", "idle", "busy"] {
        scene.machine(name, "alpha");
    }
    scene.running("web", 1, "busy", spec("cpu=1"));
    let claim = scene.claim("stalled");
    claim.deleting_since = Some(at(NOW - 7200));
    claim.status.phase = Phase::Terminating;
    let conditions = &mut claim.status.conditions;
    conditions.push(ClaimCondition {
        reason: reason.as_str().to_owned(),
        ..condition(Condition::Drained, at(NOW - 7200))
    });
    conditions.push(condition(Condition::InstanceTerminating, at(NOW - 7200)));
    conditions.push(condition(Condition::Stalled, at(NOW - seconds)));
    scene.nodes.get_mut("stalled").unwrap().unschedulable = true;
    scene
}

#[test]
fn r33_a_removal_that_waits_gives_its_place_back_if_no_pod_was_evicted_for_it() {
    let goes = |scene: &Scene| {
        let plan = scene.plan();
        check_sound(&plan);
        removed(&plan).len() > 1
    };
    assert!(!goes(&stalled(RemovalReason::Empty, 599)));
    let waits = stalled(RemovalReason::Empty, 600);
    assert!(goes(&waits));
    for reason in [
        RemovalReason::Underutilized,
        RemovalReason::Replace,
        RemovalReason::Repair,
        RemovalReason::Deleted,
    ] {
        let had_pods = stalled(reason, 86_400);
        assert!(!goes(&had_pods), "{reason:?}: its pods may not be back yet");
    }
    // A pod that tolerates the taints of a drain has come to its Node.
    let mut scene = waits.clone();
    scene.running("late", 1, "stalled", spec("cpu=1"));
    assert!(!goes(&scene));
    // It goes on.
    let mut scene = waits;
    let conditions = &mut scene.claim("stalled").status.conditions;
    conditions.retain(|it| it.kind != Condition::Stalled);
    assert!(!goes(&scene));
}

#[test]
fn r33_a_claim_that_others_hold_takes_no_place_once_its_machine_is_gone() {
    let mut scene = stalled(RemovalReason::Underutilized, 0);
    let claim = scene.claim("stalled");
    claim
        .status
        .conditions
        .retain(|it| it.kind != Condition::Stalled);
    claim.has_finalizer = false;
    claim.other_finalizers = vec!["example.com/audit".into()];
    let goes = |scene: &Scene| removed(&scene.plan()).len() > 1;
    assert!(!goes(&scene), "somebody else has taken ours off");
    let mut entries = scene.ledger.entries.iter_mut();
    let entry = entries.find(|entry| entry.claim.as_str() == "stalled");
    let until = at(NOW + 3600);
    entry.unwrap().state = EntryState::Quarantined { since: None, until };
    scene.guest("stalled", None);
    scene.nodes.remove("stalled");
    assert!(goes(&scene));
}
