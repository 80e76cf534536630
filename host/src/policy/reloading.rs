//! New policy files on their way beside the loop, which goes on with the old ones.

use tokio::task::JoinSet;

use super::{Library, PolicyFiles, Reload};

/// New policy files that are being compiled and tested, one set at a time.
#[derive(Debug)]
pub struct Reloading {
    task: JoinSet<Vec<Reload>>,
    /// The policy folders were not read yet. Without that the loop would plan for pools that use a file in them.
    awaits_first: bool,
}

impl Reloading {
    pub fn new(has_directories: bool) -> Self {
        Self {
            task: JoinSet::new(),
            awaits_first: has_directories,
        }
    }

    pub fn begin(&mut self, policies: &Library, files: PolicyFiles) {
        // From now on the pools that use a new file wait for it, and no others.
        policies.expect(&files);
        self.awaits_first = false;
        let policies = policies.clone();
        self.task.spawn(async move { policies.sync(files).await });
    }

    /// Whether the loop may plan: the policy folders were read, or there are none.
    pub fn has_begun(&self) -> bool {
        !self.awaits_first
    }

    pub fn is_idle(&self) -> bool {
        self.task.is_empty()
    }

    /// The result. Waits forever if nothing is under way. Safe to drop and to call again.
    pub async fn ended(&mut self) -> Vec<Reload> {
        let Some(ended) = self.task.join_next().await else {
            return std::future::pending().await;
        };
        ended.unwrap_or_else(|error| {
            tracing::error!(%error, "policy files could not be taken");
            Vec::new()
        })
    }
}
