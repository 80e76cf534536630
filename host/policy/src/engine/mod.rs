//! Runs policies in wasmtime: those of files in processes of their own ([`super::worker`]), where there are any.
//!
//! A fresh instance answers each question: nothing leaks from one decision to the next, and a trap costs one answer. What an instance may use is
//! bounded in instructions (fuel, deterministic), in wall time as a backstop (epochs), in memory, stack and bytes returned.
//! A component may import `kproxide:policy/log` and the types, nothing else: no clock, no randomness, no file, no network.

mod bindings;
mod check;
mod convert;
mod load;
mod reply;
mod store;
mod ticker;
mod unpack;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use kproxide_planner::facts::PolicyKind;
use kproxide_planner::ids::Digest;
use kproxide_planner::plan::question::{AnswerBody, Question};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::runtime::Handle;
use wasmtime::component::Linker;

use self::store::State;
use self::ticker::Ticker;
use super::content::Content;
use super::worker::{Caged, Workers};
use super::wrap;
use kproxide_common::foreign;

pub(super) use self::check::REASON_BYTES_MAX;
pub use self::load::{LoadError, digest};
pub(super) use self::reply::{Replied, Reply};
pub(super) use self::store::Images;
pub use self::unpack::{UNPACKED_BYTES_MAX, unpacked};

/// Instructions for one question: an empty loop takes 130 to 200 ms for them, so that they end before the clock does (250 ms). A built-in policy needs less
/// than a hundredth of them for 1000 hypervisors.
pub const CALL_FUEL: u64 = 400_000_000;

/// A settings-schema that people read has a tenth of this.
const SCHEMA_BYTES_MAX: usize = 64 << 10;

/// What a policy says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInfo {
    pub name: String,
    pub version: String,
    pub description: String,
    /// JSON Schema of the settings, or empty.
    pub settings_schema: String,
}

impl PolicyInfo {
    /// With texts that can be shown.
    pub(super) fn printable(self) -> Self {
        Self {
            name: foreign::line(&self.name, 63),
            version: foreign::line(&self.version, 63),
            description: foreign::line(&self.description, 1000),
            // In JSON a line break between words is a space, and in a text there is none.
            settings_schema: foreign::line(
                &self.settings_schema.replace(['\n', '\r', '\t'], " "),
                SCHEMA_BYTES_MAX,
            ),
        }
    }

    /// # Errors
    /// It has no name, or settings could not be held to its schema.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        let is_unseen = |c| matches!(c, ' ' | char::REPLACEMENT_CHARACTER);
        if foreign::line(&self.name, 63).chars().all(is_unseen) {
            return Err(LoadError::NoName);
        }
        let schema = self.settings_schema.trim();
        if self.settings_schema.len() > SCHEMA_BYTES_MAX {
            return Err(LoadError::LongSchema(self.settings_schema.len()));
        }
        match serde_json::from_str::<serde_json::Value>(schema) {
            Err(error) if !schema.is_empty() => Err(LoadError::Schema(error.to_string())),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Where calls and compilations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// On the caller's thread, without the wall-clock backstop: simulation, where every run must be the same.
    Inline,
    /// On a blocking thread, with the backstop.
    Blocking,
}

/// Compiles and runs policy components.
#[derive(Clone)]
pub struct Engine {
    wasmtime: wasmtime::Engine,
    linker: Arc<Linker<State>>,
    execution: Execution,
    /// Instructions for one call.
    fuel: u64,
    /// `None`: no wall-clock backstop.
    ticker: Option<Arc<Ticker>>,
    /// `None`: a module goes with the last who has it.
    kept: Option<Arc<Mutex<BTreeMap<Digest, Module>>>>,
    /// `None`: files run in this process too.
    workers: Option<Workers>,
    /// Where processes are awaited if time is simulated here.
    real_time: Option<Handle>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("execution", &self.execution)
            .finish_non_exhaustive()
    }
}

/// A policy that can be asked, cheap to clone.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    digest: Digest,
    info: PolicyInfo,
    imports: Vec<String>,
    unpacked_bytes: usize,
    kinds: Vec<PolicyKind>,
    code: Code,
}

enum Code {
    Here(Box<load::Compiled>),
    Caged(Caged),
}

impl Module {
    /// SHA-256 of the policy's bytes, packed as they came.
    pub fn digest(&self) -> &Digest {
        &self.0.digest
    }

    pub fn info(&self) -> &PolicyInfo {
        &self.0.info
    }

    /// What it imports: no more than kproxide offers.
    pub fn imports(&self) -> &[String] {
        &self.0.imports
    }

    pub fn unpacked_bytes(&self) -> usize {
        self.0.unpacked_bytes
    }

    /// The questions that it answers, at least one.
    pub fn kinds(&self) -> Vec<PolicyKind> {
        self.0.kinds.clone()
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("info", &self.0.info)
            .field("digest", &self.0.digest)
            .finish_non_exhaustive()
    }
}

/// The text of an error is shown to this length: a line of the log.
const ERROR_BYTES_MAX: usize = 1024;

/// Why a question has no usable answer.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallError {
    #[error("it does not answer {} questions", .0.as_str())]
    WrongKind(PolicyKind),
    #[error("it used up its {CALL_FUEL} instructions")]
    OutOfFuel,
    #[error("it ran for more than 250 ms")]
    Interrupted,
    #[error("it asked for more than 64 MiB of memory")]
    OutOfMemory,
    #[error("it handed over more than 4 MiB at once")]
    TooMuch,
    #[error("it crashed: {0}")]
    Trapped(String),
    #[error("its settings are wrong: {0}")]
    InvalidSettings(String),
    #[error("it reports a defect of its own: {0}")]
    Internal(String),
    #[error("its answer is invalid: {0}")]
    InvalidAnswer(String),
    #[error("{0}")]
    Died(String),
    #[error("its process is still being started")]
    Starting,
    /// It is being started as well, but others keep ending it.
    #[error("{0}")]
    NoRoom(String),
    #[error("the engine lost it: {0}")]
    Lost(String),
}

impl CallError {
    /// Asked again, the policy comes to the same end: it depends on nothing but its bytes and its arguments. Another call may end otherwise if the machine
    /// was busy.
    pub fn is_deterministic(&self) -> bool {
        !matches!(
            self,
            Self::Interrupted | Self::Died(_) | Self::Starting | Self::NoRoom(_) | Self::Lost(_)
        )
    }

    /// With texts that can be shown, whoever made it.
    fn printable(self) -> Self {
        let show = |text: String| foreign::line(&text, ERROR_BYTES_MAX);
        match self {
            Self::Trapped(text) => Self::Trapped(show(text)),
            Self::InvalidSettings(text) => Self::InvalidSettings(show(text)),
            Self::Internal(text) => Self::Internal(show(text)),
            Self::InvalidAnswer(text) => Self::InvalidAnswer(show(text)),
            Self::Died(text) => Self::Died(show(text)),
            Self::NoRoom(text) => Self::NoRoom(show(text)),
            Self::Lost(text) => Self::Lost(show(text)),
            Self::WrongKind(_)
            | Self::OutOfFuel
            | Self::Interrupted
            | Self::OutOfMemory
            | Self::TooMuch
            | Self::Starting => self,
        }
    }
}

/// An answer and the instructions that it took. A call that the clock ended took all that it may: what it has used is no measure of the time that it cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Called {
    pub result: Result<AnswerBody, CallError>,
    pub fuel: u64,
}

impl Engine {
    /// # Errors
    /// wasmtime refuses its configuration, or no thread can be had: the platform is not supported.
    pub fn new(execution: Execution) -> Result<Self, LoadError> {
        Self::with(execution, execution == Execution::Blocking, Images::Kept)
    }

    /// For a process of its own: calls run on the caller's thread, with the backstop.
    ///
    /// # Errors
    /// As for [`Engine::new`].
    pub(super) fn caged(images: Images) -> Result<Self, LoadError> {
        Self::with(Execution::Inline, true, images)
    }

    fn with(execution: Execution, has_backstop: bool, images: Images) -> Result<Self, LoadError> {
        let platform = |error: wasmtime::Error| LoadError::Platform(format!("{error:#}"));
        let wasmtime = store::configure(images).map_err(platform)?;
        let linker = store::linker(&wasmtime).map_err(platform)?;
        let ticker = match has_backstop {
            false => None,
            true => {
                let ticker = Ticker::start(&wasmtime)
                    .map_err(|error| LoadError::Platform(error.to_string()))?;
                Some(Arc::new(ticker))
            }
        };
        Ok(Self {
            wasmtime,
            linker: Arc::new(linker),
            execution,
            fuel: CALL_FUEL,
            ticker,
            kept: None,
            workers: None,
            real_time: None,
        })
    }

    /// With so many instructions for each call.
    #[cfg(test)]
    pub(super) fn with_fuel(mut self, fuel: u64) -> Self {
        self.fuel = fuel;
        self
    }

    /// Compiles what has the same bytes once, and keeps it for ever: for simulations, which start many hosts with few policies and would compile most of their time.
    pub fn keeping_modules(mut self) -> Self {
        self.kept = Some(Arc::default());
        self
    }

    /// Unpacks, compiles and calls files in processes of their own.
    pub fn caging(mut self, workers: Workers) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Awaits its processes on this runtime, and holds the caller's thread meanwhile: simulated time stands still, as it does while a policy computes in
    /// this process. The runtime must have threads of its own.
    pub fn in_real_time(mut self, runtime: Handle) -> Self {
        self.real_time = Some(runtime);
        self
    }

    /// What a process says.
    ///
    /// # Errors
    /// The runtime for that is gone.
    async fn heard<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let Some(runtime) = &self.real_time else {
            return Ok(work.await);
        };
        let (done, heard) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            // Whoever asks waits.
            let _ = done.send(work.await);
        });
        heard.recv().map_err(|error| error.to_string())
    }

    /// What the processes of these files need at once, and what there is, in bytes, if they do not fit.
    pub(super) fn misfit(&self, together: &BTreeSet<Digest>) -> Option<(u64, u64)> {
        self.workers.as_ref()?.misfit(together)
    }

    /// Ends the processes of these files: nobody uses them now. One that is asked again is started again.
    pub(super) fn rest(&self, unused: &BTreeSet<Digest>) {
        if let Some(workers) = &self.workers {
            workers.rest(unused);
        }
    }

    /// Loads the bytes of others, in a process of its own where this engine has them.
    ///
    /// # Errors
    /// As for [`Engine::load`]; or the process died over it, or the file cannot be read again.
    pub async fn load_file(&self, content: impl Into<Content>) -> Result<Module, LoadError> {
        let content = content.into();
        let Some(workers) = &self.workers else {
            let bytes = content.read().await;
            let bytes = bytes.map_err(|error| LoadError::Read(error.to_string()))?;
            return self.load(bytes).await;
        };
        let digest = content.digest().clone();
        let workers = workers.clone();
        let loading = async move { workers.load(content).await };
        let (described, caged) = self.heard(loading).await.map_err(LoadError::Lost)??;
        // What a child says is looked at again: the file may have taken it over.
        described.info.check()?;
        let imports = described.imports();
        let kinds: BTreeSet<PolicyKind> = described.kinds.into_iter().collect();
        if kinds.is_empty() {
            return Err(LoadError::NoKnownExport);
        }
        Ok(Module(Arc::new(Loaded {
            digest,
            info: described.info.printable(),
            imports,
            unpacked_bytes: described.unpacked_bytes,
            kinds: kinds.into_iter().collect(),
            code: Code::Caged(caged),
        })))
    }

    /// Makes a policy of a core module, in a process of its own where this engine has them.
    ///
    /// # Errors
    /// What is wrong with the module; or the process died over it.
    pub async fn wrap(&self, core: Arc<[u8]>) -> Result<Vec<u8>, LoadError> {
        let Some(workers) = self.workers.clone() else {
            return wrap::component(core.to_vec())
                .map_err(|why| LoadError::Refused(why.to_string()));
        };
        let wrapping = async move { workers.wrap(&core).await };
        self.heard(wrapping).await.map_err(LoadError::Lost)?
    }

    /// Compiles a component, after looking at what it imports, and asks it for its name.
    ///
    /// # Errors
    /// Names what is wrong with the bytes and, where known, how to build them right.
    pub async fn load(&self, bytes: Arc<[u8]>) -> Result<Module, LoadError> {
        let kept = self.kept.as_deref().and_then(|kept| {
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.get(&digest(&bytes)).cloned()
        });
        if let Some(module) = kept {
            return Ok(module);
        }
        let engine = self.clone();
        let module = self
            .run(move || engine.load_here(&bytes))
            .await
            .unwrap_or_else(|lost| Err(LoadError::Lost(lost)))?;
        if let Some(kept) = &self.kept {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.insert(module.digest().clone(), module.clone());
        }
        Ok(module)
    }

    /// As [`Engine::load`], on the caller's thread.
    pub(super) fn load_here(&self, bytes: &[u8]) -> Result<Module, LoadError> {
        load::load(self, bytes)
    }

    /// Asks the policy whether it accepts these settings. `name`: whose its lines in the log are, beside that they are of a test.
    ///
    /// # Errors
    /// It does not, or it failed.
    pub async fn check_settings(
        &self,
        module: &Module,
        name: &str,
        settings: Arc<str>,
    ) -> Result<(), CallError> {
        let replied = match &module.0.code {
            Code::Caged(caged) => {
                let caged = caged.clone();
                let checking = async move { caged.check_settings(&settings).await };
                self.heard(checking).await.unwrap_or_else(Replied::lost)
            }
            Code::Here(_) => {
                let (engine, module) = (self.clone(), module.clone());
                let checked = self.run(move || engine.settings_reply(&module, &settings));
                checked.await.unwrap_or_else(Replied::lost)
            }
        };
        replied.tell(&tested(name));
        replied.result.map_err(CallError::printable)
    }

    /// Asks one question of a fresh instance.
    pub async fn ask(&self, module: &Module, question: &Question) -> Called {
        self.ask_after(module, question, 0).await
    }

    /// Where others have used so many instructions for the same question, there is that much less left, and that much less time.
    pub(super) async fn ask_after(
        &self,
        module: &Module,
        question: &Question,
        spent: u64,
    ) -> Called {
        let replied = match &module.0.code {
            Code::Caged(caged) => {
                let (caged, question) = (caged.clone(), question.clone());
                let asking = async move { caged.ask(&question, spent).await };
                self.heard(asking).await.unwrap_or_else(Replied::lost)
            }
            Code::Here(_) if self.execution == Execution::Inline => {
                self.reply(module, question, spent)
            }
            Code::Here(_) => {
                let (engine, module, question) = (self.clone(), module.clone(), question.clone());
                let replied = self.run(move || engine.reply(&module, &question, spent));
                replied.await.unwrap_or_else(Replied::lost)
            }
        };
        replied.tell(&question.policy().policy.name);
        Called {
            result: replied
                .result
                .map_err(CallError::printable)
                .and_then(|reply| check::answer(reply, question)),
            fuel: replied.fuel,
        }
    }

    /// What the policy says of settings, on the caller's thread.
    pub(super) fn settings_reply(&self, module: &Module, settings: &str) -> Replied<()> {
        match &module.0.code {
            Code::Here(compiled) => store::check_settings(self, compiled, settings),
            Code::Caged(_) => Replied::lost("it is not in this process".to_owned()),
        }
    }

    /// What the policy says, unchecked, on the caller's thread.
    pub(super) fn reply(&self, module: &Module, question: &Question, spent: u64) -> Replied<Reply> {
        match &module.0.code {
            Code::Here(compiled) => store::ask(self, compiled, question, spent),
            Code::Caged(_) => Replied::lost("it is not in this process".to_owned()),
        }
    }

    /// # Errors
    /// The runtime is shutting down, or wasmtime itself panicked.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        match self.execution {
            Execution::Inline => Ok(work()),
            Execution::Blocking => tokio::task::spawn_blocking(work)
                .await
                .map_err(|error| error.to_string()),
        }
    }
}

/// A policy's name in the lines that it logs while it is only tested.
pub(crate) fn tested(name: &str) -> Arc<str> {
    format!("{name} (test)").into()
}

#[cfg(test)]
mod tests;
