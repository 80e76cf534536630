//! What a check found, as people and programs read it.

use std::fmt;

use serde::Serialize;

use crate::reporter::reasons::Reason;

/// Programs whose commands stand in messages between backticks. A person can paste those.
const PROGRAMS: [&str; 10] = [
    "helm", "k3s", "kproxide", "kubeadm", "kubectl", "pvecm", "pvesm", "pveum", "qm", "rke2",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    Ok,
    /// kproxide works, but not as somebody wishes.
    Warning,
    /// kproxide cannot make or remove machines there.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Findings stand together by what a person has to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Group {
    Kubernetes,
    Proxmox,
    Configuration,
    Joining,
    Nodes,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubernetes => "Kubernetes",
            Self::Proxmox => "Proxmox",
            Self::Configuration => "Configuration",
            Self::Joining => "Joining",
            Self::Nodes => "Nodes",
        })
    }
}

/// The answer of one check about one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub group: Group,
    /// Kind and name, such as `NodePool/default`.
    pub object: String,
    pub level: Level,
    /// One word of the list of reasons.
    pub reason: &'static str,
    /// What is so, about this very object.
    pub message: String,
    /// What to do about it. Empty if all is well.
    pub remedy: String,
    /// Lines of the message that can be pasted.
    pub commands: Vec<String>,
    /// From where something in the network was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_from: Option<String>,
}

impl Finding {
    /// All is well.
    pub(super) fn ok(group: Group, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            group,
            object: object.into(),
            level: Level::Ok,
            reason: "Ok",
            message: message.into(),
            remedy: String::new(),
            commands: Vec::new(),
            seen_from: None,
        }
    }

    pub(crate) fn error(
        group: Group,
        object: impl Into<String>,
        reason: &Reason,
        message: impl Into<String>,
    ) -> Self {
        let message = message.into();
        Self {
            level: Level::Error,
            reason: reason.word,
            remedy: advice(reason.means).to_owned(),
            commands: commands(&message),
            ..Self::ok(group, object, message)
        }
    }

    pub(crate) fn warning(
        group: Group,
        object: impl Into<String>,
        reason: &Reason,
        message: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Warning,
            ..Self::error(group, object, reason, message)
        }
    }

    pub(super) fn seen_from(self, place: &str) -> Self {
        Self {
            seen_from: Some(place.to_owned()),
            ..self
        }
    }
}

/// A reason's text says what is so, and then what to do.
fn advice(means: &'static str) -> &'static str {
    means.split_once(". ").map_or(means, |(_, rest)| rest)
}

/// What stands between backticks and begins with a program that a person has. Several commands of one pair stand apart.
fn commands(message: &str) -> Vec<String> {
    let quoted = message.split('`').skip(1).step_by(2);
    let lines = quoted.flat_map(|text| text.split("; "));
    let begins = |line: &&str| {
        let program = line.split(' ').next().unwrap_or_default();
        PROGRAMS.contains(&program) && line.contains(' ') && !line.contains('…')
    };
    lines.filter(begins).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_out_of_messages_and_nothing_else() {
        assert_eq!(
            commands(
                "`VM.Audit` is missing: `pveum role add A --privs 'VM.Audit'; pveum acl modify /vms/1 --roles A`, see `qm`"
            ),
            [
                "pveum role add A --privs 'VM.Audit'",
                "pveum acl modify /vms/1 --roles A"
            ]
        );
        assert_eq!(
            commands("give it (`pveum acl modify /vms/VMID …`)"),
            [""; 0]
        );
    }
}
