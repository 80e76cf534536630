//! Every row of the recovery table: what a restart does, by the intent that it finds and by what it sees.

use super::fixture::*;
use crate::claim::*;
use crate::plan::{RemovalReason, Verdict};
use crate::reasons::on_hold::Hold;

fn cloning() -> Case {
    Case::new(Phase::Launching)
        .intent(Op::Clone)
        .with(|case| case.observed.own_intent = false)
}

fn late(case: Case) -> Case {
    case.with(|case| case.now = at(301))
}

pub(super) fn failed_launch(case: &Case, reason: &str) {
    let status = case.recorded();
    assert_eq!(status.phase, Phase::Draining, "{status:?}");
    let launched = condition(&status.conditions, Condition::Launched);
    assert_eq!((launched.status, &*launched.reason), (false, reason));
}

pub(super) fn condition(
    conditions: &[crate::facts::ClaimCondition],
    kind: Condition,
) -> &crate::facts::ClaimCondition {
    conditions
        .iter()
        .find(|c| c.kind == kind)
        .unwrap_or_else(|| panic!("no {kind:?} in {conditions:?}"))
}

#[test]
fn a_new_claim_writes_its_intent_before_anything_else() {
    let case = Case::new(Phase::Pending).with(|case| case.observed.presence = Some(Presence::Free));
    let number_only = Looks {
        presence: Need::Always,
        ..Looks::default()
    };
    assert_eq!(looks(&case.subject(), None), number_only);
    let status = case.recorded();
    assert_eq!(status.phase, Phase::Launching);
    assert_eq!(
        status.intent.map(|i| (i.op, i.attempt)),
        Some((Op::Clone, 1))
    );
    assert!(status.nonce.is_some());
}

#[test]
fn a_number_that_somebody_has_unseen_is_given_up_before_any_intent() {
    let taken =
        Case::new(Phase::Pending).with(|case| case.observed.presence = Some(Presence::Taken));
    failed_launch(&taken, "VmidTaken");
    let unknown = Case::new(Phase::Pending).with(|case| case.observed.presence = None);
    assert!(matches!(unknown.next(), Step::BackOff { .. }));
}

#[test]
fn a_claim_without_finalizer_launches_nothing() {
    let case = Case::new(Phase::Pending).with(|case| case.claim.has_finalizer = false);
    assert!(matches!(case.next(), Step::Wait { .. }));
}

#[test]
fn free_and_the_intent_just_written_clones() {
    let case = cloning().with(|case| {
        case.observed.presence = Some(Presence::Free);
        case.observed.entry = Some(EntryLook::Ours);
        case.observed.last = wrote(Outcome::Done);
    });
    assert_eq!(case.next(), Step::Do(Effect::Clone));
}

#[test]
fn free_with_an_old_intent_writes_a_new_one_first() {
    let case = cloning().with(|case| case.observed.presence = Some(Presence::Free));
    let status = case.recorded();
    assert_eq!(
        status.intent.map(|i| (i.op, i.attempt)),
        Some((Op::Clone, 2))
    );
}

#[test]
fn a_lost_reservation_ends_the_launch() {
    let case = cloning().with(|case| {
        case.observed.presence = Some(Presence::Free);
        case.observed.entry = Some(EntryLook::Quarantined);
        case.observed.last = wrote(Outcome::Done);
    });
    failed_launch(&case, "ReservationLost");
}

#[test]
fn b18_a_running_clone_is_followed() {
    let case = cloning().with(|case| {
        case.claim.status.upid = Some("UPID:1".into());
        case.observed.task = Some(Outcome::Running("UPID:1".into()));
    });
    let follow = Step::Follow {
        upid: "UPID:1".into(),
        op: Op::Clone,
    };
    assert_eq!(case.next(), follow);
}

#[test]
fn f37_f41_a_clone_that_is_not_visible_yet_is_waited_for_and_then_stuck() {
    for look in [
        Some(MachineLook::Invisible),
        visible(|m| {
            m.lock = Some("clone".into());
            m.marker = Marker::Missing;
        }),
    ] {
        let case = cloning().with(|case| {
            case.observed.presence = Some(Presence::Taken);
            case.observed.machine = look;
        });
        assert!(matches!(case.next(), Step::BackOff { .. }));
        let case = late(case);
        failed_launch(&case, "StuckLocked");
        assert!(condition(&case.recorded().conditions, Condition::StuckLocked).status);
    }
}

#[test]
fn a_finished_clone_is_read_back() {
    let case = cloning().with(|case| {
        case.observed.presence = Some(Presence::Taken);
        case.observed.machine = visible(|m| m.power = Power::Off);
    });
    let status = case.recorded();
    assert_eq!(status.smbios_uuid, Some(UUID.into()));
    assert_eq!(status.disks, [DISK.into()]);
    assert_eq!(status.intent.map(|i| i.op), Some(Op::Configure));
}

#[test]
fn f38_a_vm_of_somebody_else_closes_the_claim() {
    for marker in [Marker::Foreign, Marker::Missing] {
        let case = cloning().with(|case| {
            case.observed.presence = Some(Presence::Taken);
            case.observed.machine = visible(|m| m.marker = marker);
        });
        failed_launch(&case, "VmidTaken");
    }
}

#[test]
fn f38_b23_a_refusal_of_the_only_clone_says_that_ours_was_never_made() {
    let refused = |own: bool| {
        cloning().with(|case| {
            case.observed.own_intent = own;
            case.observed.presence = Some(Presence::Taken);
            case.observed.machine = Some(MachineLook::Invisible);
            case.observed.last = did(Op::Clone, failure(Failure::VmidTaken));
        })
    };
    failed_launch(&refused(true), "VmidTaken");
    // Another leader may have asked before us: then it can be ours, not yet in its pool.
    assert!(matches!(refused(false).next(), Step::BackOff { .. }));
}

#[test]
fn f38_a_refused_clone_that_turns_out_to_be_ours_is_continued() {
    let case = cloning().with(|case| {
        case.observed.own_intent = true;
        case.observed.presence = Some(Presence::Taken);
        case.observed.machine = visible(|m| m.power = Power::Off);
        case.observed.last = did(Op::Clone, failure(Failure::VmidTaken));
    });
    assert_eq!(case.recorded().intent.map(|i| i.op), Some(Op::Configure));
}

#[test]
fn f31_an_unknown_outcome_is_looked_at_before_anything_is_repeated() {
    let case = cloning().with(|case| {
        case.observed.presence = Some(Presence::Free);
        case.observed.last = did(Op::Clone, Outcome::Unknown("596".into()));
    });
    assert!(matches!(case.next(), Step::BackOff { .. }));
}

#[test]
fn f34_f44_a_failed_clone_is_repeated_or_ends_the_launch_by_its_class() {
    let failed = |class| {
        cloning().with(|case| {
            case.claim.status.upid = Some("UPID:1".into());
            case.observed.task = Some(failure(class));
            case.observed.presence = Some(Presence::Free);
        })
    };
    for class in [Failure::Retry, Failure::Freeze] {
        let status = failed(class).recorded();
        assert_eq!(status.intent.map(|i| i.attempt), Some(2));
        assert_eq!(status.upid, None);
        failed_launch(&late(failed(class)), class.as_str());
    }
    for class in [Failure::Elsewhere, Failure::GiveUp] {
        failed_launch(&failed(class), class.as_str());
    }
    // A server that is off is not full.
    failed_launch(&failed(Failure::Elsewhere), "HypervisorUnfit");
}

#[test]
fn f35_f40_nothing_is_concluded_from_what_could_not_be_read() {
    for case in [
        cloning(),
        cloning().with(|case| case.claim.status.upid = Some("UPID:1".into())),
        cloning().with(|case| case.observed.presence = Some(Presence::Taken)),
        Case::new(Phase::Launching).intent(Op::Start),
        Case::new(Phase::Terminating).with(|case| case.observed.quorate = None),
        Case::new(Phase::Terminating).with(|case| case.observed.quorate = Some(false)),
        Case::new(Phase::Terminating).with(|case| {
            case.observed.quorate = Some(false);
            case.observed.presence = Some(Presence::Free);
            case.observed.machine = Some(MachineLook::Invisible);
        }),
        Case::new(Phase::Terminating).with(|case| {
            case.observed.presence = Some(Presence::Taken);
            case.observed.machine = Some(MachineLook::Unreachable("pve1 is offline".into()));
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
fn a_launch_goes_on_from_configure_to_start() {
    let launching = |op| {
        let mut case = Case::new(Phase::Launching).intent(op);
        case.claim.status.smbios_uuid = Some(UUID.into());
        case.claim.status.disks = vec![DISK.into()];
        case
    };
    let off =
        |case: Case| case.with(|case| case.observed.machine = visible(|m| m.power = Power::Off));
    let case = off(launching(Op::Configure));
    assert!(matches!(case.next(), Step::Do(Effect::Configure(_))));
    let case = case.with(|case| case.observed.last = did(Op::Configure, Outcome::Done));
    assert_eq!(case.recorded().intent.map(|i| i.op), Some(Op::Start));

    let case = launching(Op::Configure).with(|case| {
        case.observed.last = did(Op::Configure, Outcome::Done);
        case.observed.machine = visible(|m| {
            m.power = Power::Off;
            m.grow_to = Some(1 << 35);
        });
    });
    assert_eq!(case.recorded().intent.map(|i| i.op), Some(Op::Resize));
    let case = case.intent(Op::Resize);
    assert!(matches!(case.next(), Step::Do(Effect::Resize(_, size)) if size == 1 << 35));

    let case = launching(Op::Resize)
        .with(|case| case.observed.machine = visible(|m| m.power = Power::Off));
    assert_eq!(case.recorded().intent.map(|i| i.op), Some(Op::Start));
    assert!(matches!(
        case.intent(Op::Start).next(),
        Step::Do(Effect::Start(_))
    ));

    // F35: without quorum the disk grew, and its configuration never says so.
    for outcome in [Outcome::Done, Outcome::Warnings(1)] {
        let case = launching(Op::Resize).with(|case| {
            case.observed.last = did(Op::Resize, outcome.clone());
            case.observed.machine = visible(|m| {
                m.power = Power::Off;
                m.grow_to = Some(1 << 35);
            });
        });
        assert_eq!(case.recorded().intent.map(|i| i.op), Some(Op::Start));
        let case = case
            .intent(Op::Start)
            .with(|case| case.observed.last = None);
        assert!(matches!(case.next(), Step::Do(Effect::Start(_))));
    }

    // The start took effect, and its answer or we were lost.
    let case = launching(Op::Start).with(|case| case.observed.machine = visible(|_| {}));
    let status = case.recorded();
    assert_eq!(
        (status.phase, status.started_at),
        (Phase::Launched, Some(case.now))
    );
}

/// Of two steps between clone and start. Nobody is to blame for what is tried again.
#[test]
fn n6_a_task_that_failed_is_on_the_claim_at_the_first_try() {
    for (op, kind) in [
        (Op::Configure, Failure::StorageBusy),
        (Op::Resize, Failure::Retry),
    ] {
        let mut case = Case::new(Phase::Launching).intent(op);
        case.claim.status.smbios_uuid = Some(UUID.into());
        case.claim.status.disks = vec![DISK.into()];
        case.observed.machine = visible(|m| {
            m.power = Power::Off;
            m.grow_to = Some(1 << 35);
        });
        let text = "cfs-lock 'storage-shared' error: got lock request timeout";
        let failed = |text: &str| {
            let (failure, text) = (kind, text.to_owned());
            did(op, Outcome::Failed { failure, text })
        };
        case.observed.last = failed(text);
        case.claim.status = case.recorded();
        let status = &case.claim.status;
        let mut conditions = status.conditions.iter();
        let launched = conditions.find(|it| it.kind == Condition::Launched);
        let launched = launched.expect("it says why");
        assert!(!launched.status && launched.message.ends_with(text));
        assert_eq!(status.launch_failure(), None);
        // The same again is written once, and something else is written.
        assert!(matches!(case.next(), Step::BackOff { .. }));
        case.observed.last = failed("something else");
        assert!(matches!(case.next(), Step::Record { .. }));
    }
}

#[test]
fn a_disk_that_somebody_gave_a_new_clone_keeps_it_from_being_configured() {
    let mut case = Case::new(Phase::Launching).intent(Op::Configure);
    case.claim.status.smbios_uuid = Some(UUID.into());
    case.claim.status.disks = vec![DISK.into()];
    case.observed.machine = visible(|m| {
        m.power = Power::Off;
        m.disks.push("nfs:301/vm-301-disk-0.raw".into());
    });
    let status = case.recorded();
    assert!(status.since(Condition::OwnershipMismatch).is_some());
    assert_eq!(status.disks, [DISK.into()]);
}

#[test]
fn an_absent_machine_is_lost() {
    let gone = |case: &mut Case| {
        case.observed.presence = Some(Presence::Free);
        case.observed.machine = Some(MachineLook::Invisible);
        case.hint.guest = GuestHint::Absent;
    };
    for phase in [Phase::Launched, Phase::Registered, Phase::Initialized] {
        let case = Case::new(phase).with(gone);
        let case = case.with(|case| case.verdict = Verdict::Remove(RemovalReason::Lost));
        assert_eq!(case.recorded().phase, Phase::Draining, "{phase:?}");
        let case = case.with(|case| case.settings.armed_at = Some(at(100)));
        assert!(matches!(case.next(), Step::Wait { .. }), "{phase:?}");
        let case = case.with(|case| case.observed.quorate = Some(false));
        assert!(matches!(case.next(), Step::BackOff { .. }), "{phase:?}");
    }
    failed_launch(
        &Case::new(Phase::Launching).intent(Op::Start).with(gone),
        "Lost",
    );
}

#[test]
fn hold_means_no_effect_in_any_phase() {
    for phase in PHASES {
        let case = Case::new(phase).with(|case| {
            case.verdict = Verdict::Hold(Hold::ClaimPaused);
            case.observed.machine = visible(|_| {});
        });
        assert!(matches!(case.next(), Step::Wait { .. }), "{phase:?}");
        assert_eq!(looks(&case.subject(), None), Looks::default());
    }
}

#[test]
fn a_claim_that_is_gone_is_done() {
    for phase in PHASES {
        let case = Case::new(phase).with(|case| case.observed.claim = ClaimLook::Gone);
        assert_eq!(case.next(), Step::Done);
    }
}

#[test]
fn f111_a_claim_that_goes_with_its_definition_leaves_its_machine_alone() {
    for phase in PHASES {
        for claim in [ClaimLook::SweptAway, ClaimLook::Unclear] {
            let case = Case::new(phase).with(|case| {
                case.claim.deleting_since = Some(case.now);
                case.observed.claim = claim;
                case.observed.machine = visible(|_| {});
            });
            assert!(looks(&case.subject(), None).definition, "{phase:?}");
            let step = case.next();
            assert!(
                matches!(step, Step::BackOff { .. }),
                "{phase:?} {claim:?}: {step:?}"
            );
        }
    }
}

#[test]
fn a_running_machine_in_service_costs_no_look() {
    let case = Case::new(Phase::Initialized).with(|case| case.hint.guest = GuestHint::Running);
    assert_eq!(looks(&case.subject(), None), Looks::default());
    assert!(matches!(case.next(), Step::Wait { until: None, .. }));
}

#[test]
fn f49_an_inventory_that_errs_loses_nothing() {
    let case = Case::new(Phase::Initialized).with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Lost);
        case.hint.guest = GuestHint::Absent;
        case.observed.machine = visible(|_| {});
    });
    assert!(
        matches!(case.next(), Step::Wait { .. }),
        "{:?}",
        case.next()
    );
}
