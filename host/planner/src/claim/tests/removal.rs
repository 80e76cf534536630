//! The second half of the recovery table: what a restart does with a machine that is to go.

use super::fixture::*;
use super::recovery::{condition, failed_launch};
use crate::claim::*;
use crate::plan::{RemovalReason, Verdict};

const OTHER_UUID: &str = "11111111-1b04-4b04-ba4f-c09d2b1c5a16";

#[test]
fn terminating_goes_from_proof_to_proof_of_absence() {
    let case = |change: fn(&mut Machine)| {
        Case::new(Phase::Terminating).with(|case| {
            case.now = at(10);
            case.observed.node = cordoned();
            case.observed.entry = Some(EntryLook::Ours);
            case.observed.machine = visible(change);
        })
    };
    assert!(matches!(
        case(|_| {}).intent(Op::Tombstone).next(),
        Step::Do(Effect::Tombstone(_))
    ));
    let condemned = |m: &mut Machine| m.marker = Marker::Tombstoned;
    assert_eq!(
        case(condemned).recorded().intent.map(|i| i.op),
        Some(Op::Shutdown)
    );
    assert!(matches!(
        case(condemned).intent(Op::Shutdown).next(),
        Step::Do(Effect::Shutdown(..))
    ));
    let hung = case(condemned).with(|case| case.now = at(61));
    assert!(matches!(
        hung.intent(Op::Stop).next(),
        Step::Do(Effect::Stop(_))
    ));
    let off = |m: &mut Machine| {
        m.marker = Marker::Tombstoned;
        m.power = Power::Off;
    };
    assert!(matches!(
        case(off).intent(Op::Destroy).next(),
        Step::Do(Effect::Destroy(_))
    ));

    let mut gone = case(|_| {});
    gone.observed.machine = Some(MachineLook::Invisible);
    gone.observed.presence = Some(Presence::Free);
    assert!(matches!(gone.next(), Step::Do(Effect::DeleteNode(_))));
    gone.observed.node = Some(NodeLook::Absent);
    assert!(matches!(
        gone.next(),
        Step::Do(Effect::Quarantine { failure: None, .. })
    ));
    gone.observed.entry = Some(EntryLook::Quarantined);
    assert_eq!(gone.next(), Step::Do(Effect::RemoveFinalizer));
}

/// The answer came late, or somebody deleted the claim meanwhile: what its task warns of, or that it goes on, would be forgotten.
#[test]
fn f36_f42_a_task_is_written_down_whatever_else_is_seen() {
    let locked = visible(|machine| machine.lock = Some("destroyed".into()));
    for (phase, op, task) in [
        (Phase::Launching, Op::Clone, Op::Clone),
        (Phase::Draining, Op::Clone, Op::Clone),
        (Phase::Terminating, Op::Destroy, Op::Destroy),
    ] {
        let mut case = Case::new(phase).intent(op);
        case.claim.deleting_since = Some(case.now);
        case.observed.last = did(task, Outcome::Running("UPID:x".into()));
        for machine in [&Some(MachineLook::Invisible), &locked, &None] {
            for presence in [Some(Presence::Free), Some(Presence::Taken), None] {
                for quorate in [Some(true), Some(false), None] {
                    for claim in [ClaimLook::Here, ClaimLook::Unclear, ClaimLook::SweptAway] {
                        case.observed.machine.clone_from(machine);
                        case.observed.presence = presence;
                        case.observed.quorate = quorate;
                        case.observed.claim = claim;
                        let status = case.recorded();
                        assert_eq!(status.upid.as_deref(), Some("UPID:x"));
                        assert_eq!(status.phase, phase);
                    }
                }
            }
        }
    }
}

#[test]
fn f106_a_vmid_that_is_another_vms_by_now_is_closed_without_touching_it() {
    for marker in [Marker::Foreign, Marker::Missing] {
        let case = Case::new(Phase::Terminating).with(|case| {
            case.observed.machine = visible(|m| {
                m.marker = marker;
                m.smbios_uuid = Some(OTHER_UUID.into());
            });
            case.observed.node = Some(NodeLook::Absent);
            case.observed.entry = Some(EntryLook::Quarantined);
        });
        assert_eq!(case.next(), Step::Do(Effect::RemoveFinalizer));
    }
}

/// Somebody edited it, or restored it from a backup as a unique one: it may run, and its Node with it.
#[test]
fn f108_another_uuid_under_our_marker_is_no_proof_that_ours_is_gone() {
    for marker in [Marker::Ours, Marker::Tombstoned] {
        for power in [Power::On, Power::Off] {
            let edited = |phase| {
                Case::new(phase).with(|case| {
                    case.now = at(10);
                    case.observed.node = cordoned();
                    case.observed.entry = Some(EntryLook::Ours);
                    case.observed.machine = visible(|m| {
                        m.marker = marker;
                        m.power = power;
                        m.smbios_uuid = Some(OTHER_UUID.into());
                    });
                })
            };
            let told = edited(Phase::Terminating).recorded();
            assert!(condition(&told.conditions, Condition::OwnershipMismatch).status);
            let chosen = edited(Phase::Initialized)
                .with(|case| case.verdict = Verdict::Remove(RemovalReason::Underutilized));
            let told = chosen.recorded();
            assert_eq!(told.phase, Phase::Initialized);
            assert!(condition(&told.conditions, Condition::OwnershipMismatch).status);
        }
    }
}

#[test]
fn f30_f51_a_machine_that_somebody_changed_is_frozen() {
    type Edit = fn(&mut Machine);
    let changes: [(Edit, Condition); 8] = [
        (|m| m.marker = Marker::Missing, Condition::OwnershipMismatch),
        (
            |m| m.name = Some("pet".into()),
            Condition::OwnershipMismatch,
        ),
        (|m| m.pool = None, Condition::OwnershipMismatch),
        (|m| m.template = true, Condition::OwnershipMismatch),
        (|m| m.ha_managed = true, Condition::OwnershipMismatch),
        (|m| m.protected = true, Condition::ProtectedVM),
        (
            |m| m.snapshot = Some("before-upgrade".into()),
            Condition::ProtectedVM,
        ),
        (
            |m| m.disks.push("nfs:301/vm-301-disk-0.raw".into()),
            Condition::OwnershipMismatch,
        ),
    ];
    for (change, kind) in changes {
        let mut case =
            Case::new(Phase::Terminating).with(|case| case.observed.machine = visible(change));
        let status = case.recorded();
        assert!(condition(&status.conditions, kind).status);
        // Said once.
        case.claim.status = status;
        assert!(matches!(case.next(), Step::BackOff { .. }));
        // And taken back when it is settled.
        case.observed.machine = visible(|_| {});
        assert_eq!(case.recorded().since(kind), None);
    }
}

/// Switched off and marked, with nothing left to do but to destroy it.
fn about_to_destroy(change: impl Fn(&mut Machine)) -> Case {
    Case::new(Phase::Terminating)
        .intent(Op::Destroy)
        .with(|case| {
            case.observed.node = cordoned();
            case.observed.machine = visible(|m| {
                m.marker = Marker::Tombstoned;
                m.power = Power::Off;
                change(m);
            });
        })
}

#[test]
fn the_machine_of_a_failed_launch_is_kept_stopped_as_long_as_the_plan_agrees() {
    let mut off = about_to_destroy(|_| {}).with(|case| {
        case.settings.keep_failed = jiff::SignedDuration::from_hours(1);
        let conditions = &mut case.claim.status.conditions;
        let later = [Condition::Registered, Condition::Initialized];
        conditions.retain(|it| !later.contains(&it.kind));
        for it in conditions.iter_mut() {
            if it.kind == Condition::Drained {
                it.reason = "LaunchFailed".to_owned();
            }
        }
        let mut failed = conditions[0].clone();
        (failed.kind, failed.status) = (Condition::Registered, false);
        (failed.reason, failed.message) = ("JoinTimeout".to_owned(), "no Node joined".to_owned());
        conditions.push(failed);
    });
    // It runs still: it is marked, shut down and stopped as any other.
    let mut on = off.clone().with(|case| {
        case.observed.machine = visible(|machine| machine.marker = Marker::Tombstoned);
    });
    on = on.intent(Op::Shutdown).with(|case| case.now = at(10));
    assert!(matches!(on.next(), Step::Do(Effect::Shutdown(..))));

    let Step::Record { change, .. } = off.next() else {
        panic!("{:?}", off.next());
    };
    let note = change.note.clone().expect("an Event");
    assert_eq!((note.warning, note.reason), (false, KEPT_FAILED));
    for words in [
        "`qm start 201`",
        "`qm terminal 201`",
        "pve1",
        "no Node joined",
    ] {
        assert!(note.message.contains(words), "{}", note.message);
    }
    off.claim.status = off.recorded();
    let conditions = off.claim.status.conditions.iter();
    let told = conditions.filter(|it| it.message == note.message);
    let told: Vec<Condition> = told.map(|it| it.kind).collect();
    assert_eq!(told, [Condition::InstanceTerminating, Condition::Ready]);
    let waits =
        |case: &Case| matches!(case.next(), Step::Wait { until, .. } if until == Some(at(3600)));
    assert!(waits(&off), "{:?}", off.next());
    // A person starts it to look at it.
    on.claim.status = off.claim.status.clone();
    assert!(waits(&on), "{:?}", on.next());

    let destroys = |case: &Case| matches!(case.next(), Step::Do(Effect::Destroy(_)));
    type Edit = fn(&mut Case);
    let ends: [(&str, Edit); 4] = [
        ("over", |case| case.now = at(3600)),
        ("the plan needs its room", |case| {
            case.verdict = Verdict::Remove(RemovalReason::LaunchFailed);
        }),
        ("off", |case| {
            case.settings.keep_failed = jiff::SignedDuration::ZERO
        }),
        ("it was in service once", |case| {
            let conditions = case.claim.status.conditions.iter_mut();
            for it in conditions.filter(|it| it.kind == Condition::Drained) {
                it.reason = "Deleted".to_owned();
            }
        }),
    ];
    for (why, change) in ends {
        assert!(destroys(&off.clone().with(change)), "{why}");
    }
    // It has to be the claim's, as ever.
    let other = off.with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::LaunchFailed);
        case.observed.machine = visible(|machine| {
            machine.marker = Marker::Foreign;
            machine.power = Power::Off;
        });
    });
    assert!(!destroys(&other));
}

#[test]
fn a_disk_of_a_persistent_volume_delays_the_destruction() {
    let case = about_to_destroy(|m| m.persistent = vec!["local-lvm:vm-9999-pvc-1".into()]);
    assert!(matches!(case.next(), Step::BackOff { .. }));
}

#[test]
fn f37_a_backup_is_waited_for_as_long_as_it_takes() {
    let backup = |m: &mut Machine| m.lock = Some("backup".into());
    let mut case = about_to_destroy(backup);
    for seconds in [10, 601, 86_400] {
        case.now = at(seconds);
        assert!(matches!(case.next(), Step::BackOff { .. }), "{seconds}");
    }
    // One in service has its backup every night.
    let mut case =
        Case::new(Phase::Initialized).with(|case| case.observed.machine = visible(backup));
    case.now = at(86_400);
    assert!(matches!(case.next(), Step::Wait { .. }));
}

#[test]
fn f30_a_machine_that_somebody_migrated_is_destroyed_where_it_is() {
    let case = about_to_destroy(|m| m.hypervisor = "pve2".into());
    let Step::Do(Effect::Destroy(proven)) = case.next() else {
        panic!("{:?}", case.next());
    };
    assert_eq!(
        (&*case.claim.spec.hypervisor, &**proven.hypervisor()),
        ("pve1", "pve2")
    );
}

#[test]
fn f46_a_machine_that_cannot_be_started_where_it_is_goes_with_the_reason() {
    let mut case = Case::new(Phase::Launching).intent(Op::Start).with(|case| {
        case.claim.status.smbios_uuid = Some(UUID.into());
        case.claim.status.disks = vec![DISK.into()];
        case.observed.machine = visible(|m| m.power = Power::Off);
        case.observed.last = did(Op::Start, failure(Failure::Elsewhere));
    });
    failed_launch(&case, "HypervisorUnfit");
    // Nothing of it is in the way of the next: it is removed with proof, and its hypervisor rests.
    case.claim.status = case.recorded();
    let drained = case.claim.status.conditions.iter();
    let drained: Vec<_> = drained.filter(|c| c.kind == Condition::Drained).collect();
    assert_eq!(drained.len(), 1);
    assert!(
        drained[0].message.contains("starting VM 201 failed"),
        "{drained:?}"
    );
    case.claim.status.phase = Phase::Terminating;
    case.claim.deleting_since = Some(case.now);
    case.observed = Observed {
        quorate: Some(true),
        machine: Some(MachineLook::Invisible),
        presence: Some(Presence::Free),
        node: Some(NodeLook::Absent),
        entry: Some(EntryLook::Ours),
        ..Observed::default()
    };
    let Step::Do(Effect::Quarantine { failure, .. }) = case.next() else {
        panic!("{:?}", case.next());
    };
    assert_eq!(
        failure.map(|failure| failure.class.to_string()),
        Some("HypervisorUnfit".to_owned())
    );
}

#[test]
fn f42_f52_volumes_left_behind_are_reported() {
    let case = Case::new(Phase::Terminating)
        .intent(Op::Destroy)
        .with(|case| {
            case.claim.status.upid = Some("UPID:9".into());
            case.observed.task = Some(Outcome::Warnings(1));
        });
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    assert_eq!(change.note.map(|note| note.reason), Some("LeakedVolume"));
    assert_eq!(case.recorded().upid, None);
}

#[test]
fn f33_a_refused_destroy_is_told_once_and_never_an_ownership_mismatch() {
    let terminating = about_to_destroy(|_| {});
    // At once, or by the task.
    let at_once = terminating.clone().with(|case| {
        case.observed.last = did(Op::Destroy, failure(Failure::GiveUp));
    });
    let by_task = terminating.clone().with(|case| {
        case.claim.status.upid = Some("UPID:9".into());
        case.observed.task = Some(failure(Failure::GiveUp));
    });
    for mut case in [at_once, by_task] {
        let Step::Record { change, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        let note = change.note.expect("an Event");
        assert!(note.message.contains("says why"), "{}", note.message);
        let status = case.recorded();
        let told = condition(&status.conditions, Condition::InstanceTerminating);
        assert_eq!((told.since, &*told.reason), (t0(), "Refused"));
        assert_eq!(status.since(Condition::OwnershipMismatch), None);
        // The next drive tries again, and takes nothing back before.
        let mut again = terminating.clone();
        again.claim.status = status.clone();
        assert!(matches!(again.next(), Step::Do(Effect::Destroy(_))));
        case.claim.status.conditions = status.conditions;
        let step = case.next();
        if let Step::Record { change, .. } = step {
            assert_eq!(change.note, None);
        } else {
            assert!(matches!(step, Step::BackOff { .. }), "{step:?}");
        }
    }
}

#[test]
fn f41_a_stuck_clone_frees_its_place_and_waits_for_a_human() {
    let mut case = Case::new(Phase::Terminating).with(|case| {
        case.claim.status.smbios_uuid = None;
        case.observed.presence = Some(Presence::Taken);
        case.observed.machine = Some(MachineLook::Invisible);
        case.observed.entry = Some(EntryLook::Ours);
        case.observed.node = Some(NodeLook::Absent);
    });
    assert!(matches!(case.next(), Step::Do(Effect::Quarantine { .. })));
    case.observed.entry = Some(EntryLook::Quarantined);
    assert!(case.recorded().since(Condition::StuckLocked).is_some());
    case.observed.presence = Some(Presence::Free);
    assert_eq!(case.next(), Step::Do(Effect::RemoveFinalizer));
}

#[test]
fn a_machine_whose_launch_was_interrupted_is_written_down_before_it_goes() {
    let case = Case::new(Phase::Terminating).with(|case| {
        let status = &mut case.claim.status;
        (status.smbios_uuid, status.hypervisor) = (None, None);
        status.disks.clear();
        case.observed.machine = visible(|machine| machine.hypervisor = "pve2".into());
        case.observed.node = Some(NodeLook::Absent);
    });
    let status = case.recorded();
    assert_eq!(status.smbios_uuid, Some(UUID.into()));
    assert_eq!(status.disks, [DISK.into()]);
    assert_eq!(status.hypervisor, Some("pve2".into()));
}

#[test]
fn f101_a_late_node_is_kept_empty_while_its_machine_goes() {
    let case = Case::new(Phase::Terminating).with(|case| {
        case.observed.machine = visible(|_| {});
        case.observed.node = node(|_| {});
    });
    assert!(matches!(case.next(), Step::Do(Effect::Cordon(_))));
}

/// A killed backup has left its lock. The hint is what `act` remembers of the drives before.
#[test]
fn r33_what_a_removal_waits_for_is_told_after_a_minute_with_since_when() {
    let locked = |lock: Option<&'static str>, seconds: i64| {
        about_to_destroy(move |m| m.lock = lock.map(Into::into)).with(|case| {
            case.now = at(seconds);
        })
    };
    let waits = |case: &Case, since: i64| {
        let Step::BackOff { why, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        let (since, why_since) = (at(since), at(since));
        Some(Waits {
            since,
            why,
            why_since,
        })
    };
    let mut case = locked(Some("backup"), 69);
    case.hint.waits = waits(&case, 10);
    assert!(matches!(case.next(), Step::BackOff { .. }));
    case.now = at(70);
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    let note = change.note.expect("an Event");
    assert_eq!((note.warning, note.reason), (true, "RemovalStalled"));
    for told in [
        "is locked (backup)",
        "`qm unlock 201`",
        "on pve1",
        "since 2027",
    ] {
        assert!(note.message.contains(told), "{}", note.message);
    }
    case.claim.status = case.recorded();
    assert_eq!(case.claim.status.since(Condition::Stalled), Some(at(10)));
    // Once.
    assert!(matches!(case.next(), Step::BackOff { .. }));

    // It waits for something else: that is told, since when it waits is not changed, and there is no other Event.
    let mut other = locked(Some("migrate"), 129);
    other.claim.status = case.claim.status.clone();
    other.hint.waits = waits(&other, 70).map(|waits| Waits {
        since: at(10),
        ..waits
    });
    assert!(matches!(other.next(), Step::BackOff { .. }));
    other.now = at(130);
    let Step::Record { change, .. } = other.next() else {
        panic!("{:?}", other.next());
    };
    assert_eq!(change.note, None);
    let told = other.recorded();
    assert_eq!(told.since(Condition::Stalled), Some(at(10)));
    assert!(
        condition(&told.conditions, Condition::Stalled)
            .message
            .contains("migrate")
    );

    // The lock is gone, and the next operation begins.
    let mut free = locked(None, 200).intent(Op::Stop);
    free.claim.status.conditions = case.claim.status.conditions.clone();
    assert_eq!(free.recorded().since(Condition::Stalled), None);
    assert_eq!(free.recorded().intent.unwrap().op, Op::Destroy);
}

/// What a condition and an Event say already gets no second Event.
#[test]
fn r33_a_removal_that_waits_for_a_person_is_told_by_one_event() {
    let mut case = about_to_destroy(|m| m.protected = true);
    case.claim.status = case.recorded();
    let Step::BackOff { why, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    case.hint.waits = Some(Waits {
        since: t0(),
        why,
        why_since: t0(),
    });
    case.now = at(60);
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    assert_eq!(change.note, None);
    assert_eq!(case.recorded().since(Condition::Stalled), Some(t0()));
}

#[test]
fn r33_a_claim_that_others_hold_says_so_once_its_machine_is_gone() {
    let mut case = Case::new(Phase::Terminating).with(|case| {
        case.claim.has_finalizer = false;
        case.now = at(60);
    });
    assert_eq!(case.next(), Step::Done);
    case.claim.other_finalizers = vec!["example.com/audit".into()];
    case.now = at(59);
    assert!(matches!(case.next(), Step::Wait { .. }));
    case.now = at(60);
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    let note = change.note.expect("an Event");
    assert!(
        note.message.contains("example.com/audit"),
        "{}",
        note.message
    );
    case.claim.status = case.recorded();
    let told = condition(&case.claim.status.conditions, Condition::Ready);
    assert_eq!((told.status, &*told.reason), (false, "Closed"));
    assert_eq!(case.next(), Step::Done);
}

#[test]
fn i10_a_repair_is_told_as_a_warning_of_its_own_and_a_scale_down_as_none() {
    let told = |reason| {
        let case = Case::new(Phase::Initialized).with(|case| {
            case.verdict = Verdict::Remove(reason);
            case.observed.machine = visible(|_| {});
        });
        let Step::Record { change, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        let note = change.note.expect("an Event");
        (note.warning, note.reason)
    };
    for (reason, expected) in [
        (RemovalReason::Repair, (true, "Repair")),
        (RemovalReason::NodeDeleted, (false, "NodeDeleted")),
        (RemovalReason::Expired, (false, "Expired")),
        (RemovalReason::Underutilized, (false, "ScaleDown")),
        (RemovalReason::Empty, (false, "ScaleDownEmpty")),
    ] {
        assert_eq!(told(reason), expected);
    }
}
