//! What a guest prints. It may hold secrets of the class's join script.

use super::{LEFT_OUT, visible};

/// In the place of what may be a secret.
const HIDDEN: &str = "[hidden]";
/// A shorter word of the script is not hidden: it is rather a name than a secret.
const SECRET_BYTES: usize = 16;
/// What follows such a word is hidden.
const SECRETS: [&str; 7] = [
    "token",
    "bearer",
    "password",
    "passwd",
    "secret",
    "hash",
    "authorization",
];

/// Its lines as one, without the sequences that colour a terminal, and without what may be a secret of the script.
pub fn output(text: &str, script: &str) -> String {
    let lines = uncoloured(text);
    let lines = lines.lines().map(|line| without_secrets(line, script));
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    lines.join(" | ")
}

/// Programs print sequences and tabs for people at a terminal: without these their words stay whole.
fn uncoloured(text: &str) -> String {
    let mut plain = String::new();
    let mut is_in_sequence = false;
    for letter in text.chars() {
        match letter {
            '\u{1b}' => is_in_sequence = true,
            // The bracket begins the sequence, a letter ends it.
            _ if is_in_sequence && letter != '\n' => {
                is_in_sequence = !letter.is_ascii_alphabetic();
            }
            // A carriage return is how progress is shown: on one line of a terminal.
            '\n' | '\r' => {
                is_in_sequence = false;
                plain.push('\n');
            }
            '\t' => plain.push(' '),
            _ => plain.push(letter),
        }
    }
    plain
}

/// One line, perhaps cut at its end. Hides a word of the script that is long and no path or address, and whatever follows a word such as `token`.
pub fn without_secrets(line: &str, script: &str) -> String {
    let line = visible(line);
    let mut words = Vec::new();
    let mut is_named_before = false;
    for word in line.split_whitespace() {
        let mut parts = word.split(['=', '"', '\'', ',', ';']);
        let is_of_script = parts.any(|part| may_be_secret(part, script));
        let named = name_of_secret(word);
        let hides = match named {
            Some(name) => word.len() > name,
            None => is_named_before || is_of_script,
        };
        words.push(match (hides, named) {
            (true, Some(name)) => format!("{}{HIDDEN}", &word[..name]),
            (true, None) => HIDDEN.to_owned(),
            (false, _) => word.to_owned(),
        });
        is_named_before = named.is_some_and(|name| name == word.len());
    }
    words.join(" ")
}

fn may_be_secret(part: &str, script: &str) -> bool {
    // However little is left of it: more may stand in the script.
    let (part, least) = match part.strip_suffix(LEFT_OUT) {
        Some(start) => (start, 1),
        None => (part, SECRET_BYTES),
    };
    part.len() >= least && !is_path(part) && script.contains(part)
}

/// `/etc/rancher`, `./install`, `https://get.k3s.io`, `ghcr.io/k3s:1`. A slash alone proves nothing: letters of Base64 have it too.
fn is_path(part: &str) -> bool {
    let is_of_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    let host = part.split_once('/').map(|(host, _)| host);
    let has_host = host.is_some_and(|host| host.contains('.') && host.chars().all(is_of_host));
    part.starts_with('/') || part.starts_with("./") || part.contains("://") || has_host
}

/// The bytes of `--token=` in `--token=abc`, of `password:` in `password:`.
fn name_of_secret(word: &str) -> Option<usize> {
    let end = word.find(['=', ':']).map_or(word.len(), |at| at + 1);
    let name = word[..end].to_ascii_lowercase();
    let name = name.trim_end_matches(['=', ':', '"', '\'']);
    SECRETS
        .iter()
        .any(|secret| name.ends_with(secret))
        .then_some(end)
}

/// Its first whole words.
pub fn start_of(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max);
    let whole = text[..end].rfind(char::is_whitespace).unwrap_or(end);
    format!("{}{LEFT_OUT}", &text[..whole])
}

/// Its last whole words.
pub fn end_of(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let start = text.ceil_char_boundary(text.len() - bytes_max);
    let whole = text[start..]
        .find(char::is_whitespace)
        .map_or(start, |at| start + at + 1);
    format!("{LEFT_OUT} {}", &text[whole..])
}
