//! A Node whose kubelet is gone for good. Kubernetes waits for it: its pods stay Terminating, their volumes attached. Once
//! the machine is proven off, the taint `out-of-service` tells Kubernetes that nothing runs there any more.

use jiff::Timestamp;

use super::answers::{SOON, failed, proven_absent, settled, soon};
use super::effect::Effect;
use super::node::{evicts, is_out_of_service, node_ref};
use super::observed::{Machine, MachineLook, NodeLook, Observed, Power};
use super::ownership::{Made, prove, same_uuid};
use super::step::{StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Condition, NodeFacts, Op};
use crate::ids::NodeName;
use crate::mutants::{Mutant, broken};
use crate::plan::RemovalReason;
use crate::time::later;

/// In a drain: what comes first because its Node is dead. `None`: nothing, so that the drain goes on.
pub(super) fn dead_node(
    subject: &Subject<'_>,
    observed: &Observed,
    reason: RemovalReason,
    now: Timestamp,
) -> Option<Step> {
    if reason.is_voluntary() {
        return None;
    }
    let (name, _) = dead(subject, observed, now)?;
    let pods = observed.pods.as_deref().unwrap_or_default();
    let mut left = pods.iter().filter(|pod| pod.must_leave());
    let is_attached = observed
        .attachments
        .as_ref()
        .is_some_and(|it| !it.is_empty());
    let (any, all_asked) = (left.clone().next().is_some(), left.all(|pod| pod.deleting));
    if !any && !is_attached {
        return None;
    }
    let is_off = is_proven_off(subject, observed);
    if is_off {
        // From here on the Node's return does not end the repair.
        if reason.is_repair() && !evicts(subject) {
            return Some(StatusChange::default().intent(Op::Evict, 1).record());
        }
        if let Some(step) = out_of_service(subject, observed, now) {
            return Some(step);
        }
    }
    if !all_asked || now >= subject.drain_deadline() {
        return None;
    }
    Some(match is_off {
        true => soon(
            now,
            format!(
                "Kubernetes ends the pods of Node {name} and detaches its volumes, because its machine is off"
            ),
        ),
        false => not_proven(subject, observed, name, now),
    })
}

/// The taint, once the machine is proven off.
pub(super) fn out_of_service(
    subject: &Subject<'_>,
    observed: &Observed,
    now: Timestamp,
) -> Option<Step> {
    let (name, node) = dead(subject, observed, now)?;
    if is_out_of_service(node) || !is_proven_off(subject, observed) {
        return None;
    }
    if let Some(step) = settled(subject, &[Condition::NotProvenOff], now) {
        return Some(step);
    }
    Some(match failed(observed.tried(Op::OutOfService)) {
        Some((_, text)) => soon(now, format!("Node {name} could not be tainted: {text}")),
        None => Step::Do(Effect::OutOfService(node_ref(name, node))),
    })
}

/// The Node of this very machine, if it has not been Ready for `repairAfter`.
fn dead<'o>(
    subject: &Subject<'_>,
    observed: &'o Observed,
    now: Timestamp,
) -> Option<(&'o NodeName, &'o NodeFacts)> {
    let Some(NodeLook::One(name, node)) = &observed.node else {
        return None;
    };
    let status = subject.status();
    let uuids = status.smbios_uuid.as_ref().zip(node.system_uuid.as_ref());
    let is_its = status.node_uid.as_ref() == Some(&node.uid)
        && uuids.is_some_and(|(ours, its)| same_uuid(ours, its));
    let is_dead = !node.ready
        && !node.deleting
        && now >= later(node.ready_since, subject.pool.repair_after.0);
    (is_its && is_dead).then_some((name, node))
}

/// Its own hypervisor says that it is stopped, or its cluster that it does not exist. A hypervisor that does not answer proves
/// nothing, unless a person says that it is off.
pub(super) fn is_proven_off(subject: &Subject<'_>, observed: &Observed) -> bool {
    let is_off = |machine: &Machine| {
        (machine.power == Power::Off || broken(Mutant::SilentIsOff))
            && machine.lock.is_none()
            && machine.task.is_none()
            && prove(subject, machine, Made::Configured).is_ok()
    };
    match &observed.machine {
        Some(MachineLook::Visible(machine)) => is_off(machine),
        Some(MachineLook::Unreachable(_)) if subject.hint.declared_off => true,
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => {
            proven_absent(observed)
        }
    }
}

/// Says once what keeps the pods, and what a person can do.
fn not_proven(subject: &Subject<'_>, observed: &Observed, name: &NodeName, now: Timestamp) -> Step {
    let (vmid, hypervisor) = (subject.claim.spec.vmid, subject.claim.hypervisor());
    let message = match &observed.machine {
        Some(MachineLook::Visible(machine)) => match prove(subject, machine, Made::Configured) {
            Err(mismatch) => format!(
                "kproxide does not take VM {vmid} for off: {mismatch}; {}",
                mismatch.remedy()
            ),
            Ok(_) => match (machine.power, &machine.lock, &machine.task) {
                (Power::On, ..) => format!(
                    "VM {vmid} runs on {hypervisor}, but Node {name} does not answer. Its pods may still write to their volumes. To end them, stop it on {hypervisor}: `qm stop {vmid}`"
                ),
                (_, Some(lock), _) => format!(
                    "VM {vmid} on {hypervisor} is locked ({lock}), so it may start again. kproxide waits until the lock is gone. If no task runs for it: `qm unlock {vmid}`"
                ),
                (_, None, Some(task)) => format!(
                    "a task ({task}) runs on {hypervisor} that may start VM {vmid}. kproxide waits for its end"
                ),
                (Power::Off | Power::Unknown, None, None) => {
                    format!("{hypervisor} does not say whether VM {vmid} runs. kproxide asks again")
                }
            },
        },
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => format!(
            "{hypervisor} does not answer, so VM {vmid} may still run and write to its volumes. If {hypervisor} is certainly off: `kubectl annotate proxmoxcluster {} kproxide.dev/hypervisor-off={hypervisor}`",
            subject.claim.spec.cluster
        ),
    };
    let kind = Condition::NotProvenOff;
    let mut conditions = subject.status().conditions.iter();
    if conditions.any(|c| c.kind == kind && c.status && c.message == message) {
        return Step::back_off(later(now, SOON), message);
    }
    StatusChange::default()
        .condition(kind, true, "NotProvenOff", message.clone(), now)
        .warn("NotProvenOff", message.clone())
        .record_and_back_off(later(now, SOON), message)
}
