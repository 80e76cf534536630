//! Nodes whose kubelet is gone for good: what proves that the machine is off, and what follows.

use super::fixture::*;
use crate::claim::*;
use crate::keys::OUT_OF_SERVICE_TAINT;
use crate::plan::{RemovalReason, Verdict};

/// The Node has not been Ready for ten minutes. Two pods are Terminating on it, and a volume of one is attached.
fn dead() -> Case {
    Case::new(Phase::Draining).intent(Op::Evict).with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Repair);
        case.now = at(650);
        case.observed.node = node(|node| {
            cordon(node);
            (node.ready, node.ready_since) = (false, at(0));
        });
        let terminating = |name| PodOnNode {
            deleting: true,
            grace_ends: Some(at(300)),
            ..pod(name)
        };
        case.observed.pods = Some(vec![terminating("web"), terminating("db-0")]);
        case.observed.attachments = Some(vec!["pvc-1".into()]);
        case.observed.machine = visible(|machine| machine.power = Power::Off);
        let conditions = &mut case.claim.status.conditions;
        let mut drained = conditions.iter_mut();
        let drained = drained.find(|c| c.kind == Condition::Drained);
        drained.expect("draining").reason = RemovalReason::Repair.as_str().to_owned();
    })
}

fn is_taint(step: &Step) -> bool {
    matches!(step, Step::Do(Effect::OutOfService(node)) if node.uid.as_str() == "node-uid")
}

fn refused(case: &Case) -> String {
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    let note = change.note.expect("an Event");
    assert_eq!((note.warning, note.reason), (true, "NotProvenOff"));
    note.message
}

#[test]
fn r24_a_machine_that_its_own_hypervisor_calls_stopped_is_out_of_service() {
    let case = dead();
    let asked = looks(&case.subject(), None);
    assert_eq!((asked.machine, asked.tasks), (Need::Always, true));
    assert!(is_taint(&case.next()), "{:?}", case.next());
    // The intent is there first, so that the Node's return does not end the repair.
    let mut fresh = dead();
    fresh.claim.status.intent = None;
    assert_eq!(fresh.recorded().intent.map(|it| it.op), Some(Op::Evict));

    // It waits until pods and attachments are gone, and then goes on.
    let tainted = case.with(|case| {
        case.observed.node = node(|node| {
            cordon(node);
            node.taints.push(taint(OUT_OF_SERVICE_TAINT));
            (node.ready, node.ready_since) = (false, at(0));
        });
    });
    assert!(matches!(tainted.next(), Step::BackOff { .. }));
    let detaching = tainted
        .clone()
        .with(|case| case.observed.pods = Some(vec![]));
    assert!(matches!(detaching.next(), Step::BackOff { .. }));
    let empty = detaching.with(|case| case.observed.attachments = Some(vec![]));
    assert!(empty.recorded().since(Condition::Drained).is_some());

    // Absence is a proof, too.
    let absent = dead().with(|case| {
        case.observed.machine = Some(MachineLook::Invisible);
        case.observed.presence = Some(Presence::Free);
    });
    assert!(is_taint(&absent.next()));
}

#[test]
fn r24_what_does_not_prove_it_taints_nothing_and_is_told_with_the_next_step() {
    type Edit = fn(&mut Case);
    let unproven: [(&str, Edit); 8] = [
        ("runs on pve1", |case| {
            case.observed.machine = visible(|_| {})
        }),
        ("does not say whether VM 201 runs", |case| {
            case.observed.machine = visible(|machine| machine.power = Power::Unknown);
        }),
        ("VM 201 on pve1 is locked (migrate)", |case| {
            case.observed.machine = visible(|machine| {
                machine.power = Power::Off;
                machine.lock = Some("migrate".into());
            });
        }),
        (
            "a task (qmstart) runs on pve1 that may start VM 201",
            |case| {
                case.observed.machine = visible(|machine| {
                    machine.power = Power::Off;
                    machine.task = Some("qmstart".into());
                });
            },
        ),
        ("HA manager", |case| {
            case.observed.machine = visible(|machine| {
                machine.power = Power::Off;
                machine.ha_managed = true;
            });
        }),
        ("belongs to something else", |case| {
            case.observed.machine = visible(|machine| {
                machine.power = Power::Off;
                machine.marker = Marker::Foreign;
                machine.smbios_uuid = Some(UUID.into());
            });
        }),
        (
            "kubectl annotate proxmoxcluster home kproxide.dev/hypervisor-off=pve1",
            |case| {
                case.observed.machine = Some(MachineLook::Unreachable("595".to_owned()));
            },
        ),
        (
            "kubectl annotate proxmoxcluster home kproxide.dev/hypervisor-off=pve1",
            |case| {
                case.observed.machine = Some(MachineLook::Invisible);
                (case.observed.presence, case.observed.quorate) =
                    (Some(Presence::Free), Some(false));
            },
        ),
    ];
    for (word, edit) in unproven {
        let mut case = dead().with(edit);
        let said = refused(&case);
        assert!(said.contains(word), "{said}");
        case.claim.status = case.recorded();
        assert!(case.claim.status.since(Condition::NotProvenOff).is_some());
        assert!(matches!(case.next(), Step::BackOff { .. }), "told once");
        // With the proof the condition goes, and the taint comes.
        let mut proven = case.with(|case| case.observed.machine = dead().observed.machine);
        (proven.observed.presence, proven.observed.quorate) = (None, Some(true));
        proven.claim.status = proven.recorded();
        assert_eq!(proven.claim.status.since(Condition::NotProvenOff), None);
        assert!(is_taint(&proven.next()));
    }
}

#[test]
fn r24_a_person_can_say_that_a_silent_hypervisor_is_off() {
    let silent = dead().with(|case| {
        case.observed.machine = Some(MachineLook::Unreachable("595".to_owned()));
        case.hint.declared_off = true;
    });
    assert!(is_taint(&silent.next()));
    // If the VM is seen after all, that counts.
    let runs = silent.with(|case| case.observed.machine = visible(|_| {}));
    assert!(!is_taint(&runs.next()));
}

#[test]
fn r24_without_proof_pods_are_evicted_so_that_deployments_get_successors() {
    let case = dead().with(|case| {
        case.observed.machine = Some(MachineLook::Unreachable("595".to_owned()));
        case.observed.pods = Some(vec![pod("a"), pod("b")]);
    });
    assert!(matches!(case.next(), Step::Do(Effect::Evict(pods)) if pods.len() == 2));
    // With it, Kubernetes ends them by the taint.
    let off = case.with(|case| case.observed.machine = dead().observed.machine);
    assert!(is_taint(&off.next()));
}

#[test]
fn r24_only_the_node_of_this_machine_and_only_after_repair_after() {
    let spared: [fn(&mut Case); 5] = [
        |case| case.now = at(599),
        |case| {
            case.observed.node = node(|node| {
                cordon(node);
                (node.ready, node.ready_since) = (false, at(600));
            });
        },
        |case| {
            case.observed.node = node(|node| {
                cordon(node);
                (node.ready, node.uid) = (false, "another".into());
            });
        },
        |case| {
            case.observed.node = node(|node| {
                cordon(node);
                (node.ready, node.system_uuid) = (false, None);
            });
        },
        |case| case.verdict = Verdict::Remove(RemovalReason::Replace),
    ];
    for (index, edit) in spared.into_iter().enumerate() {
        let case = dead().with(edit);
        assert!(!is_taint(&case.next()), "{index}: {:?}", case.next());
    }
}
