//! What a kubelet could not do. It tries again for as long as it takes, and says each cause once: whoever set the simulation up wants to know that a right is
//! missing, and not every second.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Mutex, PoisonError},
};

use super::api::CallError;

/// The last cause of each kind of failure.
#[derive(Default)]
pub(crate) struct Complaints {
    said: Mutex<BTreeMap<&'static str, String>>,
}

impl Complaints {
    /// A warning if it is news, else something for who looks closely.
    pub(crate) fn say(&self, node: Option<&str>, what: &'static str, error: &CallError) {
        if self.is_news(what, error) {
            tracing::warn!(node, error = error as &dyn Error, "{what}");
        } else {
            tracing::debug!(node, error = error as &dyn Error, "{what}");
        }
    }

    fn is_news(&self, what: &'static str, error: &dyn Error) -> bool {
        let mut cause = String::new();
        let mut link = Some(error);
        while let Some(error) = link {
            cause += &format!("{error}\n");
            link = error.source();
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let before = said.insert(what, cause);
        before.as_ref() != said.get(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        let complaints = Complaints::default();
        let refused = |code| CallError::Refused {
            code,
            message: "no".to_owned(),
        };
        let silent = |cause: &str| CallError::Transport(cause.into());
        for (what, error, news) in [
            ("the Lease", refused(403), true),
            ("the Lease", refused(403), false),
            ("the status", refused(403), true),
            ("the Lease", silent("no route"), true),
            ("the Lease", silent("no route"), false),
            ("the Lease", silent("unknown issuer"), true),
        ] {
            assert_eq!(complaints.is_news(what, &error), news, "{what}: {error}");
        }
    }
}
