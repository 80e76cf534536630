//! Words that are not ours: of pods, Nodes, guests, Proxmox, the API server with its webhooks, and policies. Whoever wrote them may want to hide a warning,
//! write to somebody's clipboard, or fill a screen. They are cleaned where they come in, and whatever kproxide says is cleaned once more where it goes out:
//!
//! ```text
//! pods, Nodes, Proxmox, API server ── value, said ──►              ┌─ shown ─► Events, conditions, a command's lines
//! policies ──────────────────────────── line ───────►  kproxide ──┼─ json ──► -o json
//! guests ────────────────────────────── output ─────►              └─ log ───► the log (telemetry.rs)
//! ```
//!
//! What is taken out becomes U+FFFD, which no label may hold: no value comes to match one. Text without any of it is borrowed as it is.

mod output;
mod writer;

use std::borrow::Cow;

pub use output::{end_of, output, start_of, without_secrets};
pub use writer::Out;

/// In the place of what is taken out.
const TAKEN_OUT: char = char::REPLACEMENT_CHARACTER;
/// Of each foreign text: enough for a sentence.
pub const LETTERS_MAX: usize = 200;
/// Of a label's key: Kubernetes takes a domain, a slash and a name.
pub const KEY_LETTERS_MAX: usize = 253 + 1 + 63;
/// Of what a guest prints, the end: there it says what went wrong.
pub const OUTPUT_BYTES_MAX: usize = 800;
/// After it something was left out. No label may hold it.
const LEFT_OUT: &str = "…";

// === Entrances ===

/// A value as it stands in an object, such as that of a label which a pod asks for: [`LETTERS_MAX`] letters, each of which can be seen.
pub fn value(text: &str) -> Cow<'_, str> {
    bounded(text, LETTERS_MAX)
}

/// The key of a label, as [`value`], but of [`KEY_LETTERS_MAX`] letters.
pub fn key(text: &str) -> Cow<'_, str> {
    bounded(text, KEY_LETTERS_MAX)
}

fn bounded(text: &str, letters_max: usize) -> Cow<'_, str> {
    match first_letters(text, letters_max) {
        Some(first) => Cow::Owned(format!("{}{LEFT_OUT}", visible(first))),
        None => visible(text),
    }
}

/// A sentence, as [`value`].
pub fn said(text: &str) -> String {
    value(text.trim()).into_owned()
}

/// A sentence that is still to be read by the program: as long as it is.
pub fn visible(text: &str) -> Cow<'_, str> {
    replaced(text, |c| !is_visible(c))
}

/// A sentence of a policy: as [`said`], but of so many bytes, cut at a letter.
pub fn line(text: &str, bytes_max: usize) -> String {
    let text = &text[..text.floor_char_boundary(bytes_max)];
    let mut line = visible(text.trim()).into_owned();
    // What stands in the place of a byte has three.
    line.truncate(line.floor_char_boundary(bytes_max));
    line
}

/// So many letters. `None`: there are no more.
fn first_letters(text: &str, letters_max: usize) -> Option<&str> {
    // A letter has a byte at least.
    if text.len() <= letters_max {
        return None;
    }
    let (end, _) = text.char_indices().nth(letters_max)?;
    Some(&text[..end])
}

// === Exits ===

/// Lines that kproxide has written. Colours come after this.
pub fn shown(text: &str) -> Cow<'_, str> {
    replaced(text, |c| c != '\n' && acts(c))
}

/// A line of the log: where it ends is for the log to say.
pub fn log(text: &str) -> Cow<'_, str> {
    replaced(text, acts)
}

/// A text of JSON. In the strings too nothing is left that acts once they are printed, apart from the line breaks of our texts.
pub fn json(text: &str) -> Cow<'_, str> {
    let shown = shown(text);
    // Whoever writes JSON escapes what comes before the space, and nothing else.
    let mut pieces = shown.split('\\');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    let mut is_changed = false;
    while let Some(piece) = pieces.next() {
        match piece.as_bytes().first() {
            // A backslash itself: the next piece is no escape.
            None => {
                whole += r"\\";
                whole += pieces.next().unwrap_or_default();
            }
            Some(b'b' | b'f' | b'r' | b't') => {
                whole.push(TAKEN_OUT);
                whole += &piece[1..];
                is_changed = true;
            }
            Some(b'u') if piece.get(1..5).is_some_and(is_of_what_acts) => {
                whole.push(TAKEN_OUT);
                whole += &piece[5..];
                is_changed = true;
            }
            Some(_) => {
                whole.push('\\');
                whole += piece;
            }
        }
    }
    match is_changed {
        true => Cow::Owned(whole),
        false => shown,
    }
}

/// Four hexadecimal digits of an escape.
fn is_of_what_acts(digits: &str) -> bool {
    let number = u32::from_str_radix(digits, 16).ok();
    number.and_then(char::from_u32).is_some_and(acts)
}

/// A text of JSON for programs, which reads as it did: what would act on a terminal is escaped.
pub fn escaped_json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c != '\n' && acts(c)) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c != '\n' && acts(c) {
            true => escaped += &format!("\\u{:04x}", u32::from(c)),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

// === Letters ===

fn replaced(text: &str, is_taken_out: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Nearly all texts are such.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain || !text.chars().any(&is_taken_out) {
        return Cow::Borrowed(text);
    }
    let clean = text.chars();
    let clean = clean.map(|c| if is_taken_out(c) { TAKEN_OUT } else { c });
    Cow::Owned(clean.collect())
}

/// It moves the cursor or speaks to the terminal, ends a line, or turns the direction of reading.
fn acts(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A space, or a letter with a shape. What has none hides text from people that programs see.
fn is_visible(c: char) -> bool {
    // Letters and marks without a shape: variation selectors, fillers, the blank of Braille.
    let is_blank = matches!(
        c,
        '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'
    );
    if c.is_ascii() || is_blank {
        return matches!(c, ' '..='~');
    }
    // The standard library escapes what Unicode calls a control, a format, a separator, private or unassigned. An accent it leaves alone behind a letter.
    let mut behind_a_letter = [b'a', 0, 0, 0, 0];
    let end = 1 + c.encode_utf8(&mut behind_a_letter[1..]).len();
    str::from_utf8(&behind_a_letter[..end]).is_ok_and(|text| text.escape_debug().count() == 2)
}

#[cfg(test)]
mod tests;
