//! A claim for a machine that is older than the claim. It records the machine as it is, and then goes on as any other.

use jiff::{SignedDuration, Timestamp};

use super::answers::{LATER, not_visible, proven_absent, refuse, settled, several, soon, unread};
use super::failing::fail;
use super::node::node_ref;
use super::observed::{Machine, MachineLook, NodeLook, Observed};
use super::ownership::{Made, Mismatch, is_another, prove};
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Adopts, Condition, NodeFacts, Phase};
use crate::ids::{NodeName, Vmid};
use crate::keys::{DRAINING_TAINT, UNREGISTERED_TAINT};
use crate::plan::{RemovalReason, Standing};
use crate::reasons::on_hold::Hold;
use crate::time::later;

/// The reason of conditions that the machine's earlier claim had reached.
const ADOPTED: &str = "Adopted";

/// The plan has not seen this claim yet, and may hold it.
const PLANNED_FIRST: &str = "the next plan decides what becomes of it";

/// If the Node is gone again after the claim was made, kproxide waits this long for it. After that the machine counts
/// as just started.
const NODE_AWAITED: SignedDuration = SignedDuration::from_hours(1);

/// Records the machine. Nothing is done to the machine here.
pub(super) fn pending(
    subject: &Subject<'_>,
    observed: &Observed,
    adopts: &Adopts,
    now: Timestamp,
) -> Step {
    if !subject.claim.has_finalizer {
        return Step::wait(
            None,
            "the NodeClaim has no finalizer, so kproxide could lose its machine. Delete the NodeClaim",
        );
    }
    let vmid = subject.claim.spec.vmid;
    let machine = match &observed.machine {
        Some(MachineLook::Visible(machine)) if is_another(subject, machine) => {
            let why =
                format!("VM {vmid} no longer carries kproxide's marker. kproxide leaves it alone");
            return fail(Condition::Launched, "Lost", why, now);
        }
        Some(MachineLook::Visible(machine)) => machine,
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None
            if proven_absent(observed) =>
        {
            return fail(
                Condition::Launched,
                "Lost",
                format!("VM {vmid} has gone"),
                now,
            );
        }
        Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => {
            return not_visible(subject, observed, now);
        }
    };
    // A clone that was never configured may have its template's protection, so protection is no obstacle here. A
    // removal checks it again.
    if let Err(mismatch) = prove(subject, machine, Made::Cloned) {
        return refuse(subject, &mismatch, now);
    }
    if subject.status().smbios_uuid.is_none() {
        return take_stock(subject, machine, now);
    }
    let node = match &observed.node {
        None => return unread(observed, "the Node", now),
        Some(NodeLook::Several(names)) => {
            return several(subject, names, now);
        }
        Some(NodeLook::One(_, node)) if node.deleting => {
            return soon(now, "its Node is being deleted");
        }
        Some(NodeLook::One(name, node)) => Some((name, node)),
        Some(NodeLook::Absent) => None,
    };
    if let Some(step) = settled(
        subject,
        &[Condition::OwnershipMismatch, Condition::ProtectedVM],
        now,
    ) {
        return step;
    }
    match node {
        Some((_, node)) if adopts.condemned && node.ready && !subject.deleting() => {
            Step::back_off(later(now, LATER), Hold::StaysReady.to_string())
        }
        Some((name, node)) if adopts.condemned => {
            let mut change = condemned(now);
            change.node = Some(node_ref(name, node));
            change.record_and_back_off(now, PLANNED_FIRST)
        }
        None if adopts.condemned => condemned(now).record_and_back_off(now, PLANNED_FIRST),
        Some((name, node)) => in_service(subject, name, node, now),
        None => {
            let end = later(subject.claim.created, NODE_AWAITED);
            if now < end {
                return soon(now, "its Node is gone again. kproxide waits for it");
            }
            launched(now).record()
        }
    }
}

/// Records the machine as it is found, with the volumes that a launch makes. A user may have added any other volume, so
/// those keep it from being removed.
fn take_stock(subject: &Subject<'_>, machine: &Machine, now: Timestamp) -> Step {
    let Some(uuid) = &machine.smbios_uuid else {
        return refuse(subject, &Mismatch::SmbiosUuid(None), now);
    };
    let vmid = subject.claim.spec.vmid;
    let own = machine.disks.iter().filter(|disk| is_own(disk, vmid));
    let change = StatusChange {
        smbios_uuid: Some(uuid.clone()),
        disks: Some(own.cloned().collect()),
        hypervisor: Some(machine.hypervisor.clone()),
        ..StatusChange::default()
    };
    change.record()
}

/// `local-lvm:vm-101-disk-0`, `nfs:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2`,
/// `nfs:101/vm-101-cloudinit.qcow2`. Proxmox numbers the disks of a VM in the order in which they are made. Further
/// disks of the template are taken for added ones.
fn is_own(volume: &str, vmid: Vmid) -> bool {
    let name = volume.rsplit(['/', ':']).next().unwrap_or(volume);
    let name = name.split_once('.').map_or(name, |(name, _)| name);
    name == format!("vm-{vmid}-disk-0") || name == format!("vm-{vmid}-cloudinit")
}

/// Three cases: the machine was in service; its drain had begun, which the plan checks again; or it was about to come
/// into service.
fn in_service(subject: &Subject<'_>, name: &NodeName, node: &NodeFacts, now: Timestamp) -> Step {
    let has = |key: &str| node.taints.iter().any(|taint| &*taint.key == key);
    let mut change = launched(now);
    if !has(UNREGISTERED_TAINT) {
        change = change
            .phase(Phase::Initialized, now)
            .condition(Condition::Registered, true, ADOPTED, "", now)
            .condition(Condition::Initialized, true, ADOPTED, "", now);
        change.node = Some(node_ref(name, node));
        change.address = node.address.or(subject.claim.spec.address);
    }
    if has(DRAINING_TAINT) && !has(UNREGISTERED_TAINT) {
        let reason = RemovalReason::Underutilized;
        let why = "its drain had begun when its claim disappeared";
        change = change.phase(Phase::Draining, now).condition(
            Condition::Drained,
            false,
            reason.as_str(),
            why,
            now,
        );
        let unneeded = super::step::unneeded(&Standing::CouldGo, now);
        change.conditions.extend(unneeded.conditions);
        change.draining_since = Change::Set(now);
    }
    let message = format!(
        "the NodeClaim of VM {} was lost, so kproxide made a new one. Node {name} and its pods stay as they are",
        subject.claim.spec.vmid
    );
    change
        .say(ADOPTED, message)
        .record_and_back_off(now, PLANNED_FIRST)
}

fn launched(now: Timestamp) -> StatusChange {
    let mut change = StatusChange::default()
        .phase(Phase::Launched, now)
        .condition(Condition::Reserved, true, ADOPTED, "", now)
        .condition(Condition::Launched, true, ADOPTED, "", now);
    change.started_at = Some(now);
    change
}

fn condemned(now: Timestamp) -> StatusChange {
    let reason = RemovalReason::Deleted;
    let why = "its NodeClaim was lost, and its Node is not Ready";
    let mut change = StatusChange::default()
        .phase(Phase::Draining, now)
        .condition(Condition::Drained, false, reason.as_str(), why, now)
        .warn(
            "OrphanRemoved",
            "the machine lost its NodeClaim and its Node is not Ready, so kproxide removes it",
        );
    change.draining_since = Change::Set(now);
    change
}
