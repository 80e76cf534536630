//! Machines that stopped, that do not start, and that are said to be gone.

use super::fixture::*;
use crate::claim::*;
use crate::plan::{RemovalReason, Verdict};
use crate::reasons::kept::GiveUp;

fn stopped(phase: Phase) -> Case {
    Case::new(phase).with(|case| {
        case.hint.guest = GuestHint::Stopped;
        case.observed.machine = visible(|m| m.power = Power::Off);
    })
}

fn intent(case: &Case) -> Option<(Op, u32)> {
    let intent = case.claim.status.intent.as_ref();
    intent.map(|intent| (intent.op, intent.attempt))
}

/// Writes its intent and asks for the start, whose end is `outcome`.
fn start(case: &mut Case, outcome: Outcome) {
    case.observed.last = None;
    case.claim.status = case.recorded();
    case.observed.last = wrote(Outcome::Done);
    assert!(
        matches!(case.next(), Step::Do(Effect::Start(_))),
        "{:?}",
        case.next()
    );
    case.observed.last = did(Op::Start, outcome);
}

#[test]
fn starts_that_fail_are_repeated_ever_more_slowly_and_condemn_no_machine() {
    let mut case = stopped(Phase::Initialized);
    let mut pauses = Vec::new();
    for attempt in 1..=40 {
        start(&mut case, failure(Failure::Retry));
        assert_eq!(intent(&case), Some((Op::Start, attempt)));
        let Step::BackOff { until, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        pauses.push(until.duration_since(case.now).as_secs());
        case.now = until;
    }
    assert_eq!((&pauses[..3], pauses[39]), (&[10, 20, 30][..], 300));
}

#[test]
fn a_machine_that_stops_as_often_as_it_is_started_is_not_started_without_pause() {
    let mut case = stopped(Phase::Initialized);
    start(&mut case, Outcome::Done);
    let off = case.observed.machine.take();
    case.observed.machine = visible(|_| {});
    case.claim.status = case.recorded();
    assert_eq!(case.claim.status.started_at, Some(at(60)));

    case.observed.machine = off;
    for last in [None, wrote(Outcome::Done)] {
        case.observed.last = last;
        assert!(matches!(case.next(), Step::BackOff { until, .. } if until == at(70)));
    }
    case.now = at(70);
    start(&mut case, Outcome::Done);
    assert_eq!(intent(&case), Some((Op::Start, 2)));
}

#[test]
fn attempts_at_something_else_are_no_starts() {
    let mut case = stopped(Phase::Initialized).intent(Op::Cordon);
    case.claim.status.intent.as_mut().unwrap().attempt = 5;
    case.claim.status = case.recorded();
    assert_eq!(intent(&case), Some((Op::Start, 1)));
}

#[test]
fn a_recovered_machine_is_started_at_once_when_it_stops_again() {
    let case = Case::new(Phase::Initialized)
        .intent(Op::Start)
        .with(|case| {
            case.observed.machine = visible(|_| {});
            case.observed.node = node(|_| {});
        });
    assert!(matches!(case.next(), Step::Wait { .. }));
    let case = case.with(|case| case.now = at(301));
    assert_eq!(case.recorded().intent, None);
}

#[test]
fn a_machine_that_never_stays_up_while_it_joins_is_not_waited_for_for_ever() {
    let case = stopped(Phase::Launched).with(|case| {
        case.claim.status.started_at = Some(at(1190));
        case.observed.node = Some(NodeLook::Absent);
        case.now = at(1199);
    });
    assert!(matches!(case.next(), Step::BackOff { .. }));
    let case = case.with(|case| case.now = at(1200));
    assert_eq!(case.late().recorded().phase, Phase::Draining);
}

#[test]
fn f35_nothing_is_configured_grown_or_started_without_quorum() {
    let launching = |op| {
        let mut case = stopped(Phase::Launching).intent(op);
        case.claim.status.smbios_uuid = Some(UUID.into());
        case.claim.status.disks = vec![DISK.into()];
        case
    };
    let growing = launching(Op::Resize).with(|case| {
        case.observed.machine = visible(|machine| {
            machine.power = Power::Off;
            machine.grow_to = Some(1 << 35);
        });
    });
    let starting = stopped(Phase::Initialized)
        .intent(Op::Start)
        .with(|case| case.observed.last = wrote(Outcome::Done));
    for case in [
        launching(Op::Configure),
        growing,
        launching(Op::Start),
        starting,
    ] {
        assert!(!matches!(case.next(), Step::BackOff { .. }));
        let case = case.with(|case| case.observed.quorate = Some(false));
        assert!(matches!(case.next(), Step::BackOff { .. }));
    }
}

fn absent(phase: Phase) -> Case {
    Case::new(phase).with(|case| {
        case.observed.presence = Some(Presence::Free);
        case.observed.machine = Some(MachineLook::Invisible);
        case.hint.guest = GuestHint::Absent;
    })
}

/// The endpoint is another cluster's, or on the wrong side of a partition.
#[test]
fn a_machine_in_service_is_lost_only_if_the_plan_says_so() {
    for verdict in [Verdict::Keep, Verdict::GiveUp(GiveUp::PoolGone)] {
        let mut case = absent(Phase::Initialized).with(|case| case.verdict = verdict);
        assert!(
            matches!(case.next(), Step::BackOff { .. }),
            "{:?}",
            case.next()
        );
        let another = "11111111-1b04-4b04-ba4f-c09d2b1c5a16";
        case.observed.machine = visible(|m| {
            m.marker = Marker::Missing;
            m.smbios_uuid = Some(another.into());
        });
        assert!(
            matches!(case.next(), Step::BackOff { .. }),
            "{:?}",
            case.next()
        );
    }
    let lost =
        absent(Phase::Initialized).with(|case| case.verdict = Verdict::Remove(RemovalReason::Lost));
    assert_eq!(lost.recorded().phase, Phase::Draining);
}

#[test]
fn a_ready_node_is_believed_more_than_the_absence_of_its_machine() {
    let case = absent(Phase::Registered).with(|case| case.observed.node = node(|_| {}));
    assert_eq!(case.recorded().phase, Phase::Initialized);

    let mut case = absent(Phase::Draining).with(|case| {
        case.verdict = Verdict::Remove(RemovalReason::Lost);
        case.observed.node = cordoned();
    });
    assert!(matches!(case.next(), Step::Do(Effect::Uncordon(_))));
    case.observed.node = node(cordon_broken);
    assert_eq!(case.next(), Step::Do(Effect::DeleteClaim));
}

fn cordon_broken(node: &mut crate::facts::NodeFacts) {
    cordon(node);
    node.ready = false;
}

#[test]
fn f40_a_machine_is_not_lost_while_its_own_hypervisor_is_not_heard_of() {
    let case = absent(Phase::Registered).with(|case| case.hint.guest = GuestHint::Unknown);
    assert!(matches!(case.next(), Step::BackOff { .. }));
}
