//! An error with its causes in one line, for logs, conditions and Events.

use std::error::Error;

/// Some libraries' errors repeat their source: what the line says already is not said again.
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !line.contains(&words) {
            line.push_str(": ");
            line.push_str(&words);
        }
        source = cause.source();
    }
    line
}
