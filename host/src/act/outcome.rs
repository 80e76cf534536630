//! What the adapters' answers mean for the next decision.

use kproxide_planner::claim::{Failure, Outcome};

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

/// A task of Proxmox's, named `upid`, as it stands.
pub(super) fn of_task(upid: &str, outcome: task::Outcome) -> Outcome {
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
            text,
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
