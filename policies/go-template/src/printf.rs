//! `printf`. The engine's own writes each directive, but only those that it writes as Go does: of `%d` and 1.5 it would make 1.
//! And only here is the whole bounded: a format can ask for any number of wide ones.

use std::fmt::Write;

use gotmpl::{Result, Value};

use crate::functions::{Bounded, MADE_BYTES_MAX, refuse, write_value, written_by_engine};

pub(crate) fn printf(out: &mut Bounded, arguments: &[Value]) -> Result<()> {
    let Some((Value::String(format), values)) = arguments.split_first() else {
        return refuse("printf begins with a format".to_owned());
    };
    let (mut rest, mut next, mut any_order) = (&**format, 0, false);
    while let Some((before, directive)) = rest.split_once('%') {
        out.write_str(before)?;
        let directive = Directive::read(directive)?;
        rest = directive.rest;
        if directive.verb == '%' {
            out.write_str("%")?;
            continue;
        }
        if let Some(place) = directive.place {
            (next, any_order) = (place.wrapping_sub(1), true);
        }
        let Some(value) = values.get(next) else {
            return refuse(format!("printf: %{} has no value", directive.verb));
        };
        next += 1;
        out.write_str(&directive.write(value)?)?;
    }
    out.write_str(rest)?;
    if next < values.len() && !any_order {
        return refuse(format!(
            "printf: {} values have no % of theirs",
            values.len() - next
        ));
    }
    Ok(())
}

/// What follows a `%`: flags, width, precision, the place of its value if it is not the next one, the verb.
struct Directive<'a> {
    flags: &'a str,
    width: &'a str,
    precision: Option<&'a str>,
    place: Option<usize>,
    verb: char,
    rest: &'a str,
}

impl<'a> Directive<'a> {
    fn read(text: &'a str) -> Result<Self> {
        let taken = |text: &'a str, is: fn(char) -> bool| {
            text.split_at(text.find(|c| !is(c)).unwrap_or(text.len()))
        };
        let is_digit = |c: char| c.is_ascii_digit();
        let (flags, rest) = taken(text, |c| "-+# 0".contains(c));
        let (width, rest) = taken(rest, is_digit);
        let (precision, rest) = match rest.strip_prefix('.') {
            Some(rest) => {
                let (precision, rest) = taken(rest, is_digit);
                (Some(precision), rest)
            }
            None => (None, rest),
        };
        let place = rest
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .and_then(|(place, rest)| Some((place.parse().ok()?, rest)));
        let (place, rest) = place.map_or((None, rest), |(place, rest)| (Some(place), rest));
        let mut chars = rest.chars();
        let Some(verb) = chars.next() else {
            return refuse("printf: the format ends with a % that has no verb".to_owned());
        };
        Ok(Self {
            flags,
            width,
            precision,
            place,
            verb,
            rest: chars.as_str(),
        })
    }

    fn write(&self, value: &Value) -> Result<String> {
        let Self {
            flags,
            width,
            precision,
            ..
        } = self;
        let verb = self.verb;
        let point = if precision.is_some() { "." } else { "" };
        let precision = precision.unwrap_or_default();
        let directive = format!("%{flags}{width}{point}{precision}{verb}");
        let number = |digits: &str| digits.is_empty() || digits.parse::<u16>().is_ok();
        if !number(width) || !number(precision) {
            let max = u16::MAX;
            return refuse(format!(
                "printf: {directive} is wider than {max} characters"
            ));
        }
        let can = as_go(verb, value).is_some_and(|allowed| {
            flags.chars().all(|flag| allowed.flags.contains(flag))
                && (allowed.width || width.is_empty())
                && (allowed.precision || point.is_empty())
        });
        if !can {
            let of = value.type_name();
            return refuse(format!(
                "printf: {directive} cannot write a value of type {of}"
            ));
        }
        if let Value::Map(_) = value {
            let mut out = Bounded::new(MADE_BYTES_MAX);
            write_value(&mut out, value)?;
            return Ok(out.text);
        }
        // Where the engine's %v has no exponents.
        let directive = match matches!(value, Value::Float(_)) {
            true => directive.replace('v', "g"),
            false => directive,
        };
        written_by_engine(&directive, value)
    }
}

/// What a verb may have before it.
struct Allowed {
    flags: &'static str,
    width: bool,
    precision: bool,
}

/// What the engine writes as Go does.
fn as_go(verb: char, value: &Value) -> Option<Allowed> {
    use Value::{Bool, Float, Int, Map, Nil, String};
    let (flags, width, precision) = match (verb, value) {
        ('s', String(_)) | ('x' | 'X', String(_)) => ("-", true, true),
        ('q', String(_)) | ('t', Bool(_)) | ('U', Int(_)) => ("-", true, false),
        ('v', String(_) | Bool(_) | Int(_) | Float(_)) => ("-", true, false),
        ('v', Map(_) | Nil) | ('c', Int(_)) => ("", false, false),
        ('d', Int(_)) => ("-+ 0", true, false),
        ('x' | 'X' | 'o' | 'b', Int(_)) => ("-+ 0#", true, false),
        ('e' | 'E' | 'f', Float(_)) => ("-+ 0", true, true),
        // With a precision, 99.9 would be rounded to 100 where Go has 1e+02.
        ('g' | 'G', Float(_)) => ("-+ 0", true, false),
        _ => return None,
    };
    Some(Allowed {
        flags,
        width,
        precision,
    })
}
