//! The last part of a life, where something is missing that should be there.

use super::fixture::*;
use crate::claim::*;
use crate::keys::OUT_OF_SERVICE_TAINT;
use crate::plan::{RemovalReason, Verdict};

#[test]
fn f43_a_task_on_a_hypervisor_that_is_gone_does_not_keep_its_claim_for_ever() {
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

fn draining(reason: RemovalReason) -> Case {
    Case::new(Phase::Draining).intent(Op::Evict).with(|case| {
        case.verdict = Verdict::Remove(reason);
        case.now = at(901);
        case.observed.node = node(|node| {
            cordon(node);
            node.ready = false;
        });
        case.observed.pods = Some(vec![]);
        case.observed.attachments = Some(vec![]);
        case.observed.machine = visible(|_| {});
        let conditions = &mut case.claim.status.conditions;
        let mut drained = conditions.iter_mut();
        let drained = drained.find(|c| c.kind == Condition::Drained);
        drained.expect("draining").reason = reason.as_str().to_owned();
    })
}

#[test]
fn f71_volumes_of_a_dead_node_are_given_up_past_the_deadline_if_its_machine_is_off_or_gone() {
    let attached = draining(RemovalReason::Repair)
        .with(|case| case.observed.attachments = Some(vec!["pvc-1".into()]));
    let mut early = attached.clone().with(|case| case.now = at(899));
    early.claim.status = early.recorded();
    assert!(early.claim.status.since(Condition::NotProvenOff).is_some());
    assert!(matches!(early.next(), Step::BackOff { .. }));

    // While it may still write to them, that is told once.
    let mut running = attached.clone();
    let Step::Record { change, .. } = running.next() else {
        panic!("{:?}", running.next());
    };
    let note = change.note.expect("an Event");
    assert!(note.message.contains("stop VM 201"), "{}", note.message);
    running.claim.status = running.recorded();
    assert!(running.claim.status.since(Condition::Drained).is_none());
    assert!(matches!(running.next(), Step::BackOff { .. }));

    let off = visible(|machine| machine.power = Power::Off);
    for machine in [off, Some(MachineLook::Invisible)] {
        let mut case = attached.clone();
        case.observed.machine = machine;
        case.observed.presence = Some(Presence::Free);
        assert!(matches!(case.next(), Step::Do(Effect::OutOfService(_))));
        if let Some(NodeLook::One(_, node)) = &mut case.observed.node {
            node.taints.push(taint(OUT_OF_SERVICE_TAINT));
        }
        let Step::Record { change, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        assert!(change.note.is_some_and(|note| note.reason == "DrainForced"));
        case.claim.status = case.recorded();
        assert_eq!(case.next(), Step::Do(Effect::DeleteClaim));
    }
}

#[test]
fn f71_a_node_that_keeps_the_volumes_of_a_machine_that_is_off_is_deleted_first() {
    let mut case = Case::new(Phase::Terminating)
        .intent(Op::Destroy)
        .with(|case| {
            case.observed.node = cordoned();
            case.observed.machine = visible(|machine| {
                machine.marker = Marker::Tombstoned;
                machine.power = Power::Off;
                machine.persistent = vec!["local-lvm:vm-9999-pvc-1".into()];
            });
        });
    assert!(matches!(case.next(), Step::BackOff { .. }));
    case.now = at(600);
    assert!(matches!(case.next(), Step::Do(Effect::DeleteNode(_))));
    case.observed.node = Some(NodeLook::Absent);
    assert!(matches!(case.next(), Step::BackOff { .. }));
}

#[test]
fn a_lost_machine_does_not_wait_for_its_pods_once_its_claim_is_deleted() {
    let mut case = draining(RemovalReason::Lost).with(|case| {
        case.now = at(60);
        case.claim.deleting_since = Some(at(1));
        case.observed.pods = Some(vec![pod("a")]);
        case.observed.machine = Some(MachineLook::Invisible);
        case.observed.presence = Some(Presence::Free);
    });
    assert_eq!(case.recorded().phase, Phase::Terminating);
    // One that is there after all is emptied like any other.
    case.observed.presence = Some(Presence::Taken);
    case.observed.machine = visible(|_| {});
    assert!(matches!(case.next(), Step::Do(Effect::Evict(_))));
}

#[test]
fn a_claim_without_its_finalizer_is_not_deleted() {
    let terminating = Case::new(Phase::Terminating).with(|case| case.claim.deleting_since = None);
    let mut empty = draining(RemovalReason::Repair);
    empty.claim.status = empty.recorded();
    for mut case in [terminating, empty] {
        assert_eq!(case.next(), Step::Do(Effect::DeleteClaim));
        case.claim.has_finalizer = false;
        let Step::Record { change, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        assert!(change.note.is_some_and(|note| note.warning));
        case.claim.status = case.recorded();
        assert!(matches!(case.next(), Step::BackOff { .. }));
    }
}
