//! Down, past the point of no return: prove ownership, mark the VM, shut it down, stop it, destroy it, prove that it is
//! gone, close the records.

use jiff::{SignedDuration, Timestamp};

use super::answers::{
    LATER, ask_for_a_human, failed_on_vm, follow, not_visible, proven_absent, refuse, settled,
    soon, unread,
};
use super::closing::{close, quarantine};
use super::effect::Effect;
use super::node::{is_cordoned, node_ref};
use super::observed::{
    EntryLook, Failure, Machine, MachineLook, Marker, NodeLook, Observed, Outcome, Power, Presence,
};
use super::off::out_of_service;
use super::ownership::{Made, Mismatch, Proven, believed_unseen, is_another, prove, same_uuid};
use super::reasons::{CLONE_INTERRUPTED, KEPT_FAILED, STUCK_LOCKED, VMID_TAKEN};
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Condition, Op};
use crate::mutants::{Mutant, broken};
use crate::plan::Verdict;
use crate::reasons::on_hold::Hold;
use crate::time::later;

/// Look again at a locked VM after this long.
const LOCK_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// What blocks a termination for longer than this is reported.
const LONG: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn next(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if !subject.deleting() {
        if !subject.claim.has_finalizer {
            let unchanged = StatusChange::default();
            return tell(
                subject,
                unchanged,
                "NoFinalizer",
                LATER,
                Hold::NoFinalizer.to_string(),
                now,
            );
        }
        return Step::Do(Effect::DeleteClaim);
    }
    // Let a running task finish, and look at its result then.
    if subject.status().upid.is_some()
        && let Some(step) = task(subject, observed, now)
    {
        return step;
    }
    if observed.quorate != Some(true) {
        return match observed.quorate {
            Some(false) => soon(now, "the Proxmox cluster has no quorum"),
            Some(true) | None => unread(observed, "the quorum of the Proxmox cluster", now),
        };
    }
    if let Some(step) = out_of_service(subject, observed, now) {
        return step;
    }
    match &observed.machine {
        Some(MachineLook::Visible(machine))
            if is_another(subject, machine) || is_not_made(subject, machine) =>
        {
            close(subject, observed, now)
        }
        Some(MachineLook::Visible(machine)) => remove(subject, observed, machine, now),
        // In Proxmox, the other hypervisors know the VMIDs on an offline one.
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None
            if proven_absent(observed) =>
        {
            close(subject, observed, now)
        }
        Some(MachineLook::Invisible) if never_made(subject) => close(subject, observed, now),
        Some(MachineLook::Invisible)
            if observed.presence == Some(Presence::Taken)
                && subject.status().smbios_uuid.is_none() =>
        {
            let vmid = subject.claim.spec.vmid;
            let why = format!(
                "its clone was interrupted, or another user has this VMID: kproxide's token cannot see the VM. If root@pam sees `qmclone temporary file` and the lock clone there, it can remove it: `qm unlock {vmid}`, `qm destroy {vmid}`, and with `pvesm free` what `pvesm list STORAGE --vmid {vmid}` still shows"
            );
            stuck(subject, observed, &why, now)
        }
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => {
            not_visible(subject, observed, now)
        }
    }
}

/// Looks at the recorded task. `None`: it has ended, and the VM shows the result.
fn task(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Option<Step> {
    let destroying = subject.intent() == Some(Op::Destroy);
    let ended = StatusChange {
        upid: Change::Clear,
        ..StatusChange::default()
    };
    Some(match &observed.task {
        // Its hypervisor may be gone for good, and with it the task's end.
        None if proven_absent(observed) => ended.record(),
        None if is_long(subject, now) => {
            let why = format!(
                "the end of task {} cannot be read, and whether VM {} still exists is not certain",
                subject.status().upid.as_deref().unwrap_or_default(),
                subject.claim.spec.vmid
            );
            tell(
                subject,
                StatusChange::default(),
                "TaskUnknown",
                LATER,
                why,
                now,
            )
        }
        None => unread(observed, "its task", now),
        Some(Outcome::Running(upid)) => Step::Follow {
            upid: upid.clone(),
            op: if destroying { Op::Destroy } else { Op::Clone },
        },
        Some(Outcome::Warnings(count)) if destroying => ended
            .warn("LeakedVolume", leaked(subject, observed, *count))
            .record(),
        Some(Outcome::Failed { failure, text }) if destroying => {
            let why = format!("destroying VM {} failed: {text}", subject.claim.spec.vmid);
            refused(subject, ended, *failure, why, now)
        }
        Some(
            Outcome::Done
            | Outcome::Warnings(_)
            | Outcome::Failed { .. }
            | Outcome::Unknown(_)
            | Outcome::Evicted { .. },
        ) => ended.record(),
    })
}

/// Which volumes stayed behind, and how a person removes them. kproxide never does.
fn leaked(subject: &Subject<'_>, observed: &Observed, count: u32) -> String {
    let vmid = subject.claim.spec.vmid;
    let hypervisor = subject.claim.hypervisor();
    if observed.leftovers.is_empty() {
        return format!(
            "VM {vmid} is destroyed, but {count} of its volumes may have stayed behind: see the task's log on {hypervisor}"
        );
    }
    let commands: Vec<_> = observed
        .leftovers
        .iter()
        .map(|volume| format!("`pvesm free {volume}`"))
        .collect();
    format!(
        "VM {vmid} is destroyed, but volumes of it stayed behind. kproxide does not remove them. On {hypervisor}: {}",
        commands.join(", ")
    )
}

/// Our clone was certainly never made: Proxmox refused it because the VMID exists, or kproxide never asked for it.
fn never_made(subject: &Subject<'_>) -> bool {
    // It was there before its claim.
    if subject.claim.spec.adopts.is_some() {
        return false;
    }
    let status = subject.status();
    let refused = status
        .conditions
        .iter()
        .any(|c| c.kind == Condition::Launched && !c.status && c.reason == VMID_TAKEN);
    let never_asked = status.since(Condition::Reserved).is_none();
    status.smbios_uuid.is_none() && (refused || never_asked)
}

/// [`never_made`], and the VM does not say otherwise.
fn is_not_made(subject: &Subject<'_>, machine: &Machine) -> bool {
    never_made(subject)
        && !believed_unseen(subject)
        && match machine.marker {
            Marker::Ours | Marker::Tombstoned => false,
            Marker::Foreign | Marker::Missing => true,
        }
}

/// The VM exists and is not another one. If it is proven ours, the next of: mark, shut down, stop, destroy.
fn remove(subject: &Subject<'_>, observed: &Observed, machine: &Machine, now: Timestamp) -> Step {
    if let Some(lock) = &machine.lock {
        return locked(subject, observed, machine, lock, now);
    }
    let status = subject.status();
    let made = match &status.smbios_uuid {
        Some(_) => Made::Configured,
        None => Made::Cloned,
    };
    let proven = match prove(subject, machine, made) {
        Ok(proven) => proven,
        Err(mismatch) => return refuse(subject, &mismatch, now),
    };
    // Proxmox does not destroy a protected VM, even if the protection came from its template.
    if machine.protected {
        return refuse(subject, &Mismatch::Protected, now);
    }
    if let Some(name) = &machine.snapshot {
        return refuse(subject, &Mismatch::Snapshot(name.clone()), now);
    }
    let asked = [
        Condition::OwnershipMismatch,
        Condition::ProtectedVM,
        Condition::StuckLocked,
    ];
    if let Some(step) = settled(subject, &asked, now) {
        return step;
    }
    // The launch was interrupted before it recorded the machine.
    if let (None, Some(uuid)) = (&status.smbios_uuid, &machine.smbios_uuid) {
        let change = StatusChange {
            smbios_uuid: Some(uuid.clone()),
            disks: Some(machine.disks.clone()),
            hypervisor: Some(machine.hypervisor.clone()),
            ..StatusChange::default()
        };
        return change.record();
    }
    // The Node joined after its launch had failed. Cordon it, so that no pod comes.
    if let Some(NodeLook::One(name, node)) = &observed.node
        && !is_cordoned(node)
        && !node.deleting
        && observed.tried(Op::Cordon).is_none()
    {
        return Step::Do(Effect::Cordon(node_ref(name, node)));
    }
    // Somebody may have started it to look at it.
    if let Some(kept) = kept_until(subject, now)
        && is_kept(subject)
    {
        return Step::wait(Some(kept), "kproxide keeps the machine of a failed launch");
    }
    if let Some(step) = Op::Destroy.held(subject, observed, now) {
        return step;
    }
    if let Some(step) = outcome(subject, observed, now) {
        return step;
    }
    let is_marked = machine.marker == Marker::Tombstoned
        || broken(Mutant::StaleProof) && believed_unseen(subject);
    if !is_marked {
        return Step::Do(Effect::Tombstone(proven));
    }
    match machine.power {
        Power::Unknown => soon(now, "whether the VM runs is not known"),
        Power::On if now < subject.stop_deadline() => {
            let grace = subject.stop_deadline().duration_since(now);
            Step::Do(Effect::Shutdown(proven, grace))
        }
        Power::On => Step::Do(Effect::Stop(proven)),
        Power::Off => match kept_until(subject, now) {
            Some(until) => keep(subject, until, now),
            None => destroy(subject, observed, machine, proven, now),
        },
    }
}

/// Until when the machine of a failed launch is kept, for a person to look at. Only the plan lets it stay: it knows
/// whether another one has failed since, and whether its room is needed.
fn kept_until(subject: &Subject<'_>, now: Timestamp) -> Option<Timestamp> {
    let may_stay = matches!(subject.verdict, Verdict::Keep);
    let failed = subject.status().is_failed_launch();
    let began = subject.status().since(Condition::InstanceTerminating)?;
    let until = later(began, subject.settings.keep_failed);
    (may_stay && failed && now < until).then_some(until)
}

fn is_kept(subject: &Subject<'_>) -> bool {
    let mut conditions = subject.status().conditions.iter();
    conditions.any(|c| c.kind == Condition::InstanceTerminating && c.reason == KEPT_FAILED)
}

fn keep(subject: &Subject<'_>, until: Timestamp, now: Timestamp) -> Step {
    let vmid = subject.claim.spec.vmid;
    let hypervisor = subject.claim.hypervisor();
    let class = &subject.claim.spec.class;
    let failure = subject.status().launch_failure();
    let why = failure.map_or("its launch failed".to_owned(), |failure| failure.message);
    let message = format!(
        "kproxide keeps VM {vmid} on {hypervisor}, stopped, until {until:.0} (join.keepFailed), or until its room is needed. To look at it, on {hypervisor}: `qm start {vmid}`, then `qm terminal {vmid}`, or its console in Proxmox. To let it go, set join.keepFailed of NodeClass {class} to 0s. It failed: {why}"
    );
    StatusChange::default()
        .condition(
            Condition::InstanceTerminating,
            true,
            KEPT_FAILED,
            &*message,
            now,
        )
        .condition(Condition::Ready, false, KEPT_FAILED, &*message, now)
        .say(KEPT_FAILED, message)
        .record()
}

fn destroy(
    subject: &Subject<'_>,
    observed: &Observed,
    machine: &Machine,
    proven: Proven,
    now: Timestamp,
) -> Step {
    if !machine.persistent.is_empty() {
        // Kubernetes detaches the volumes of a Node that does not answer only once the Node is gone, and this machine is off.
        if is_long(subject, now)
            && let Some(NodeLook::One(name, node)) = &observed.node
            && !node.deleting
            && observed.tried(Op::DeleteNode).is_none()
        {
            return Step::Do(Effect::DeleteNode(node_ref(name, node)));
        }
        return soon(
            now,
            format!(
                "disks of PersistentVolumes are still attached: {}",
                machine.persistent.join(", ")
            ),
        );
    }
    Step::Do(Effect::Destroy(proven))
}

/// The outcome of the last operation on the VM, if it decides the next step.
fn outcome(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Option<Step> {
    let last = observed.last.as_ref()?;
    last.op.and_then(Op::doing)?;
    // The VM shows the outcome of the others. A destroy's task is already recorded in the claim.
    if let Some(step) = follow(last) {
        return Some(step);
    }
    let (failure, why) = failed_on_vm(subject, last)?;
    // A guest that does not react to a shutdown is stopped when its time is over.
    if last.op == Some(Op::Shutdown) {
        return Some(soon(now, why));
    }
    Some(match failure {
        Failure::GiveUp | Failure::Everywhere => {
            refused(subject, StatusChange::default(), failure, why, now)
        }
        Failure::Retry
        | Failure::Elsewhere
        | Failure::Outdated
        | Failure::NumberSpoilt
        | Failure::StorageBusy
        | Failure::VmidTaken
        | Failure::Freeze => soon(now, why),
    })
}

/// The VM is ours, but Proxmox refuses the operation. The condition InstanceTerminating carries the refusal until the
/// next one. Each refusal is reported once.
fn refused(
    subject: &Subject<'_>,
    change: StatusChange,
    failure: Failure,
    why: String,
    now: Timestamp,
) -> Step {
    let pause = match failure {
        Failure::GiveUp | Failure::Everywhere => LATER,
        Failure::Retry
        | Failure::Elsewhere
        | Failure::Outdated
        | Failure::NumberSpoilt
        | Failure::StorageBusy
        | Failure::VmidTaken
        | Failure::Freeze => LOCK_PAUSE,
    };
    tell(subject, change, failure.as_str(), pause, why, now)
}

/// Something blocks the termination. Says so once, in its condition and an Event.
fn tell(
    subject: &Subject<'_>,
    change: StatusChange,
    reason: &'static str,
    pause: SignedDuration,
    why: String,
    now: Timestamp,
) -> Step {
    let kind = Condition::InstanceTerminating;
    let mut conditions = subject.status().conditions.iter();
    if conditions.any(|c| c.kind == kind && c.message == why) {
        return if change == StatusChange::default() {
            Step::back_off(later(now, pause), why)
        } else {
            change.record_and_back_off(later(now, pause), why)
        };
    }
    change
        .condition(kind, true, reason, why.clone(), now)
        .warn("FailedToDestroy", why.clone())
        .record_and_back_off(later(now, pause), why)
}

/// Proxmox is working on the VM, or a task of it died. The lock `destroyed` comes from a destroy, which frees the disks
/// first and removes the configuration last.
fn locked(
    subject: &Subject<'_>,
    observed: &Observed,
    machine: &Machine,
    lock: &str,
    now: Timestamp,
) -> Step {
    match lock {
        "clone" | "create" | "destroyed"
            if is_long(subject, now)
                || subject.status().since(Condition::StuckLocked).is_some() =>
        {
            let remedy = if looks_ours(subject, machine) {
                format!(
                    "only root@pam can remove it: `qm unlock {0}`, `qm destroy {0}` on {1}, and with `pvesm free` what `pvesm list STORAGE --vmid {0}` still shows",
                    subject.claim.spec.vmid, machine.hypervisor
                )
            } else {
                format!(
                    "nothing shows that it is ours: find out whose it is on {} before you unlock or remove it",
                    machine.hypervisor
                )
            };
            let why = format!("it is locked ({lock}) and no task works on it; {remedy}");
            stuck(subject, observed, &why, now)
        }
        _ => {
            let vmid = subject.claim.spec.vmid;
            let why = format!(
                "VM {vmid} on {0} is locked ({lock}). kproxide destroys it when the lock is gone. If nothing works on the VM any more, take the lock off on {0}: `qm unlock {vmid}`",
                machine.hypervisor
            );
            Step::back_off(later(now, LOCK_PAUSE), why)
        }
    }
}

/// The termination takes longer than [`LONG`].
fn is_long(subject: &Subject<'_>, now: Timestamp) -> bool {
    let since = subject.status().since(Condition::InstanceTerminating);
    since.is_some_and(|since| now >= later(since, LONG))
}

/// A locked VM does not show enough for a proof. But the marker, the UUID or an interrupted clone of ours are enough to
/// advise a person.
fn looks_ours(subject: &Subject<'_>, machine: &Machine) -> bool {
    let status = subject.status();
    let recorded = status.smbios_uuid.as_ref();
    let has_our_uuid = recorded
        .zip(machine.smbios_uuid.as_ref())
        .is_some_and(|(recorded, uuid)| same_uuid(recorded, uuid));
    let is_marked = match machine.marker {
        Marker::Ours | Marker::Tombstoned => true,
        Marker::Foreign | Marker::Missing => false,
    };
    has_our_uuid || is_marked || is_interrupted_clone(subject)
}

fn is_interrupted_clone(subject: &Subject<'_>) -> bool {
    let mut conditions = subject.status().conditions.iter();
    conditions.any(|c| c.kind == Condition::StuckLocked && c.reason == CLONE_INTERRUPTED)
}

/// kproxide cannot remove what is left of the VM. It says so, quarantines the VMID, no longer counts the machine in the
/// limits, and keeps the claim until a person has removed the VM.
fn stuck(subject: &Subject<'_>, observed: &Observed, why: &str, now: Timestamp) -> Step {
    let message = format!("VM {}: {why}", subject.claim.spec.vmid);
    match observed.entry {
        Some(EntryLook::Ours) if observed.tried(Op::Quarantine).is_none() => {
            return quarantine(subject, now);
        }
        Some(EntryLook::Ours | EntryLook::Quarantined | EntryLook::Missing) | None => {}
    }
    let reason = if is_interrupted_clone(subject) {
        CLONE_INTERRUPTED
    } else {
        STUCK_LOCKED
    };
    let kind = (Condition::StuckLocked, "StuckLocked");
    ask_for_a_human(subject, kind, reason, message, now)
}
