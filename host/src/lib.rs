//! The program: its command line, its log, and what comes from the operating system.
//!
//! All else is in the crates below: `planner` decides, `kube`, `pve` and `policy` know what they are named for, `controller` joins them, `tools` are the
//! commands for people. The most important: [`cli::main`], [`cli::command`], [`cli::Cli`], [`cli::Command`], [`telemetry::start`].

#![cfg_attr(
    test,
    allow(
        clippy::wildcard_enum_match_arm,
        reason = "a test names the variant that it expects and shows any other"
    )
)]

// In reading order: rustfmt sorts within a group only.
pub mod cli;

pub mod telemetry;
