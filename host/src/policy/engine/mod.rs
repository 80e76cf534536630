//! Runs policies in wasmtime. The interface has none of wasmtime's types, so that the engine can move into a child process.
//!
//! A fresh instance answers each question: nothing leaks from one decision to the next, and a trap costs one answer. What an instance may use is
//! bounded in instructions (fuel, deterministic), in wall time as a backstop (epochs), in memory, stack and bytes returned.
//! A component may import `kproxide:policy/log` and the types, nothing else: no clock, no randomness, no file, no network.

mod bindings;
mod convert;
mod load;
mod store;
mod ticker;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kproxide_planner::facts::PolicyKind;
use kproxide_planner::ids::Digest;
use kproxide_planner::question::{AnswerBody, Question};
use thiserror::Error;
use wasmtime::component::Linker;

use self::store::State;
use self::ticker::Ticker;

pub(crate) use self::convert::printable;
pub use self::load::LoadError;
pub(crate) use self::load::{UNPACKED_BYTES_MAX, digest};

/// Instructions for one question: an empty loop takes 130 to 200 ms for them, so that they end before the clock does (250 ms). A built-in policy needs less
/// than a hundredth of them for 1000 hypervisors.
pub const CALL_FUEL: u64 = 400_000_000;

/// What a policy says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    pub name: String,
    pub version: String,
    pub description: String,
    /// JSON Schema of the settings, or empty.
    pub settings_schema: String,
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
    /// `None`: inline.
    ticker: Option<Arc<Ticker>>,
    /// `None`: a module goes with the last who has it.
    kept: Option<Arc<Mutex<BTreeMap<Digest, Module>>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("execution", &self.execution)
            .finish_non_exhaustive()
    }
}

/// A compiled policy, cheap to clone.
#[derive(Clone)]
pub struct Module(Arc<Compiled>);

struct Compiled {
    digest: Digest,
    info: PolicyInfo,
    imports: Vec<String>,
    host_selection: Option<bindings::host_selection::HostSelectionPolicyPre<State>>,
    scale_down: Option<bindings::scale_down::ScaleDownPolicyPre<State>>,
    labels: Option<bindings::labels::LabelPolicyPre<State>>,
}

impl Module {
    /// SHA-256 of the component's bytes.
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

    /// The questions that it answers, at least one.
    pub fn kinds(&self) -> Vec<PolicyKind> {
        let compiled = &self.0;
        [
            (compiled.host_selection.is_some(), PolicyKind::HostSelection),
            (compiled.scale_down.is_some(), PolicyKind::ScaleDown),
            (compiled.labels.is_some(), PolicyKind::Labels),
        ]
        .into_iter()
        .filter_map(|(answers, kind)| answers.then_some(kind))
        .collect()
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

/// Why a question has no usable answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
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
    #[error("the engine lost it: {0}")]
    Lost(String),
}

impl CallError {
    /// Asked again, the policy comes to the same end: it depends on nothing but its bytes and its arguments. Another call may end otherwise if the machine
    /// was busy.
    pub(crate) fn is_deterministic(&self) -> bool {
        !matches!(self, Self::Interrupted | Self::Lost(_))
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
        let platform = |error: wasmtime::Error| LoadError::Platform(format!("{error:#}"));
        let wasmtime = store::configure().map_err(platform)?;
        let linker = store::linker(&wasmtime).map_err(platform)?;
        let ticker = match execution {
            Execution::Inline => None,
            Execution::Blocking => {
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
        })
    }

    /// So that the clock alone can end a call.
    #[cfg(test)]
    pub(super) fn without_fuel_limit(mut self) -> Self {
        self.fuel = 1 << 50;
        self
    }

    /// Compiles what has the same bytes once, and keeps it for ever: for simulations, which start many hosts with few policies and would compile most of their time.
    pub fn keeping_modules(mut self) -> Self {
        self.kept = Some(Arc::default());
        self
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
            .run(move || load::load(&engine, &bytes))
            .await
            .unwrap_or_else(|lost| Err(LoadError::Lost(lost)))?;
        if let Some(kept) = &self.kept {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.insert(module.digest().clone(), module.clone());
        }
        Ok(module)
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
        let (engine, module, name) = (self.clone(), module.clone(), tested(name));
        let checked = self
            .run(move || store::check_settings(&engine, &module, name, &settings))
            .await;
        checked.unwrap_or_else(|lost| Err(CallError::Lost(lost)))
    }

    /// Asks one question of a fresh instance.
    pub async fn ask(&self, module: &Module, question: &Question) -> Called {
        if self.execution == Execution::Inline {
            return store::ask(self, module, question);
        }
        let (engine, module, question) = (self.clone(), module.clone(), question.clone());
        let called = self
            .run(move || store::ask(&engine, &module, &question))
            .await;
        called.unwrap_or_else(|lost| Called {
            result: Err(CallError::Lost(lost)),
            fuel: 0,
        })
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
