//! The last part of a life, where something is missing that should be there.

use super::fixture::*;
use crate::claim::*;

#[test]
fn a_task_on_a_hypervisor_that_is_gone_does_not_keep_its_claim_for_ever() {
    let mut case = Case::new(Phase::Terminating)
        .intent(Op::Destroy)
        .with(|case| {
            case.claim.status.upid = Some("UPID:9".into());
            case.observed.machine = Some(MachineLook::Unreachable("pve1 is offline".into()));
            case.observed.presence = Some(Presence::Taken);
        });
    assert!(matches!(case.next(), Step::BackOff { .. }));
    // It is told once.
    case.now = at(600);
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    let note = change.note.expect("an Event");
    assert!(note.message.contains("UPID:9"), "{}", note.message);
    case.claim.status = case.recorded();
    assert!(matches!(case.next(), Step::BackOff { .. }));

    case.observed.presence = Some(Presence::Free);
    assert_eq!(case.recorded().upid, None);
}
