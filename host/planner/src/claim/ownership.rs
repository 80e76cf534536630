//! The proof that a VM is a claim's. Without it kproxide does nothing to the VM. A VMID alone proves nothing, because
//! VMIDs are reused and people clone VMs.

use std::fmt;
use std::sync::Arc;

use super::observed::{Machine, Marker};
use super::reasons::VMID_TAKEN;
use super::subject::Subject;
use crate::facts::{Condition, Op, Phase};
use crate::ids::{Uid, Vmid};
use crate::mutants::{Mutant, broken};

/// A VM that was just proven to be the claim's. Made by [`prove`] only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    vmid: Vmid,
    hypervisor: Arc<str>,
    digest: Arc<str>,
}

impl Proven {
    /// For [`prove`] alone.
    fn of(subject: &Subject<'_>, machine: &Machine) -> Self {
        Self {
            vmid: subject.claim.spec.vmid,
            hypervisor: machine.hypervisor.clone(),
            digest: machine.digest.clone(),
        }
    }

    pub fn vmid(&self) -> Vmid {
        self.vmid
    }

    /// Where the VM is now.
    pub fn hypervisor(&self) -> &Arc<str> {
        &self.hypervisor
    }

    /// Digest of the configuration that the proof was read from. Proxmox refuses a write if the configuration has
    /// changed since.
    pub fn digest(&self) -> &Arc<str> {
        &self.digest
    }
}

/// Why kproxide may not touch the VM with the claim's VMID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    Marker(Marker),
    Name(Option<Arc<str>>),
    Pool(Option<Arc<str>>),
    SmbiosUuid(Option<Uid>),
    OutOfRange,
    Template,
    HaManaged,
    Protected,
    /// A user made a snapshot of this name.
    Snapshot(Arc<str>),
    UnknownDisks(Vec<Arc<str>>),
    /// A VM with this VMID exists, but our token cannot see it.
    Invisible,
    /// More than one Node carries the VM's UUID.
    SeveralNodes(String),
}

impl Mismatch {
    /// What a person can do about it.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Marker(_) => {
                "put back the marker line in its description and the key that signed it, or remove the VM by hand"
            }
            Self::Name(_) | Self::Pool(_) | Self::SmbiosUuid(_) => {
                "put back what kproxide gave it, or remove the VM by hand"
            }
            Self::OutOfRange => "widen vmidRange, or remove the VM by hand",
            Self::Template => "remove the template by hand, if it is not wanted",
            Self::HaManaged => "take it out of the HA manager's resources",
            Self::Protected => {
                "if kproxide may remove it, clear its protection flag: `qm set VMID --protection 0` on its server"
            }
            Self::Snapshot(_) => {
                "if kproxide may remove it, delete its snapshots: `qm delsnapshot VMID NAME` on its server"
            }
            Self::UnknownDisks(_) => "detach them",
            Self::Invisible => {
                "give the token VM.Audit on the pool if it lacks it (`pveum acl modify /pool/POOL …`); if the VM has left the pool, put it back"
            }
            Self::SeveralNodes(_) => "delete the Nodes that are not this machine",
        }
    }
}

/// How far the launch is, and so how much the claim can know of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Made {
    /// Cloned, but not recorded yet. Protection may come from the template, so it says nothing about this VM.
    Cloned,
    /// Recorded. From here on the claim must know every volume, because nothing that kproxide does adds another.
    Recorded,
    /// Configured, which removed the template's protection. If protection is set now, a user set it on this VM.
    Configured,
}

/// Is this VM the claim's, and may it be touched?
pub(super) fn prove(
    subject: &Subject<'_>,
    machine: &Machine,
    made: Made,
) -> Result<Proven, Mismatch> {
    let spec = &subject.claim.spec;
    let status = subject.status();
    let settings = subject.settings;
    if believed_unseen(subject) || is_tagged(machine) {
        return Ok(Proven::of(subject, machine));
    }
    match machine.marker {
        Marker::Ours | Marker::Tombstoned => {}
        Marker::Foreign | Marker::Missing => return Err(Mismatch::Marker(machine.marker)),
    }
    if machine.name.as_deref() != Some(&*spec.vm_name) {
        return Err(Mismatch::Name(machine.name.clone()));
    }
    if machine.pool.as_deref() != Some(&*settings.pool) {
        return Err(Mismatch::Pool(machine.pool.clone()));
    }
    if let Some(recorded) = &status.smbios_uuid
        && !machine
            .smbios_uuid
            .as_ref()
            .is_some_and(|uuid| same_uuid(uuid, recorded))
    {
        return Err(Mismatch::SmbiosUuid(machine.smbios_uuid.clone()));
    }
    if !(settings.vmid_first..=settings.vmid_last).contains(&spec.vmid) {
        return Err(Mismatch::OutOfRange);
    }
    if machine.template {
        return Err(Mismatch::Template);
    }
    if machine.ha_managed {
        return Err(Mismatch::HaManaged);
    }
    if machine.protected && made >= Made::Configured {
        return Err(Mismatch::Protected);
    }
    // Reading a VM back or adopting it does no harm, so a snapshot is no obstacle yet. A removal checks again.
    if made >= Made::Recorded
        && let Some(name) = &machine.snapshot
    {
        return Err(Mismatch::Snapshot(name.clone()));
    }
    if made >= Made::Recorded {
        let unknown: Vec<_> = machine
            .disks
            .iter()
            .filter(|disk| !status.disks.contains(disk))
            .cloned()
            .collect();
        if !unknown.is_empty() {
            return Err(Mismatch::UnknownDisks(unknown));
        }
    }
    Ok(Proven::of(subject, machine))
}

/// Whether kproxide may run a command in the guest. Even a command without an effect on the VM must not run in another
/// user's VM.
pub fn is_proven(subject: &Subject<'_>, machine: &Machine) -> bool {
    prove(subject, machine, Made::Configured).is_ok()
}

/// The VM that has our VMID is certainly another one. So ours does not exist, because a VMID has one VM.
///
/// The clone request itself writes the marker. So an unlocked VM without our marker is another one. Once our UUID is
/// recorded, the UUID must differ too: a VM with our UUID and no marker is ours, edited by a user. A VM with our marker
/// is never another one, even if its UUID differs: the marker is signed for this claim and VMID, so ours was edited or
/// restored from a backup, and may run. A person has to look first.
pub(super) fn is_another(subject: &Subject<'_>, machine: &Machine) -> bool {
    if believed_unseen(subject) {
        return false;
    }
    match machine.marker {
        Marker::Ours | Marker::Tombstoned => return false,
        Marker::Foreign | Marker::Missing => {}
    }
    match (&subject.status().smbios_uuid, &machine.smbios_uuid) {
        (Some(recorded), Some(uuid)) => !same_uuid(recorded, uuid),
        (Some(_), None) => false,
        (None, _) => machine.lock.is_none(),
    }
}

/// Mistakes: that it is the claim's is taken from the number, or from what was seen a while ago. Never, in a build without them.
pub(super) fn believed_unseen(subject: &Subject<'_>) -> bool {
    let status = subject.status();
    let mut conditions = status.conditions.iter();
    broken(Mutant::DestroyByVmid)
        || broken(Mutant::StaleProof)
            && matches!(
                subject.intent(),
                Some(Op::Shutdown | Op::Stop | Op::Destroy)
            )
        || broken(Mutant::EexistCleanedUp)
            && status.phase == Phase::Terminating
            && conditions.any(|c| c.kind == Condition::Launched && c.reason == VMID_TAKEN)
}

/// A mistake: whatever carries our tag is the claim's ([`Marker::Ours`] is said of it).
fn is_tagged(machine: &Machine) -> bool {
    broken(Mutant::TrustTags) && machine.marker == Marker::Ours
}

/// Equal UUIDs, whatever their letters' case, and in either byte order: SMBIOS before 2.6 and some firmware show the first three groups with
/// their bytes swapped.
pub fn same_uuid(a: &Uid, b: &Uid) -> bool {
    let is_same = |a: &Uid| a.as_str().eq_ignore_ascii_case(b.as_str());
    a.swapped()
        .is_some_and(|swapped| is_same(a) || is_same(&swapped))
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &Option<Arc<str>>| text.as_deref().unwrap_or("none").to_owned();
        match self {
            Self::Marker(Marker::Foreign) => {
                f.write_str("the marker in its description belongs to something else")
            }
            Self::Marker(Marker::Missing | Marker::Ours | Marker::Tombstoned) => {
                f.write_str("its description has no marker of this kproxide")
            }
            Self::Name(name) => write!(f, "its name is {}", shown(name)),
            Self::Pool(pool) => write!(f, "its pool is {}", shown(pool)),
            Self::SmbiosUuid(uuid) => write!(
                f,
                "its SMBIOS UUID is {}",
                uuid.as_ref().map_or("none", Uid::as_str)
            ),
            Self::OutOfRange => f.write_str("its VMID is outside of the cluster's vmidRange"),
            Self::Template => f.write_str("it is a template"),
            Self::HaManaged => f.write_str("it is managed by Proxmox's HA manager"),
            Self::Protected => f.write_str("its protection flag is set"),
            Self::Snapshot(name) => write!(f, "it has a snapshot, {name}"),
            Self::UnknownDisks(disks) => write!(
                f,
                "it has disks that the claim does not know: {}",
                disks.join(", ")
            ),
            Self::Invisible => f.write_str(
                "a VM has this VMID, but kproxide's token cannot see it: the token lacks VM.Audit, or the VM is not in the ProxmoxCluster's pool",
            ),
            Self::SeveralNodes(names) => {
                write!(f, "several Nodes have its SMBIOS UUID: {names}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_match_in_either_case_and_byte_order() {
        let uuid = Uid::from("0dc58eea-1b04-4b04-ba4f-c09d2b1c5a16");
        for same in [
            "0DC58EEA-1B04-4B04-BA4F-C09D2B1C5A16",
            "ea8ec50d-041b-044b-ba4f-c09d2b1c5a16",
        ] {
            assert!(same_uuid(&uuid, &Uid::from(same)), "{same}");
            assert!(same_uuid(&Uid::from(same), &uuid), "{same}");
        }
    }

    #[test]
    fn other_or_broken_uuids_do_not_match() {
        let uuid = Uid::from("0dc58eea-1b04-4b04-ba4f-c09d2b1c5a16");
        for other in ["0dc58eea-1b04-4b04-ba4f-c09d2b1c5a17", "", "0dc58eea"] {
            assert!(!same_uuid(&uuid, &Uid::from(other)), "{other}");
        }
        assert!(!same_uuid(&Uid::from(""), &Uid::from("")));
    }
}
