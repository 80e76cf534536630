//! Policies: which module answers for a name, and how it is asked without trusting it.
//!
//! ```text
//! files ──► library ──► engine ──► a fresh instance of the component, with limits
//!  (bytes)   (names, last good one,    (the only module that knows wasmtime)
//!             fallback, breaker)            for files in a process of its own: worker
//! ```
//!
//! A policy is advice. The engine checks the form of an answer, the planner its content.

#![cfg_attr(
    test,
    allow(
        clippy::wildcard_enum_match_arm,
        reason = "a test names the variant that it expects and shows any other"
    )
)]

mod content;
mod engine;
mod files;
#[cfg(test)]
pub mod fixtures;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
pub mod heard;
mod library;
mod reloading;
mod schema;
pub mod self_test;
mod watch;
mod worker;
mod wrap;

pub use content::Content;
pub use engine::{CALL_FUEL, CallError, Called, Engine, Execution, LoadError, Module, PolicyInfo};
pub use engine::{UNPACKED_BYTES_MAX, digest, unpacked};
pub use files::{Directories, FilesError, PolicyFile, PolicyFiles, mounted};
pub use files::{check_file_name, legal_name, read_file};
pub use library::{Answering, Budget, Instead, Library, Refusal, Reload, ReloadOutcome, Unfit};
pub use reloading::Reloading;
pub use schema::check as check_schema;
pub use watch::watch_directories;
pub use worker::{Escape, PolicyWorker, Workers, memory_bytes, serve as serve_worker};
