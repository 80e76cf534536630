//! Up, second half: the started VM joins, its Node is labelled, becomes Ready, and is in service.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::adopt::{Adoption, adopt, registered_as};
use super::answers::{SOON, failed, refuse, settled, several, soon, unread};
use super::effect::Effect;
use super::failing::fail;
use super::observed::{Failure, JoinLook, MachineLook, NodeLook, Observed};
use super::overdue::{NOT_READY, broken, is_broken, is_overdue, overdue};
use super::ownership::{Made, prove};
use super::power::check_power;
use super::reasons::{AWAITS_DEVICES, JOIN_NOT_RUN, JOIN_TIMEOUT};
use super::step::{StatusChange, Step};
use super::subject::Subject;
use super::{evidence, service};
use crate::facts::{Condition, Join, Op, Phase};
use crate::ids::NodeName;
use crate::kubernetes::taints::{delays_service, is_passing, untolerated};
use crate::time::later;

/// Pause between two calls of the guest agent. A silent agent blocks one of Proxmox's workers for seconds.
const AGENT_PAUSE: SignedDuration = SignedDuration::from_secs(3);

/// The VM was started. Wait for its Node, and run the join script in the guest if the class has one.
pub(super) fn launched(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if observed.node == Some(NodeLook::Absent) && now >= subject.join_deadline() {
        let message = format!(
            "no Node joined within {:#} of its start (timeouts.join)",
            subject.settings.timeouts.join.0,
        );
        // Only after this record kproxide asks the guest, which takes a worker of Proxmox some seconds.
        if !is_overdue(subject) {
            return StatusChange::default()
                .condition(Condition::Registered, false, JOIN_TIMEOUT, message, now)
                .record();
        }
        let message = message + &evidence::of_guest(subject, observed);
        return fail(Condition::Registered, JOIN_TIMEOUT, message, now);
    }
    if is_broken(subject, observed, now) {
        return broken(subject, Condition::Registered, now);
    }
    if let Some(step) = check_power(subject, observed, now) {
        return step;
    }
    match &observed.node {
        None => unread(observed, "the Node", now),
        Some(NodeLook::Several(names)) => several(subject, names, now),
        Some(NodeLook::One(name, node)) => match adopt(subject, observed, name, node, now) {
            // The Node is as it should be. The claim does not say so yet.
            Adoption::Complete => registered_as(subject, name, node, now),
            Adoption::Patch(step) => step,
            Adoption::Lacking(why) if now >= subject.join_deadline() => overdue(
                subject,
                observed,
                Condition::Registered,
                "NodeNotLabelled",
                &why,
                now,
            ),
            Adoption::Lacking(why) => soon(now, why),
        },
        Some(NodeLook::Absent) => match subject.settings.join {
            Join::Template => {
                Step::wait(Some(subject.join_deadline()), "kproxide waits for its Node")
            }
            Join::GuestExec => join(subject, observed, now),
        },
    }
}

/// The Node is known. It comes into service once it is Ready and has no startup taints.
pub(super) fn registered(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if is_broken(subject, observed, now) {
        return broken(subject, Condition::Initialized, now);
    }
    if let Some(step) = check_power(subject, observed, now) {
        return step;
    }
    let late = now >= subject.join_deadline();
    let not_ready = |why: &str| {
        overdue(
            subject,
            observed,
            Condition::Initialized,
            NOT_READY,
            why,
            now,
        )
    };
    let (name, node) = match &observed.node {
        None => return unread(observed, "the Node", now),
        Some(NodeLook::Several(names)) => return several(subject, names, now),
        Some(NodeLook::Absent) => {
            let why = "its Node has gone again";
            return if let Some(step) = service::node_missing(subject, now) {
                step
            } else if late {
                not_ready(why)
            } else {
                Step::wait(Some(subject.join_deadline()), why)
            };
        }
        Some(NodeLook::One(name, node)) => (name, node),
    };
    match adopt(subject, observed, name, node, now) {
        Adoption::Complete => {}
        Adoption::Patch(step) => return step,
        Adoption::Lacking(why) if late => {
            return overdue(
                subject,
                observed,
                Condition::Initialized,
                "NodeNotLabelled",
                &why,
                now,
            );
        }
        Adoption::Lacking(why) => return soon(now, why),
    }
    if subject.status().node_uid.as_ref() != Some(&node.uid) {
        return registered_as(subject, name, node, now);
    }
    if let Some(step) = settled(subject, &[Condition::NodeMissing], now) {
        return step;
    }
    if !node.ready {
        return if late {
            not_ready("its Node is not Ready")
        } else {
            Step::wait(Some(subject.join_deadline()), "its Node is not Ready yet")
        };
    }
    let startup = node
        .taints
        .iter()
        .find(|taint| delays_service(&subject.pool.startup_taints, taint));
    if let Some(taint) = startup {
        let why = format!("Node {name} still has the taint {}", taint.key);
        return if late {
            overdue(
                subject,
                observed,
                Condition::Initialized,
                "StartupTaint",
                &why,
                now,
            )
        } else {
            let registering = &subject.hint.registering;
            let taint_goes = registering.until.filter(|_| registering.is_awaited(now));
            let deadline = subject.join_deadline();
            Step::wait(Some(taint_goes.unwrap_or(deadline).min(deadline)), why)
        };
    }
    let registering = &subject.hint.registering;
    let shown = &node.allocatable.extended;
    let mut missing = subject.hint.devices.clone();
    missing.retain(|device| shown.get(device).is_none_or(|amount| *amount == 0));
    if !missing.is_empty() && !late {
        return awaits_devices(subject, name, &missing, now);
    }
    let mut told = format!("Node {name} is in service");
    if !registering.drivers.is_empty() && !registering.is_awaited(now) {
        told += &format!(
            ". CSI drivers that have not registered there: {}. Pods with their volumes may have to wait",
            registering.drivers.join(", ")
        );
    }
    let change = StatusChange::default()
        .phase(Phase::Initialized, now)
        .condition(Condition::Initialized, true, "Ready", "", now);
    if !missing.is_empty() {
        told += &format!(
            ". It still does not show what its instance type promises: {}. Look at the device plugin there, or set timeouts.join of the NodeClass higher",
            missing.join(", ")
        );
        return change.warn("DevicesMissing", told).record();
    }
    let spec = &subject.claim.spec;
    let lasting = node
        .taints
        .iter()
        .filter(|taint| !spec.taints.contains(taint));
    match untolerated(&[], lasting.filter(|taint| !is_passing(taint))) {
        Some(taint) => change.warn(
            "UnexpectedTaint",
            format!(
                "{told}. Pods that do not tolerate its taint {taint} stay away. If the taint stays, name it in spec.taints of NodePool {pool}. If something takes it off, name it in spec.startupTaints",
                pool = spec.pool
            ),
        ),
        None => change.say("Initialized", told),
    }
    .record()
}

/// The device plugin has not registered yet. The condition says what is missing. One Event says so once.
fn awaits_devices(
    subject: &Subject<'_>,
    name: &NodeName,
    missing: &[Arc<str>],
    now: Timestamp,
) -> Step {
    let deadline = subject.join_deadline();
    let why = format!(
        "Node {name} does not show {} yet, which its instance type promises. kproxide waits for the device plugin there until {deadline:.0} (timeouts.join)",
        missing.join(", ")
    );
    let change =
        StatusChange::default().condition(Condition::Ready, false, AWAITS_DEVICES, &*why, now);
    let status = subject.status();
    if change.is_in(status) {
        return Step::wait(Some(deadline), why);
    }
    let mut conditions = status.conditions.iter();
    match conditions.any(|it| it.kind == Condition::Ready && it.reason == AWAITS_DEVICES) {
        true => change,
        false => change.say(AWAITS_DEVICES, why),
    }
    .record()
}

/// Proxmox or the guest will never do it, however often kproxide asks.
fn agent_refused(why: &str, now: Timestamp) -> Step {
    fail(Condition::Registered, "AgentRefused", why.to_owned(), now)
}

/// The join script runs once per claim. A lock and a result file in the guest, named by the claim's UID, show whether
/// it did.
fn join(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    let again = later(now, AGENT_PAUSE);
    let last = observed.tried(Op::Join);
    if let Some((failure, text)) = failed(last) {
        let why = format!("the join command could not be started: {text}");
        return if matches!(failure, Failure::GiveUp | Failure::Everywhere) {
            agent_refused(&why, now)
        } else if subject.status().join_error() == Some(text) {
            soon(now, why)
        } else {
            // For the message of the timeout.
            StatusChange::default()
                .condition(Condition::Launched, true, JOIN_NOT_RUN, text, now)
                .record_and_back_off(later(now, SOON), why)
        };
    }
    match &observed.join {
        Some(JoinLook::NotRun) if last.is_some() => {
            Step::back_off(again, "the join command is about to run")
        }
        None => unread(observed, "the join command's result", now),
        // An agent that has answered before may be silent while the script uses the whole machine.
        Some(JoinLook::AgentSilent(why))
            if now >= subject.agent_deadline() && subject.intent() != Some(Op::Join) =>
        {
            fail(
                Condition::Registered,
                "AgentTimeout",
                format!(
                    "the guest agent did not answer within {:#}: {why}",
                    subject.settings.timeouts.agent.0
                ),
                now,
            )
        }
        Some(JoinLook::AgentSilent(why)) => {
            Step::back_off(again, format!("the guest agent does not answer yet: {why}"))
        }
        Some(JoinLook::Refused(why)) => agent_refused(why, now),
        Some(JoinLook::Booting) => Step::back_off(again, "cloud-init has not finished"),
        Some(JoinLook::NotRun) => {
            if let Some(step) = Op::Join.intent(subject) {
                return step;
            }
            match &observed.machine {
                Some(MachineLook::Visible(machine)) => {
                    match prove(subject, machine, Made::Configured) {
                        Ok(proven) => Step::Do(Effect::Join(proven)),
                        Err(mismatch) => refuse(subject, &mismatch, now),
                    }
                }
                Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => {
                    unread(observed, "the machine", now)
                }
            }
        }
        Some(JoinLook::Running) => Step::back_off(again, "the join command is running"),
        Some(JoinLook::Succeeded) => Step::wait(
            Some(subject.join_deadline()),
            "the join script has succeeded. kproxide waits for the Node",
        ),
        Some(JoinLook::Failed { exit_code, output }) => fail(
            Condition::Registered,
            "JoinFailed",
            format!("the join command failed with exit code {exit_code}: {output}"),
            now,
        ),
    }
}
