//! What no observation whatsoever may lead to: every combination of small inputs is tried.

use super::fixture::*;
use super::recovery::PHASES;
use crate::claim::*;
use crate::plan::{RemovalReason, Verdict};

/// Panics if the step is one that this case must never lead to.
fn check(case: &Case) {
    let step = case.next();
    let observed = &case.observed;
    let machine = match &observed.machine {
        Some(MachineLook::Visible(machine)) => Some(&**machine),
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => None,
    };
    let absent = observed.presence == Some(Presence::Free) && observed.quorate == Some(true);
    let another = machine.is_some_and(|m| {
        case.claim.status.smbios_uuid.is_some() && m.smbios_uuid != case.claim.status.smbios_uuid
            || case.claim.status.smbios_uuid.is_none()
                && matches!(m.marker, Marker::Foreign | Marker::Missing)
    });
    let proven_but_for_protection = || {
        let machine = machine.expect("a machine that was seen");
        assert!(matches!(machine.marker, Marker::Ours | Marker::Tombstoned));
        assert_eq!(machine.name.as_deref(), Some("workers-a"));
        assert_eq!(machine.pool.as_deref(), Some("kproxide"));
        assert!(!machine.template && !machine.ha_managed);
        if case.claim.status.smbios_uuid.is_some() {
            assert_eq!(machine.smbios_uuid, case.claim.status.smbios_uuid);
        }
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
        Step::Clone => {
            assert_eq!(observed.presence, Some(Presence::Free));
            assert_eq!(observed.entry, Some(EntryLook::Ours));
            assert_eq!(case.claim.status.upid, None);
            assert_eq!(observed.last, did(Did::Record, Outcome::Done));
        }
        // A clone inherits its template's protection, which this takes off.
        Step::Configure(_) => {
            proven_but_for_protection();
            assert!(case.claim.deleting_since.is_none() && observed.quorate != Some(false));
        }
        Step::Resize(..) | Step::Start(_) => {
            proven();
            assert!(case.claim.deleting_since.is_none() && observed.quorate != Some(false));
        }
        Step::Join(_) => {
            proven();
            assert!(case.claim.deleting_since.is_none());
        }
        Step::Tombstone(_) => condemned(Op::Tombstone),
        Step::Shutdown(..) => {
            condemned(Op::Shutdown);
            assert_eq!(machine.map(|m| m.marker), Some(Marker::Tombstoned));
        }
        Step::Stop(_) => {
            condemned(Op::Stop);
            assert_eq!(machine.map(|m| m.marker), Some(Marker::Tombstoned));
        }
        Step::Destroy(_) => {
            condemned(Op::Destroy);
            assert_eq!(machine.map(|m| m.marker), Some(Marker::Tombstoned));
            assert_eq!(machine.map(|m| m.power), Some(Power::Off));
        }
        Step::DeleteClaim => {
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
                && case.verdict == Verdict::Remove(RemovalReason::Underutilized);
            if is_chosen && !gone {
                proven();
            }
        }
        Step::Evict(pods) => {
            assert!(!pods.is_empty());
            assert!(case.settings.armed_at.is_some_and(|at| at <= case.now));
            match &observed.node {
                Some(NodeLook::One(_, node)) => assert!(node.unschedulable),
                Some(NodeLook::Absent) => {}
                None | Some(NodeLook::Several(_)) => panic!("evicted from an unknown Node"),
            }
        }
        Step::DeleteNode(_) | Step::RemoveFinalizer => {
            assert_eq!(case.claim.status.phase, Phase::Terminating);
            assert!(absent || another, "closed without proof of absence");
            if step == Step::RemoveFinalizer {
                assert_eq!(observed.entry, Some(EntryLook::Quarantined));
                assert_eq!(observed.node, Some(NodeLook::Absent));
            }
        }
        Step::Cordon(_)
        | Step::Uncordon(_)
        | Step::PatchNode(..)
        | Step::Quarantine { .. }
        | Step::Record { .. }
        | Step::Follow { .. }
        | Step::Wait { .. }
        | Step::BackOff { .. }
        | Step::Done => {}
    }
    if let Verdict::Hold(_) = case.verdict {
        assert!(matches!(step, Step::Wait { .. }));
    }
}

fn verdicts() -> Vec<Verdict> {
    vec![
        Verdict::Keep,
        Verdict::Remove(RemovalReason::Underutilized),
        Verdict::Remove(RemovalReason::Repair),
        Verdict::Remove(RemovalReason::Lost),
        Verdict::GiveUp("x".into()),
        Verdict::Hold("x".into()),
    ]
}

fn machines() -> Vec<Option<MachineLook>> {
    let mut all = vec![
        None,
        Some(MachineLook::Invisible),
        Some(MachineLook::Unreachable("x".into())),
    ];
    for marker in [
        Marker::Ours,
        Marker::Tombstoned,
        Marker::Foreign,
        Marker::Missing,
    ] {
        for power in [Power::On, Power::Off, Power::Unknown] {
            let changes: [fn(&mut Machine); 8] = [
                |_| {},
                |m| m.name = Some("pet".into()),
                |m| m.pool = None,
                |m| m.smbios_uuid = Some("11111111-1b04-4b04-ba4f-c09d2b1c5a16".into()),
                |m| m.protected = true,
                |m| m.lock = Some("clone".into()),
                |m| m.grow_to = Some(1),
                |m| m.disks.push("x:vm-1-disk-0".into()),
            ];
            for change in changes {
                all.push(visible(|m| {
                    m.marker = marker;
                    m.power = power;
                    change(m);
                }));
            }
        }
    }
    all
}

fn intents() -> Vec<Option<Op>> {
    let ops = [
        Op::Clone,
        Op::Configure,
        Op::Resize,
        Op::Start,
        Op::Join,
        Op::Tombstone,
        Op::Shutdown,
        Op::Stop,
        Op::Destroy,
    ];
    ops.into_iter().map(Some).chain([None]).collect()
}

fn nodes() -> Vec<Option<NodeLook>> {
    vec![
        None,
        Some(NodeLook::Absent),
        Some(NodeLook::Several(vec!["a".into(), "b".into()])),
        node(|_| {}),
        node(|n| n.ready = false),
        cordoned(),
    ]
}

fn lasts() -> Vec<Option<Attempted>> {
    vec![
        None,
        did(Did::Record, Outcome::Done),
        did(Did::Clone, failure(Failure::VmidTaken)),
        did(Did::Clone, Outcome::Unknown("x".into())),
        did(Did::Start, failure(Failure::GiveUp)),
        did(Did::Cordon, Outcome::Done),
        did(Did::Destroy, failure(Failure::Retry)),
    ]
}

/// The VM's side: phase, intent, machine, presence, quorum, time, last step.
#[test]
fn no_observation_of_the_machine_leads_to_an_unproven_effect() {
    let machines = machines();
    for phase in PHASES {
        for intent in intents() {
            for recorded in [true, false] {
                let mut case = Case::new(phase);
                case.claim.status.intent = intent.map(|op| Intent {
                    op,
                    attempt: 1,
                    epoch: "1".to_owned(),
                });
                if !recorded {
                    case.claim.status.smbios_uuid = None;
                }
                case.observed.node = Some(NodeLook::Absent);
                case.observed.entry = Some(EntryLook::Ours);
                case.observed.task = Some(Outcome::Done);
                for machine in &machines {
                    case.observed.machine.clone_from(machine);
                    for presence in [None, Some(Presence::Free), Some(Presence::Taken)] {
                        case.observed.presence = presence;
                        for quorate in [None, Some(false), Some(true)] {
                            case.observed.quorate = quorate;
                            for last in lasts() {
                                case.observed.last = last;
                                for (seconds, entry) in
                                    [(50, EntryLook::Ours), (5000, EntryLook::Quarantined)]
                                {
                                    case.now = at(seconds);
                                    case.observed.entry = Some(entry);
                                    check(&case);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Kubernetes' side: phase, verdict, deletion, Node, pods, volumes, time, arming.
#[test]
fn no_observation_of_the_node_leads_to_a_lost_pod() {
    let leaving = |change: fn(&mut PodOnNode)| {
        let mut pod = pod("a");
        change(&mut pod);
        Some(vec![pod])
    };
    let pods = [
        None,
        Some(vec![]),
        leaving(|_| {}),
        leaving(|p| p.deleting = true),
        leaving(|p| p.daemon_set = true),
        leaving(|p| p.bare = true),
        leaving(|p| p.do_not_disrupt = true),
    ];
    for phase in PHASES {
        for verdict in verdicts() {
            for deleting in [None, Some(at(1))] {
                for drained in [false, true] {
                    let mut case = Case::new(phase);
                    case.verdict = verdict.clone();
                    if deleting.is_some() {
                        case.claim.deleting_since = deleting;
                    }
                    if drained {
                        case.claim
                            .status
                            .conditions
                            .push(crate::facts::ClaimCondition {
                                kind: Condition::Drained,
                                status: true,
                                since: at(1),
                                reason: "Drained".into(),
                                message: String::new(),
                            });
                    }
                    for node in nodes() {
                        case.observed.node = node;
                        for pods in &pods {
                            case.observed.pods.clone_from(pods);
                            for attachments in [None, Some(vec![]), Some(vec!["v".to_owned()])] {
                                case.observed.attachments = attachments;
                                for machine in [
                                    None,
                                    Some(MachineLook::Invisible),
                                    visible(|_| {}),
                                    visible(|m| m.power = Power::Off),
                                ] {
                                    case.observed.machine = machine;
                                    for presence in [Presence::Free, Presence::Taken] {
                                        case.observed.presence = Some(presence);
                                        for last in lasts() {
                                            case.observed.last = last;
                                            for (now, armed) in
                                                [(50, t0()), (5000, t0()), (50, at(60))]
                                            {
                                                case.now = at(now);
                                                case.settings.armed_at = Some(armed);
                                                check(&case);
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
