//! What can be read of a claim's machine and surroundings, as a list of questions.

use std::sync::Arc;

/// What to read, in this order. What is not asked for stays `None` in [`super::Observed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Whether the NodeClaim CRD is being deleted, by a fresh read. Then Kubernetes deletes the claims, and not a user
    /// who wants a machine gone.
    pub definition: bool,
    /// The Ledger's entry, by a fresh read.
    pub entry: bool,
    /// The status of this task.
    pub task: Option<Arc<str>>,
    /// Is the VMID taken anywhere?
    pub presence: Need,
    /// The VM's configuration and power state.
    pub machine: Need,
    /// Whether a task runs for the VM, if it is stopped: it may start at any moment.
    pub tasks: bool,
    /// Quorum of the Proxmox cluster.
    pub quorum: Need,
    /// The Node with the machine's UUID, fresh.
    pub node: bool,
    /// The join command in the guest, if no Node is there.
    pub join: bool,
    /// What the guest says of itself, if no Node is there.
    pub evidence: bool,
    /// Every pod on that Node (or on the one recorded, if it has gone), by a fresh list, after the Node was read. None, if there never
    /// was a Node.
    pub pods: bool,
    /// VolumeAttachments of the same Node.
    pub attachments: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    #[default]
    No,
    /// For the machine: if the VMID is taken. For presence and quorum: if the machine is not visible.
    IfNeeded,
    Always,
}

impl Looks {
    /// What either of them asks for.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            definition: self.definition || other.definition,
            entry: self.entry || other.entry,
            task: self.task.or(other.task),
            presence: self.presence.max(other.presence),
            machine: self.machine.max(other.machine),
            tasks: self.tasks || other.tasks,
            quorum: self.quorum.max(other.quorum),
            node: self.node || other.node,
            join: self.join || other.join,
            evidence: self.evidence || other.evidence,
            pods: self.pods || other.pods,
            attachments: self.attachments || other.attachments,
        }
    }
}

/// The VM, and whether its VMID is taken if it is not visible.
pub(super) fn machine() -> Looks {
    Looks {
        machine: Need::Always,
        presence: Need::IfNeeded,
        quorum: Need::IfNeeded,
        ..Looks::default()
    }
}
