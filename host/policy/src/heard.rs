//! What policies say, kept for the person who runs one, who has no log to look at.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// How the messages of lines that policies write begin.
const SAYS: &str = "policy says";

/// One line that a policy wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// `debug`, `info` or `warn`; an error of a policy is a warning.
    pub level: String,
    pub text: String,
    /// The name under which it was asked.
    pub policy: String,
}

/// The lines since they were last taken. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Vec<Line>>>);

impl Heard {
    /// Listens to what runs on this thread until the guard goes; nothing else is logged there meanwhile.
    pub fn listen() -> (Self, DefaultGuard) {
        let heard = Self::default();
        let subscriber = tracing_subscriber::registry().with(heard.clone());
        (heard, tracing::subscriber::set_default(subscriber))
    }

    pub fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Subscriber> Layer<S> for Heard {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("kproxide_policy")
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if !fields.message.starts_with(SAYS) {
            return;
        }
        let line = Line {
            level: event.metadata().level().to_string().to_lowercase(),
            // What has no line is about lines.
            text: fields.line.unwrap_or(fields.message),
            policy: fields.policy,
        };
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line);
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    line: Option<String>,
    policy: String,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "line" => self.line = Some(value.to_owned()),
            "policy" => value.clone_into(&mut self.policy),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            // Writing to a String cannot fail.
            "message" => drop(write!(self.message, "{value:?}")),
            "line" => self.line = Some(format!("{value:?}")),
            _ => {}
        }
    }
}
