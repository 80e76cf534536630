//! What a kproxide policy is written with.
//!
//! A policy is a WebAssembly component that answers one kind of question for kproxide. Its author names it
//! ([`Policy`]), answers the question as a plain function of the facts given ([`HostSelection`], [`ScaleDown`] or
//! [`Labels`]) and exports the type in one line:
//!
//! ```
//! use kproxide_policy_sdk::{About, Candidate, Context, HostSelection, NoSettings, Policy, PolicyError, Ranking, Request, percent};
//!
//! pub struct Quiet;
//!
//! impl Policy for Quiet {
//!     const ABOUT: About = About {
//!         name: "quiet",
//!         version: "1.0.0",
//!         description: "the hypervisor whose CPU has least to do",
//!         settings_schema: NoSettings::SCHEMA,
//!     };
//!     type Settings = NoSettings;
//! }
//!
//! impl HostSelection for Quiet {
//!     fn rank(_: &Context, _: &NoSettings, _: &Request, candidates: &[Candidate]) -> Result<Ranking, PolicyError> {
//!         Ok(Ranking::by_score(candidates, |c| (c.cpu_share(), format!("{} % of the CPU is idle", percent(c.cpu_share())))))
//!     }
//! }
//!
//! kproxide_policy_sdk::export_host_selection!(Quiet);
//! ```
//!
//! The reference of all facts and answers is `wit/policy.wit`; the types here are generated from it. A policy imports
//! nothing but [`log`]: no clock, no random numbers, no files, no network. The same function runs natively, so a policy
//! is tested with `cargo test` and the [`testkit`].
//!
//! Build with `cargo build --target wasm32-unknown-unknown` and `wasm-component-ld` (part of every rustup toolchain) as
//! the linker; `policies/README.md` shows all of it.

mod answers;
#[doc(hidden)]
pub mod bindings;
pub mod call;
mod export;
mod facts;
pub mod log;
mod policy;
mod settings;
pub mod testkit;

pub use bindings::host_selection::exports::kproxide::policy::host_selection::{
    Placement, Ranking, Rejection, Request,
};
pub use bindings::host_selection::kproxide::policy::types::{
    Attribute, Candidate, Context, Hypervisor, HypervisorId, Info, Machine, PolicyError, Resources,
    Value,
};
pub use bindings::labels::exports::kproxide::policy::labels::{Decoration, Taint};
pub use bindings::scale_down::exports::kproxide::policy::scale_down::{Node, Plan, Removal};
pub use facts::percent;
pub use policy::{About, HostSelection, Labels, Policy, ScaleDown};
pub use settings::{NoSettings, Settings};

/// What the export macros expand to, beside `bindings`. Not for use by hand.
#[doc(hidden)]
pub use export::{HostSelectionComponent, LabelsComponent, ScaleDownComponent};

/// The sample of `policies/README.md`, compiled, and its test run, as a test of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The policy of the front page, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;
