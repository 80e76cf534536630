//! New policy files on their way beside the loop, which goes on with the old ones.

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Library, PolicyFiles, Reload};

/// New policy files that are being compiled and tested, one set at a time.
#[derive(Debug)]
pub struct Reloading {
    task: JoinSet<()>,
    tell: mpsc::UnboundedSender<Reload>,
    told: mpsc::UnboundedReceiver<Reload>,
    /// The policy folders were not read yet. Without that the loop would plan for pools that use a file in them.
    awaits_first: bool,
}

impl Reloading {
    pub fn new(has_directories: bool) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        Self {
            task: JoinSet::new(),
            tell,
            told,
            awaits_first: has_directories,
        }
    }

    pub fn begin(&mut self, policies: &Library, files: PolicyFiles) {
        // From now on the pools that use a new file wait for it, and no others.
        policies.expect(&files);
        self.awaits_first = false;
        let (policies, tell) = (policies.clone(), self.tell.clone());
        let sync = async move { policies.sync_telling(files, &tell).await };
        self.task.spawn(sync);
    }

    /// Whether the loop may plan: the policy folders were read, or there are none.
    pub fn has_begun(&self) -> bool {
        !self.awaits_first
    }

    pub fn is_idle(&self) -> bool {
        self.task.is_empty()
    }

    /// What became of a file as soon as it is known, and in the end nothing. Waits forever if nothing is under way. Safe to drop and to call again.
    pub async fn news(&mut self) -> Vec<Reload> {
        tokio::select! {
            biased;
            Some(reload) = self.told.recv() => vec![reload],
            Some(ended) = self.task.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "policy files could not be taken");
                }
                let rest = std::iter::from_fn(|| self.told.try_recv().ok());
                rest.collect()
            }
            else => std::future::pending().await,
        }
    }
}
