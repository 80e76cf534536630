//! Policies: which module answers for a name, and how it is asked without trusting it.
//!
//! ```text
//! files ──► library ──► engine ──► a fresh instance of the component, with limits
//!  (bytes)   (names, last good one,    (the only module that knows wasmtime)
//!             fallback, breaker)
//! ```
//!
//! A policy is advice. The engine checks the form of an answer, the planner its content.

mod crash_marks;
mod engine;
mod files;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod library;
mod schema;
mod self_test;
mod watch;

pub use crash_marks::CrashMarks;
pub use engine::{CALL_FUEL, CallError, Called, Engine, Execution, LoadError, Module, PolicyInfo};
#[cfg(feature = "simulator")]
pub(crate) use files::legal_name;
pub use files::{Directories, FilesError, PolicyFile, PolicyFiles};
pub use library::{Answering, Budget, Instead, Library, Refusal, Reload, ReloadOutcome, Unfit};
pub use watch::watch_directories;
