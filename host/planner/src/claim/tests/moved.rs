//! R37: the Node of a machine whose VM has moved to another server.

use super::fixture::*;
use super::recovery::condition;
use crate::claim::*;
use crate::keys::ZONE;

/// From pve1 to pve2, and the Node's label still says pve1.
fn moved(keeps: Option<KeepsZone>) -> Case {
    Case::new(Phase::Initialized).with(|case| {
        case.claim.status.hypervisor = Some("pve2".into());
        case.observed.node = node(|_| {});
        case.hint.hypervisor = Some("pve2".into());
        case.hint.node_changed = true;
        case.hint.moved = Some(Moved {
            from: "pve1".into(),
            to: "pve2".into(),
            keeps,
        });
    })
}

#[test]
fn r37_the_zone_that_kproxide_wrote_follows_the_vm() {
    let mut case = moved(None);
    let Step::Do(Effect::PatchNode(_, patch)) = case.next() else {
        panic!("{:?}", case.next());
    };
    assert_eq!(patch.labels, [(ZONE.to_owned(), "pve2".to_owned())].into());
    assert_eq!(patch.provider_id, None);
    // The watch has not shown it yet.
    case.observed.node = node(|node| {
        node.labels.insert(ZONE.to_owned(), "pve2".to_owned());
    });
    assert!(
        matches!(case.next(), Step::Wait { .. }),
        "{:?}",
        case.next()
    );
}

#[test]
fn r37_what_keeps_the_zone_is_told_in_the_condition_ready() {
    let mut case = moved(Some(KeepsZone::Volume("pv-1".into())));
    case.claim.status = case.recorded();
    let ready = condition(&case.claim.status.conditions, Condition::Ready);
    assert_eq!((ready.status, &*ready.reason), (true, "ZoneOutdated"));
    assert!(
        ready.message.starts_with("its VM has moved from pve1 to pve2, but its Node's label topology.kubernetes.io/zone says pve1 and stays, because PersistentVolume pv-1 of a pod there"),
        "{}",
        ready.message
    );
    assert!(
        matches!(case.next(), Step::Wait { .. }),
        "{:?}",
        case.next()
    );
    case.hint.moved = None;
    let status = case.recorded();
    let ready = condition(&status.conditions, Condition::Ready);
    assert_eq!(
        (ready.status, &*ready.reason, &*ready.message),
        (true, "NodeReady", "")
    );
}
