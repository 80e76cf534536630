//! Does the VM exist, and does it run? kproxide starts a stopped VM again, without a limit of tries. A VM that is gone
//! counts as lost only if the plan agrees.

use jiff::{SignedDuration, Timestamp};

use super::answers::{
    failed, follow, no_quorum, not_visible, proven_absent, refuse, settled, soon,
};
use super::begin::begin_because;
use super::effect::Effect;
use super::failing::fail;
use super::observed::{Machine, MachineLook, NodeLook, Observed, Power};
use super::ownership::{Made, is_another, prove};
use super::step::{StatusChange, Step};
use super::subject::{GuestHint, Subject};
use crate::facts::{Condition, Op, Phase};
use crate::plan::{RemovalReason, Verdict};
use crate::time::later;

/// Pause before the next start of a VM that does not start or does not stay up: this long for each start so far, up to
/// five minutes. The usual cause is a hypervisor whose storage is not ready yet.
const START_PAUSE: SignedDuration = SignedDuration::from_secs(10);
const START_PAUSES_MAX: u32 = 30;

/// If the VM was looked at: starts a stopped one, and finds out whether a missing one is lost. `None`: it runs, there
/// was no reason to look, or another part decides.
pub(super) fn check_power(
    subject: &Subject<'_>,
    observed: &Observed,
    now: Timestamp,
) -> Option<Step> {
    let vmid = subject.claim.spec.vmid;
    let machine = match observed.machine.as_ref()? {
        MachineLook::Visible(machine) => machine,
        // The hint shows that its own hypervisor answered. Otherwise the endpoint may belong to another Proxmox
        // cluster, which does not know the VM.
        MachineLook::Invisible | MachineLook::Unreachable(_)
            if proven_absent(observed) && subject.hint.guest == GuestHint::Absent =>
        {
            return lost(subject, observed, format!("VM {vmid} has gone"), now);
        }
        MachineLook::Invisible | MachineLook::Unreachable(_) => {
            return Some(not_visible(subject, observed, now));
        }
    };
    if is_another(subject, machine) {
        let why = format!(
            "VM {vmid} has gone, and its VMID belongs to another VM. kproxide leaves it alone"
        );
        return lost(subject, observed, why, now);
    }
    match machine.power {
        Power::Unknown => Some(soon(now, "whether the VM runs is not known")),
        Power::On => runs(subject, observed, machine, now),
        Power::Off => Some(start(subject, observed, machine, now)),
    }
}

/// The machine certainly does not run: it is switched off, or not there at all.
pub(super) fn is_down(subject: &Subject<'_>, observed: &Observed) -> bool {
    match &observed.machine {
        Some(MachineLook::Visible(machine)) => {
            machine.power == Power::Off || is_another(subject, machine)
        }
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => {
            proven_absent(observed)
        }
    }
}

fn runs(
    subject: &Subject<'_>,
    observed: &Observed,
    machine: &Machine,
    now: Timestamp,
) -> Option<Step> {
    let status = subject.status();
    // Of two Nodes of one machine this look says nothing.
    let is_double = matches!(observed.node, Some(NodeLook::Several(_)));
    if !is_double && prove(subject, machine, Made::Configured).is_ok() {
        let asked = [Condition::OwnershipMismatch, Condition::ProtectedVM];
        if let Some(step) = settled(subject, &asked, now) {
            return Some(step);
        }
    }
    let just_started = observed.tried(Op::Start).is_some();
    // From here its deadlines count anew.
    (just_started && status.started_at != Some(now)).then(|| {
        let change = StatusChange {
            started_at: Some(now),
            ..StatusChange::default()
        };
        change.record()
    })
}

/// The VM exists but does not run: start it. Failed starts are no reason to give the machine up. If its Node stays
/// away, the plan repairs it within the pool's budget, and a launch has its deadline.
fn start(subject: &Subject<'_>, observed: &Observed, machine: &Machine, now: Timestamp) -> Step {
    let starts = starts(subject);
    if let Some(last) = observed.tried(Op::Start) {
        if let Some(step) = follow(last) {
            return step;
        }
        let why = match failed(Some(last)) {
            Some((_, text)) => format!("the stopped VM could not be started: {text}"),
            None => "the VM was started, but it does not run".to_owned(),
        };
        return Step::back_off(later(now, pause(starts)), why);
    }
    if let Some(lock) = &machine.lock {
        return soon(now, format!("the VM is locked ({lock})"));
    }
    let proven = match prove(subject, machine, Made::Configured) {
        Ok(proven) => proven,
        Err(mismatch) => return refuse(subject, &mismatch, now),
    };
    if let Some(step) = no_quorum(observed, now) {
        return step;
    }
    let ran_at = subject.started_at();
    if starts > 0 && observed.has_just_recorded() && now >= later(ran_at, START_PAUSE) {
        return Step::Do(Effect::Start(proven));
    }
    let rested_at = later(ran_at, pause(starts));
    if now < rested_at {
        return Step::back_off(rested_at, "the VM has stopped again");
    }
    StatusChange::default()
        .intent(Op::Start, starts.saturating_add(1))
        .warn("VMStopped", "the VM was stopped. kproxide starts it again")
        .record()
}

/// Starts that were asked for since the machine was found stopped.
pub(super) fn starts(subject: &Subject<'_>) -> u32 {
    match &subject.status().intent {
        Some(intent) if intent.op == Op::Start => intent.attempt,
        Some(_) | None => 0,
    }
}

pub(super) fn pause(starts: u32) -> SignedDuration {
    let starts = starts.clamp(1, START_PAUSES_MAX);
    START_PAUSE * i32::try_from(starts).unwrap_or(i32::MAX)
}

/// The VM is missing. But if its Node is Ready, kproxide believes the Node. For a machine in service the plan must
/// agree, because the plan sees how many machines seem lost at once.
fn lost(subject: &Subject<'_>, observed: &Observed, why: String, now: Timestamp) -> Option<Step> {
    if let Some(NodeLook::One(_, node)) = &observed.node
        && node.ready
    {
        return None;
    }
    let phase = subject.status().phase;
    if phase == Phase::Initialized && *subject.verdict != Verdict::Remove(RemovalReason::Lost) {
        return None;
    }
    if !subject.armed(now) {
        return Some(Step::wait(
            subject.settings.armed_at,
            format!("{why}. kproxide waits until --cold-start is over"),
        ));
    }
    Some(match phase == Phase::Initialized {
        true => begin_because(subject, RemovalReason::Lost, why, now),
        false => fail(Condition::Registered, "Lost", why, now),
    })
}
