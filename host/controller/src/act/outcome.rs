//! What the adapters' answers mean for the next decision.

use kproxide_planner::claim::{Failure, Outcome};
use kproxide_planner::ids::{StorageName, Vmid};

use kproxide_common::chain::chain;
use kproxide_kube::error::Error as KubeError;
use kproxide_pve::error::{Error as PveError, Executed, Meaning, Reaction};
use kproxide_pve::task;

/// A call to Proxmox that failed.
pub(super) fn of_proxmox(error: &PveError, vmid: Vmid) -> Outcome {
    match error.executed {
        Executed::No => Outcome::Failed {
            failure: failure(&error.meaning, error.reaction(), vmid),
            text: error.chain(),
        },
        Executed::Yes | Executed::Unknown => Outcome::Unknown(error.chain()),
    }
}

/// The state of Proxmox's task `upid`. If a storage is full, the text names the machine's storage, because Proxmox's
/// own words may name only a volume or a path.
pub(super) fn of_task(
    upid: &str,
    outcome: task::Outcome,
    storage: Option<&StorageName>,
    vmid: Vmid,
) -> Outcome {
    match outcome {
        task::Outcome::Running => Outcome::Running(upid.into()),
        task::Outcome::Ok => Outcome::Done,
        task::Outcome::Warnings(count) => Outcome::Warnings(count),
        // The VM runs already, so the start has done its work.
        task::Outcome::Failed {
            meaning: Meaning::AlreadyRunning,
            ..
        } => Outcome::Done,
        task::Outcome::Failed { meaning, text } => Outcome::Failed {
            failure: failure(&meaning, meaning.reaction(), vmid),
            text: match (&meaning, storage) {
                (Meaning::NoSpace, Some(storage)) => {
                    format!("storage {storage}: {meaning}: {text}")
                }
                (Meaning::NoSpace, None) => format!("{meaning}: {text}"),
                (
                    Meaning::StorageBusy { .. }
                    | Meaning::PermissionDenied { .. }
                    | Meaning::CloudInitLeft { .. },
                    _,
                ) => format!("{text}. {meaning}"),
                (_, _) => text,
            },
        },
        task::Outcome::Unknown(why) => Outcome::Unknown(why),
    }
}

fn failure(meaning: &Meaning, reaction: Reaction, vmid: Vmid) -> Failure {
    if *meaning == Meaning::VmidTaken {
        return Failure::VmidTaken;
    }
    if matches!(meaning, Meaning::StorageBusy { .. }) {
        return Failure::StorageBusy;
    }
    // Of this number alone: no server is to blame, and another number is free of it.
    if matches!(meaning, Meaning::CloudInitLeft { vmid: left, .. } if *left == vmid.0) {
        return Failure::NumberSpoilt;
    }
    if meaning.is_alike_everywhere(vmid.0) {
        return Failure::Everywhere;
    }
    match reaction {
        // Before each step kproxide looks anyway.
        Reaction::Retry | Reaction::Wait | Reaction::LookFirst => Failure::Retry,
        Reaction::OtherHypervisor => Failure::Elsewhere,
        Reaction::GiveUp => Failure::GiveUp,
        Reaction::Freeze => Failure::Freeze,
    }
}

/// A failed write to Kubernetes. All of kproxide's writes can be repeated after a look.
pub(super) fn of_kubernetes(error: &KubeError) -> Outcome {
    let failure = if error.is_transient() {
        Failure::Retry
    } else {
        Failure::GiveUp
    };
    Outcome::Failed {
        failure,
        text: chain(error),
    }
}

pub(super) fn failed(failure: Failure, text: impl Into<String>) -> Outcome {
    let text = text.into();
    Outcome::Failed { failure, text }
}

/// What a step came to. Errors end it where they stand.
pub(super) type Performed = Result<Outcome, Stopped>;

pub(super) enum Stopped {
    With(Outcome),
    /// If for want of a privilege, the commands that grant it are still to be told.
    ByProxmox(PveError),
}

impl From<Outcome> for Stopped {
    fn from(outcome: Outcome) -> Self {
        Self::With(outcome)
    }
}

impl From<PveError> for Stopped {
    fn from(error: PveError) -> Self {
        Self::ByProxmox(error)
    }
}

impl From<KubeError> for Stopped {
    fn from(error: KubeError) -> Self {
        Self::With(of_kubernetes(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f44_a_full_storage_is_named_with_what_to_do() {
        let ended = task::Outcome::of_exit_status(
            "clone failed: lvcreate 'pve/vm-201-disk-0' error: insufficient free space",
        );
        let storage = StorageName::from("local-lvm");
        let Outcome::Failed { failure, text } = of_task("upid", ended, Some(&storage), Vmid(500))
        else {
            panic!("it did not fail");
        };
        assert_eq!(failure, Failure::Elsewhere);
        assert_eq!(
            text,
            "storage local-lvm: no space left on the storage: free some, or set `template.storage` to another one: \
             clone failed: lvcreate 'pve/vm-201-disk-0' error: insufficient free space"
        );
    }

    /// Of the VM, it is the same on each server; of a storage, another server may have another one.
    #[test]
    fn n6_a_task_that_fails_for_want_of_a_privilege_names_it() {
        for (path, privilege, expected) in [
            ("/vms/171", "VM.Config.Disk", Failure::Everywhere),
            ("/storage/fast", "Datastore.AllocateSpace", Failure::GiveUp),
        ] {
            let text = format!("403 Permission check failed ({path}, {privilege})");
            let ended = task::Outcome::of_exit_status(&text);
            let Outcome::Failed { failure, text } = of_task("upid", ended, None, Vmid(171)) else {
                panic!("{text}");
            };
            assert_eq!(failure, expected);
            let grant = format!("missing privilege {privilege} on {path}");
            assert!(text.contains(&grant), "{text}");
        }
    }

    #[test]
    fn n6_the_lock_of_a_storage_is_no_servers_fault() {
        for text in [
            "clone failed: cfs-lock 'storage-shared' error: got lock request timeout",
            "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-shared' - got timeout",
        ] {
            let ended = task::Outcome::of_exit_status(text);
            let Outcome::Failed { failure, text } = of_task("upid", ended, None, Vmid(171)) else {
                panic!("{text}");
            };
            assert_eq!(failure, Failure::StorageBusy);
            assert!(text.contains("the lock of storage shared"), "{text}");
        }
    }

    /// In the words of the tools of folders, LVM, ZFS and RBD.
    #[test]
    fn n4_a_cloud_init_volume_that_was_left_spoils_its_own_number_alone() {
        let texts = [
            "clone failed: disk image '/srv/shared/images/171/vm-171-cloudinit.qcow2' already exists",
            "clone failed: lvcreate 'pve/vm-171-cloudinit' error:   Logical Volume \"vm-171-cloudinit\" already exists in volume group \"pve\"",
            "clone failed: zfs error: cannot create 'rpool/data/vm-171-cloudinit': dataset already exists",
            "clone failed: rbd create 'vm-171-cloudinit' error: rbd: create error: (17) File exists",
            // Storages have such names too.
            "clone failed: disk image '/mnt/pve/vm-store/images/171/vm-171-cloudinit.qcow2' already exists",
            "clone failed: lvcreate 'vm-vg/vm-171-cloudinit' error:   Logical Volume \"vm-171-cloudinit\" already exists in volume group \"vm-vg\"",
            "clone failed: zfs error: cannot create 'rpool/vm-disks/vm-171-cloudinit': dataset already exists",
            "clone failed: disk image '/mnt/pve/a-cloudinit/images/171/vm-171-cloudinit.qcow2' already exists",
        ];
        for text in texts {
            let of = |vmid: u32| {
                let ended = task::Outcome::of_exit_status(text);
                match of_task("upid", ended, None, Vmid(vmid)) {
                    Outcome::Failed { failure, text } => (failure, text),
                    other => panic!("{other:?}"),
                }
            };
            let (failure, said) = of(171);
            assert_eq!(failure, Failure::NumberSpoilt, "{text}");
            assert!(said.starts_with(text), "{said}");
            assert!(said.contains("pvesm list STORAGE --vmid 171"), "{said}");
            let volume = match text.contains("/images/") {
                true => "`pvesm free STORAGE:171/vm-171-cloudinit.qcow2`",
                false => "`pvesm free STORAGE:vm-171-cloudinit`",
            };
            assert!(said.contains(volume), "{said}");
            assert_ne!(of(172).0, Failure::NumberSpoilt);
            // Said at once, without a task.
            let task::Outcome::Failed { meaning, .. } = task::Outcome::of_exit_status(text) else {
                panic!("{text}");
            };
            let at_once = super::failure(&meaning, meaning.reaction(), Vmid(171));
            assert_eq!(at_once, Failure::NumberSpoilt);
        }
    }
}
