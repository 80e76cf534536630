//! The lines of the log: clean, bounded, and not too many.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::foreign;

/// Lines that one place of the program writes with each turn of the loop, as many as Events that are written at once. More pods than that may wait, each in
/// its own way.
pub const LINES_MAX: u32 = 200;
/// Of a line, or of one text of a line of JSON. An answer of Proxmox has megabytes.
const BYTES_MAX: usize = 4 << 10;

/// How many lines each place of the program has written since the loop turned. `None`: there is no loop, such as in a command.
pub struct Lines(Mutex<Option<Turn>>);

#[derive(Default)]
struct Turn {
    written: HashMap<Identifier, u32>,
    left_out: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl Lines {
    /// Without an end until the first turn.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// How many lines were left out since the last turn.
    pub fn turn(&self) -> u64 {
        let mut turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turn.replace(Turn::default()).map_or(0, |it| it.left_out)
    }

    fn admit(&self, place: Identifier) -> bool {
        let mut turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Turn { written, left_out }) = &mut *turn else {
            return true;
        };
        let written = written.entry(place).or_default();
        let is_admitted = *written < LINES_MAX;
        match is_admitted {
            true => *written += 1,
            false => *left_out += 1,
        }
        is_admitted
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// The level has a colour.
    Colours,
    Json,
}

/// Cleans what `format` writes.
pub struct Clean<'l, F> {
    format: F,
    form: Form,
    lines: &'l Lines,
}

impl<'l, F> Clean<'l, F> {
    pub fn new(format: F, form: Form, lines: &'l Lines) -> Self {
        Self {
            format,
            form,
            lines,
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for Clean<'_, F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !self.lines.admit(event.metadata().callsite()) {
            return Ok(());
        }
        let mut line = String::new();
        self.format
            .format_event(context, Writer::new(&mut line), event)?;
        let line = line.strip_suffix('\n').unwrap_or(&line);
        let level = *event.metadata().level();
        match self.form {
            Form::Json => writeln!(writer, "{}", foreign::json(&cut_json(line))),
            Form::Text => writeln!(writer, "{}", foreign::log(&cut(line))),
            Form::Colours => {
                let (word, colour) = (level.as_str(), colour(level));
                let coloured = format!("\x1b[{colour}m{word}\x1b[0m");
                let line = cut(line);
                // Nothing is before it but the time.
                let line = foreign::log(&line).replacen(word, &coloured, 1);
                writeln!(writer, "{line}")
            }
        }
    }
}

fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(BYTES_MAX);
    match text.len() - end {
        0 => text.to_owned(),
        more => format!("{}… ({more} bytes more)", &text[..end]),
    }
}

fn cut_json(line: &str) -> String {
    fn each(value: &mut Value) {
        match value {
            Value::String(text) => *text = cut(text),
            Value::Array(values) => values.iter_mut().for_each(each),
            Value::Object(fields) => fields.values_mut().for_each(each),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    if line.len() <= BYTES_MAX {
        return line.to_owned();
    }
    match serde_json::from_str::<Value>(line) {
        Ok(mut value) => {
            each(&mut value);
            value.to_string()
        }
        Err(_) => cut(line),
    }
}

/// Of the log of this process.
pub static LINES: Lines = Lines::new();

/// A tick begins: the log may say as much again. What it had to leave out is counted.
pub fn turn() {
    let left_out = LINES.turn();
    if left_out > 0 {
        tracing::warn!(
            lines = left_out,
            "the log left lines out: of one kind it has at most {LINES_MAX} with each tick"
        );
    }
}

#[cfg(test)]
pub mod tests;
