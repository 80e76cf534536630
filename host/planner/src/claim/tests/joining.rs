//! From a started machine to a Node in service.

use super::fixture::*;
use crate::claim::*;
use crate::facts::{Join, NodeFacts, ProviderId, TaintEffect};
use crate::keys::{UNINITIALIZED_TAINT, UNREGISTERED_TAINT};

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

fn launched(change: impl FnOnce(&mut NodeFacts)) -> Case {
    Case::new(Phase::Launched).with(|case| {
        case.claim.status.node_uid = None;
        case.observed.node = node(change);
    })
}

pub(super) fn patch(case: &Case) -> NodePatch {
    let Step::Do(Effect::PatchNode(_, patch)) = case.next() else {
        panic!("{:?}", case.next());
    };
    *patch
}

#[test]
fn f13_a_bare_node_gets_labels_taints_and_provider_id_at_once() {
    let mut case = launched(|node| {
        node.labels.clear();
        node.provider_id = None;
        node.taints.push(taint(UNREGISTERED_TAINT));
    });
    case.claim.spec.labels.insert("rack".into(), "a".into());
    case.claim.spec.taints.push(taint("gpu"));
    let patch = patch(&case);
    assert_eq!(patch.labels["rack"], "a");
    assert_eq!(patch.labels["kproxide.dev/claim"], "workers-a");
    assert_eq!(patch.labels["topology.kubernetes.io/zone"], "pve1");
    assert_eq!(patch.add_taints, [taint("gpu")]);
    assert!(patch.remove_unregistered);
    assert_eq!(patch.provider_id.as_deref(), Some("proxmox://home/201"));
}

#[test]
fn what_others_have_said_of_the_node_stays() {
    let mut case = launched(|node| {
        node.labels.insert(ZONE.to_owned(), "by-ccm".into());
        node.labels.insert(REGION.to_owned(), "by-ccm".into());
        node.labels
            .insert("kubernetes.io/hostname".into(), "k".into());
        node.provider_id = Some("k3s://workers-a".into());
    });
    // As every claim's: `claim_labels` of the planning.
    let labels = [
        ("kubernetes.io/hostname", "x"),
        (REGION, "home"),
        (ZONE, "pve1"),
        ("node.kubernetes.io/instance-type", "medium"),
    ];
    case.claim.spec.labels = labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let status = case.recorded();
    assert_eq!(status.phase, Phase::Registered);
    let remarks = &status
        .conditions
        .iter()
        .find(|c| c.kind == Condition::Registered)
        .expect("registered")
        .message;
    assert!(remarks.contains("k3s://workers-a"), "{remarks}");
}

#[test]
fn a_zone_that_a_label_policy_chose_is_written_over_others_words() {
    let mut case = launched(|node| {
        node.labels.insert(ZONE.to_owned(), "by-ccm".into());
        let kind = "node.kubernetes.io/instance-type".to_owned();
        node.labels.insert(kind, "k3s".into());
    });
    case.claim.spec.labels.insert(ZONE.into(), "rack-1".into());
    let patch = patch(&case);
    assert_eq!(patch.labels[ZONE], "rack-1");
    assert_eq!(patch.labels["node.kubernetes.io/instance-type"], "medium");
    assert!(!patch.labels.contains_key(REGION));
}

#[test]
fn a_provider_id_is_left_to_whoever_writes_it() {
    let uninitialized = |node: &mut NodeFacts| {
        node.provider_id = None;
        node.taints.push(taint(UNINITIALIZED_TAINT));
    };
    assert_eq!(launched(uninitialized).recorded().phase, Phase::Registered);
    for mode in [ProviderId::Kubelet, ProviderId::Ccm, ProviderId::None] {
        let case =
            launched(|node| node.provider_id = None).with(|case| case.settings.provider_id = mode);
        assert_eq!(case.recorded().phase, Phase::Registered, "{mode:?}");
    }
}

#[test]
fn taints_are_given_once() {
    let mut case = Case::new(Phase::Registered).with(|case| case.observed.node = node(|_| {}));
    case.claim.spec.taints.push(taint("gpu"));
    assert_eq!(case.recorded().phase, Phase::Initialized);
}

#[test]
fn in_service_is_ready_and_free_of_startup_taints() {
    let registered = |change: fn(&mut NodeFacts)| {
        Case::new(Phase::Registered).with(|case| {
            case.pool.startup_taints = vec![taint("cni")];
            case.observed.node = node(change);
        })
    };
    assert!(matches!(
        registered(|n| n.ready = false).next(),
        Step::Wait { .. }
    ));
    assert!(matches!(
        registered(|n| n.taints.push(taint("cni"))).next(),
        Step::Wait { .. }
    ));
    let other_effect = registered(|n| {
        let mut other = taint("cni");
        other.effect = TaintEffect::PreferNoSchedule;
        n.taints.push(other);
    });
    assert_eq!(other_effect.recorded().phase, Phase::Initialized);
    assert_eq!(registered(|_| {}).recorded().phase, Phase::Initialized);
}

/// Kubernetes removes its taint a moment after the Node says Ready. Whoever takes the Node for one in service meanwhile finds no place on it for the
/// pods that it was made for, and makes another machine.
#[test]
fn f14_a_ready_node_is_not_in_service_before_kubernetes_takes_its_own_taints_off() {
    let tainted = |key: &'static str| {
        Case::new(Phase::Registered)
            .with(|case| case.observed.node = node(|n| n.taints.push(taint(key))))
    };
    for key in ["node.kubernetes.io/not-ready", UNINITIALIZED_TAINT] {
        assert!(matches!(tainted(key).next(), Step::Wait { .. }), "{key}");
    }
    // A cordon is somebody's decision, and may stay.
    let cordoned = tainted("node.kubernetes.io/unschedulable");
    assert_eq!(cordoned.recorded().phase, Phase::Initialized);
}

#[test]
fn b2_a_node_that_never_comes_or_never_gets_ready_is_replaced_with_the_reason() {
    let cases = [
        Case::new(Phase::Launched).with(|case| case.observed.node = Some(NodeLook::Absent)),
        Case::new(Phase::Registered).with(|case| case.observed.node = node(|n| n.ready = false)),
    ];
    for case in cases {
        let Step::Wait { until, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        assert_eq!(until, Some(at(600)));
        let mut case = case.with(|case| case.now = at(600));
        if case.claim.status.phase == Phase::Launched {
            case = case.late();
        }
        let Step::Record { change, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        assert_eq!(change.phase, Some(Phase::Draining));
        assert!(change.note.is_some_and(|note| note.message.contains("10m")));
    }
}

#[test]
fn f105_two_nodes_of_one_machine_freeze_it() {
    let both = NodeLook::Several(vec!["a".into(), "b".into()]);
    for phase in [Phase::Launched, Phase::Registered, Phase::Draining] {
        let case = Case::new(phase).with(|case| case.observed.node = Some(both.clone()));
        assert!(
            case.recorded()
                .since(Condition::OwnershipMismatch)
                .is_some()
        );
    }
}

/// A mismatch that has passed goes at the next look, and that of two Nodes stays.
#[test]
fn n3_a_mismatch_goes_with_the_proof_on_the_way_too() {
    let both = NodeLook::Several(vec!["a".into(), "b".into()]);
    for phase in [Phase::Launched, Phase::Registered] {
        let mut case = Case::new(phase).with(|case| case.observed.node = Some(both.clone()));
        case.claim.status = case.recorded();
        let looks = looks(&case.subject(), None);
        assert_eq!(looks.machine, Need::Always, "{phase:?}");
        case.observed.machine = visible(|_| {});
        assert!(matches!(case.next(), Step::BackOff { .. }), "{phase:?}");
        case.observed.node = Some(NodeLook::Absent);
        let status = case.recorded();
        assert_eq!(status.since(Condition::OwnershipMismatch), None);
    }
}

fn by_guest(join: JoinLook) -> Case {
    Case::new(Phase::Launched).with(|case| {
        case.settings.join = Join::GuestExec;
        case.observed.node = Some(NodeLook::Absent);
        case.observed.machine = visible(|_| {});
        case.observed.join = Some(join);
    })
}

#[test]
fn the_join_command_runs_once_after_its_intent() {
    let case = by_guest(JoinLook::NotRun);
    assert_eq!(case.recorded().intent.map(|i| i.op), Some(Op::Join));
    let case = case.intent(Op::Join);
    assert!(matches!(case.next(), Step::Do(Effect::Join(_))));
    // It was asked for a moment ago, and has left no trace in the guest yet.
    let begun = case.with(|case| case.observed.last = did(Op::Join, Outcome::Done));
    assert!(matches!(begun.next(), Step::BackOff { .. }));
    for look in [JoinLook::Running, JoinLook::Booting] {
        let case = by_guest(look).intent(Op::Join);
        assert!(matches!(case.next(), Step::BackOff { .. }));
    }
    let case = by_guest(JoinLook::Succeeded).intent(Op::Join);
    assert!(matches!(case.next(), Step::Wait { .. }));
}

#[test]
fn a_failed_join_keeps_its_output_for_the_user() {
    let told = |output: &str| {
        let output = output.to_owned();
        let exit_code = 7;
        let case = by_guest(JoinLook::Failed { exit_code, output });
        let Step::Record { change, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        change.note.expect("an Event").message
    };
    assert_eq!(
        told("connection refused"),
        "the join command failed with exit code 7: connection refused"
    );
}

#[test]
fn b2_a_silent_agent_has_its_own_deadline() {
    let silent = || by_guest(JoinLook::AgentSilent("not running".into()));
    assert!(matches!(silent().next(), Step::BackOff { .. }));
    let case = silent().with(|case| case.now = at(180));
    assert_eq!(case.recorded().phase, Phase::Draining);
}

#[test]
fn b2_a_join_command_that_hangs_ends_with_the_deadline_of_the_join() {
    let hangs = by_guest(JoinLook::Running).intent(Op::Join);
    let case = hangs.clone().with(|case| case.now = at(599));
    assert!(
        matches!(case.next(), Step::BackOff { .. }),
        "{:?}",
        case.next()
    );
    let case = hangs.with(|case| case.now = at(600));
    assert_eq!(case.late().recorded().phase, Phase::Draining);
}

#[test]
fn an_agent_that_falls_silent_while_the_join_command_runs_is_waited_for() {
    let silent = by_guest(JoinLook::AgentSilent("timeout".into())).intent(Op::Join);
    let case = silent.clone().with(|case| case.now = at(599));
    assert!(
        matches!(case.next(), Step::BackOff { .. }),
        "{:?}",
        case.next()
    );
    let case = silent.with(|case| case.now = at(600));
    assert_eq!(case.late().recorded().phase, Phase::Draining);
}

#[test]
fn a_node_that_came_back_with_another_uid_is_labelled_again() {
    let case = Case::new(Phase::Initialized)
        .intent(Op::Start)
        .with(|case| {
            case.observed.machine = visible(|_| {});
            case.observed.node = node(|node| {
                node.uid = "new".into();
                node.labels.clear();
            });
        });
    assert!(patch(&case).labels.contains_key("kproxide.dev/pool"));
}

#[test]
fn f28_a_node_that_was_deleted_is_noted_and_taken_back_when_it_registers_again() {
    let mut case = Case::new(Phase::Initialized).with(|case| {
        assert!(!looks(&case.subject(), None).node);
        case.hint.node_changed = true;
        case.observed.node = Some(NodeLook::Absent);
    });
    assert!(looks(&case.subject(), None).node);
    case.claim.status = case.recorded();
    let missing = Condition::NodeMissing;
    assert_eq!(case.claim.status.since(missing), Some(case.now));
    assert!(matches!(case.next(), Step::Wait { .. }));

    case.observed.node = node(|node| {
        node.uid = "new".into();
        node.labels.clear();
    });
    assert!(patch(&case).labels.contains_key("kproxide.dev/pool"));
    case.observed.node = node(|node| node.uid = "new".into());
    case.claim.status = case.recorded();
    assert_eq!(case.claim.status.phase, Phase::Initialized);
    case.hint.node_changed = false;
    assert!(looks(&case.subject(), None).node);
    case.claim.status = case.recorded();
    assert_eq!(case.claim.status.since(missing), None);
    assert_eq!(looks(&case.subject(), None), Looks::default());
}

/// Records until the launch fails; false: it is told and left alone.
fn fails(case: &mut Case) -> bool {
    loop {
        let Step::Record { change, then } = case.next() else {
            return false;
        };
        case.claim.status = case.recorded();
        if change.phase == Some(Phase::Draining) {
            return true;
        }
        if then != Then::Continue {
            return false;
        }
    }
}

#[test]
fn f102_a_late_node_with_pods_that_is_not_ready_for_a_moment_is_not_condemned() {
    let mut not_ready = Case::new(Phase::Registered).with(|case| {
        case.now = at(3600);
        case.observed.node = node(|node| {
            node.ready = false;
            node.ready_since = at(3590);
        });
    });
    let mut gone = not_ready.clone();
    gone.observed.node = Some(NodeLook::Absent);
    for case in [&mut not_ready, &mut gone] {
        let mut empty = case.clone();
        empty.observed.pods = Some(vec![]);
        assert!(fails(&mut empty), "the launch of an empty one has failed");

        case.observed.pods = Some(vec![pod("web")]);
        assert!(!fails(case), "{:?}", case.claim.status);
        assert!(matches!(case.next(), Step::BackOff { .. }));
        case.now = at(3600 + 600);
        assert!(fails(case), "as one in service would be repaired by now");
    }
    // Or it comes into service after all.
    not_ready.claim.status.phase = Phase::Registered;
    not_ready.observed.node = node(|_| {});
    assert_eq!(not_ready.recorded().phase, Phase::Initialized);
}

/// Late, with a Node that cannot be made what the claim says.
fn hindered() -> [(Case, &'static str); 4] {
    let late = |phase| {
        Case::new(phase).with(|case| {
            case.now = at(600);
            case.observed.node = node(|node| node.labels.clear());
            case.observed.last = did(
                Op::PatchNode,
                Outcome::Failed {
                    failure: Failure::GiveUp,
                    text: "label rack: invalid value".into(),
                },
            );
        })
    };
    let unkept =
        late(Phase::Launched).with(|case| case.observed.last = did(Op::PatchNode, Outcome::Done));
    let tainted = late(Phase::Registered)
        .with(|case| case.observed.node = node(|node| node.taints.push(taint("cni"))))
        .with(|case| case.pool.startup_taints = vec![taint("cni")]);
    [
        (late(Phase::Launched), "label rack: invalid value"),
        (late(Phase::Registered), "label rack: invalid value"),
        (unkept, "label kproxide.dev/pool"),
        (tainted, "the taint cni"),
    ]
}

#[test]
fn a_node_that_is_there_but_never_in_service_is_replaced_with_the_reason() {
    for (mut case, why) in hindered() {
        let early = case.clone().with(|case| case.now = at(599));
        assert!(
            matches!(early.next(), Step::Wait { .. } | Step::BackOff { .. }),
            "{why}"
        );
        assert!(!looks(&case.subject(), None).pods);
        case.claim.status = case.recorded();
        assert!(case.claim.status.phase < Phase::Initialized);
        assert!(looks(&case.subject(), None).pods);
        assert!(matches!(case.next(), Step::BackOff { .. }), "{why}");
        let mut daemon = pod("daemon");
        daemon.daemon_set = true;
        case.observed.pods = Some(vec![daemon]);
        let Step::Record { change, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        assert_eq!(change.phase, Some(Phase::Draining));
        let note = change.note.expect("an Event");
        assert!(note.message.contains(why), "{}", note.message);
    }
}

#[test]
fn f102_a_late_node_with_pods_on_it_is_told_of_and_stays() {
    for (mut case, why) in hindered() {
        case.claim.status = case.recorded();
        case.observed.pods = Some(vec![pod("web")]);
        let phase = case.claim.status.phase;
        let status = case.recorded();
        assert!(status.is_overdue());
        assert_eq!(status.phase, phase, "{why}");
        let mut said = status.conditions.iter().map(|it| &it.message);
        let of_pods = said.find(|it| it.contains("because pods run on it"));
        // The pool's repairAfter is for Nodes that are not Ready.
        assert!(!of_pods.expect("a message").contains("repairAfter"));
        case.claim.status = status;
        assert!(matches!(case.next(), Step::BackOff { .. }), "{why}");
        // And comes into service if somebody helps.
        case.observed.node = node(|_| {});
        while case.claim.status.phase != Phase::Initialized {
            case.claim.status = case.recorded();
        }
        assert!(!case.claim.status.is_overdue());
    }
}

#[test]
fn r4_a_node_is_in_service_when_passing_taints_are_gone_and_names_others() {
    let case = |key: &str| {
        Case::new(Phase::Registered).with(|case| {
            case.observed.node = node(|node| {
                node.taints.push(taint("kubernetes.io/arch"));
                node.taints.push(taint(key));
            });
            case.claim.spec.taints = vec![taint("kubernetes.io/arch")];
        })
    };
    let waits = case("node.cilium.io/agent-not-ready").next();
    assert!(
        matches!(&waits, Step::Wait { why, .. } if why.contains("agent-not-ready")),
        "{waits:?}"
    );
    let Step::Record { change, .. } = case("example.com/disks").next() else {
        panic!("{:?}", case("example.com/disks").next());
    };
    assert_eq!(change.phase, Some(Phase::Initialized));
    let note = change.note.expect("an Event");
    assert!(
        note.warning && note.message.contains("taint example.com/disks:NoSchedule"),
        "{}",
        note.message
    );
    assert!(note.message.contains("spec.startupTaints"));
}

/// A started machine whose Node has not come in time.
fn never_joined(join: Join) -> Case {
    Case::new(Phase::Launched).with(|case| {
        case.settings.join = join;
        case.claim.status.node_uid = None;
        case.observed.node = Some(NodeLook::Absent);
        case.observed.machine = visible(|_| {});
        case.observed.join = Some(JoinLook::Running);
        case.now = at(600);
    })
}

fn told(case: &Case) -> String {
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    change.note.unwrap().message
}

#[test]
fn a_guest_is_asked_only_once_its_node_is_late_and_its_machine_goes_after_that() {
    for join in [Join::Template, Join::GuestExec] {
        let mut case = never_joined(join);
        assert!(!looks(&case.subject(), None).evidence);
        case = case.late();
        let wanted = looks(&case.subject(), None);
        assert!(wanted.evidence && wanted.machine == Need::Always);
        let mut joined = case.clone();
        joined.observed.node = node(|_| {});
        assert_eq!(joined.recorded().phase, Phase::Registered, "after all");

        // Whatever it says, and if it cannot be asked.
        case.observed.machine = Some(MachineLook::Unreachable("off".to_owned()));
        let failed = case.recorded();
        assert_eq!(failed.phase, Phase::Draining);
        let mut conditions = failed.conditions.iter();
        let registered = conditions.find(|c| c.kind == Condition::Registered);
        assert_eq!(registered.unwrap().message, told(&case));
        assert!(told(&case).contains("Open the console"), "{}", told(&case));
    }
}

#[test]
fn what_the_guest_says_is_told_of_the_failure() {
    let failed = |evidence: Evidence| {
        let mut case = never_joined(Join::Template).late();
        case.observed.evidence = Some(evidence);
        case
    };
    let case = |evidence| told(&failed(evidence));
    let two = vec!["10.0.0.7 (eth0)".to_owned(), "fd00::7 (eth1)".to_owned()];
    let said = case(Evidence {
        addresses: Some(two),
        cloud_init: "status: error".to_owned(),
        log: "/var/log/x.log".to_owned(),
        log_end: "no route".to_owned(),
        unsaid: None,
    });
    let all = "its addresses are 10.0.0.7 (eth0), fd00::7 (eth1); cloud-init: status: error; the end of /var/log/x.log: no route";
    assert!(said.ends_with(all), "{said}");
    let nothing = case(Evidence {
        addresses: Some(vec![]),
        unsaid: Some("refused".to_owned()),
        ..Evidence::default()
    });
    for part in ["no address", "refused", "Open the console"] {
        assert!(nothing.contains(part), "{nothing}");
    }
    // The Ledger's text is the same for each of them.
    let of = |address: &str| {
        let failed = failed(Evidence {
            addresses: Some(vec![address.to_owned()]),
            ..Evidence::default()
        });
        failed.recorded().launch_failure().unwrap().message
    };
    assert_eq!(of("10.0.0.7 (eth0)"), of("10.0.0.8 (eth0)"));
    assert!(!of("10.0.0.7 (eth0)").contains("10.0.0.7"));
}

#[test]
fn w20_a_claim_has_the_address_of_its_node_or_else_that_of_the_pool() {
    let ip = |text: &str| Some(text.parse().unwrap());
    let mut case = launched(|node| node.address = Some("10.0.0.7".parse().unwrap()));
    case.claim.spec.address = ip("10.0.0.9");
    assert_eq!(case.recorded().address, ip("10.0.0.7"));
    case.observed.node = launched(|_| {}).observed.node;
    assert_eq!(case.recorded().address, ip("10.0.0.9"));
}
