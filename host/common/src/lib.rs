//! What every part of kproxide above the planner needs, and no more: time, texts, names and counters.
//!
//! It alone knows how a foreign text is cleaned before it leaves the process, and how much the log may say in one turn. The most important:
//! [`clock::Clock`], [`foreign::Out`], [`decisions::Decisions`], [`metrics::ClusterRequests`], [`labels::LabelError`].

// In reading order: rustfmt sorts within a group only.
pub mod clock;

pub mod chain;
pub mod hex;
pub mod paths;
pub mod period;

pub mod labels;

pub mod foreign;
pub mod lines;

pub mod decisions;
pub mod metrics;

#[cfg(any(test, feature = "fixtures"))]
#[doc(hidden)]
pub mod captured;
#[cfg(feature = "fixtures")]
#[doc(hidden)]
pub mod mutate;
