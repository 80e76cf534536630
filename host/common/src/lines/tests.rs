use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use super::*;
use crate::captured::{ENDLESS, Sink, dispatch};

fn log_of(form: Form, lines: &'static Lines, act: impl FnOnce()) -> String {
    let sink = Sink::default();
    // With one subscriber alone, what another test's thread reaches first would be switched off for this thread too.
    let _second = Dispatch::new(NoSubscriber::default());
    let dispatch = dispatch(form, Level::INFO, lines, &sink);
    tracing::dispatcher::with_default(&dispatch, act);
    sink.text()
}

#[test]
fn s6_a_line_of_the_log_is_one_line_and_does_nothing_to_a_terminal() {
    let hostile = "a\u{1b}]52;c;aGk=\u{7}\u{9b}31m\u{202e}\nINFO b";
    let act = || {
        let span = tracing::info_span!("of", hostile);
        let _entered = span.enter();
        tracing::warn!(text = hostile, shown = %hostile, "{hostile}");
    };
    for form in [Form::Text, Form::Colours, Form::Json] {
        let log = log_of(form, &ENDLESS, act);
        let line = log.strip_suffix('\n').unwrap();
        let line = line.replacen("\u{1b}[33mWARN\u{1b}[0m", "WARN", 1);
        assert_eq!(foreign::log(&line), line, "{form:?}");
        assert!(line.contains("]52;c;aGk=\u{fffd}"), "{line}");
        assert_eq!(
            form == Form::Colours,
            log.contains("\u{1b}[33mWARN\u{1b}[0m")
        );
        if form == Form::Json {
            let read: Value = serde_json::from_str(&line).unwrap();
            assert!(!read["shown"].as_str().unwrap().contains('\u{1b}'));
        }
    }
}

#[test]
fn s5_an_answer_of_megabytes_is_cut_at_4_kib() {
    let body = "ä".repeat(3 << 20);
    for form in [Form::Text, Form::Json] {
        let log = log_of(form, &ENDLESS, || {
            tracing::info!(body, after = 7, "answered")
        });
        assert!(log.len() < BYTES_MAX + 300, "{}", log.len());
        assert!(log.contains("bytes more)"), "{log}");
        if form == Form::Json {
            let read: Value = serde_json::from_str(&log).unwrap();
            assert_eq!(
                (&read["after"], &read["message"]),
                (&7.into(), &"answered".into())
            );
        }
    }
}

#[test]
fn s4_a_tick_writes_200_lines_of_a_kind_and_the_rest_is_counted() {
    static LINES: Lines = Lines::new();
    let log = log_of(Form::Text, &LINES, || {
        // No loop turns yet.
        for pod in 0..1_000 {
            tracing::info!(pod, "early");
        }
        assert_eq!(LINES.turn(), 0);
        for tick in 0..2 {
            for pod in 0..10_000 {
                tracing::info!(pod, "pending");
            }
            tracing::warn!("of another kind");
            assert_eq!(LINES.turn(), 9_800, "{tick}");
        }
        assert_eq!(LINES.turn(), 0);
    });
    let lines = |word: &str| log.lines().filter(|line| line.contains(word)).count();
    assert_eq!(
        (lines("early"), lines("pending"), lines("of another")),
        (1_000, 400, 2)
    );
}
