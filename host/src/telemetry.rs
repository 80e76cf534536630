//! Logs: one subscriber for the process, structured, to standard error.
//!
//! Messages are constant; data travels in fields from a fixed vocabulary (`pod node claim pool hypervisor vmid upid`; words for people are `text`). INFO is a change that a user
//! would notice, WARN is worth an alert if frequent, ERROR says that an invariant of ours broke.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::args::LogFormat;

/// Starts logging for the whole process; called once, by `main`.
///
/// # Errors
/// The filter cannot be parsed.
pub fn start(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::try_new(filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Colours are for people at a terminal.
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder.init(),
    }
    Ok(())
}
