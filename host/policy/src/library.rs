//! Which module answers for which name: the built-ins, overridden by files of the same name, always the last good one.
//!
//! A file that does not load, rejects settings that pools use, or fails its self-test is reported and leaves the module before it in place. A policy that
//! keeps failing is not called again until its file or its settings change.

mod budget;
mod judging;
mod reload;
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kproxide_builtins::{BUILTINS, Builtin, Kind};
use kproxide_planner::facts::{PolicyFacts, PolicyKind, PolicyMember, PolicyRef, PolicyUse};
use kproxide_planner::ids::{Digest, PoolName};
use kproxide_planner::plan::question::{Answer, AnswerBody, Question};
use tokio::sync::watch;
use tokio::time::Instant;

use super::engine::{CALL_FUEL, CallError, Called, Engine, LoadError, Module};
use super::schema;
use super::{Content, PolicyFiles};

pub use self::budget::Budget;
pub use self::judging::Unfit;
pub use self::reload::{Instead, Refusal, Reload, ReloadOutcome};

/// Answers when a host-selection policy fails.
const FALLBACK: &str = "spread";
/// After this many failures in a row kproxide no longer calls a policy.
const FAILURES_MAX: u32 = 5;
/// A policy that was given up for its time is tried again after this long: the machine may have been busy.
const BUSY_PAUSE: Duration = Duration::from_mins(10);
/// Uses and records that are remembered. Forgetting one costs a check of settings, or lets a failing policy fail five times more.
const REMEMBERED_MAX: usize = 10_000;

/// Answers questions. Cheap to clone; all clones share one state.
#[derive(Clone, Debug)]
pub struct Library {
    engine: Engine,
    state: Arc<Mutex<State>>,
    /// How long a pool waits for a file that was never loaded.
    wait: Duration,
    /// Policies that pools name.
    named: watch::Sender<BTreeSet<Arc<str>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Those asked so far.
    builtins: BTreeMap<&'static str, Module>,
    /// Modules from files, by name.
    overrides: BTreeMap<Arc<str>, Override>,
    /// What each file was when it was last looked at, good or bad.
    files: BTreeMap<Arc<str>, reload::Seen>,
    /// Since when files are known that were not looked at yet.
    expected: BTreeMap<Arc<str>, Instant>,
    /// Modules of files that answer.
    compiled: BTreeMap<Digest, Module>,
    /// What each pool uses, as its last question said: a new file must work with it.
    uses: BTreeMap<(PoolName, PolicyKind), PolicyUse>,
    records: BTreeMap<Subject, Record>,
}

/// Whose record it is: a module with some settings, or several that decide together.
type Subject = (Digest, Arc<str>);

impl State {
    /// Policies that pools name.
    fn named(&self) -> BTreeSet<Arc<str>> {
        let used = self.uses.values().flat_map(PolicyUse::each);
        used.map(|it| it.policy.name).collect()
    }
}

#[derive(Debug)]
struct Override {
    module: Module,
    /// Where the file lies, for people.
    path: Arc<str>,
}

/// How a module has done with some settings.
#[derive(Debug, Default)]
struct Record {
    /// What it said of the settings.
    checked: Option<Result<(), CallError>>,
    /// Failures in a row, and the last of them.
    failures: u32,
    last: String,
    /// When to try again nevertheless, if another call might not come to what the last one came to.
    again_at: Option<Instant>,
}

impl Record {
    fn fail(&mut self, error: &CallError) {
        self.failures = self.failures.saturating_add(1);
        self.last = error.to_string();
        self.again_at = (!error.is_deterministic()).then(|| Instant::now() + BUSY_PAUSE);
    }

    /// Why the module is called rarely or never: one text for as long as that lasts, since a condition changes its words only a few times in an hour.
    fn given_up(&self) -> Option<String> {
        let last = &self.last;
        let what = match self.again_at {
            Some(_) => "calls it only once in 10 minutes, or when its file or its settings change",
            None => "does not call it until its file or its settings change",
        };
        (self.failures >= FAILURES_MAX).then(|| {
            format!(
                "after {FAILURES_MAX} failures in a row kproxide {what}. The last failure: {last}"
            )
        })
    }

    /// Why the module is not called now.
    fn rests(&self) -> Option<String> {
        let is_time = self.again_at.is_some_and(|at| at <= Instant::now());
        self.given_up().filter(|_| !is_time)
    }
}

/// The module that answers for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answering {
    pub version: String,
    pub digest: Digest,
    /// Where its file lies. `None`: it is built in.
    pub file: Option<Arc<str>>,
}

/// Why the policy asked for gave no answer.
enum Failure {
    /// The tick's time was up. That is not held against it: others may have used the time.
    OutOfTime,
    /// Its file or its process is not ready yet. Other pools go on.
    NotReady(String),
    /// Nor is it, and the processes of others are why.
    NoRoom(String),
    Of {
        /// The module, if there is one.
        digest: Option<Digest>,
        reason: String,
    },
}

const LOADING: &str = "its file is being compiled and tested";

fn deferred() -> Answer {
    Answer::of("".into(), AnswerBody::Deferred)
}

impl Library {
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            state: Arc::default(),
            wait: Duration::from_secs(60),
            named: watch::Sender::default(),
        }
    }

    /// Which policies pools name, for whoever cannot read all files. Files that this one does not read are waited for until it is known.
    pub fn named(&self) -> watch::Receiver<BTreeSet<Arc<str>>> {
        self.named.subscribe()
    }

    /// With so much time for pools to wait for the first load of the file that they name, before another policy answers for them.
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Tells of files that [`Library::sync`] is about to load: those of a new name are waited for.
    pub fn expect(&self, files: &PolicyFiles) {
        let mut state = self.lock();
        for name in files.keys() {
            if !state.files.contains_key(name) {
                let now = Instant::now();
                state.expected.entry(name.clone()).or_insert(now);
            }
        }
    }

    /// Why it is too early to do without this policy's file.
    fn is_awaited(&self, policy: &PolicyRef) -> Option<String> {
        let state = self.lock();
        let since = state.expected.get(&policy.name)?.elapsed();
        (since < self.wait).then(|| LOADING.to_owned())
    }

    /// Which bytes answer for each name and kind now: what the planner caches answers by.
    pub fn facts(&self) -> BTreeMap<PolicyRef, PolicyFacts> {
        Self::facts_of(&self.lock())
    }

    fn facts_of(state: &State) -> BTreeMap<PolicyRef, PolicyFacts> {
        let of = |name: Arc<str>, kind: PolicyKind, digest: Digest| {
            (PolicyRef { kind, name }, PolicyFacts { digest })
        };
        let builtins = BUILTINS.iter();
        let mut facts: BTreeMap<PolicyRef, PolicyFacts> = builtins
            .map(|it| of(it.name.into(), kind(it.kind), it.sha256.into()))
            .collect();
        for (name, Override { module, .. }) in &state.overrides {
            facts.retain(|policy, _| policy.name != *name);
            let kinds = module.kinds().into_iter();
            facts.extend(kinds.map(|kind| of(name.clone(), kind, module.digest().clone())));
        }
        facts
    }

    /// What answers for each name and kind now, for people.
    pub fn answering(&self) -> BTreeMap<PolicyRef, Answering> {
        let state = self.lock();
        let facts = Self::facts_of(&state).into_iter();
        let answering = facts.map(|(policy, PolicyFacts { digest })| {
            let of_file = state.overrides.get(&policy.name);
            let version = of_file.map(|it| it.module.info().version.clone());
            let answering = Answering {
                // Built-ins have that of the program.
                version: version.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
                digest,
                file: of_file.map(|it| it.path.clone()),
            };
            (policy, answering)
        });
        answering.collect()
    }

    /// Answers, by the policy asked for or by what stands in for it. Never fails: the answer says what went wrong.
    pub async fn ask(&self, question: &Question, budget: &mut Budget) -> Answer {
        if budget.is_used_up() {
            return deferred();
        }
        self.note_uses([(question.pool(), question.policy())]);
        let (name, failure) = match self.try_policy(question, budget).await {
            Ok(answer) => return answer,
            Err(failed) => failed,
        };
        let is_alone = question.policy().members.is_empty();
        // Where several decide together, which of them.
        let of = |reason: String| match is_alone {
            true => reason,
            false => format!("{name}: {reason}"),
        };
        let (digest, reason) = match failure {
            Failure::OutOfTime => return deferred(),
            Failure::NotReady(reason) | Failure::NoRoom(reason) => {
                return Answer {
                    body: AnswerBody::NoCandidate(of(reason)),
                    ..deferred()
                };
            }
            Failure::Of { digest, reason } => (digest, reason),
        };
        let fallback = format!("policy {name}: {reason}");
        if let Some(answer) = self.fall_back(question, fallback, budget).await {
            return answer;
        }
        if budget.time_left.is_zero() {
            return deferred();
        }
        let digest = digest.filter(|_| is_alone);
        let digest = digest.unwrap_or_else(|| "".into());
        Answer::of(digest, AnswerBody::Failed(of(reason)))
    }

    /// Puts the question to the policy, or to each of several that decide together: they share what one question may use, and if one fails, all do.
    async fn try_policy(
        &self,
        question: &Question,
        budget: &mut Budget,
    ) -> Result<Answer, (Arc<str>, Failure)> {
        let whole = self.whole(question.policy());
        if let Some(whole) = &whole
            && let Some(reason) = self.lock().records.get(whole).and_then(Record::rests)
        {
            let digest = None;
            let name = question.policy().policy.name.clone();
            return Err((name, Failure::Of { digest, reason }));
        }
        if let Some(reason) = self.crowded(question.policy()) {
            let name = question.policy().policy.name.clone();
            let digest = None;
            return Err((name, Failure::Of { digest, reason }));
        }
        let (mut answered, mut spent) = (Vec::new(), 0);
        for (question, weight) in together::parts(question) {
            let failed = |failure| (question.policy().policy.name.clone(), failure);
            // What the others have used up is not held against it.
            let used_up = whole.as_ref().filter(|_| spent > 0);
            let asked = self.try_alone(&question, (spent, used_up), budget).await;
            // Alone it would have its turn. Several that end each other never have it together.
            if let (Some(whole), Err(Failure::NoRoom(reason))) = (&whole, &asked) {
                let error = CallError::NoRoom(reason.clone());
                self.record(whole.clone(), |record| record.fail(&error));
            }
            let (digest, body, fuel) = asked.map_err(failed)?;
            spent += fuel;
            let is_over = matches!(body, AnswerBody::NoCandidate(_));
            answered.push(together::Part {
                question,
                weight,
                digest,
                body,
            });
            if is_over {
                break;
            }
        }
        if let Some(whole) = whole {
            self.record(whole, |record| record.failures = 0);
        }
        Ok(together::answer(question, answered))
    }

    /// Why several policies that decide together cannot be asked: the processes of their files do not fit the memory at once.
    fn crowded(&self, used: &PolicyUse) -> Option<String> {
        let digests: BTreeSet<Digest> = {
            let state = self.lock();
            let of_file = |it: &PolicyMember| state.overrides.get(&it.policy.name);
            let files = used.members.iter().filter_map(of_file);
            files.map(|it| it.module.digest().clone()).collect()
        };
        let (needed, there) = self.engine.misfit(&digests)?;
        let (needed, there) = (needed >> 20, there >> 20);
        Some(format!(
            "the processes of the files that decide together need {needed} MiB at once, and there are {there} MiB for policies (--policy-memory): give the \
             container more memory, or name fewer files"
        ))
    }

    /// As what several policies that decide together are remembered. `None`: one decides alone.
    fn whole(&self, used: &PolicyUse) -> Option<Subject> {
        if used.members.is_empty() {
            return None;
        }
        let state = self.lock();
        let digest = |it: &PolicyMember| {
            let name = &*it.policy.name;
            let of_file = state.overrides.get(name);
            let of_file = of_file.map(|it| it.module.digest().as_str().to_owned());
            let built_in = || kproxide_builtins::builtin(name).map(|it| it.sha256.to_owned());
            of_file.or_else(built_in).unwrap_or_default()
        };
        let digests: Vec<String> = used.members.iter().map(digest).collect();
        let parts = used.members.iter().zip(&digests);
        let parts = parts.map(|(it, digest)| (&*it.policy.name, it.weight, &**digest));
        let settings: Vec<&str> = used.members.iter().map(|it| &*it.settings).collect();
        Some((together::digest_of(parts), settings.join(" ").into()))
    }

    /// `spent`: instructions that this question has taken so far, and on whose record it goes if too few are left.
    async fn try_alone(
        &self,
        question: &Question,
        (spent, whole): (u64, Option<&Subject>),
        budget: &mut Budget,
    ) -> Result<(Digest, AnswerBody, u64), Failure> {
        let PolicyUse {
            policy, settings, ..
        } = question.policy();
        if let Some(reason) = self.is_awaited(policy) {
            return Err(Failure::NotReady(reason));
        }
        let module = self.module(policy).await.map_err(|reason| Failure::Of {
            digest: None,
            reason,
        })?;
        let digest = module.digest().clone();
        let key = (digest.clone(), settings.clone());
        let failed = |reason: String| Failure::Of {
            digest: Some(digest.clone()),
            reason,
        };
        let rests = self.lock().records.get(&key).and_then(Record::rests);
        if let Some(reason) = rests {
            return Err(failed(reason));
        }
        let call = async {
            match self.check_settings(&module, &policy.name, settings).await {
                Ok(()) => Ok(self.engine.ask_after(&module, question, spent).await),
                // It is remembered, and costs no more calls.
                Err(error) if error.is_deterministic() => Err(error),
                Err(error) => Ok(Called {
                    result: Err(error),
                    fuel: CALL_FUEL,
                }),
            }
        };
        let called = budget.time(call).await;
        let called = called.ok_or(Failure::OutOfTime)?;
        let Called { result, fuel } = called.map_err(|error| failed(error.to_string()))?;
        match result {
            Err(CallError::Starting) => {
                return Err(Failure::NotReady(CallError::Starting.to_string()));
            }
            Err(CallError::NoRoom(reason)) => return Err(Failure::NoRoom(reason)),
            Ok(_) | Err(_) => {}
        }
        budget.spend(fuel);
        match result {
            Ok(body) => {
                self.record(key, |record| record.failures = 0);
                Ok((digest, body, fuel))
            }
            Err(error) => {
                let mut reason = error.to_string();
                let had_too_little = matches!(error, CallError::OutOfFuel | CallError::Interrupted);
                let whole = whole.filter(|_| had_too_little);
                if whole.is_some() && spent > CALL_FUEL / 2 {
                    reason += ", most of it by the policies that decide with it";
                }
                let subject = whole.cloned().unwrap_or(key);
                self.record(subject, |record| record.fail(&error));
                Err(failed(reason))
            }
        }
    }

    /// What answers where a policy has failed for this reason, if anything does: for the author's tools.
    pub async fn stand_in(&self, question: &Question, reason: String) -> Option<Answer> {
        let mut budget = Budget::unlimited();
        self.fall_back(question, reason, &mut budget).await
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
        rank.policy.members.clear();
        rank.context.state.clear();
        let question = Question::Rank(rank);
        let called = budget.time(self.engine.ask(&module, &question)).await?;
        budget.spend(called.fuel);
        let mut body = called.result.ok()?;
        if let AnswerBody::Ranking(ranking) = &mut body {
            ranking.state = None;
        }
        Some(Answer {
            fallback: Some(reason),
            ..Answer::of(module.digest().clone(), body)
        })
    }

    async fn module(&self, policy: &PolicyRef) -> Result<Module, String> {
        let builtin = kproxide_builtins::builtin(&policy.name);
        {
            let state = self.lock();
            if let Some(answering) = state.overrides.get(&policy.name) {
                return Ok(answering.module.clone());
            }
            let seen = state.files.get(&policy.name);
            if builtin.is_none()
                && let Some(reason) = seen.and_then(reload::Seen::refusal)
            {
                return Err(format!("its file is refused: {reason}"));
            }
            if builtin.is_none() && state.expected.contains_key(&policy.name) {
                return Err(LOADING.to_owned());
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

    async fn compile(&self, content: &Content) -> Result<Module, LoadError> {
        if let Some(module) = self.lock().compiled.get(content.digest()) {
            return Ok(module.clone());
        }
        let module = self.engine.load_file(content.clone()).await?;
        let digest = content.digest().clone();
        self.lock().compiled.insert(digest, module.clone());
        Ok(module)
    }

    /// Asks the module once what it thinks of settings, and holds them against its schema. A verdict that another call might not give is not remembered.
    async fn check_settings(
        &self,
        module: &Module,
        name: &str,
        settings: &Arc<str>,
    ) -> Result<(), CallError> {
        let key = (module.digest().clone(), settings.clone());
        if let Some(checked) = self
            .lock()
            .records
            .get(&key)
            .and_then(|record| record.checked.clone())
        {
            return checked;
        }
        let asked = self.engine.check_settings(module, name, settings.clone());
        // The policy's own words are better than those of its schema.
        let checked = asked.await.and_then(|()| {
            schema::check(&module.info().settings_schema, settings)
                .map_err(CallError::InvalidSettings)
        });
        if checked
            .as_ref()
            .err()
            .is_none_or(CallError::is_deterministic)
        {
            self.record(key, |record| record.checked = Some(checked.clone()));
        }
        checked
    }

    fn record(&self, key: Subject, change: impl FnOnce(&mut Record)) {
        let mut state = self.lock();
        if state.records.len() >= REMEMBERED_MAX {
            state.records.clear();
        }
        change(state.records.entry(key).or_default());
    }

    fn note_uses<'a>(&self, uses: impl IntoIterator<Item = (&'a PoolName, &'a PolicyUse)>) {
        let mut state = self.lock();
        let mut is_new = false;
        for (pool, policy) in uses {
            let key = (pool.clone(), policy.policy.kind);
            if state.uses.get(&key) != Some(policy) {
                if state.uses.len() >= REMEMBERED_MAX {
                    state.uses.clear();
                }
                state.uses.insert(key, policy.clone());
                is_new = true;
            }
        }
        if is_new {
            self.tell_named(&state);
        }
    }

    /// The pool is gone: a new file need not work with its settings.
    pub fn forget_pool(&self, pool: &PoolName) {
        let mut state = self.lock();
        state.uses.retain(|(used_by, _), _| used_by != pool);
        self.tell_named(&state);
    }

    fn tell_named(&self, state: &State) {
        let named = state.named();
        self.named.send_if_modified(|told| {
            let is_new = *told != named;
            *told = named;
            is_new
        });
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
