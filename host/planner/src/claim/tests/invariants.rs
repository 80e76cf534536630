//! What no observation whatsoever may lead to: every combination of small inputs is tried.

use super::fixture::*;
use super::rules::check;
use crate::claim::*;
use crate::plan::{RemovalReason, Verdict};
use crate::reasons::kept::GiveUp;
use crate::reasons::on_hold::Hold;

fn verdicts() -> Vec<Verdict> {
    vec![
        Verdict::Keep,
        Verdict::Remove(RemovalReason::Underutilized),
        Verdict::Remove(RemovalReason::Repair),
        Verdict::Remove(RemovalReason::Lost),
        Verdict::GiveUp(GiveUp::PoolGone),
        Verdict::Hold(Hold::ClaimPaused),
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
        wrote(Outcome::Done),
        did(Op::Clone, failure(Failure::VmidTaken)),
        did(Op::Clone, Outcome::Unknown("x".into())),
        did(Op::Start, failure(Failure::GiveUp)),
        did(Op::Cordon, Outcome::Done),
        did(Op::Destroy, failure(Failure::Retry)),
        did(Op::Destroy, Outcome::Running("x".into())),
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
