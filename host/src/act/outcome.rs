//! What the adapters' answers mean for the next decision.

use kproxide_planner::claim::{Failure, Outcome};
use kproxide_planner::ids::StorageName;

use crate::chain::chain;
use crate::kube::error::Error as KubeError;
use crate::pve::error::{Error as PveError, Executed, Meaning, Reaction};
use crate::pve::task;

/// A call to Proxmox that failed.
pub(super) fn of_proxmox(error: &PveError) -> Outcome {
    match error.executed {
        Executed::No => Outcome::Failed {
            failure: failure(&error.meaning, error.reaction()),
            text: error.chain(),
        },
        Executed::Yes | Executed::Unknown => Outcome::Unknown(error.chain()),
    }
}

/// A task of Proxmox's, named `upid`, as it stands. Where its machine's disks are made on a known storage, that is named if it is full: Proxmox's words
/// may name a volume or a path only.
pub(super) fn of_task(
    upid: &str,
    outcome: task::Outcome,
    storage: Option<&StorageName>,
) -> Outcome {
    match outcome {
        task::Outcome::Running => Outcome::Running(upid.into()),
        task::Outcome::Ok => Outcome::Done,
        task::Outcome::Warnings(count) => Outcome::Warnings(count),
        // It runs already: what a start is for.
        task::Outcome::Failed {
            meaning: Meaning::AlreadyRunning,
            ..
        } => Outcome::Done,
        task::Outcome::Failed { meaning, text } => Outcome::Failed {
            failure: failure(&meaning, meaning.reaction()),
            text: match (&meaning, storage) {
                (Meaning::NoSpace, Some(storage)) => {
                    format!("storage {storage}: {meaning}: {text}")
                }
                (Meaning::NoSpace, None) => format!("{meaning}: {text}"),
                (_, _) => text,
            },
        },
        task::Outcome::Unknown(why) => Outcome::Unknown(why),
    }
}

fn failure(meaning: &Meaning, reaction: Reaction) -> Failure {
    if *meaning == Meaning::VmidTaken {
        return Failure::VmidTaken;
    }
    match reaction {
        // Whatever there is to look at is looked at before every step.
        Reaction::Retry | Reaction::Wait | Reaction::LookFirst => Failure::Retry,
        Reaction::OtherHypervisor => Failure::Elsewhere,
        Reaction::GiveUp => Failure::GiveUp,
        Reaction::Freeze => Failure::Freeze,
    }
}

/// A write to Kubernetes that failed. All of ours are safe to repeat after a look.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f44_a_full_storage_is_named_with_what_to_do() {
        let ended = task::Outcome::of_exit_status(
            "clone failed: lvcreate 'pve/vm-201-disk-0' error: insufficient free space",
        );
        let storage = StorageName::from("local-lvm");
        let Outcome::Failed { failure, text } = of_task("upid", ended, Some(&storage)) else {
            panic!("it did not fail");
        };
        assert_eq!(failure, Failure::Elsewhere);
        assert_eq!(
            text,
            "storage local-lvm: no space left on the storage: free some, or set `template.storage` to another one: \
             clone failed: lvcreate 'pve/vm-201-disk-0' error: insufficient free space"
        );
    }
}
