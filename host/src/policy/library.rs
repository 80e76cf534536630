//! Which module answers for which name: the built-ins, overridden by files of the same name, always the last good one.
//!
//! A file that does not load, rejects settings that pools use, or fails its self-test is reported and leaves the module before it in place. A policy that
//! keeps failing is not called again until its file or its settings change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kproxide_builtins::{BUILTINS, Builtin, Kind};
use kproxide_planner::facts::{PolicyFacts, PolicyKind, PolicyRef};
use kproxide_planner::ids::Digest;
use kproxide_planner::question::{Answer, AnswerBody, Question};

use super::engine::{CALL_FUEL, CallError, Called, Engine, LoadError, Module, digest};
use super::files::{FilesError, PolicyFiles};
use super::self_test;

/// Answers when a host-selection policy fails.
const FALLBACK: &str = "spread";
/// After so many failures in a row a policy is left alone.
const FAILURES_MAX: u32 = 5;
/// Compiled modules kept by digest, so that a file that comes back is not compiled again.
const COMPILED_MAX: usize = 64;
/// Settings remembered per policy name, so that a new file can be tried with them.
const SETTINGS_MAX: usize = 64;

/// Instructions that the policies of one tick may use together, about a second of computing.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub fuel_left: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            fuel_left: 5 * CALL_FUEL,
        }
    }
}

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

/// Answers questions. Cheap to clone; all clones share one state.
#[derive(Clone, Debug)]
pub struct Library {
    engine: Engine,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Modules from files, by name.
    overrides: BTreeMap<Arc<str>, Module>,
    /// What each file was when it was last looked at, good or bad: a digest of the bytes, or the reason.
    files: BTreeMap<Arc<str>, String>,
    compiled: BTreeMap<Digest, Module>,
    settings_used: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    settings_checked: BTreeMap<(Digest, Arc<str>), Result<(), CallError>>,
    failures: BTreeMap<(Digest, Arc<str>), (u32, String)>,
}

impl Library {
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            state: Arc::default(),
        }
    }

    /// Which bytes answer for each name and kind now: what the planner caches answers by.
    pub fn facts(&self) -> BTreeMap<PolicyRef, PolicyFacts> {
        let mut facts: BTreeMap<PolicyRef, PolicyFacts> = BUILTINS
            .iter()
            .map(|builtin| {
                let policy = PolicyRef {
                    kind: kind(builtin.kind),
                    name: builtin.name.into(),
                };
                (
                    policy,
                    PolicyFacts {
                        digest: builtin.sha256.into(),
                    },
                )
            })
            .collect();
        for (name, module) in &self.lock().overrides {
            facts.retain(|policy, _| policy.name != *name);
            for kind in module.kinds() {
                facts.insert(
                    PolicyRef {
                        kind,
                        name: name.clone(),
                    },
                    PolicyFacts {
                        digest: module.digest().clone(),
                    },
                );
            }
        }
        facts
    }

    /// Takes what lies in the policy directories now. Returns what changed since the last time.
    pub async fn sync(&self, files: PolicyFiles) -> Vec<Reload> {
        let mut reloads = Vec::new();
        for (name, file) in &files {
            let seen = match file {
                Ok(bytes) => digest(bytes).to_string(),
                Err(error) => error.to_string(),
            };
            if self
                .lock()
                .files
                .insert(name.clone(), seen.clone())
                .is_some_and(|before| before == seen)
            {
                continue;
            }
            let outcome = match self.try_file(name, file).await {
                Ok(module) => {
                    let outcome = ReloadOutcome::Taken {
                        digest: module.digest().clone(),
                        version: module.info().version.clone(),
                    };
                    self.lock().overrides.insert(name.clone(), module);
                    outcome
                }
                Err(reason) => ReloadOutcome::Refused(reason),
            };
            reloads.push(Reload {
                policy: name.clone(),
                outcome,
            });
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
        reloads
    }

    /// Answers, by the policy asked for or by what stands in for it. Never fails: the answer says what went wrong.
    pub async fn ask(&self, question: &Question, budget: &mut Budget) -> Answer {
        if budget.fuel_left == 0 {
            return Answer {
                digest: "".into(),
                fallback: None,
                body: AnswerBody::Deferred,
            };
        }
        let policy = question.policy();
        let error = match self
            .try_policy(&policy.policy.name, &policy.settings, question, budget)
            .await
        {
            Ok(answer) => return answer,
            Err(error) => error,
        };
        let reason = format!("policy {}: {error}", policy.policy.name);
        if policy.policy.kind == PolicyKind::HostSelection {
            // The built-in itself, whatever file overrides its name, with its own defaults.
            if let Some(builtin) = kproxide_builtins::builtin(FALLBACK)
                && let Ok(module) = self.builtin(builtin).await
            {
                let mut question = question.clone();
                if let Question::Rank(rank) = &mut question {
                    rank.policy.settings = "".into();
                    rank.context.state.clear();
                }
                let called = self.engine.ask(&module, &question).await;
                budget.fuel_left = budget.fuel_left.saturating_sub(called.fuel);
                if let Ok(body) = called.result {
                    return Answer {
                        digest: module.digest().clone(),
                        fallback: Some(reason),
                        body: without_state(body),
                    };
                }
            }
        }
        Answer {
            digest: "".into(),
            fallback: None,
            body: AnswerBody::Failed(reason),
        }
    }

    async fn try_policy(
        &self,
        name: &Arc<str>,
        settings: &Arc<str>,
        question: &Question,
        budget: &mut Budget,
    ) -> Result<Answer, String> {
        let module = self.module(name).await?;
        let key = (module.digest().clone(), settings.clone());
        if let Some((count, last)) = self.lock().failures.get(&key)
            && *count >= FAILURES_MAX
        {
            return Err(format!(
                "not called any more after {count} failures, until its file or its settings change; the last: {last}"
            ));
        }
        self.check_settings(name, &module, settings)
            .await
            .map_err(|error| error.to_string())?;
        let Called { result, fuel } = self.engine.ask(&module, question).await;
        budget.fuel_left = budget.fuel_left.saturating_sub(fuel);
        let mut state = self.lock();
        match result {
            Ok(body) => {
                state.failures.remove(&key);
                Ok(Answer {
                    digest: module.digest().clone(),
                    fallback: None,
                    body,
                })
            }
            Err(error) => {
                let reason = error.to_string();
                let (count, last) = state.failures.entry(key).or_default();
                *count += 1;
                last.clone_from(&reason);
                Err(reason)
            }
        }
    }

    async fn module(&self, name: &Arc<str>) -> Result<Module, String> {
        if let Some(module) = self.lock().overrides.get(name) {
            return Ok(module.clone());
        }
        let Some(builtin) = kproxide_builtins::builtin(name) else {
            let known: BTreeSet<_> = self
                .facts()
                .into_keys()
                .map(|policy| policy.name.to_string())
                .collect();
            return Err(format!(
                "there is no policy of that name; known are {}",
                known.into_iter().collect::<Vec<_>>().join(", ")
            ));
        };
        self.builtin(builtin)
            .await
            .map_err(|error| error.to_string())
    }

    /// Built-ins are compiled when first used.
    async fn builtin(&self, builtin: &'static Builtin) -> Result<Module, LoadError> {
        self.compile(builtin.sha256.into(), Arc::from(builtin.wasm))
            .await
    }

    async fn compile(&self, digest: Digest, bytes: Arc<[u8]>) -> Result<Module, LoadError> {
        if let Some(module) = self.lock().compiled.get(&digest) {
            return Ok(module.clone());
        }
        let module = self.engine.load(bytes).await?;
        let mut state = self.lock();
        if state.compiled.len() >= COMPILED_MAX {
            state.compiled.clear();
        }
        state.compiled.insert(digest, module.clone());
        Ok(module)
    }

    async fn try_file(
        &self,
        name: &Arc<str>,
        file: &Result<Arc<[u8]>, FilesError>,
    ) -> Result<Module, String> {
        let bytes = file.clone().map_err(|error| error.to_string())?;
        let module = self
            .compile(digest(&bytes), bytes)
            .await
            .map_err(|error| error.to_string())?;
        let used: Vec<_> = self
            .lock()
            .settings_used
            .get(name)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        for settings in &used {
            self.check_settings(name, &module, settings)
                .await
                .map_err(|error| {
                    format!("it does not accept the settings {settings} that a pool uses: {error}")
                })?;
        }
        // Settings in use are what it must work with; a policy that nobody uses yet is tried with its defaults, if it has any.
        let settings = used.first().cloned().unwrap_or_default();
        if !used.is_empty()
            || self
                .engine
                .check_settings(&module, settings.clone())
                .await
                .is_ok()
        {
            self_test::run(&self.engine, &module, &settings).await?;
        }
        Ok(module)
    }

    async fn check_settings(
        &self,
        name: &Arc<str>,
        module: &Module,
        settings: &Arc<str>,
    ) -> Result<(), CallError> {
        let key = (module.digest().clone(), settings.clone());
        {
            let mut state = self.lock();
            let used = state.settings_used.entry(name.clone()).or_default();
            if used.len() >= SETTINGS_MAX {
                used.clear();
            }
            used.insert(settings.clone());
            if let Some(checked) = state.settings_checked.get(&key) {
                return checked.clone();
            }
        }
        let checked = self.engine.check_settings(module, settings.clone()).await;
        let mut state = self.lock();
        if state.settings_checked.len() >= COMPILED_MAX * SETTINGS_MAX {
            state.settings_checked.clear();
        }
        state.settings_checked.insert(key, checked.clone());
        checked
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kind(kind: Kind) -> PolicyKind {
    match kind {
        Kind::HostSelection => PolicyKind::HostSelection,
        Kind::ScaleDown => PolicyKind::ScaleDown,
        Kind::Labels => PolicyKind::Labels,
    }
}

/// A stand-in leaves the state of the policy it stands in for alone.
fn without_state(body: AnswerBody) -> AnswerBody {
    match body {
        AnswerBody::Ranking(mut ranking) => {
            ranking.state = None;
            AnswerBody::Ranking(ranking)
        }
        other @ (AnswerBody::Removals(_)
        | AnswerBody::Decorations(_)
        | AnswerBody::NoCandidate(_)
        | AnswerBody::Failed(_)
        | AnswerBody::Deferred) => other,
    }
}

#[cfg(test)]
mod tests;
