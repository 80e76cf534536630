//! A claim that was made for a machine which was there before it.

use super::fixture::*;
use crate::claim::*;
use crate::facts::*;
use crate::keys::{DRAINING_TAINT, UNREGISTERED_TAINT};

fn adopted(condemned: bool) -> Case {
    Case::new(Phase::Pending).with(|case| {
        case.claim.spec.adopts = Some(Adopts {
            claim_uid: "the-claim-before".into(),
            nonce: "abc".into(),
            condemned,
        });
        case.observed.machine = visible(|_| {});
        case.observed.node = Some(NodeLook::Absent);
    })
}

/// Its machine is written down; its Node is looked at.
fn known(condemned: bool, node: Option<NodeLook>) -> Case {
    let mut case = adopted(condemned);
    let looks = looks(&case.subject(), None);
    assert_eq!((looks.node, looks.machine), (true, Need::Always));
    case.claim.status = case.recorded();
    assert_eq!(case.claim.status.smbios_uuid, Some(UUID.into()));
    assert_eq!(case.claim.status.disks, [DISK.into()]);
    assert_eq!(case.claim.status.phase, Phase::Pending);
    case.observed.node = node;
    case
}

fn serving() -> Option<NodeLook> {
    node(|node| node.taints.clear())
}

#[test]
fn f27_a_node_that_serves_goes_on_without_any_effect() {
    let case = known(false, serving());
    let status = case.recorded();
    assert_eq!(status.phase, Phase::Initialized);
    assert!(status.node_uid.is_some());
    let case = case.with(|case| {
        case.claim.status = status;
        case.observed.machine = None;
    });
    assert!(
        matches!(case.next(), Step::Wait { .. }),
        "{:?}",
        case.next()
    );
}

#[test]
fn a_drain_that_had_begun_is_for_the_plan_to_review() {
    let case = known(
        false,
        node(|node| {
            node.taints = vec![Taint {
                key: DRAINING_TAINT.into(),
                value: "".into(),
                effect: TaintEffect::NoSchedule,
            }];
        }),
    );
    let mut case = case.with(|case| case.claim.status = case.recorded());
    assert_eq!(case.claim.status.phase, Phase::Draining);
    case.verdict = crate::plan::Verdict::GiveUp(crate::reasons::kept::GiveUp::PoolGone);
    assert!(matches!(case.next(), Step::Do(Effect::Uncordon(_))));
}

#[test]
fn a_machine_that_had_not_registered_does_so() {
    let unregistered = node(|node| {
        node.taints = vec![Taint {
            key: UNREGISTERED_TAINT.into(),
            value: "".into(),
            effect: TaintEffect::NoExecute,
        }];
    });
    let status = known(false, unregistered).recorded();
    assert_eq!(status.phase, Phase::Launched);
    assert_eq!(status.started_at, Some(at(60)));
}

#[test]
fn f27_one_that_is_condemned_is_drained_and_destroyed_as_any_other() {
    let silent = || {
        node(|node| {
            node.taints.clear();
            node.ready = false;
        })
    };
    let case = known(true, silent());
    let status = case.recorded();
    assert_eq!(status.phase, Phase::Draining);
    let mut case = case.with(|case| case.claim.status = status);
    // Only once the plan has said so.
    case.verdict = crate::plan::Verdict::Keep;
    assert!(matches!(case.next(), Step::Wait { .. }));
    case.verdict = crate::plan::Verdict::Remove(crate::plan::RemovalReason::Deleted);
    assert!(matches!(case.next(), Step::Do(Effect::Cordon(_))));
    // Its Node serves after all, until somebody deletes the claim.
    case.observed.node = serving();
    assert!(matches!(case.next(), Step::Wait { .. }));
    case.claim.deleting_since = Some(at(1));
    assert!(matches!(case.next(), Step::Do(Effect::Cordon(_))));
    case.claim.deleting_since = None;
    case.observed.node = silent();
    // Nothing goes on before the cold start is over.
    case.settings.armed_at = None;
    assert!(matches!(case.next(), Step::Wait { .. }));
}

#[test]
fn one_whose_node_is_ready_again_is_not_condemned() {
    let case = known(true, serving());
    assert!(matches!(case.next(), Step::BackOff { .. }));
}

#[test]
fn f104_f106_f107_nothing_is_written_of_a_vm_that_is_not_proven() {
    let changes: [fn(&mut Machine); 5] = [
        |machine| machine.name = Some("copy".into()),
        |machine| machine.pool = None,
        |machine| machine.template = true,
        |machine| machine.ha_managed = true,
        |machine| machine.smbios_uuid = None,
    ];
    for change in changes {
        for condemned in [false, true] {
            let mut case = adopted(condemned);
            case.observed.machine = visible(change);
            let status = case.recorded();
            assert_eq!(status.phase, Phase::Pending);
            assert!(status.since(Condition::OwnershipMismatch).is_some());
            assert_eq!(status.smbios_uuid, None);
        }
    }
    // A marker of something else: the claim ends, and the VM is left alone.
    for marker in [Marker::Foreign, Marker::Missing] {
        let mut case = adopted(true);
        case.observed.machine = visible(|machine| machine.marker = marker);
        case.claim.status = case.recorded();
        assert_eq!(case.claim.status.phase, Phase::Draining);
        case.claim.status.phase = Phase::Terminating;
        case.claim.deleting_since = Some(at(1));
        case.observed.entry = Some(EntryLook::Ours);
        assert!(matches!(case.next(), Step::Do(Effect::Quarantine { .. })));
    }
}

#[test]
fn disks_of_other_numbers_are_not_taken_over() {
    let mut case = adopted(true);
    case.observed.machine = visible(|machine| {
        // Somebody has added this one.
        machine.disks.push("local-lvm:vm-201-disk-1".into());
        machine.disks.push("local-lvm:vm-2011-disk-0".into());
        machine.disks.push("nfs:999/vm-999-disk-0.qcow2".into());
    });
    let status = case.recorded();
    assert_eq!(status.disks, [DISK.into()]);
    // So it is not destroyed.
    let mut case = case.with(|case| case.claim.status = status);
    case.claim.status.phase = Phase::Terminating;
    case.claim.deleting_since = Some(at(1));
    let status = case.recorded();
    assert!(status.since(Condition::OwnershipMismatch).is_some());
}

#[test]
fn a_vm_that_cannot_be_seen_is_waited_for() {
    let mut case = adopted(true);
    case.observed.machine = Some(MachineLook::Invisible);
    case.observed.presence = Some(Presence::Taken);
    assert!(
        case.recorded()
            .since(Condition::OwnershipMismatch)
            .is_some()
    );
    case.observed.machine = Some(MachineLook::Unreachable("off".to_owned()));
    assert!(matches!(case.next(), Step::BackOff { .. }));
    // Deleted before anything was written of it, its pods are still seen to first.
    let mut deleted = adopted(false);
    deleted.claim.deleting_since = Some(at(1));
    assert_eq!(deleted.recorded().phase, Phase::Pending);
}
