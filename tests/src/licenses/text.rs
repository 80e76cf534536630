//! `THIRD-PARTY.txt`: a line for each library, and each text of a licence once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use spdx::{Expression, ParseMode};

use super::{Library, Shipped};

/// A text, and the libraries that have it.
struct Text {
    text: String,
    of: Vec<String>,
}

/// Texts in the order in which they were first needed.
#[derive(Default)]
struct Texts {
    all: Vec<Text>,
    /// By their words: some copies differ in how lines are broken.
    known: BTreeMap<String, usize>,
}

/// What stands beside the program as `licenses/THIRD-PARTY.txt`. `architecture` is in the words of Rust. The same libraries give the same bytes.
///
/// # Errors
///
/// A library has no licence, or one that SPDX does not know; a file cannot be read.
pub fn third_party(
    shipped: Shipped,
    architecture: &str,
    libraries: &[Library],
) -> Result<String, String> {
    let mut texts = Texts::default();
    let mut list = String::new();
    for library in libraries {
        let line =
            line(library, &mut texts).map_err(|reason| format!("{}: {reason}", library.title()))?;
        list.push_str(&line);
    }
    let mut out = format!(
        "Software by others in {} of kproxide for linux/{architecture}\n\n\
         kproxide itself is licensed under Apache-2.0. Below is a line for each library that it and its built-in policies are made of: its\n\
         licence, and the numbers of the texts that follow. The GNU C Library is linked statically. With kproxide's sources, and cargo as\n\
         its README says, you can link kproxide with another version of that library.\n\n{list}",
        shipped.title()
    );
    for (index, Text { text, of }) in texts.all.iter().enumerate() {
        let rule = "-".repeat(80);
        let (number, of) = (index + 1, of.join(", "));
        write!(out, "\n{rule}\nText {number}, of {of}\n{rule}\n\n{text}\n")
            .map_err(|error| error.to_string())?;
    }
    Ok(out)
}

/// `NAME VERSION: LICENCE; text 1`, and the authors where the texts do not name them.
fn line(library: &Library, texts: &mut Texts) -> Result<String, String> {
    let license = library.license.as_deref();
    let (files, has_one_of_all) = library.license_files().map_err(|error| error.to_string())?;
    let mut numbers = Vec::new();
    for file in files {
        let text = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        numbers.push(texts.number(&String::from_utf8_lossy(&text), library));
    }
    let mut authors = String::new();
    if !has_one_of_all {
        for text in standard(license.ok_or("it has neither a licence nor a file with one")?)? {
            numbers.push(texts.number(text, library));
        }
        authors = format!(
            "; it is by {}, and has no file of its own",
            library.authors.join(", ")
        );
    }
    numbers.sort_unstable();
    numbers.dedup();
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    Ok(format!(
        "{}: {}; text {}{authors}\n",
        library.title(),
        license.unwrap_or("as its text says"),
        numbers.join(", ")
    ))
}

/// The standard texts of all licences of an expression.
fn standard(license: &str) -> Result<Vec<&'static str>, String> {
    let expression = Expression::parse_mode(license, ParseMode::LAX)
        .map_err(|error| format!("{license:?} is no SPDX expression: {}", error.reason))?;
    let mut texts = Vec::new();
    for needed in expression.requirements() {
        let unknown = || format!("SPDX has no text for {}", needed.req);
        texts.push(needed.req.license.id().ok_or_else(unknown)?.text());
        if let Some(addition) = &needed.req.addition {
            texts.push(addition.id().ok_or_else(unknown)?.text());
        }
    }
    Ok(texts)
}

impl Texts {
    fn number(&mut self, text: &str, library: &Library) -> usize {
        let words: Vec<&str> = text
            .trim_start_matches('\u{feff}')
            .split_whitespace()
            .collect();
        let all = &mut self.all;
        let index = *self.known.entry(words.join(" ")).or_insert_with(|| {
            let lines = text.trim_start_matches('\u{feff}').trim_end().lines();
            let lines: Vec<&str> = lines.map(str::trim_end).collect();
            all.push(Text {
                text: lines.join("\n"),
                of: Vec::new(),
            });
            all.len() - 1
        });
        let of = &mut all[index].of;
        if of.last() != Some(&library.title()) {
            of.push(library.title());
        }
        index + 1
    }
}
