//! Any claim under any observation, drawn from bytes.

use jiff::{SignedDuration, Timestamp};

use super::fixture::*;
use super::rules::check;
use crate::claim::*;
use crate::facts::{BlockedDrains, ClaimCondition, Join, ProviderId, TaintEffect};
use crate::fuzz::Draw;
use crate::ids::{ObjectKey, Uid, Vmid};
use crate::keys::{DRAINING_TAINT, UNREGISTERED_TAINT};
use crate::plan::{RemovalReason, Verdict};
use crate::reasons::kept::GiveUp;
use crate::reasons::on_hold::Hold;

pub(in crate::claim) const OPS: [Op; 18] = [
    Op::Clone,
    Op::Configure,
    Op::Resize,
    Op::Start,
    Op::Join,
    Op::Evict,
    Op::Shutdown,
    Op::Stop,
    Op::Tombstone,
    Op::Destroy,
    Op::PatchNode,
    Op::Cordon,
    Op::Uncordon,
    Op::OutOfService,
    Op::DeleteClaim,
    Op::DeleteNode,
    Op::Quarantine,
    Op::RemoveFinalizer,
];

/// The next step of any claim: it is none that the rules forbid, the same when asked again, and a record of it leaves a status that has a next step too.
pub fn next(data: &[u8]) {
    let mut draw = Draw::new(data);
    let mut case = case(&mut draw);
    check(&case);
    let step = case.next();
    assert_eq!(step, case.next(), "the same input, another step");
    is_looked_for(&case);
    if let Step::Record { change, .. } = step {
        let before = case.claim.status.phase;
        change.apply(&mut case.claim.status, "1", "nonce");
        let after = case.claim.status.phase;
        assert!(
            after >= before || before == Phase::Draining,
            "{before:?} became {after:?}"
        );
        case.observed.last = wrote(Outcome::Done);
        check(&case);
    }
}

/// Of what was not looked for nothing is known; and an operation that is then asked for needs no more than was.
fn is_looked_for(case: &Case) {
    let wanted = looks(&case.subject(), case.observed.last.as_ref());
    let mut case = case.clone();
    let seen = &mut case.observed;
    seen.entry = seen.entry.filter(|_| wanted.entry);
    seen.task = seen.task.take().filter(|_| wanted.task.is_some());
    seen.presence = seen.presence.filter(|_| wanted.presence != Need::No);
    seen.machine = seen.machine.take().filter(|_| wanted.machine != Need::No);
    seen.quorate = seen.quorate.filter(|_| wanted.quorum != Need::No);
    seen.node = seen.node.take().filter(|_| wanted.node);
    seen.join = seen.join.take().filter(|_| wanted.join);
    seen.evidence = seen.evidence.take().filter(|_| wanted.evidence);
    seen.pods = seen.pods.take().filter(|_| wanted.pods);
    seen.attachments = seen.attachments.take().filter(|_| wanted.attachments);
    let Step::Do(effect) = case.next() else {
        return;
    };
    // Past the point of no return nobody asks for pods any more.
    let is_passed = case.claim.status.phase == Phase::Terminating && effect.op() == Op::DeleteClaim;
    let needs = effect.op().needs();
    assert!(
        is_passed || wanted.clone().and(needs.clone()) == wanted,
        "{effect:?} needs {needs:?}, looked for {wanted:?}"
    );
}

fn case(draw: &mut Draw<'_>) -> Case {
    let mut case = Case::new(*draw.pick(&PHASES));
    // Each part is as in a sound claim unless its bit is set: all of them at once hide each other.
    let odd: [bool; 8] = std::array::from_fn(|_| draw.byte().is_multiple_of(3));
    case.now = moment(draw);
    case.verdict = verdict(draw);
    case.claim.deleting_since = match draw.byte() % 3 {
        0 => None,
        1 => Some(t0()),
        _ => case.claim.deleting_since,
    };
    case.claim.status.intent = optional(draw, |draw| Intent {
        op: *draw.pick(&OPS),
        attempt: draw.number() as u32,
        epoch: "1".to_owned(),
    });
    if odd[0] {
        status(draw, &mut case);
    }
    if odd[1] {
        settings(draw, &mut case);
    }
    if odd[2] {
        case.hint = Hint {
            guest: *draw.pick(&[
                GuestHint::Unknown,
                GuestHint::Running,
                GuestHint::Stopped,
                GuestHint::Absent,
            ]),
            hypervisor: optional(draw, |draw| draw.word(&["pve1", "pve2"]).into()),
            moved: optional(draw, |draw| Moved {
                from: draw.word(&["pve1", "pve2"]).into(),
                to: draw.word(&["pve1", "pve2"]).into(),
                keeps: optional(draw, |draw| match draw.flag() {
                    true => KeepsZone::CloudController,
                    false => KeepsZone::Volume(draw.text(5).into()),
                }),
            }),
            node_changed: draw.flag(),

            registering: registering(draw),
            devices: draw
                .flag()
                .then(|| "a.example.com/gpu".into())
                .into_iter()
                .collect(),
            ends_with_it: ["a", "b"]
                .into_iter()
                .filter(|_| draw.flag())
                .map(Into::into)
                .collect(),
            declared_off: draw.flag(),
            server_is_off: draw.flag(),
            keepers: ["a", "b"]
                .into_iter()
                .filter(|_| draw.flag())
                .map(|pod| (ObjectKey::new("default", pod), pod.into()))
                .collect(),
            waits: optional(draw, |draw| Waits {
                since: moment(draw),
                why: draw.text(10),
                why_since: moment(draw),
            }),
            restored: Restored {
                written: optional(draw, moment),
                said: optional(draw, moment),
            },
        };
        case.claim.has_finalizer = draw.flag();
        if draw.flag() {
            case.claim.other_finalizers = vec!["example.com/holds".into()];
        }
        case.claim.spec.vmid = Vmid(*draw.pick(&[201, 199, 300, 0, u32::MAX]));
    }
    observed(draw, &mut case);
    if odd[3] {
        case.observed.claim = *draw.pick(&[ClaimLook::Here, ClaimLook::Gone]);
        case.observed.own_intent = draw.flag();
        case.observed.quorate = optional(draw, Draw::flag);
        case.observed.unread = vec![draw.text(10)];
    }
    case
}

const CONDITIONS: [Condition; 13] = [
    Condition::Reserved,
    Condition::Launched,
    Condition::Registered,
    Condition::Initialized,
    Condition::Unneeded,
    Condition::NodeMissing,
    Condition::Drained,
    Condition::VolumesDetached,
    Condition::InstanceTerminating,
    Condition::Stalled,
    Condition::StuckLocked,
    Condition::OwnershipMismatch,
    Condition::ProtectedVM,
];

/// As recorded, in other letters, in the other byte order, another's, none at all.
const UUIDS: [&str; 5] = [
    UUID,
    "0DC58EEA-1B04-4B04-BA4F-C09D2B1C5A16",
    "ea8ec50d-041b-044b-ba4f-c09d2b1c5a16",
    "11111111-1b04-4b04-ba4f-c09d2b1c5a16",
    "",
];

fn optional<'a, T>(draw: &mut Draw<'a>, some: impl FnOnce(&mut Draw<'a>) -> T) -> Option<T> {
    draw.flag().then(|| some(draw))
}

/// Around the claim's creation, hours away from it, or at the ends of time.
fn moment(draw: &mut Draw<'_>) -> Timestamp {
    match draw.byte() % 8 {
        0..3 => at(i64::from(draw.byte())),
        3..5 => at(i64::from(draw.byte()) * 60),
        5 => at(-i64::from(draw.byte()) * 60),
        6 => Timestamp::MIN,
        _ => Timestamp::MAX,
    }
}

fn duration(draw: &mut Draw<'_>) -> SignedDuration {
    match draw.byte() % 4 {
        0 => SignedDuration::ZERO,
        1 => SignedDuration::MAX,
        2 => SignedDuration::from_secs(-i64::from(draw.byte())),
        _ => SignedDuration::from_mins(draw.byte().into()),
    }
}

fn verdict(draw: &mut Draw<'_>) -> Verdict {
    match draw.byte() % 12 {
        0..4 => Verdict::Keep,
        4..10 => Verdict::Remove(*draw.pick(&RemovalReason::ALL)),
        10 => Verdict::GiveUp(GiveUp::PoolGone),
        _ => Verdict::Hold(Hold::ClaimPaused),
    }
}

fn status(draw: &mut Draw<'_>, case: &mut Case) {
    let status = &mut case.claim.status;
    status.smbios_uuid = optional(draw, |draw| Uid::from(draw.word(&UUIDS)));
    status.upid = optional(draw, |_| "UPID".into());
    status.nonce = optional(draw, |_| "nonce".into());
    status.node_name = optional(draw, |_| "workers-a".into());
    status.node_uid = optional(draw, |draw| draw.word(&["node-uid", "another"]).into());
    status.hypervisor = optional(draw, |draw| draw.word(&["pve1", "pve2", ""]).into());
    status.started_at = optional(draw, moment);
    status.draining_since = optional(draw, moment);
    status.blocked_drains = optional(draw, |draw| BlockedDrains {
        in_a_row: *draw.pick(&[0, 1, 5, u32::MAX]),
        at: moment(draw),
        pods: vec![draw.word(&["a", "b"]).into()],
        retry: "r".into(),
    });
    for kind in CONDITIONS {
        if draw.byte().is_multiple_of(3) {
            status.conditions.retain(|condition| condition.kind != kind);
        }
        if draw.byte().is_multiple_of(3) {
            let reasons = [
                "Test",
                "",
                "GivenUp",
                "VmidTaken",
                "CloneInterrupted",
                "Lost",
            ];
            status.conditions.push(ClaimCondition {
                kind,
                status: draw.flag(),
                since: moment(draw),
                reason: draw.word(&reasons).to_owned(),
                message: draw.text(5),
            });
        }
    }
}

fn settings(draw: &mut Draw<'_>, case: &mut Case) {
    let settings = &mut case.settings;
    settings.armed_at = optional(draw, moment);
    settings.timeouts.clone = duration(draw).into();
    settings.timeouts.provision = duration(draw).into();
    settings.timeouts.agent = duration(draw).into();
    settings.timeouts.join = duration(draw).into();
    case.pool.drain_timeout = duration(draw).into();
    case.pool.repair_after = duration(draw).into();
    settings.shutdown_timeout = duration(draw);
    settings.quarantine = duration(draw);
    settings.join = *draw.pick(&[Join::Template, Join::GuestExec]);
    settings.provider_id = *draw.pick(&[
        ProviderId::Auto,
        ProviderId::Kubelet,
        ProviderId::Ccm,
        ProviderId::None,
    ]);
    if draw.flag() {
        case.pool.startup_taints.push(taint("startup"));
    }
}

fn observed(draw: &mut Draw<'_>, case: &mut Case) {
    let observed = &mut case.observed;
    observed.presence = optional(draw, |draw| *draw.pick(&[Presence::Free, Presence::Taken]));
    observed.machine = machine_look(draw);
    observed.task = optional(draw, outcome);
    observed.node = node_look(draw);
    observed.pods = optional(draw, |draw| {
        (0..draw.below(4)).map(|_| any_pod(draw)).collect()
    });
    observed.attachments = optional(draw, |draw| vec!["volume".to_owned(); draw.below(3)]);
    observed.join = optional(draw, join_look);
    observed.evidence = optional(draw, |draw| Evidence {
        addresses: optional(draw, |draw| vec![draw.text(10); draw.below(3)]),
        cloud_init: draw.text(10),
        log: draw.text(10),
        log_end: draw.text(10),
        unsaid: optional(draw, |draw| draw.text(10)),
    });
    observed.entry = optional(draw, |draw| {
        *draw.pick(&[EntryLook::Ours, EntryLook::Quarantined, EntryLook::Missing])
    });
    observed.last = optional(draw, |draw| Attempted {
        op: optional(draw, |draw| *draw.pick(&OPS)),
        outcome: outcome(draw),
    });
}

fn machine_look(draw: &mut Draw<'_>) -> Option<MachineLook> {
    let shape = draw.byte() % 8;
    if shape < 3 {
        return [
            None,
            Some(MachineLook::Invisible),
            Some(MachineLook::Unreachable("off".to_owned())),
        ][usize::from(shape)]
        .clone();
    }
    visible(|machine| {
        machine.marker = *draw.pick(&[
            Marker::Ours,
            Marker::Tombstoned,
            Marker::Foreign,
            Marker::Missing,
        ]);
        machine.power = *draw.pick(&[Power::On, Power::Off, Power::Unknown]);
        machine.task = optional(draw, |_| "qmstart".into());
        if shape > 5 {
            return;
        }
        let changes = draw.byte();
        machine.protected = changes & 1 != 0;
        machine.template = changes & 2 != 0;
        machine.ha_managed = changes & 4 != 0;
        if changes & 8 != 0 {
            machine.name = optional(draw, |_| "pet".into());
        }
        if changes & 16 != 0 {
            machine.pool = optional(draw, |_| "pets".into());
        }
        if changes & 32 != 0 {
            machine.lock = Some(draw.word(&["clone", "backup", "destroyed", ""]).into());
        }
        if changes & 64 != 0 {
            machine.disks.push("other:vm-9-disk-0".into());
        }
        if changes & 128 != 0 {
            machine.persistent.push("csi:vm-9999-pvc".into());
            machine.grow_to = optional(draw, |draw| draw.number() as u64);
            machine.snapshot = optional(draw, |_| "before-upgrade".into());
        }
        machine.smbios_uuid = optional(draw, |draw| Uid::from(draw.word(&UUIDS)));
    })
}

fn outcome(draw: &mut Draw<'_>) -> Outcome {
    let failures = [
        Failure::Retry,
        Failure::Elsewhere,
        Failure::Outdated,
        Failure::GiveUp,
        Failure::VmidTaken,
        Failure::Freeze,
    ];
    match draw.byte() % 8 {
        0..3 => Outcome::Done,
        3 => Outcome::Warnings(draw.number() as u32),
        4 => Outcome::Running("UPID".into()),
        5 => failure(*draw.pick(&failures)),
        6 => Outcome::Unknown("lost".to_owned()),
        _ => Outcome::Evicted {
            refused: (0..draw.below(3))
                .map(|index| Refusal {
                    pod: pod(&index.to_string()).key,
                    by_budget: draw.flag(),
                    why: draw.text(5),
                })
                .collect(),
        },
    }
}

fn node_look(draw: &mut Draw<'_>) -> Option<NodeLook> {
    match draw.byte() % 8 {
        0 => None,
        1 => Some(NodeLook::Absent),
        2 => Some(NodeLook::Several(vec!["a".into(), "b".into()])),
        _ => node(|node| {
            node.ready = draw.flag();
            node.deleting = draw.byte().is_multiple_of(4);
            node.ready_since = moment(draw);
            if draw.flag() {
                cordon(node);
            }
            if draw.byte().is_multiple_of(4) {
                node.unschedulable = draw.flag();
                node.taints = (0..draw.below(3))
                    .map(|_| {
                        let keys = [UNREGISTERED_TAINT, DRAINING_TAINT, "startup"];
                        let mut taint = taint(draw.word(&keys));
                        taint.effect = TaintEffect::NoExecute;
                        taint
                    })
                    .collect();
                node.uid = draw.word(&["node-uid", "another"]).into();
                node.system_uuid = optional(draw, |draw| Uid::from(draw.word(&UUIDS)));
                node.provider_id = optional(draw, |_| "proxmox://other/1".into());
                node.labels.clear();
            }
        }),
    }
}

fn any_pod(draw: &mut Draw<'_>) -> PodOnNode {
    let mut pod = pod(draw.word(&["a", "b", "c"]));
    let bits = draw.byte();
    pod.deleting = bits & 1 != 0;
    pod.finished = bits & 2 != 0;
    pod.mirror = bits & 4 != 0;
    pod.daemon_set = bits & 8 != 0;
    pod.bare = bits & 16 != 0;
    pod.unfinished_job = bits & 32 != 0;
    pod.do_not_disrupt = bits & 64 != 0;
    pod.local_volumes = bits & 128 != 0;
    pod.empty_dir = draw.flag();
    pod.grace_ends = optional(draw, |draw| at(draw.pick(&[0, 1_000, 100_000]).to_owned()));
    pod.on_completion = draw.byte().is_multiple_of(8);
    pod.tolerates_drain = draw.flag();
    pod.priority = if draw.flag() { -11 } else { -10 };
    pod
}

fn join_look(draw: &mut Draw<'_>) -> JoinLook {
    match draw.byte() % 7 {
        0 => JoinLook::AgentSilent("silent".to_owned()),
        6 => JoinLook::Refused("refused".to_owned()),
        1 => JoinLook::Booting,
        2 => JoinLook::NotRun,
        3 => JoinLook::Running,
        4 => JoinLook::Succeeded,
        _ => JoinLook::Failed {
            exit_code: draw.number(),
            output: draw.text(10),
        },
    }
}

fn registering(draw: &mut Draw) -> Registering {
    let until = optional(draw, |draw| at(draw.pick(&[0, 1_000, 100_000]).to_owned()));
    let drivers = ["a.example.com", "b.example.com"].map(Into::into);
    Registering {
        drivers: drivers.into_iter().filter(|_| draw.flag()).collect(),
        until,
    }
}
