//! What tests read of the log.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it should be"
)]

use std::io;
use std::sync::{Arc, Mutex};

use tracing::dispatcher::DefaultGuard;
use tracing::{Dispatch, Level};

use crate::lines::{Clean, Form, Lines};

/// What `act` writes to the log, a line for each event, beginning with its level.
pub fn log_of<T>(act: impl FnOnce() -> T) -> (T, Vec<String>) {
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let sink = Sink::default();
    let writer = sink.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    // With one subscriber alone, what another test's thread reaches first would be switched off for this thread too.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let result = tracing::subscriber::with_default(subscriber, act);
    let bytes = sink.0.lock().unwrap().clone();
    (
        result,
        String::from_utf8(bytes)
            .unwrap()
            .lines()
            .map(|line| line.trim().to_owned())
            .collect(),
    )
}

/// What was written until now.
#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    /// All of it, whole lines and the begun one.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log as the program writes it in this form, from `level` on, into `sink`.
pub fn dispatch(form: Form, level: Level, lines: &'static Lines, sink: &Sink) -> Dispatch {
    let writer = sink.clone();
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    match form {
        Form::Json => {
            let builder = builder.json().flatten_event(true);
            let clean = |format| Clean::new(format, form, lines);
            Dispatch::new(builder.map_event_format(clean).finish())
        }
        Form::Text | Form::Colours => {
            let clean = |format| Clean::new(format, form, lines);
            Dispatch::new(builder.map_event_format(clean).finish())
        }
    }
}

/// What this thread writes to a log of this form, with every detail.
pub fn heard(form: Form) -> (Sink, DefaultGuard) {
    let sink = Sink::default();
    let dispatch = dispatch(form, Level::DEBUG, &ENDLESS, &sink);
    (sink, tracing::dispatcher::set_default(&dispatch))
}

/// That of no loop: without an end.
pub static ENDLESS: Lines = Lines::new();
