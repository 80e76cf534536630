//! Takes new files: what a file must show before it answers, and what is said of one that does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kproxide_planner::facts::{PolicyKind, PolicyUse};
use kproxide_planner::ids::{Digest, PoolName};

use super::{Library, kind};
use crate::policy::engine::{CallError, Module, digest, printable};
use crate::policy::files::{FilesError, PolicyFiles};
use crate::policy::self_test;

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
            Instead::Builtin => "the built-in of that name answers",
            Instead::Nothing => "nothing else has that name",
        };
        write!(
            f,
            "the file of policy {policy} is refused and {instead}: {reason}"
        )
    }
}

/// A file as it was when it was last looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    content: Result<Digest, FilesError>,
    /// How the pools used it then: a file is no better the second time, unless they use it in another way.
    uses: Vec<(PoolName, PolicyUse)>,
    refused: Option<String>,
}

impl Seen {
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

impl Library {
    /// Takes what lies in the policy directories now. Returns what changed since the last time.
    pub async fn sync(&self, files: PolicyFiles) -> Vec<Reload> {
        let mut reloads = Vec::new();
        for (name, file) in &files {
            if let Some(outcome) = self.sync_file(name, file).await {
                reloads.push(Reload {
                    policy: name.clone(),
                    outcome,
                });
            }
        }
        let mut state = self.lock();
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
                reloads.push(Reload {
                    policy: name,
                    outcome: ReloadOutcome::Removed { builtin },
                });
            }
        }
        // Code of modules that answer no more.
        let answering: BTreeSet<_> = state
            .overrides
            .values()
            .map(|module| module.digest().clone())
            .collect();
        state
            .compiled
            .retain(|digest, _| answering.contains(digest));
        reloads
    }

    /// Files that are refused as they lie there now, by the name of their policy.
    pub fn refusals(&self) -> BTreeMap<Arc<str>, Refusal> {
        let state = self.lock();
        let refused = state.files.iter().filter_map(|(name, seen)| {
            let instead = if state.overrides.contains_key(name) {
                Instead::LastGood
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

    /// `None`: nothing new about it.
    async fn sync_file(
        &self,
        name: &Arc<str>,
        file: &Result<Arc<[u8]>, FilesError>,
    ) -> Option<ReloadOutcome> {
        let content = file
            .as_ref()
            .map(|bytes| digest(bytes))
            .map_err(Clone::clone);
        let uses = self.uses_of(name);
        let refused_before = {
            let state = self.lock();
            match state.files.get(name) {
                Some(seen)
                    if seen.content == content && (seen.refused.is_none() || seen.uses == uses) =>
                {
                    return None;
                }
                Some(seen) if seen.content == content => seen.refused.clone(),
                _ => None,
            }
        };
        let tried = match (&content, file) {
            (Ok(digest), Ok(bytes)) => match self.crash_marks.verdict(digest) {
                Some(reason) => Err(reason),
                None => {
                    self.crash_marks.begin(digest);
                    let tried = self.try_file(name, digest, bytes, &uses).await;
                    self.crash_marks.end(digest);
                    tried
                }
            },
            (_, Err(error)) | (Err(error), _) => Err(error.to_string()),
        };
        let refused = tried.as_ref().err().cloned();
        let is_known = refused.is_some() && refused == refused_before;
        let mut state = self.lock();
        state.files.insert(
            name.clone(),
            Seen {
                content,
                uses,
                refused,
            },
        );
        match tried {
            Ok(module) => {
                let digest = module.digest().clone();
                // What these bytes did before they were replaced is not held against them.
                state.records.retain(|(of, _), _| *of != digest);
                let version = module.info().version.clone();
                state.overrides.insert(name.clone(), module);
                Some(ReloadOutcome::Taken { digest, version })
            }
            Err(_) if is_known => None,
            Err(reason) => Some(ReloadOutcome::Refused(reason)),
        }
    }

    async fn try_file(
        &self,
        name: &Arc<str>,
        digest: &Digest,
        bytes: &Arc<[u8]>,
        uses: &[(PoolName, PolicyUse)],
    ) -> Result<Module, String> {
        let module = self
            .compile(digest.clone(), || bytes.clone())
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
        for (pool, PolicyUse { policy, settings }) in uses {
            if !kinds.contains(&policy.kind) {
                return Err(format!(
                    "it does not answer {} questions, for which pool {pool} uses it",
                    policy.kind.as_str()
                ));
            }
            self.check_settings(&module, settings)
                .await
                .map_err(|error| {
                    format!(
                        "it does not accept the settings of pool {pool}, {}: {error}",
                        printable(settings, SETTINGS_SHOWN)
                    )
                })?;
        }
        for kind in kinds {
            self.test_file(&module, kind, uses).await?;
        }
        Ok(module)
    }

    /// Tries the module with all settings in use. A module that no pool uses yet is tried with its defaults, if it has
    /// any.
    async fn test_file(
        &self,
        module: &Module,
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
            return match self.check_settings(module, &defaults).await {
                Ok(()) => self_test::run(&self.engine, module, kind, &defaults).await,
                Err(CallError::InvalidSettings(_)) => Ok(()),
                Err(error) => Err(format!("it fails its self-test: {error}")),
            };
        }
        for settings in &used {
            self_test::run(&self.engine, module, kind, settings).await?;
        }
        Ok(())
    }

    fn uses_of(&self, name: &Arc<str>) -> Vec<(PoolName, PolicyUse)> {
        let state = self.lock();
        let uses = state
            .uses
            .iter()
            .filter(|(_, used)| used.policy.name == *name);
        uses.map(|((pool, _), used)| (pool.clone(), used.clone()))
            .collect()
    }
}
