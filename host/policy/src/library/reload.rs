//! Takes new files: what a file must show before it answers, and what is said of one that does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kproxide_planner::facts::{PolicyKind, PolicyUse};
use kproxide_planner::ids::{Digest, PoolName};
use tokio::sync::mpsc;

use super::{LOADING, Library, Override, kind};
use crate::content::Content;
use crate::engine::{CallError, Module};
use crate::files::{FilesError, PolicyFile, PolicyFiles};
use crate::self_test;
use kproxide_common::foreign;

/// So long nobody is told that a file is being loaded.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// Settings are shown to this length.
const SETTINGS_SHOWN: usize = 200;

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    pub policy: Arc<str>,
    pub outcome: ReloadOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// It answers from now on.
    Taken { digest: Digest, version: String },
    /// It was refused, for this reason; what answered before goes on answering.
    Refused(String),
    /// The file is gone: the built-in answers again, if there is one of that name.
    Removed { builtin: bool },
}

/// A file that does not answer, as it lies there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub policy: Arc<str>,
    pub reason: String,
    pub instead: Instead,
}

/// What answers to the name of a refused file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// The file before it.
    LastGood,
    /// The file of that name in an earlier directory.
    Earlier,
    Builtin,
    Nothing,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            policy,
            reason,
            instead,
        } = self;
        let instead = match instead {
            Instead::LastGood => "the last good one stays",
            Instead::Earlier => "the file of that name in an earlier policy directory answers",
            Instead::Builtin => "the built-in of that name answers",
            Instead::Nothing => "nothing else has that name",
        };
        write!(
            f,
            "the file of policy {policy} is refused and {instead}: {reason}"
        )
    }
}

/// The files of a name as they were when they were last looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// That of the last directory first.
    contents: Vec<Result<Digest, FilesError>>,
    /// How the pools used it then: a file is no better the second time, unless they use it in another way.
    uses: Vec<(PoolName, PolicyUse)>,
    /// Why that of the last directory is refused.
    refused: Option<String>,
}

impl Seen {
    /// Whether the module that answers is of an earlier directory.
    fn is_earlier(&self, module: &Module) -> bool {
        let mut earlier = self.contents.iter().skip(1).flatten();
        self.refused.is_some() && earlier.any(|digest| digest == module.digest())
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

impl Library {
    /// Takes what lies in the policy directories now. Returns what changed since the last time.
    pub async fn sync(&self, files: PolicyFiles) -> Vec<Reload> {
        let (tell, mut told) = mpsc::unbounded_channel();
        self.sync_telling(files, &tell).await;
        drop(tell);
        let mut reloads = Vec::new();
        while let Some(reload) = told.recv().await {
            reloads.push(reload);
        }
        reloads
    }

    /// The same, and tells what became of each file as soon as it is known. No more is told than there are names of files, before and now, with two
    /// outcomes each. Nobody need listen.
    pub async fn sync_telling(&self, files: PolicyFiles, tell: &mpsc::UnboundedSender<Reload>) {
        self.expect(&files);
        // What is small is soon loaded: a large one holds up no other.
        let bytes = |files: &[PolicyFile]| -> usize {
            let contents = files.iter().filter_map(|file| file.content.as_ref().ok());
            contents.map(Content::size).sum()
        };
        // Which of those that were too many pools name is known soon, and may change which they are.
        let is_early = self.named.receiver_count() > 0 && self.lock().uses.is_empty();
        let is_put_off = |files: &[PolicyFile]| {
            let last = files.first().map(|file| &file.content);
            is_early && matches!(last, Some(Err(FilesError::TooMany { .. })))
        };
        let mut by_size: Vec<_> = files.iter().collect();
        by_size.retain(|(_, files)| !is_put_off(files));
        by_size.sort_by_key(|(_, files)| bytes(files));
        for (name, files) in by_size {
            for outcome in self.sync_files(name, files).await {
                let policy = name.clone();
                let _ = tell.send(Reload { policy, outcome });
            }
        }
        let mut state = self.lock();
        let is_awaited = |name: &Arc<str>| files.get(name).is_some_and(|it| is_put_off(it));
        state.expected.retain(|name, _| is_awaited(name));
        let gone: Vec<_> = state
            .files
            .keys()
            .filter(|name| !files.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            state.files.remove(&name);
            if state.overrides.remove(&name).is_some() {
                let builtin = kproxide_builtins::builtin(&name).is_some();
                let _ = tell.send(Reload {
                    policy: name,
                    outcome: ReloadOutcome::Removed { builtin },
                });
            }
        }
        // Code of modules that answer no more.
        let answering: BTreeSet<_> = state
            .overrides
            .values()
            .map(|it| it.module.digest().clone())
            .collect();
        state
            .compiled
            .retain(|digest, _| answering.contains(digest));
    }

    /// What keeps pools that name a file waiting for its first load. A moment is not told.
    pub(super) fn loading(&self) -> BTreeMap<Arc<str>, String> {
        let state = self.lock();
        let loading = state.expected.iter();
        let loading = loading.filter(|(_, since)| since.elapsed() >= TOLD_AFTER);
        // One text for as long as it lasts: a condition changes its words only a few times in an hour.
        let seconds = self.wait.as_secs();
        let told =
            format!("{LOADING}, one file at a time. The pool waits for it for up to {seconds} s");
        loading
            .map(|(name, _)| (name.clone(), told.clone()))
            .collect()
    }

    /// Files that are refused as they lie there now, by the name of their policy.
    pub fn refusals(&self) -> BTreeMap<Arc<str>, Refusal> {
        let state = self.lock();
        let refused = state.files.iter().filter_map(|(name, seen)| {
            let instead = if let Some(answering) = state.overrides.get(name) {
                match seen.is_earlier(&answering.module) {
                    true => Instead::Earlier,
                    false => Instead::LastGood,
                }
            } else if kproxide_builtins::builtin(name).is_some() {
                Instead::Builtin
            } else {
                Instead::Nothing
            };
            let refusal = Refusal {
                policy: name.clone(),
                reason: seen.refusal()?.to_owned(),
                instead,
            };
            Some((name.clone(), refusal))
        });
        refused.collect()
    }

    /// What is new about the files of a name.
    async fn sync_files(&self, name: &Arc<str>, files: &[PolicyFile]) -> Vec<ReloadOutcome> {
        let content = |file: &PolicyFile| file.content.clone().map(|it| it.digest().clone());
        let contents: Vec<_> = files.iter().map(content).collect();
        let uses = self.uses_of(name);
        let (refused_before, keeps_last_good) = {
            let state = self.lock();
            let seen = state.files.get(name);
            if let Some(seen) = seen
                && seen.contents == contents
                && (seen.refused.is_none() || seen.uses == uses)
            {
                return Vec::new();
            }
            let is_same = |seen: &&Seen| seen.contents.first() == contents.first();
            let answering = state.overrides.get(name);
            (
                seen.filter(is_same).and_then(|seen| seen.refused.clone()),
                answering.is_some_and(|it| seen.is_none_or(|seen| !seen.is_earlier(&it.module))),
            )
        };
        let mut refused = None;
        let mut taken = None;
        for file in files {
            let tried = match &file.content {
                Ok(content) => self.try_file(name, content, &uses).await,
                Err(error) => Err(error.to_string()),
            };
            match tried {
                Ok(module) => {
                    taken = Some((module, file.path.clone()));
                    break;
                }
                Err(reason) => {
                    refused.get_or_insert(reason);
                    if keeps_last_good {
                        break;
                    }
                }
            }
        }
        let mut outcomes = Vec::new();
        if let Some(reason) = &refused
            && refused != refused_before
        {
            outcomes.push(ReloadOutcome::Refused(reason.clone()));
        }
        let mut state = self.lock();
        let is_refused = refused.is_some();
        let seen = Seen {
            contents,
            uses,
            refused,
        };
        state.expected.remove(name);
        state.files.insert(name.clone(), seen);
        if let Some((module, path)) = taken {
            let digest = module.digest().clone();
            let before = state.overrides.get(name);
            let is_same = before.is_some_and(|it| *it.module.digest() == digest);
            // What these bytes did before they were replaced is not held against them.
            if !(is_same && is_refused) {
                state.records.retain(|(of, _), _| *of != digest);
                let version = module.info().version.clone();
                outcomes.push(ReloadOutcome::Taken { digest, version });
            }
            let module = Override { module, path };
            state.overrides.insert(name.clone(), module);
        }
        outcomes
    }

    async fn try_file(
        &self,
        name: &Arc<str>,
        content: &Content,
        uses: &[(PoolName, PolicyUse)],
    ) -> Result<Module, String> {
        let module = self
            .compile(content)
            .await
            .map_err(|error| error.to_string())?;
        let kinds = module.kinds();
        if let Some(builtin) = kproxide_builtins::builtin(name)
            && !kinds.contains(&kind(builtin.kind))
        {
            let wanted = kind(builtin.kind).as_str();
            return Err(format!(
                "it takes the name of a built-in {wanted} policy, but does not answer {wanted} questions"
            ));
        }
        for (
            pool,
            PolicyUse {
                policy, settings, ..
            },
        ) in uses
        {
            if !kinds.contains(&policy.kind) {
                return Err(format!(
                    "it does not answer {} questions, for which pool {pool} uses it",
                    policy.kind.as_str()
                ));
            }
            self.check_settings(&module, name, settings)
                .await
                .map_err(|error| {
                    format!(
                        "it does not accept the settings of pool {pool}, {}: {error}",
                        foreign::line(settings, SETTINGS_SHOWN)
                    )
                })?;
        }
        for kind in kinds {
            self.test_file(&module, name, kind, uses).await?;
        }
        Ok(module)
    }

    /// Tries the module with all settings in use. A module that no pool uses yet is tried with its defaults, if it has
    /// any.
    async fn test_file(
        &self,
        module: &Module,
        name: &str,
        kind: PolicyKind,
        uses: &[(PoolName, PolicyUse)],
    ) -> Result<(), String> {
        let used = uses
            .iter()
            .filter(|(_, used)| used.policy.kind == kind)
            .map(|(_, used)| used.settings.clone());
        let used: BTreeSet<Arc<str>> = used.collect();
        if used.is_empty() {
            let defaults: Arc<str> = "".into();
            return match self.check_settings(module, name, &defaults).await {
                Ok(()) => self_test::run(&self.engine, module, name, kind, &defaults).await,
                Err(CallError::InvalidSettings(_)) => Ok(()),
                Err(error) => Err(format!("it fails its self-test: {error}")),
            };
        }
        for settings in &used {
            self_test::run(&self.engine, module, name, kind, settings).await?;
        }
        Ok(())
    }

    fn uses_of(&self, name: &Arc<str>) -> Vec<(PoolName, PolicyUse)> {
        let state = self.lock();
        let uses = state.uses.iter().flat_map(|((pool, _), used)| {
            let each = used.each().into_iter();
            each.map(|used| (pool.clone(), used))
        });
        uses.filter(|(_, used)| used.policy.name == *name).collect()
    }
}
