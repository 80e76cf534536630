//! What a guest makes of the commands that its agent is asked to run.
//!
//! kproxide's carry their purpose as `$0`; the script that joins runs once, however often it is sent, and the disk keeps how it ended. Any other command is
//! taken for somebody's way to join.

use crate::pve::CommandResult;

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To run kproxide's join script, if it never ran.
    Join,
    /// To ask how that script stands.
    JoinStatus,
    /// To say why it has not joined.
    Evidence,
    /// Whatever else: it runs as often as it is sent.
    Other,
}

impl Purpose {
    /// `sh -c SCRIPT $0 …`
    pub(super) fn of(command: &[String]) -> Self {
        match command.get(3).map(String::as_str) {
            Some("kproxide-join") => Self::Join,
            Some("kproxide-join-status") => Self::JoinStatus,
            Some("kproxide-evidence") => Self::Evidence,
            Some(_) | None => Self::Other,
        }
    }
}

/// How kproxide's join script stands in one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum JoinScript {
    #[default]
    None,
    Running,
    Done {
        code: i32,
        output: String,
    },
}

impl JoinScript {
    /// False: it runs or ran already.
    pub(super) fn begin(&mut self) -> bool {
        let first = *self == Self::None;
        if first {
            *self = Self::Running;
        }
        first
    }

    /// The guest goes off in the middle of it.
    pub(super) fn cut_off(&mut self) {
        if *self == Self::Running {
            *self = Self::Done {
                code: 255,
                output: "the command was cut off\n".to_owned(),
            };
        }
    }

    /// What the command that asks for it prints.
    pub(super) fn status(&self) -> String {
        match self {
            Self::None => "none\n".to_owned(),
            Self::Running => "running\n".to_owned(),
            Self::Done { code, output } => format!("done {code}\n{output}"),
        }
    }
}

/// Of a command that ended well.
pub(super) fn printed(out: String) -> CommandResult {
    CommandResult {
        out: out.into_bytes(),
        ..CommandResult::default()
    }
}
