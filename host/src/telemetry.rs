//! Logs: one subscriber for the process, structured, to standard error.
//!
//! Messages are constant; data travels in fields from a fixed vocabulary (`pod node claim pool hypervisor vmid upid`; words for people are `text`). INFO is a change that a user
//! would notice, WARN is worth an alert if frequent, ERROR says that an invariant of ours broke.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use kproxide_common::lines::{Clean, Form, LINES};
use kproxide_controller::args::LogFormat;

/// Starts logging for the whole process; called once, by `main`.
///
/// # Errors
/// The filter cannot be parsed.
pub fn start(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::try_new(filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A line gets its colour once it is clean.
        .with_ansi(false)
        .with_writer(std::io::stderr);
    // Colours are for people at a terminal.
    let form = match format {
        LogFormat::Json => Form::Json,
        LogFormat::Text if std::io::stderr().is_terminal() => Form::Colours,
        LogFormat::Text => Form::Text,
    };
    match format {
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true);
            let clean = |lines| Clean::new(lines, form, &LINES);
            builder.map_event_format(clean).init();
        }
        LogFormat::Text => {
            let clean = |lines| Clean::new(lines, form, &LINES);
            builder.map_event_format(clean).init();
        }
    }
    Ok(())
}
