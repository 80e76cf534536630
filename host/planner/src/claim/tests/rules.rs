//! What no step may be, whatever was observed: destroyed only with proof and a tombstone, closed only with absence, evicted only when cordoned.

use super::fixture::*;
use crate::claim::*;
use crate::facts::ClaimCondition;
use crate::plan::{RemovalReason, Verdict};

/// Panics if the step is one that this case must never lead to.
pub(super) fn check(case: &Case) {
    let step = case.next();
    let observed = &case.observed;
    let machine = match &observed.machine {
        Some(MachineLook::Visible(machine)) => Some(&**machine),
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => None,
    };
    let absent = observed.presence == Some(Presence::Free) && observed.quorate == Some(true);
    let status = &case.claim.status;
    let recorded = status.smbios_uuid.as_ref();
    let another = machine.is_some_and(|m| {
        let is_marked = matches!(m.marker, Marker::Ours | Marker::Tombstoned);
        let has_our_uuid = match (recorded, &m.smbios_uuid) {
            (Some(recorded), Some(uuid)) => same_uuid(recorded, uuid),
            (Some(_), None) => true,
            (None, _) => false,
        };
        !is_marked && !has_our_uuid
    });
    // No clone was ever asked for, or it was refused because the number was taken.
    let refused = |c: &ClaimCondition| c.kind == Condition::Launched && !c.status;
    let never_made = recorded.is_none()
        && (status.since(Condition::Reserved).is_none()
            || status
                .conditions
                .iter()
                .any(|c| refused(c) && c.reason == "VmidTaken"));
    let proven_but_for_protection = || {
        let machine = machine.expect("a machine that was seen");
        assert!(matches!(machine.marker, Marker::Ours | Marker::Tombstoned));
        assert_eq!(machine.name.as_deref(), Some("workers-a"));
        assert_eq!(machine.pool.as_deref(), Some("kproxide"));
        assert!(!machine.template && !machine.ha_managed);
        assert_eq!(machine.snapshot, None);
        if let Some(recorded) = recorded {
            let uuid = machine.smbios_uuid.as_ref();
            assert!(uuid.is_some_and(|uuid| same_uuid(recorded, uuid)));
        }
        let range = case.settings.vmid_first..=case.settings.vmid_last;
        assert!(range.contains(&case.claim.spec.vmid));
    };
    let proven = || {
        proven_but_for_protection();
        assert!(machine.is_some_and(|machine| !machine.protected));
    };
    let condemned = |op: Op| {
        proven();
        assert_eq!(case.claim.status.phase, Phase::Terminating);
        assert_eq!(case.claim.status.intent.as_ref().map(|i| i.op), Some(op));
        assert!(case.claim.deleting_since.is_some() && observed.quorate == Some(true));
        assert!(case.settings.armed_at.is_some_and(|at| at <= case.now));
    };
    match &step {
        Step::Do(Effect::Clone) => {
            assert_eq!(observed.presence, Some(Presence::Free));
            assert_eq!(observed.entry, Some(EntryLook::Ours));
            assert_eq!(case.claim.status.upid, None);
            assert_eq!(observed.last, wrote(Outcome::Done));
        }
        // A clone inherits its template's protection, which this takes off.
        Step::Do(Effect::Configure(_)) => {
            proven_but_for_protection();
            assert!(case.claim.deleting_since.is_none() && observed.quorate != Some(false));
        }
        Step::Do(Effect::Resize(..)) | Step::Do(Effect::Start(_)) => {
            proven();
            assert!(case.claim.deleting_since.is_none() && observed.quorate != Some(false));
        }
        Step::Do(Effect::Join(_)) => {
            proven();
            assert!(case.claim.deleting_since.is_none());
        }
        Step::Do(Effect::Tombstone(_)) => condemned(Op::Tombstone),
        Step::Do(Effect::Shutdown(..)) => {
            condemned(Op::Shutdown);
            assert_eq!(machine.map(|m| m.marker), Some(Marker::Tombstoned));
        }
        Step::Do(Effect::Stop(_)) => {
            condemned(Op::Stop);
            assert_eq!(machine.map(|m| m.marker), Some(Marker::Tombstoned));
        }
        Step::Do(Effect::Destroy(_)) => {
            condemned(Op::Destroy);
            assert_eq!(machine.map(|m| m.marker), Some(Marker::Tombstoned));
            assert_eq!(machine.map(|m| m.power), Some(Power::Off));
        }
        Step::Do(Effect::DeleteClaim) => {
            let empty = observed
                .pods
                .as_ref()
                .is_some_and(|pods| !pods.iter().any(|p| p.must_leave() && !p.deleting));
            let gone = absent || another;
            assert!(
                empty || gone || case.claim.status.phase == Phase::Terminating,
                "a claim was deleted with pods left"
            );
            let is_chosen = case.claim.status.phase == Phase::Draining
                && case.claim.status.since(Condition::Initialized).is_some()
                && case.verdict == Verdict::Remove(RemovalReason::Underutilized);
            if is_chosen && !gone {
                proven();
            }
        }
        Step::Do(Effect::Evict(pods)) => {
            assert!(!pods.is_empty());
            assert!(case.settings.armed_at.is_some_and(|at| at <= case.now));
            match &observed.node {
                Some(NodeLook::One(_, node)) => assert!(node.unschedulable),
                Some(NodeLook::Absent) => {}
                None | Some(NodeLook::Several(_)) => panic!("evicted from an unknown Node"),
            }
        }
        Step::Do(Effect::DeleteNode(_)) | Step::Do(Effect::RemoveFinalizer) => {
            assert_eq!(case.claim.status.phase, Phase::Terminating);
            // The volumes of a Node that does not answer are detached only when it is gone, and its machine is off.
            let holds_volumes = machine
                .is_some_and(|m| m.power == Power::Off && !m.persistent.is_empty() && !m.protected);
            let is_invisible = observed.machine == Some(MachineLook::Invisible);
            if step != Step::Do(Effect::RemoveFinalizer) && holds_volumes && !another && !absent {
                proven();
                assert_eq!(machine.map(|m| m.marker), Some(Marker::Tombstoned));
            } else {
                let is_closed = absent || another || (never_made && is_invisible);
                assert!(is_closed, "closed without proof of absence");
            }
            if step == Step::Do(Effect::RemoveFinalizer) {
                assert_eq!(observed.entry, Some(EntryLook::Quarantined));
                assert_eq!(observed.node, Some(NodeLook::Absent));
            }
        }
        Step::Do(Effect::OutOfService(_)) => {
            let Some(NodeLook::One(_, node)) = &observed.node else {
                panic!("{:?}", observed.node);
            };
            let is_off = machine
                .is_some_and(|m| m.power == Power::Off && m.lock.is_none() && m.task.is_none());
            let is_declared = case.hint.declared_off
                && matches!(observed.machine, Some(MachineLook::Unreachable(_)));
            assert!(!node.ready, "its kubelet answers");
            assert!(is_off || is_declared || absent, "{:?}", observed.machine);
            if is_off && !absent {
                proven();
            }
        }
        Step::Do(Effect::Cordon(_))
        | Step::Do(Effect::Uncordon(_))
        | Step::Do(Effect::PatchNode(..))
        | Step::Do(Effect::Quarantine { .. })
        | Step::Record { .. }
        | Step::Follow { .. }
        | Step::Wait { .. }
        | Step::BackOff { .. }
        | Step::Done => {}
    }
    if let Verdict::Hold(_) = case.verdict {
        assert!(matches!(step, Step::Wait { .. } | Step::Done));
    }
}
