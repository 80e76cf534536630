//! What became of a policy file, in words.

use kproxide_policy::{Reload, ReloadOutcome};

/// What is told to every pool that uses the policy, and how it is counted.
pub(super) struct ReloadNews {
    /// Value of the metric's label `result`.
    pub(super) result: &'static str,
    /// The Event's reason; none where the plan's report tells it.
    pub(super) reason: Option<&'static str>,
    /// A user should look at it, because another policy answers than the one asked for.
    pub(super) warning: bool,
    pub(super) message: String,
}

impl ReloadNews {
    pub(super) fn of(reload: &Reload) -> Self {
        let Reload { policy, outcome } = reload;
        match outcome {
            ReloadOutcome::Taken { digest, version } => Self {
                result: "taken",
                reason: Some("PolicyLoaded"),
                warning: false,
                message: format!("policy {policy} is now version {version}, sha256:{digest}"),
            },
            ReloadOutcome::Refused(reason) => Self {
                result: "refused",
                reason: None,
                warning: true,
                message: format!("the new file of policy {policy} is refused: {reason}"),
            },
            // A user removed the file on purpose, and the built-in policy answers.
            ReloadOutcome::Removed { builtin: true } => Self {
                result: "removed",
                reason: Some("PolicyRemoved"),
                warning: false,
                message: format!(
                    "the file of policy {policy} is gone. The built-in policy answers again"
                ),
            },
            ReloadOutcome::Removed { builtin: false } => Self {
                result: "removed",
                reason: Some("PolicyRemoved"),
                warning: true,
                message: format!(
                    "the file of policy {policy} is gone, and no built-in has that name"
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reason and whether it is a warning.
    fn told(outcome: ReloadOutcome) -> (Option<&'static str>, bool) {
        let news = ReloadNews::of(&Reload {
            policy: "spread".into(),
            outcome,
        });
        assert!(news.message.contains("spread"), "{}", news.message);
        (news.reason, news.warning)
    }

    #[test]
    fn a_removed_file_is_a_warning_only_where_nothing_of_that_name_is_left() {
        assert_eq!(
            told(ReloadOutcome::Removed { builtin: true }),
            (Some("PolicyRemoved"), false)
        );
        assert_eq!(
            told(ReloadOutcome::Removed { builtin: false }),
            (Some("PolicyRemoved"), true)
        );
    }

    #[test]
    fn a_refused_file_is_a_warning_and_its_pools_are_told_with_the_plan() {
        assert_eq!(
            told(ReloadOutcome::Refused("it imports wasi".to_owned())),
            (None, true)
        );
    }
}
