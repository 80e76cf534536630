//! Drains: kept to budgets, given up when they cannot end, and never taking an error for an empty Node.

use super::fixture::*;
use crate::claim::*;
use crate::plan::{RemovalReason, Verdict};
use crate::reasons::kept::GiveUp;

pub(super) fn draining() -> Case {
    Case::new(Phase::Draining).with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Underutilized);
        case.observed.node = cordoned();
        case.observed.pods = Some(vec![]);
        case.observed.attachments = Some(vec![]);
        case.observed.machine = visible(|_| {});
    })
}

pub(super) fn to_be_removed(reason: RemovalReason) -> Case {
    Case::new(Phase::Initialized).with(|case| {
        case.verdict = Verdict::Remove(reason);
        case.observed.machine = visible(|_| {});
    })
}

#[test]
fn a_machine_that_could_not_be_destroyed_is_not_drained_for_nothing() {
    type Edit = fn(&mut Case);
    let protected: Edit = |case| case.observed.machine = visible(|m| m.protected = true);
    let foreign: Edit = |case| case.observed.machine = visible(|m| m.marker = Marker::Foreign);
    let out_of_range: Edit = |case| case.settings.vmid_first = crate::ids::Vmid(202);
    let hidden: Edit = |case| {
        case.observed.machine = Some(MachineLook::Invisible);
        case.observed.presence = Some(Presence::Taken);
    };
    for reason in [
        RemovalReason::Empty,
        RemovalReason::Underutilized,
        RemovalReason::Replace,
    ] {
        let mut case = to_be_removed(reason);
        assert_eq!(looks(&case.subject(), None).machine, Need::Always);
        assert_eq!(case.recorded().phase, Phase::Draining);
        case.observed.machine = None;
        assert!(matches!(case.next(), Step::BackOff { .. }), "{reason:?}");
        for (edit, why) in [
            (protected, "clear its protection flag"),
            (foreign, "belongs to something else"),
            (out_of_range, "widen vmidRange"),
            (hidden, "not in the ProxmoxCluster's pool"),
        ] {
            let mut case = to_be_removed(reason).with(edit);
            let Step::Record { change, .. } = case.next() else {
                panic!("{:?}", case.next());
            };
            let note = change.note.expect("an Event");
            assert!(note.message.contains(why), "{}", note.message);
            case.claim.status = case.recorded();
            assert_eq!(case.claim.status.phase, Phase::Initialized);
            // Told once, whatever the plan says by then.
            assert!(matches!(case.next(), Step::BackOff { .. }));
            case.verdict = Verdict::Keep;
            assert_eq!(looks(&case.subject(), None).machine, Need::Always);
            assert!(matches!(case.next(), Step::BackOff { .. }));
            let settled = to_be_removed(reason).with(|now| {
                now.verdict = Verdict::Keep;
                now.claim.status = case.claim.status.clone();
            });
            assert_eq!(settled.recorded().refusal(), None);
        }
    }
    // What cannot stay goes as far as it can.
    let case = to_be_removed(RemovalReason::Repair).with(protected);
    assert_eq!(case.recorded().phase, Phase::Draining);
}

#[test]
fn the_machine_is_looked_at_once_more_before_the_claim_is_deleted() {
    let mut case = draining();
    assert_eq!(looks(&case.subject(), None).machine, Need::No);
    case.claim.status = case.recorded();
    assert_eq!(looks(&case.subject(), None).machine, Need::Always);
    case.observed.machine = visible(|m| m.protected = true);
    assert!(matches!(case.next(), Step::Do(Effect::Uncordon(_))));
    case.observed.machine = Some(MachineLook::Unreachable("pve1 is offline".into()));
    assert!(matches!(case.next(), Step::BackOff { .. }));
}

#[test]
fn f18_a_pod_that_came_after_its_node_was_found_empty_ends_the_drain() {
    let case = draining().with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Empty);
        case.observed.pods = Some(vec![pod("late")]);
    });
    assert!(matches!(case.next(), Step::Do(Effect::Uncordon(_))));
    let case = case.with(|case| case.observed.node = node(|_| {}));
    let Step::Record { change, then } = case.next() else {
        panic!("{:?}", case.next());
    };
    assert!(
        change
            .note
            .is_some_and(|note| note.message.contains("late"))
    );
    // The same drive would begin again, for the plan that did not know the pod.
    assert!(matches!(then, Then::BackOff { .. }));
}

#[test]
fn r8_expendable_pods_end_no_drain_and_are_evicted() {
    type Change = fn(&mut PodOnNode);
    let priority: Change = |pod| pod.priority = -10;
    let protected: Change = |pod| pod.do_not_disrupt = true;
    for reason in [RemovalReason::Empty, RemovalReason::Underutilized] {
        let evicts = |change: Option<Change>| {
            let mut expendable = pod("expendable");
            expendable.priority = -11;
            (expendable.bare, expendable.local_volumes) = (true, true);
            change.iter().for_each(|change| change(&mut expendable));
            let case = draining().with(|case| {
                case.verdict = Verdict::Remove(reason);
                case.observed.pods = Some(vec![expendable]);
            });
            matches!(case.next(), Step::Do(Effect::Evict(_)))
        };
        assert!(evicts(None), "{reason:?}");
        assert!(!evicts(Some(priority)), "{reason:?}");
        assert!(!evicts(Some(protected)), "{reason:?}");
    }
}

#[test]
fn a_removal_is_written_then_the_node_is_tainted_then_pods_go() {
    let case = to_be_removed(RemovalReason::Underutilized);
    let status = case.recorded();
    assert_eq!(
        (status.phase, status.draining_since),
        (Phase::Draining, Some(case.now))
    );

    let case = draining().with(|case| {
        case.observed.node = node(|_| {});
        case.observed.pods = Some(vec![pod("a")]);
    });
    assert!(matches!(case.next(), Step::Do(Effect::Cordon(_))));

    // Simulated again before the first pod has to go.
    let case = case.with(|case| {
        case.observed.node = cordoned();
        case.observed.last = did(Op::Cordon, Outcome::Done);
    });
    assert!(matches!(case.next(), Step::Wait { .. }));

    let case = case.with(|case| case.observed.last = None);
    let Step::Do(Effect::Evict(pods)) = case.next() else {
        panic!("{:?}", case.next());
    };
    assert_eq!(pods.len(), 1);
}

#[test]
fn f20_an_empty_node_is_written_down_looked_at_again_and_its_claim_deleted() {
    let mut case = draining();
    case.claim.status = case.recorded();
    assert!(case.claim.status.since(Condition::Drained).is_some());
    assert_eq!(case.next(), Step::Do(Effect::DeleteClaim));
    // Somebody slipped in.
    case.observed.pods = Some(vec![pod("a")]);
    assert!(matches!(case.next(), Step::Do(Effect::Evict(_))));
    case.observed.pods = Some(vec![]);
    case.claim.deleting_since = Some(case.now);
    let status = case.recorded();
    assert_eq!(status.phase, Phase::Terminating);
    assert_eq!(status.intent.map(|i| i.op), Some(Op::Tombstone));
}

#[test]
fn finished_daemon_set_and_mirror_pods_stay() {
    let mut staying = vec![pod("a"), pod("b"), pod("c")];
    staying[0].finished = true;
    staying[1].daemon_set = true;
    staying[2].mirror = true;
    let case = draining().with(|case| case.observed.pods = Some(staying));
    assert!(case.recorded().since(Condition::Drained).is_some());
}

#[test]
fn f119_b1_a_bare_pod_ends_a_voluntary_drain_and_crashes_nothing() {
    let mut bare = pod("bare");
    bare.bare = true;
    let case = draining().with(|case| case.observed.pods = Some(vec![bare]));
    assert!(matches!(case.next(), Step::Do(Effect::Uncordon(_))));
}

#[test]
fn b16_an_error_is_never_an_empty_node() {
    for case in [
        draining().with(|case| case.observed.pods = None),
        draining().with(|case| case.observed.node = None),
        draining().with(|case| case.observed.attachments = None),
        draining().with(|case| case.observed.attachments = Some(vec!["pvc-1".into()])),
        draining().with(|case| {
            case.observed.pods = Some(vec![pod("a")]);
            case.observed.last = did(Op::Evict, failure(Failure::Retry));
        }),
    ] {
        assert!(
            matches!(case.next(), Step::BackOff { .. }),
            "{:?}",
            case.next()
        );
    }
}

#[test]
fn f69_a_disruption_budget_is_waited_for_named_and_given_up_on() {
    let case = |seconds| {
        draining().with(|case| {
            case.now = at(seconds);
            case.observed.pods = Some(vec![pod("a")]);
            case.observed.last = did(
                Op::Evict,
                Outcome::Evicted {
                    refused: vec![Refusal {
                        pod: pod("a").key,
                        by_budget: true,
                        why: "the disruption budget web needs 1 healthy pods".into(),
                    }],
                },
            );
        })
    };
    assert!(matches!(case(30).next(), Step::BackOff { .. }));
    let mut told = case(90);
    let Step::Record { change, then } = told.next() else {
        panic!("{:?}", told.next());
    };
    assert!(
        change
            .note
            .is_some_and(|note| note.message.contains("budget web"))
    );
    assert!(matches!(then, Then::BackOff { .. }));
    told.claim.status = told.recorded();
    assert!(matches!(told.next(), Step::BackOff { .. }));
    assert!(matches!(case(901).next(), Step::Do(Effect::Uncordon(_))));
}

#[test]
fn b15_an_abandoned_drain_uncordons_and_goes_back() {
    for verdict in [Verdict::GiveUp(GiveUp::PoolGone), Verdict::Keep] {
        let case = draining().with(|case| case.verdict = verdict);
        assert!(matches!(case.next(), Step::Do(Effect::Uncordon(_))));
        let case = case.with(|case| case.observed.node = node(|_| {}));
        let status = case.recorded();
        assert_eq!(
            (status.phase, status.draining_since),
            (Phase::Initialized, None)
        );
    }
}

#[test]
fn f18_a_pod_that_the_simulation_had_not_seen_stops_a_voluntary_drain_only() {
    let mut precious = pod("a");
    precious.do_not_disrupt = true;
    let case = draining().with(|case| case.observed.pods = Some(vec![precious]));
    assert!(matches!(case.next(), Step::Do(Effect::Uncordon(_))));
    let case = case.with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Repair);
        case.observed.node = broken();
    });
    assert!(matches!(
        case.intent(Op::Evict).next(),
        Step::Do(Effect::Evict(_))
    ));
}

fn broken() -> Option<NodeLook> {
    node(|node| {
        cordon(node);
        node.ready = false;
    })
}

#[test]
fn a_repair_is_given_up_while_no_pod_was_asked_to_leave() {
    let mut case = draining().with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Repair);
        case.observed.node = broken();
        case.observed.pods = Some(vec![pod("a")]);
    });
    let evicting = case.recorded();
    assert_eq!(evicting.intent.as_ref().map(|i| i.op), Some(Op::Evict));
    case.observed.node = cordoned();
    assert!(matches!(case.next(), Step::Do(Effect::Uncordon(_))));
    case.observed.node = node(|_| {});
    assert_eq!(case.recorded().phase, Phase::Initialized);

    // From the first eviction on there is no way back.
    case.claim.status = evicting;
    case.observed.node = cordoned();
    assert!(matches!(case.next(), Step::Do(Effect::Evict(_))));
}

#[test]
fn a_claim_deleted_by_hand_drains_first_and_goes_on_in_the_end() {
    for phase in [Phase::Pending, Phase::Launched, Phase::Initialized] {
        let case = Case::new(phase).with(|case| {
            case.claim.deleting_since = Some(at(1));
            case.verdict = Verdict::Remove(RemovalReason::Deleted);
        });
        assert_eq!(case.recorded().phase, Phase::Draining, "{phase:?}");
    }
    let case = draining().with(|case| {
        case.verdict = Verdict::GiveUp(GiveUp::PoolGone);
        case.claim.deleting_since = Some(at(1));
        case.observed.pods = Some(vec![pod("a")]);
    });
    assert!(matches!(case.next(), Step::Do(Effect::Evict(_))));
    let mut case = case.with(|case| case.now = at(901));
    let status = case.recorded();
    assert!(status.since(Condition::Drained).is_some());
    case.claim.status = status;
    assert_eq!(case.recorded().phase, Phase::Terminating);
}

/// The plan that began this look did not know of it, and so has neither counted it nor seen how many others were deleted with it.
#[test]
fn f111_a_machine_in_service_whose_claim_is_deleted_does_not_go_before_a_plan_says_so() {
    let case = Case::new(Phase::Initialized).with(|case| {
        case.claim.deleting_since = Some(at(1));
        case.observed.machine = visible(|_| {});
        case.observed.node = node(|_| {});
    });
    for verdict in [Verdict::Keep, Verdict::GiveUp(GiveUp::PoolGone)] {
        let case = case.clone().with(|case| case.verdict = verdict);
        let step = case.next();
        assert!(matches!(step, Step::Wait { .. }), "{step:?}");
    }
}

#[test]
fn f48_a_plan_that_would_have_a_machine_elsewhere_comes_too_late_once_it_is_made() {
    for (phase, closes) in [(Phase::Pending, true), (Phase::Launching, false)] {
        let case = Case::new(phase).with(|case| {
            case.verdict = Verdict::Remove(RemovalReason::LaunchFailed);
        });
        let is_closed = matches!(case.next(), Step::Record { change, .. } if change.phase == Some(Phase::Draining));
        assert_eq!(is_closed, closes, "{phase:?}");
    }
}

#[test]
fn f70_pods_of_a_dead_kubelet_are_not_waited_for_forever() {
    let mut leaving = pod("a");
    leaving.deleting = true;
    let case = draining().intent(Op::Evict).with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Repair);
        case.observed.node = broken();
        case.observed.pods = Some(vec![leaving.clone()]);
    });
    assert!(matches!(case.next(), Step::Wait { .. }));
    let case = case.with(|case| case.now = at(901));
    assert!(case.recorded().since(Condition::Drained).is_some());
    // Never one that its budget keeps.
    let case = case.with(|case| case.observed.pods = Some(vec![leaving, pod("kept")]));
    assert!(matches!(case.next(), Step::Do(Effect::Evict(pods)) if pods.len() == 1));
}

#[test]
fn the_pods_of_a_lost_machine_are_not_waited_for() {
    let case = draining().with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Lost);
        case.observed.node = broken();
        case.observed.pods = Some(vec![pod("a")]);
        case.observed.machine = Some(MachineLook::Invisible);
        case.observed.presence = Some(Presence::Free);
    });
    assert_eq!(case.next(), Step::Do(Effect::DeleteClaim));
    let case = case.with(|case| {
        case.observed.presence = Some(Presence::Taken);
        case.observed.machine = visible(|_| {});
    });
    assert!(matches!(case.next(), Step::Do(Effect::Uncordon(_))));
}

#[test]
fn a_drain_goes_on_without_the_plan_only_if_it_began_for_a_lost_machine_that_is_still_gone() {
    let gone = |reason: RemovalReason, guest: GuestHint| {
        let case = draining().with(|case| {
            case.verdict = Verdict::Keep;
            case.hint.guest = guest;
            case.observed.node = broken();
            case.observed.machine = Some(MachineLook::Invisible);
            case.observed.presence = Some(Presence::Free);
            let mut conditions = case.claim.status.conditions.iter_mut();
            let drained = conditions.find(|it| it.kind == Condition::Drained);
            drained.unwrap().reason = reason.as_str().to_owned();
        });
        case.next()
    };
    let goes = gone(RemovalReason::Lost, GuestHint::Absent);
    assert_eq!(goes, Step::Do(Effect::DeleteClaim));
    for stays in [
        gone(RemovalReason::Underutilized, GuestHint::Absent),
        gone(RemovalReason::Lost, GuestHint::Running),
    ] {
        assert!(matches!(stays, Step::Do(Effect::Uncordon(_))), "{stays:?}");
    }
}

#[test]
fn f78_nothing_is_removed_before_the_cold_start_is_over() {
    let cold = |case: Case| case.with(|case| case.settings.armed_at = Some(at(100)));
    for case in [
        cold(draining()),
        cold(draining().with(|case| case.observed.node = node(|_| {}))),
        cold(Case::new(Phase::Initialized))
            .with(|case| case.verdict = Verdict::Remove(RemovalReason::Empty)),
    ] {
        let waits = Step::Wait {
            until: Some(at(100)),
            why: String::new(),
        };
        assert_eq!(
            std::mem::discriminant(&case.next()),
            std::mem::discriminant(&waits)
        );
    }
}

#[test]
fn r18_a_pod_is_not_waited_for_half_a_minute_after_its_grace() {
    let mut stuck = pod("stuck");
    stuck.deleting = true;
    stuck.grace_ends = Some(at(70));
    let case = |now| {
        draining().with(|case| {
            case.observed.pods = Some(vec![stuck.clone()]);
            case.now = at(now);
        })
    };
    assert!(matches!(case(99).next(), Step::Wait { .. }));
    assert!(case(100).recorded().since(Condition::Drained).is_some());
    // It stays in Kubernetes, so an Event names it.
    let mut two = stuck.clone();
    two.key = pod("two").key;
    let told = case(100).with(|case| case.observed.pods = Some(vec![stuck.clone(), two]));
    let Step::Record { change, .. } = told.next() else {
        panic!("{:?}", told.next());
    };
    let note = change.note.expect("an Event");
    assert!(note.warning && note.reason == "PodsLeftBehind");
    assert!(
        note.message.contains(": default/stuck, default/two. "),
        "{}",
        note.message
    );
    // Another pod still has to go.
    let case = case(100).with(|case| case.observed.pods = Some(vec![stuck.clone(), pod("web")]));
    assert!(matches!(case.next(), Step::Do(Effect::Evict(pods)) if pods.len() == 1));
}

#[test]
fn r18_a_drain_that_took_too_long_names_the_pod() {
    let mut slow = pod("slow");
    slow.deleting = true;
    let case = draining().with(|case| {
        case.observed.node = node(|_| {});
        case.observed.pods = Some(vec![slow]);
        case.now = at(901);
    });
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    let message = change.note.expect("an Event").message;
    assert!(
        message.contains("drainTimeout") && message.contains("default/slow"),
        "{message}"
    );
}

/// Both attachments stay after the pods have left a Node whose kubelet answers.
#[test]
fn r18_an_attachment_that_was_left_behind_is_named_and_holds_no_drain() {
    let mut case = draining().with(|case| {
        case.claim.status.draining_since = Some(at(40));
        case.observed.attachments = Some(vec!["pv-1".into(), "pv-2".into()]);
    });
    let at_time = |case: &Case, now: i64| case.clone().with(|case| case.now = at(now));
    assert!(matches!(at_time(&case, 100).next(), Step::BackOff { .. }));
    for (now, reason) in [(101, "ScaleDownHeldUp"), (461, "VolumesLeftBehind")] {
        case = at_time(&case, now);
        let Step::Record { change, .. } = case.next() else {
            panic!("{now}: {:?}", case.next());
        };
        let note = change.note.expect("an Event");
        assert_eq!(note.reason, reason);
        assert!(note.message.contains("pv-1, pv-2"), "{}", note.message);
        case.claim.status = case.recorded();
        if now == 101 {
            assert!(matches!(at_time(&case, 460).next(), Step::BackOff { .. }));
        }
    }
    assert_eq!(case.next(), Step::Do(Effect::DeleteClaim));
    // A kubelet that does not answer may still write.
    let dead = case.with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Repair);
        case.observed.node = broken();
    });
    assert!(matches!(dead.next(), Step::BackOff { .. }));
}

/// The drain's own limit does not end it while only volumes are left.
#[test]
fn r18_a_drain_that_waits_for_volumes_alone_goes_on_past_its_limit() {
    let mut case = draining().with(|case| {
        case.claim.status.draining_since = Some(at(0));
        case.observed.attachments = Some(vec!["pv-1".into(), "pv-2".into()]);
        case.now = at(800);
    });
    case.claim.status = case.recorded();
    let case = case.with(|case| case.now = at(901));
    assert!(
        matches!(case.next(), Step::BackOff { .. }),
        "{:?}",
        case.next()
    );
    let case = case.with(|case| case.observed.attachments = Some(vec![]));
    let status = case.recorded();
    assert!(status.since(Condition::VolumesDetached).is_some());
}

#[test]
fn r16_pods_that_tolerate_a_drain_are_evicted_last_and_once() {
    let mut operator = pod("operator");
    operator.tolerates_drain = true;
    let with = |pods: Vec<PodOnNode>| {
        draining().with(|case| {
            case.claim.status.draining_since = Some(at(10));
            case.now = at(30);
            case.observed.pods = Some(pods);
        })
    };
    let evicted = |case: &Case| {
        let step = case.next();
        let Step::Do(Effect::Evict(pods)) = step else {
            assert!(matches!(step, Step::Wait { .. }), "{step:?}");
            return vec![];
        };
        pods.iter().map(|it| it.key.name.to_string()).collect()
    };
    assert_eq!(evicted(&with(vec![operator.clone(), pod("web")])), ["web"]);
    let mut leaving = pod("web");
    leaving.deleting = true;
    assert_eq!(
        evicted(&with(vec![operator.clone(), leaving])),
        [] as [&str; 0]
    );
    assert_eq!(evicted(&with(vec![operator.clone()])), ["operator"]);
    let mut back = operator.clone();
    (back.uid, back.created) = ("back".into(), at(20));
    let case = with(vec![back.clone()]);
    assert_eq!(evicted(&case), [] as [&str; 0]);
    // The plan says that it may end with the machine.
    let case = case.with(|case| case.hint.ends_with_it = ["back".into()].into());
    assert!(case.recorded().since(Condition::Drained).is_some());
}

#[test]
fn r15_a_pod_on_completion_is_waited_for() {
    let mut job = pod("job");
    (job.on_completion, job.unfinished_job, job.bare) = (true, true, true);
    let mut case = draining().with(|case| case.observed.pods = Some(vec![job.clone(), pod("web")]));
    assert!(matches!(case.next(), Step::Do(Effect::Evict(pods)) if pods.len() == 1));
    case.observed.pods = Some(vec![job.clone()]);
    assert!(matches!(case.next(), Step::Wait { why, .. } if why.contains("default/job")));
    job.finished = true;
    case.observed.pods = Some(vec![job]);
    assert!(case.recorded().since(Condition::Drained).is_some());
}

/// Given up, it would begin again and find the same, for ever.
#[test]
fn r35_a_drain_that_waits_for_volumes_alone_is_not_given_up_for_a_short_drain_timeout() {
    let mut case = draining().with(|case| {
        case.pool.drain_timeout = jiff::SignedDuration::from_secs(30).into();
        case.observed.attachments = Some(vec!["pv-1 (VolumeAttachment csi-1)".into()]);
        case.now = at(30);
    });
    // Its pods are another matter.
    let mut slow = case.clone();
    slow.observed.pods = Some(vec![pod("slow")]);
    assert!(matches!(slow.next(), Step::Do(Effect::Uncordon(_))));

    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    let note = change.note.expect("an Event");
    assert_eq!(note.reason, "ScaleDownHeldUp");
    for told in [
        "pv-1 (VolumeAttachment csi-1)",
        "drainTimeout",
        "30s",
        "too short",
    ] {
        assert!(note.message.contains(told), "{}", note.message);
    }
    case.claim.status = case.recorded();
    assert!(case.claim.status.since(Condition::Drained).is_some());
    case.now = at(389);
    assert!(matches!(case.next(), Step::BackOff { .. }));
    case.now = at(390);
    case.claim.status = case.recorded();
    assert_eq!(case.next(), Step::Do(Effect::DeleteClaim));
}
