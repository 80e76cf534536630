//! Where the actions of a template are, and whether its blocks fit together.
//!
//! The engine's parser asks for neither: at an `end` too many it stops and drops the rest, a block without an `end` lasts
//! to the end of the text, and a chain of `else if` nests without a limit. So this is judged before it parses.

use std::borrow::Cow;

/// How deep blocks nest, each `else if` counted: the engine recurses on them, and its stack has an end.
const NESTING_MAX: usize = 64;

/// A part of a template: text, or what stands between `{{` and `}}`, these included.
pub(crate) struct Piece<'a> {
    pub(crate) at: usize,
    pub(crate) text: &'a str,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Comment,
    Action,
    /// An action that nothing closes: it lasts to the end.
    Unclosed,
    /// An action that Go would not read, and why.
    Wrong(&'static str),
}

/// All of `text`, in order.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        // In a component, a search for a text takes many times as long.
        let opens = rest.as_bytes().windows(2).position(|two| two == b"{{");
        let (length, kind) = match opens {
            Some(0) => action(rest),
            Some(length) => (length, Kind::Text),
            None if rest.is_empty() => return None,
            None => (rest.len(), Kind::Text),
        };
        let piece = Piece {
            at,
            text: &rest[..length],
            kind,
        };
        at += length;
        Some(piece)
    })
}

/// How long the action is that `rest` begins with.
fn action(rest: &str) -> (usize, Kind) {
    let wrong = |why| (rest.len(), Kind::Wrong(why));
    let inside = inside(rest);
    if let Some(comment) = inside.strip_prefix("/*") {
        let end = comment.split_once("*/").and_then(|(_, end)| {
            let trimmed = end.strip_prefix(IS_SPACE).unwrap_or(end);
            end.strip_prefix("}}")
                .or_else(|| trimmed.strip_prefix("-}}"))
        });
        let unclosed = wrong("this comment does not end with */}} or */ -}}");
        return end.map_or(unclosed, |end| (rest.len() - end.len(), Kind::Comment));
    }
    if inside.trim_start_matches(IS_SPACE).starts_with("/*") {
        return wrong("this comment does not begin with {{/* or {{- /*");
    }
    let word = word(inside.trim_start_matches(IS_SPACE));
    let mut why = None;
    let mut quote = None;
    let mut bytes = rest.bytes().enumerate().skip(2);
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(b'"' | b'\''), b'\\') => {
                bytes.next();
                if quote == Some(b'"') && !is_escape(&rest.as_bytes()[at + 1..]) {
                    why = Some(r"a \ in a text begins no escape of Go, such as \n or \u00e4");
                }
            }
            (Some(open), byte) if open == byte => quote = None,
            (Some(b'"' | b'\''), b'\n') => {
                why = Some(r"a text ends with its line: write \n, or put it between `");
            }
            (Some(_), _) => {}
            (None, byte) => {
                if is_glued(word, &rest.as_bytes()[at - 2..=at]) {
                    why = Some("a space is missing between two values");
                }
                if rest.as_bytes()[at..].starts_with(b"}}") {
                    return (at + 2, why.map_or(Kind::Action, Kind::Wrong));
                }
                quote = Some(byte).filter(|byte| b"\"'`".contains(byte));
            }
        }
    }
    (rest.len(), Kind::Unclosed)
}

/// Whether what follows a \ in a text belongs to it. A single byte that is no character is left out: no label has one.
fn is_escape(rest: &[u8]) -> bool {
    let number = |digits: Option<&[u8]>, radix| {
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
    };
    let is_ascii = |number: Option<u32>| number.is_some_and(|number| number < 0x80);
    let is_char =
        |number: Option<u32>| number.is_some_and(|number| char::from_u32(number).is_some());
    match rest.first() {
        Some(b'x') => is_ascii(number(rest.get(1..3), 16)),
        Some(b'u') => is_char(number(rest.get(1..5), 16)),
        Some(b'U') => is_char(number(rest.get(1..9), 16)),
        Some(b'0'..=b'7') => is_ascii(number(rest.get(..3), 8)),
        Some(simple) => b"abfnrtv\\\"".contains(simple),
        None => false,
    }
}

/// Whether a value ends and the next one begins at once, which the engine takes for two and Go for a mistake. The last of
/// these three bytes stands outside of texts, in an action that begins with `word`.
fn is_glued(word: &str, bytes: &[u8]) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = |byte: u8| b"($\"'`".contains(&byte);
    let is_keyword = matches!(word, "if" | "with" | "range" | "else");
    match *bytes {
        [_, b')', byte] => is_word(byte) || begins(byte),
        [_, b'"' | b'`', b'.'] => !matches!(word, "block" | "template"),
        [_, b'"' | b'\'' | b'`', byte] => is_word(byte) || begins(byte),
        // A name ends, or a lone dot.
        [b')' | b'$' | b'_' | b'a'..=b'z' | b'A'..=b'Z', b'.', byte] if !is_keyword => {
            !is_word(byte) && byte.is_ascii()
        }
        [_, b'.', byte] => begins(byte) || byte == b'.',
        [_, _, b'('] if is_keyword => false,
        [_, before, byte] => is_word(before) && begins(byte),
        _ => false,
    }
}

const IS_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// What follows `{{`, or the `{{- ` that cuts off the space before it.
fn inside(action: &str) -> &str {
    let inside = action.get(2..).unwrap_or_default();
    let cut = inside.strip_prefix('-');
    cut.and_then(|inside| inside.strip_prefix(IS_SPACE))
        .unwrap_or(inside)
}

/// The word that an action begins with.
fn word(inside: &str) -> &str {
    let end = inside.find(|c: char| !c.is_alphanumeric() && c != '_');
    &inside[..end.unwrap_or(inside.len())]
}

/// Whether the engine would let the marker on the left of this comment cut off the space on its right too.
fn trims_too_much(comment: &str) -> bool {
    comment.starts_with("{{-") && !comment.ends_with("-}}")
}

/// With empty texts, as long as these, in the place of such comments.
fn without_such_comments(text: &str) -> String {
    let mut without = String::with_capacity(text.len());
    for piece in pieces(text) {
        if piece.kind == Kind::Comment && trims_too_much(piece.text) {
            let inside = piece.text[4..piece.text.len() - 4].bytes();
            let lines = inside.map(|byte| if byte == b'\n' { '\n' } else { ' ' });
            without.push_str("{{- \"\"");
            without.extend(lines);
            without.push_str("}}");
        } else {
            without.push_str(piece.text);
        }
    }
    without
}

/// A block whose `end` has not come yet.
struct Block<'a> {
    word: &'a str,
    at: usize,
    /// Itself, and each `else if` of it.
    depth: usize,
    has_else: bool,
}

/// What the engine may parse: the text, if nothing in it is wrong. Otherwise says where, and how.
pub(crate) fn checked(text: &str) -> Result<Cow<'_, str>, String> {
    let mut is_changed = false;
    let mut open: Vec<Block<'_>> = Vec::new();
    for Piece {
        at,
        text: action,
        kind,
    } in pieces(text)
    {
        let wrong = |why: String| Err(format!("{}: {why}", place(text, at)));
        let none_ends = || format!("{}: no block ends here", place(text, at));
        match kind {
            Kind::Text => continue,
            Kind::Comment => {
                is_changed |= trims_too_much(action);
                continue;
            }
            Kind::Unclosed => return Err(format!("{}: unclosed action", place(text, text.len()))),
            Kind::Wrong(why) => return wrong(why.to_owned()),
            Kind::Action => {}
        }
        let inside = inside(action).trim_start_matches(IS_SPACE);
        let word = word(inside);
        match word {
            "define" if !open.is_empty() => {
                return wrong("a define cannot stand within a block".to_owned());
            }
            "if" | "with" | "range" | "block" | "define" => open.push(Block {
                word,
                at,
                depth: 1,
                has_else: false,
            }),
            "else" => {
                let then = inside["else".len()..].trim_start_matches(IS_SPACE);
                match (open.last_mut(), self::word(then)) {
                    (Some(block), again @ ("if" | "with"))
                        if block.word == again && !block.has_else =>
                    {
                        block.depth += 1;
                    }
                    (Some(block), "")
                        if matches!(block.word, "if" | "with" | "range") && !block.has_else =>
                    {
                        block.has_else = true;
                    }
                    _ => return wrong("no block takes this else".to_owned()),
                }
            }
            "end" => open.pop().map(|_| ()).ok_or_else(none_ends)?,
            "break" | "continue" if !repeats(&open) => {
                return wrong(format!("this {word} stands in no range"));
            }
            _ => {}
        }
        if open.iter().map(|block| block.depth).sum::<usize>() > NESTING_MAX {
            return wrong(format!("blocks nest more than {NESTING_MAX} deep"));
        }
    }
    match open.last() {
        Some(Block { word, at, .. }) => {
            Err(format!("{}: this {word} has no end", place(text, *at)))
        }
        None if is_changed => Ok(Cow::Owned(without_such_comments(text))),
        None => Ok(Cow::Borrowed(text)),
    }
}

/// Whether a `break` here has something to end: a `define` or a `block` is a template of its own, and `else` repeats nothing.
fn repeats(open: &[Block<'_>]) -> bool {
    let template = |block: &&Block<'_>| !matches!(block.word, "define" | "block");
    let mut around = open.iter().rev().take_while(template);
    around.any(|block| block.word == "range" && !block.has_else)
}

/// For people: both count from 1, columns in characters.
pub(crate) fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    format!(
        "line {}, column {}",
        before.matches('\n').count() + 1,
        line.chars().count() + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(), &str>) {
        let expected = expected.map_err(str::to_owned);
        assert_eq!(checked(text).map(|_| ()), expected, "{text}");
    }

    #[test]
    fn blocks_that_fit() {
        for text in [
            "",
            "}} {",
            "{{ if .A }}a{{ else if .B }}b{{ else }}c{{ end }}{{ with .A }}{{ else with .B }}{{ end }}",
            "{{ range 3 }}{{ if . }}{{ break }}{{ end }}{{ continue }}{{ else }}x{{ end }}",
            "{{ define `a` }}{{ block `b` . }}{{ end }}{{ end }}{{ define `c` }}{{ end }}",
            "{{- end_of -}}{{ endless }}{{/* end */}}{{- /* {{ end }} */ -}}{{ \"{{ end }}\" }}",
            "{{ print '\"' `}}` \"\\\"}}\" (.Zone).x $x.y -1 }}{{.Zone|print .}}{{$x:=1}}{{- .5}}{{1. | print . ü.ü}}{{if(.A)}}{{else if(.A)}}{{end}}{{with.}}{{end}}{{template \"a\".}}",
        ] {
            check(text, Ok(()));
        }
    }

    #[test]
    fn one_that_does_not_fit_says_where() {
        for (text, error) in [
            ("a{{ end }}b", "line 1, column 2: no block ends here"),
            (
                "{{ if .A }}{{ end }}\nü{{- end -}}",
                "line 2, column 2: no block ends here",
            ),
            (
                "{{ if .A }}{{ range 3 }}{{ end }}",
                "line 1, column 1: this if has no end",
            ),
            ("{{ else }}", "line 1, column 1: no block takes this else"),
            (
                "{{ if .A }}{{ else }}{{ else }}{{ end }}",
                "line 1, column 22: no block takes this else",
            ),
            (
                "{{ if .A }}{{ else }}{{ else if .B }}{{ end }}",
                "line 1, column 22: no block takes this else",
            ),
            (
                "{{ with .A }}{{ else if .B }}{{ end }}",
                "line 1, column 14: no block takes this else",
            ),
            (
                "{{ define `a` }}{{ else }}{{ end }}",
                "line 1, column 17: no block takes this else",
            ),
            (
                "{{ if .A }}{{ define `a` }}{{ end }}{{ end }}",
                "line 1, column 12: a define cannot stand within a block",
            ),
            (
                "{{ if .A }}{{ break }}{{ end }}",
                "line 1, column 12: this break stands in no range",
            ),
            (
                "{{ range 3 }}{{ block `a` . }}{{ continue }}{{ end }}{{ end }}",
                "line 1, column 31: this continue stands in no range",
            ),
            (
                "{{ range 3 }}{{ else }}{{ break }}{{ end }}",
                "line 1, column 24: this break stands in no range",
            ),
            ("a{{ `}}", "line 1, column 8: unclosed action"),
            (
                "{{ /* a */}}",
                "line 1, column 1: this comment does not begin with {{/* or {{- /*",
            ),
            (
                r#"{{ print "a\{" }}"#,
                r"line 1, column 1: a \ in a text begins no escape of Go, such as \n or \u00e4",
            ),
            (
                "{{ print (.Zone)(.Zone) }}",
                "line 1, column 1: a space is missing between two values",
            ),
            (
                "{{ eq.Zone\"a\" }}",
                "line 1, column 1: a space is missing between two values",
            ),
            (
                "{{ $x.Zone. }}",
                "line 1, column 1: a space is missing between two values",
            ),
            (
                "{{ `a`.Zone }}",
                "line 1, column 1: a space is missing between two values",
            ),
            (
                "{{ $x..Zone }}",
                "line 1, column 1: a space is missing between two values",
            ),
            (
                "{{/* a */ }}",
                "line 1, column 1: this comment does not end with */}} or */ -}}",
            ),
        ] {
            check(text, Err(error));
        }
    }

    #[test]
    fn comments_that_trim_on_the_left_alone_become_empty_texts() {
        for (text, expected) in [
            ("a {{- /* ü\n */}} b", "a {{- \"\"     \n }} b"),
            ("a {{- /**/}} b", "a {{- \"\"  }} b"),
            (
                "{{/* a */}}{{- /* b */ -}}{{/* c */ -}}{{- .A }}",
                "{{/* a */}}{{- /* b */ -}}{{/* c */ -}}{{- .A }}",
            ),
        ] {
            assert_eq!(checked(text).unwrap(), expected);
            assert_eq!(expected.len(), text.len());
        }
    }

    #[test]
    fn blocks_nest_64_deep_and_no_deeper_in_chains_of_else_too() {
        let nested = |depth| "{{ if .A }}".repeat(depth) + &"{{ end }}".repeat(depth);
        check(&nested(64), Ok(()));
        let deeper = "line 1, column 705: blocks nest more than 64 deep";
        check(&nested(65), Err(deeper));
        let chain =
            |more| "{{ if .A }}".to_owned() + &"{{ else if .A }}".repeat(more) + "{{ end }}";
        check(&chain(63), Ok(()));
        let longer = "line 1, column 1020: blocks nest more than 64 deep";
        check(&chain(64), Err(longer));
    }
}
