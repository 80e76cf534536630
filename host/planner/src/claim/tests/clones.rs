//! What a clone inherits, who else may have its number, and what its task leaves open.

use super::fixture::*;
use crate::claim::*;
use crate::facts::ClaimCondition;

fn cloning() -> Case {
    Case::new(Phase::Launching).intent(Op::Clone)
}

fn found(conditions: &[ClaimCondition], kind: Condition) -> &ClaimCondition {
    let mut conditions = conditions.iter();
    conditions
        .find(|condition| condition.kind == kind)
        .unwrap_or_else(|| panic!("no {kind:?}"))
}

#[test]
fn a_clone_of_a_protected_template_is_configured_and_refused_only_if_it_stays_protected() {
    let mut case = cloning().with(|case| {
        case.observed.presence = Some(Presence::Taken);
        case.observed.machine = visible(|machine| {
            machine.power = Power::Off;
            machine.protected = true;
        });
    });
    case.claim.status = case.recorded();
    let intent = case.claim.status.intent.as_ref();
    assert_eq!(intent.map(|intent| intent.op), Some(Op::Configure));
    assert!(matches!(case.next(), Step::Do(Effect::Configure(_))));

    let configured = did(Op::Configure, Outcome::Done);
    for case in [
        case.clone().with(|case| case.observed.last = configured),
        case.clone().intent(Op::Start),
    ] {
        let status = case.recorded();
        assert!(status.since(Condition::ProtectedVM).is_some());
    }
    // Nor is one destroyed that never got so far.
    let mut cut_off = case.with(|case| case.claim = claim(Phase::Terminating));
    cut_off.claim.status.smbios_uuid = None;
    let status = cut_off.recorded();
    assert!(status.since(Condition::ProtectedVM).is_some());
    cut_off.observed.machine = visible(|machine| {
        machine.power = Power::Off;
        machine.snapshot = Some("before-upgrade".into());
    });
    let status = cut_off.recorded();
    assert!(status.since(Condition::ProtectedVM).is_some());
}

#[test]
fn a_hidden_vm_that_had_the_number_before_the_clone_was_asked_for_is_somebody_elses() {
    let hidden = cloning().with(|case| {
        case.observed.presence = Some(Presence::Taken);
        case.observed.machine = Some(MachineLook::Invisible);
        case.observed.last = wrote(Outcome::Done);
    });
    let launched = hidden.recorded();
    assert_eq!(launched.phase, Phase::Draining);
    let launched = found(&launched.conditions, Condition::Launched);
    assert_eq!(launched.reason, "VmidTaken");

    // Whoever has asked, or may have, waits for what becomes visible.
    for waiting in [
        hidden.clone().with(|case| case.observed.last = None),
        hidden.with(|case| {
            if let Some(intent) = &mut case.claim.status.intent {
                intent.attempt = 2;
            }
        }),
    ] {
        assert!(matches!(waiting.next(), Step::BackOff { .. }));
    }
}

#[test]
fn n4_a_task_that_finds_its_number_taken_ends_the_claim_though_nothing_is_listed() {
    let failed = |by_task: bool| {
        cloning().with(|case| {
            case.observed.presence = Some(Presence::Free);
            match by_task {
                true => {
                    case.claim.status.upid = Some("UPID:1".into());
                    case.observed.task = Some(failure(Failure::VmidTaken));
                }
                false => case.observed.last = did(Op::Clone, failure(Failure::VmidTaken)),
            }
        })
    };
    let status = failed(true).recorded();
    assert_eq!(status.phase, Phase::Draining);
    let launched = found(&status.conditions, Condition::Launched);
    assert_eq!(launched.reason, "VmidTaken");
    // A request that is refused has begun nothing, and what it met may be our own clone.
    assert_eq!(failed(false).recorded().phase, Phase::Launching);
}

#[test]
fn f43_a_task_that_cannot_be_read_has_ended_if_its_machine_is_certainly_absent() {
    let mut case = cloning().with(|case| {
        case.claim.status.upid = Some("UPID:1".into());
        case.observed.presence = Some(Presence::Free);
    });
    assert_eq!(looks(&case.subject(), None).quorum, Need::Always);
    let status = case.recorded();
    let attempt = status.intent.map(|intent| intent.attempt);
    assert_eq!((status.upid, attempt), (None, Some(2)));

    case.observed.quorate = None;
    assert!(matches!(case.next(), Step::BackOff { .. }));
    // Otherwise it is waited for no longer than for the machine itself.
    case.now = at(300);
    assert_eq!(case.recorded().phase, Phase::Draining);
}

#[test]
fn a_clone_whose_begin_is_not_known_is_repeated_ever_more_slowly() {
    let mut case = cloning().with(|case| {
        case.observed.presence = Some(Presence::Free);
        case.observed.last = did(Op::Clone, Outcome::Unknown("596".into()));
    });
    let mut pauses = Vec::new();
    for attempt in [1, 2, 20] {
        if let Some(intent) = &mut case.claim.status.intent {
            intent.attempt = attempt;
        }
        let Step::BackOff { until, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        pauses.push(until.duration_since(case.now).as_secs());
    }
    assert_eq!(pauses, [5, 10, 60]);
}

#[test]
fn f37_a_locked_vm_is_named_for_removal_only_if_something_says_that_it_is_ours() {
    let locked = || {
        cloning().with(|case| {
            case.now = at(301);
            case.observed.presence = Some(Presence::Taken);
            case.observed.machine = visible(|machine| {
                machine.lock = Some("clone".into());
                machine.marker = Marker::Missing;
            });
        })
    };
    let by_task = locked().with(|case| {
        case.claim.status.upid = Some("UPID:1".into());
        case.observed.task = Some(Outcome::Done);
    });
    let by_marker = locked().with(|case| {
        case.observed.machine = visible(|machine| machine.lock = Some("clone".into()));
    });
    for (mut case, is_ours) in [(by_task, true), (by_marker, true), (locked(), false)] {
        case.claim.status = case.recorded();
        // And so all the way down.
        let conditions = case.claim.status.conditions.clone();
        case.claim = claim(Phase::Terminating);
        case.claim.status.smbios_uuid = None;
        let mut told = vec![found(&conditions, Condition::StuckLocked).message.clone()];
        case.claim.status.conditions.extend(conditions);
        case.observed.machine = visible(|machine| {
            machine.lock = Some("clone".into());
            machine.marker = Marker::Missing;
            machine.smbios_uuid = None;
        });
        case.observed.entry = Some(EntryLook::Quarantined);
        for _ in 0..2 {
            let conditions = case.recorded().conditions;
            told.push(found(&conditions, Condition::StuckLocked).message.clone());
            case.claim.status.conditions = conditions;
            case.observed.machine = visible(|machine| {
                machine.lock = Some("create".into());
                machine.marker = Marker::Missing;
                machine.smbios_uuid = None;
            });
        }
        for message in told {
            assert_eq!(message.contains("qm destroy"), is_ours, "{message}");
        }
    }
}

#[test]
fn a_clone_is_not_asked_for_on_the_record_of_the_one_before() {
    let free = |upid: Option<&str>, record: Outcome| {
        cloning().with(|case| {
            case.claim.status.upid = upid.map(Into::into);
            case.observed.task = upid.map(|_| Outcome::Done);
            case.observed.presence = Some(Presence::Free);
            case.observed.entry = Some(EntryLook::Ours);
            case.observed.last = wrote(record);
        })
    };
    assert_eq!(free(None, Outcome::Done).next(), Step::Do(Effect::Clone));
    for case in [
        free(Some("UPID:1"), Outcome::Done),
        free(None, Outcome::Unknown("lost".into())),
    ] {
        let status = case.recorded();
        let attempt = status.intent.map(|intent| intent.attempt);
        assert_eq!((status.upid, attempt), (None, Some(2)));
    }
}
