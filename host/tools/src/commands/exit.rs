//! Exit codes: one table for all commands.

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

#[cfg(feature = "simulator")]
use kproxide_simulator::remote::RemoteError;

use crate::doctor::NoKubernetes;
use crate::manifest::{BadInput, ListError};
use crate::whatif::{NoAnswer, Trouble};
use kproxide_controller::config::ConfigError;
use kproxide_kube::client::ConnectError;
use kproxide_kube::install::InstallError;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Success,
    /// For a reason that has no code of its own.
    Failure,
    BadInput,
    Kubernetes,
    Proxmox,
    Warnings,
    Errors,
    /// Ctrl-C in the demo, as a shell sees it.
    Interrupted,
}

/// What the caller gave cannot be used: flag, value and fix.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Mistake(pub String);

/// Proxmox was asked, and gave nothing to work with.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoProxmox(pub(super) String);

impl Exit {
    /// In the order of the table.
    const ALL: [Self; 8] = [
        Self::Success,
        Self::Failure,
        Self::BadInput,
        Self::Kubernetes,
        Self::Proxmox,
        Self::Warnings,
        Self::Errors,
        Self::Interrupted,
    ];

    const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::BadInput => 2,
            Self::Kubernetes => 3,
            Self::Proxmox => 4,
            Self::Warnings => 10,
            Self::Errors => 20,
            Self::Interrupted => 130,
        }
    }

    const fn means(self) -> &'static str {
        match self {
            Self::Success => "done",
            Self::Failure => {
                "anything else. policy and demo: kproxide would not take the policy, or a test of it fails"
            }
            Self::BadInput => "bad input: a flag, a file, or a kubeconfig that cannot be used",
            Self::Kubernetes => "Kubernetes is not reachable, or refuses you",
            Self::Proxmox => "Proxmox is not reachable, or refuses you (in doctor a finding)",
            Self::Warnings => {
                "doctor: warnings. plan --exit-code: there is something to do, and every pod gets a place"
            }
            Self::Errors => "doctor: errors. plan --exit-code: a pod gets no help",
            Self::Interrupted => "demo: ended by Ctrl-C",
        }
    }

    /// By the outermost error that says what went wrong.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(exit) = of_one(error) {
                return exit;
            }
            next = error.source();
        }
        Self::Failure
    }
}

fn of_one(error: &(dyn Error + 'static)) -> Option<Exit> {
    #[cfg(feature = "simulator")]
    if let Some(error) = error.downcast_ref() {
        return Some(match error {
            RemoteError::Unusable { .. } => Exit::Kubernetes,
            RemoteError::Tls(_) | RemoteError::Client(_) => Exit::Failure,
            RemoteError::File { .. }
            | RemoteError::Format { .. }
            | RemoteError::Missing { .. }
            | RemoteError::NoCredentials { .. }
            | RemoteError::Encoding { .. }
            | RemoteError::Pem { .. }
            | RemoteError::Token(_) => Exit::BadInput,
        });
    }
    #[cfg(feature = "init")]
    if let Some(problem) = error.downcast_ref::<super::init::Problem>() {
        return Some(problem.exit);
    }
    let is_bad = error.is::<Mistake>()
        || error.is::<Trouble>()
        || error.is::<BadInput>()
        || error.is::<ConfigError>()
        || error.is::<ConnectError>();
    let is_refused = matches!(
        error.downcast_ref(),
        Some(InstallError::Refused(_) | InstallError::Interrupted(_))
    );
    let is_forbidden = matches!(error.downcast_ref(), Some(NoAnswer::Forbidden { .. }));
    if is_bad {
        Some(Exit::BadInput)
    } else if is_refused || is_forbidden || error.is::<ListError>() || error.is::<NoKubernetes>() {
        Some(Exit::Kubernetes)
    } else if error.is::<NoProxmox>() {
        Some(Exit::Proxmox)
    } else {
        None
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// The table at the end of `kproxide --help`.
pub fn help() -> String {
    let mut text = "Exit codes of all commands:\n".to_owned();
    for exit in Exit::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:>3}  {}", exit.code(), exit.means());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_table_of_the_help() {
        let document = include_str!("../../../../examples/manual/doctor.md");
        let mut table = "| exit code | what it means |\n|---|---|\n".to_owned();
        for exit in Exit::ALL {
            let (code, means) = (exit.code(), exit.means());
            table += &format!("| {code} | {means} |\n");
        }
        assert!(
            document.contains(&table),
            "examples/manual/doctor.md lacks:\n{table}"
        );
        assert_eq!(help().lines().count(), Exit::ALL.len() + 1);
    }

    #[test]
    fn the_outermost_error_that_has_a_code_gives_it() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] Box<dyn Error>);
        let within = |error: Box<dyn Error>| Exit::of(&Outer(error));
        assert_eq!(within(Box::new(Mistake("a".into()))), Exit::BadInput);
        assert_eq!(within(Box::new(NoProxmox("a".into()))), Exit::Proxmox);
        assert_eq!(within(Box::new(Trouble::Flag("a".into()))), Exit::BadInput);
        assert_eq!(
            within(Box::new(NoKubernetes::Refused("a".into()))),
            Exit::Kubernetes
        );
        assert_eq!(within("a".into()), Exit::Failure);
    }
}
