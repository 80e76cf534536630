//! An error with its causes in one line, for logs, conditions and Events.

use std::error::Error;

/// Some libraries' errors repeat their source: what the line says already is not said again.
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        // rustls points its developers to a page. An operator has nothing from it.
        let words = words.split(": https://docs.rs/").next().unwrap_or_default();
        if !line.contains(words) {
            line.push_str(": ");
            line.push_str(words);
        }
        source = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no answer")]
    struct NoAnswer(#[source] io::Error);

    #[test]
    fn o11_a_page_for_developers_is_left_out() {
        let text = "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/index.html#unexpected-eof";
        let error = NoAnswer(io::Error::other(text));
        assert_eq!(
            chain(&error),
            "no answer: peer closed connection without sending TLS close_notify"
        );
    }
}
