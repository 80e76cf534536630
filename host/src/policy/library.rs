//! Which module answers for which name: the built-ins, overridden by files of the same name, always the last good one.
//!
//! A file that does not load, rejects settings that pools use, or fails its self-test is reported and leaves the module before it in place. A policy that
//! keeps failing is not called again until its file or its settings change.

mod reload;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kproxide_builtins::{BUILTINS, Builtin, Kind};
use kproxide_planner::facts::{PolicyFacts, PolicyKind, PolicyRef, PolicyUse};
use kproxide_planner::ids::{Digest, PoolName};
use kproxide_planner::question::{Answer, AnswerBody, Question};

use super::crash_marks::CrashMarks;
use super::engine::{CALL_FUEL, CallError, Called, Engine, LoadError, Module};

pub use self::reload::{Instead, Refusal, Reload, ReloadOutcome};

/// Answers when a host-selection policy fails.
const FALLBACK: &str = "spread";
/// After this many failures in a row kproxide no longer calls a policy.
const FAILURES_MAX: u32 = 5;
/// Uses and records that are remembered. Forgetting one costs a check of settings, or lets a failing policy fail five times more.
const REMEMBERED_MAX: usize = 1000;

/// Instructions that the policies of one tick may use together, about a second of computing. The call that uses the last of them is not cut short.
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

impl Budget {
    fn spend(&mut self, fuel: u64) {
        self.fuel_left = self.fuel_left.saturating_sub(fuel);
    }
}

/// Answers questions. Cheap to clone; all clones share one state.
#[derive(Clone, Debug)]
pub struct Library {
    engine: Engine,
    state: Arc<Mutex<State>>,
    crash_marks: CrashMarks,
}

#[derive(Debug, Default)]
struct State {
    /// Those asked so far.
    builtins: BTreeMap<&'static str, Module>,
    /// Modules from files, by name.
    overrides: BTreeMap<Arc<str>, Module>,
    /// What each file was when it was last looked at, good or bad.
    files: BTreeMap<Arc<str>, reload::Seen>,
    /// Modules of files that answer.
    compiled: BTreeMap<Digest, Module>,
    /// What each pool uses, as its last question said: a new file must work with it.
    uses: BTreeMap<(PoolName, PolicyKind), PolicyUse>,
    records: BTreeMap<(Digest, Arc<str>), Record>,
}

/// How a module has done with some settings.
#[derive(Debug, Default)]
struct Record {
    /// What it said of the settings.
    checked: Option<Result<(), CallError>>,
    /// Failures in a row, and the last of them.
    failures: u32,
    last: String,
}

impl Record {
    /// What another call might not come to, as on a machine that is too busy, is not held against the module.
    fn fail(&mut self, error: &CallError) {
        if error.is_deterministic() {
            self.failures += 1;
            self.last = error.to_string();
        }
    }
}

/// Why the policy asked for gave no answer.
struct Failure {
    /// The module, if there is one.
    digest: Option<Digest>,
    reason: String,
}

impl Library {
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            state: Arc::default(),
            crash_marks: CrashMarks::default(),
        }
    }

    /// With files that ended earlier processes refused, and a mark left for the next process while one of them is busy with a file.
    pub fn remembering(mut self, crash_marks: CrashMarks) -> Self {
        self.crash_marks = crash_marks;
        self
    }

    /// Which bytes answer for each name and kind now: what the planner caches answers by.
    pub fn facts(&self) -> BTreeMap<PolicyRef, PolicyFacts> {
        let of = |name: Arc<str>, kind: PolicyKind, digest: Digest| {
            (PolicyRef { kind, name }, PolicyFacts { digest })
        };
        let builtins = BUILTINS.iter();
        let mut facts: BTreeMap<PolicyRef, PolicyFacts> = builtins
            .map(|it| of(it.name.into(), kind(it.kind), it.sha256.into()))
            .collect();
        for (name, module) in &self.lock().overrides {
            facts.retain(|policy, _| policy.name != *name);
            let kinds = module.kinds().into_iter();
            facts.extend(kinds.map(|kind| of(name.clone(), kind, module.digest().clone())));
        }
        facts
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
        self.note_use(question);
        let failure = match self.try_policy(question, budget).await {
            Ok(answer) => return answer,
            Err(failure) => failure,
        };
        let reason = format!(
            "policy {}: {}",
            question.policy().policy.name,
            failure.reason
        );
        if let Some(answer) = self.fall_back(question, reason, budget).await {
            return answer;
        }
        Answer {
            digest: failure.digest.unwrap_or_else(|| "".into()),
            fallback: None,
            body: AnswerBody::Failed(failure.reason),
        }
    }

    async fn try_policy(
        &self,
        question: &Question,
        budget: &mut Budget,
    ) -> Result<Answer, Failure> {
        let PolicyUse { policy, settings } = question.policy();
        let module = self.module(policy).await.map_err(|reason| Failure {
            digest: None,
            reason,
        })?;
        let digest = module.digest().clone();
        let key = (digest.clone(), settings.clone());
        let failed = |reason: String| Failure {
            digest: Some(digest.clone()),
            reason,
        };
        if let Some(record) = self.lock().records.get(&key)
            && record.failures >= FAILURES_MAX
        {
            let Record { failures, last, .. } = record;
            return Err(failed(format!(
                "kproxide does not call it after {failures} failures, until its file or its settings change. The last failure: {last}"
            )));
        }
        let is_of_file = self.lock().overrides.contains_key(&policy.name);
        if is_of_file {
            self.crash_marks.begin(&digest);
        }
        let called = match self.check_settings(&module, settings).await {
            Ok(()) => Ok(self.engine.ask(&module, question).await),
            Err(error) => Err(failed(error.to_string())),
        };
        if is_of_file {
            self.crash_marks.end(&digest);
        }
        let Called { result, fuel } = called?;
        budget.spend(fuel);
        match result {
            Ok(body) => {
                self.record(key, |record| record.failures = 0);
                Ok(Answer {
                    digest,
                    fallback: None,
                    body,
                })
            }
            Err(error) => {
                let reason = error.to_string();
                self.record(key, |record| record.fail(&error));
                Err(failed(reason))
            }
        }
    }

    /// Another policy's answer, where there is one that can stand in: for host-selection the built-in of that name itself, whatever file overrides it, with
    /// its own defaults. It does not see the state of the policy that failed, and leaves it alone.
    async fn fall_back(
        &self,
        question: &Question,
        reason: String,
        budget: &mut Budget,
    ) -> Option<Answer> {
        let Question::Rank(rank) = question else {
            return None;
        };
        let module = self
            .builtin(kproxide_builtins::builtin(FALLBACK)?)
            .await
            .ok()?;
        let mut rank = rank.clone();
        rank.policy.settings = "".into();
        rank.context.state.clear();
        let called = self.engine.ask(&module, &Question::Rank(rank)).await;
        budget.spend(called.fuel);
        let mut body = called.result.ok()?;
        if let AnswerBody::Ranking(ranking) = &mut body {
            ranking.state = None;
        }
        Some(Answer {
            digest: module.digest().clone(),
            fallback: Some(reason),
            body,
        })
    }

    async fn module(&self, policy: &PolicyRef) -> Result<Module, String> {
        let builtin = kproxide_builtins::builtin(&policy.name);
        {
            let state = self.lock();
            if let Some(module) = state.overrides.get(&policy.name) {
                return Ok(module.clone());
            }
            let seen = state.files.get(&policy.name);
            if builtin.is_none()
                && let Some(reason) = seen.and_then(reload::Seen::refusal)
            {
                return Err(format!("its file is refused: {reason}"));
            }
        }
        match builtin {
            Some(builtin) => self.builtin(builtin).await.map_err(|it| it.to_string()),
            None => Err(self.unknown(policy.kind)),
        }
    }

    fn unknown(&self, kind: PolicyKind) -> String {
        let facts = self.facts().into_keys();
        let known = facts.filter(|policy| policy.kind == kind);
        let known: Vec<Arc<str>> = known.map(|policy| policy.name).collect();
        format!(
            "there is no {} policy of that name; known are {}",
            kind.as_str(),
            known.join(", ")
        )
    }

    /// Built-ins are compiled when first used.
    async fn builtin(&self, builtin: &'static Builtin) -> Result<Module, LoadError> {
        if let Some(module) = self.lock().builtins.get(builtin.name) {
            return Ok(module.clone());
        }
        let module = self.engine.load(Arc::from(builtin.wasm)).await?;
        self.lock().builtins.insert(builtin.name, module.clone());
        Ok(module)
    }

    async fn compile(
        &self,
        digest: Digest,
        bytes: impl FnOnce() -> Arc<[u8]>,
    ) -> Result<Module, LoadError> {
        if let Some(module) = self.lock().compiled.get(&digest) {
            return Ok(module.clone());
        }
        let module = self.engine.load(bytes()).await?;
        self.lock().compiled.insert(digest, module.clone());
        Ok(module)
    }

    /// Asks the module once what it thinks of settings. A verdict that another call might not give is not remembered.
    async fn check_settings(&self, module: &Module, settings: &Arc<str>) -> Result<(), CallError> {
        let key = (module.digest().clone(), settings.clone());
        if let Some(checked) = self
            .lock()
            .records
            .get(&key)
            .and_then(|record| record.checked.clone())
        {
            return checked;
        }
        let checked = self.engine.check_settings(module, settings.clone()).await;
        if checked
            .as_ref()
            .err()
            .is_none_or(CallError::is_deterministic)
        {
            self.record(key, |record| record.checked = Some(checked.clone()));
        }
        checked
    }

    fn record(&self, key: (Digest, Arc<str>), change: impl FnOnce(&mut Record)) {
        let mut state = self.lock();
        if state.records.len() >= REMEMBERED_MAX {
            state.records.clear();
        }
        change(state.records.entry(key).or_default());
    }

    fn note_use(&self, question: &Question) {
        let policy = question.policy();
        let key = (question.pool().clone(), policy.policy.kind);
        let mut state = self.lock();
        if state.uses.get(&key) != Some(policy) {
            if state.uses.len() >= REMEMBERED_MAX {
                state.uses.clear();
            }
            state.uses.insert(key, policy.clone());
        }
    }

    /// The pool is gone: a new file need not work with its settings.
    pub fn forget_pool(&self, pool: &PoolName) {
        self.lock().uses.retain(|(used_by, _), _| used_by != pool);
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

#[cfg(test)]
mod tests;
