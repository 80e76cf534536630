//! Settings against the JSON Schema that a policy gives: what an operator most often gets wrong is named before the policy is asked at all.
//!
//! The schema is foreign data. So only keywords are read whose cost is bounded by the sizes of schema and settings: no references, which may turn in circles,
//! and no regular expressions, which may take for ever. Crates for the whole of JSON Schema have both. Unknown keywords say nothing: `check-settings` of the
//! policy itself has the last word.

use kproxide_common::foreign;
use serde_json::{Map, Value};

/// Deeper schemas and settings are not looked at. (serde_json reads 128 levels.)
const DEPTH_MAX: usize = 64;
/// Values that are listed as allowed.
const LISTED_MAX: usize = 10;

/// Holds settings, as JSON text, against a schema.
///
/// # Errors
/// Names the first field that is wrong, what is wrong with it, and what may stand there.
pub fn check(schema: &str, settings: &str) -> Result<(), String> {
    let Ok(schema) = serde_json::from_str(schema) else {
        return Ok(());
    };
    // No settings, or none that are JSON: the policy has defaults, or says what it thinks of them.
    match serde_json::from_str(settings) {
        Ok(Value::Null) | Err(_) => Ok(()),
        Ok(settings) => {
            hold(&schema, &settings, "", DEPTH_MAX).map_err(|why| foreign::line(&why, 300))
        }
    }
}

/// As the SDK of policies puts it.
fn wrong(path: &str, what: &str) -> String {
    match path {
        "" => format!("settings: {what}"),
        path => format!("settings field \"{path}\": {what}"),
    }
}

fn hold(schema: &Value, value: &Value, path: &str, depth: usize) -> Result<(), String> {
    if *schema == Value::Bool(false) {
        return Err(wrong(path, "nothing may stand there"));
    }
    let (Value::Object(schema), Some(depth)) = (schema, depth.checked_sub(1)) else {
        return Ok(());
    };
    kind(schema, value, path)?;
    one_of(schema, value, path)?;
    range(schema, value, path)?;
    match value {
        Value::Object(fields) => object(schema, fields, path, depth)?,
        Value::Array(items) => {
            if let Some(of_items) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    hold(of_items, item, &format!("{path}[{index}]"), depth)?;
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(Value::Array(choices)) = schema.get(keyword) else {
            continue;
        };
        let refused = choices.iter().map(|it| hold(it, value, path, depth));
        let refused: Result<Vec<_>, ()> = refused.map(|it| it.err().ok_or(())).collect();
        // One that accepts it ends the search.
        if let Ok(why) = refused
            && !why.is_empty()
        {
            return Err(why.join(", or "));
        }
    }
    Ok(())
}

fn kind(schema: &Map<String, Value>, value: &Value, path: &str) -> Result<(), String> {
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let is_whole = |number: &serde_json::Number| {
        number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|it| it.fract() == 0.0)
    };
    let is_of = |kind: &&str| match (*kind, value) {
        ("integer", Value::Number(number)) => is_whole(number),
        (kind, value) => kind == kind_of(value),
    };
    if kinds.is_empty() || kinds.iter().any(is_of) {
        return Ok(());
    }
    let what = format!("found {}, expected {}", found(value), kinds.join(" or "));
    Err(wrong(path, &what))
}

fn found(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn one_of(schema: &Map<String, Value>, value: &Value, path: &str) -> Result<(), String> {
    let allowed = match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(allowed)), _) => &allowed[..],
        (_, Some(only)) => std::slice::from_ref(only),
        _ => return Ok(()),
    };
    if allowed.iter().any(|it| is_same(it, value)) {
        return Ok(());
    }
    let mut shown: Vec<String> = allowed
        .iter()
        .take(LISTED_MAX)
        .map(Value::to_string)
        .collect();
    if allowed.len() > LISTED_MAX {
        shown.push(format!("and {} more", allowed.len() - LISTED_MAX));
    }
    let what = format!(
        "found {}, expected one of {}",
        found(value),
        shown.join(", ")
    );
    Err(wrong(path, &what))
}

/// In JSON Schema 1 and 1.0 are the same.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (a, b) => a == b,
    }
}

fn range(schema: &Map<String, Value>, value: &Value, path: &str) -> Result<(), String> {
    let Some(number) = value.as_f64() else {
        return Ok(());
    };
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let bounds = [
        (bound("minimum").filter(|it| number < *it), "at least"),
        (bound("maximum").filter(|it| number > *it), "at most"),
        (
            bound("exclusiveMinimum").filter(|it| number <= *it),
            "more than",
        ),
        (
            bound("exclusiveMaximum").filter(|it| number >= *it),
            "less than",
        ),
    ];
    match bounds.into_iter().find_map(|(it, word)| Some((it?, word))) {
        Some((bound, word)) => {
            let what = format!("found {value}, expected {word} {bound}");
            Err(wrong(path, &what))
        }
        None => Ok(()),
    }
}

fn object(
    schema: &Map<String, Value>,
    fields: &Map<String, Value>,
    path: &str,
    depth: usize,
) -> Result<(), String> {
    let known = schema.get("properties").and_then(Value::as_object);
    for (name, value) in fields {
        let at = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        match (
            known.and_then(|it| it.get(name)),
            schema.get("additionalProperties"),
        ) {
            (Some(of_field), _) => hold(of_field, value, &at, depth)?,
            (None, Some(Value::Bool(false))) => return Err(wrong(path, &unknown(name, known))),
            (None, Some(of_others)) => hold(of_others, value, &at, depth)?,
            (None, None) => {}
        }
    }
    let required = schema.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    match required
        .into_iter()
        .find(|name| !fields.contains_key(*name))
    {
        Some(missing) => Err(wrong(path, &format!("missing field `{missing}`"))),
        None => Ok(()),
    }
}

fn unknown(name: &str, known: Option<&Map<String, Value>>) -> String {
    let known = known.into_iter().flatten();
    let known: Vec<String> = known.map(|(name, _)| format!("`{name}`")).collect();
    let expected = match &known[..] {
        [] => "there are none".to_owned(),
        [only] => format!("expected {only}"),
        more => format!("expected one of {}", more.join(", ")),
    };
    format!("unknown field `{name}`, {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type": "object", "additionalProperties": false, "required": ["zone"], "properties": {
        "zone": {"type": "string"},
        "mode": {"enum": ["fast", "slow", 3]},
        "weight": {"type": "number", "minimum": 0, "maximum": 1},
        "count": {"type": "integer", "exclusiveMinimum": 0},
        "racks": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": ["string", "null"]}}}},
        "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        "labels": {"oneOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}}}"#;

    fn said(settings: &str) -> String {
        check(SCHEMA, settings).err().unwrap_or_default()
    }

    #[test]
    fn w12_the_field_that_does_not_fit_the_schema_is_named() {
        for (settings, expected) in [
            (
                r#"{"zone": "a", "mode": "slow", "weight": 1, "count": 2.0}"#,
                "",
            ),
            (
                r#"{"zone": "a", "mode": 3.0, "labels": "a=b", "prices": {"9": 0.3}}"#,
                "",
            ),
            (
                r#"{"zone": "a", "racks": [{"name": null}, {"name": "r1", "room": 5}]}"#,
                "",
            ),
            ("", ""),
            ("null", ""),
            ("[]", "settings: found a list, expected object"),
            (r#"{"mode": "slow"}"#, "settings: missing field `zone`"),
            (
                r#"{"zone": 1}"#,
                r#"settings field "zone": found 1, expected string"#,
            ),
            (
                r#"{"zone": "a", "mode": "slwo"}"#,
                r#"settings field "mode": found "slwo", expected one of "fast", "slow", 3"#,
            ),
            (
                r#"{"zone": "a", "weight": 1.5}"#,
                r#"settings field "weight": found 1.5, expected at most 1"#,
            ),
            (
                r#"{"zone": "a", "weight": -1}"#,
                r#"settings field "weight": found -1, expected at least 0"#,
            ),
            (
                r#"{"zone": "a", "count": 0}"#,
                r#"settings field "count": found 0, expected more than 0"#,
            ),
            (
                r#"{"zone": "a", "count": 1.5}"#,
                r#"settings field "count": found 1.5, expected integer"#,
            ),
            (
                r#"{"zone": "a", "racks": [{"name": "r1"}, {}]}"#,
                r#"settings field "racks[1]": missing field `name`"#,
            ),
            (
                r#"{"zone": "a", "racks": [{"name": 5}]}"#,
                r#"settings field "racks[0].name": found 5, expected string or null"#,
            ),
            (
                r#"{"zone": "a", "prices": {"9": "dear"}}"#,
                r#"settings field "prices.9": found "dear", expected number"#,
            ),
            (
                r#"{"zone": "a", "labels": 5}"#,
                r#"settings field "labels": found 5, expected string, or settings field "labels": found 5, expected object"#,
            ),
            (
                r#"{"zoen": "a"}"#,
                "settings: unknown field `zoen`, expected one of `count`, `labels`, `mode`, `prices`, `racks`, `weight`, `zone`",
            ),
        ] {
            assert_eq!(said(settings), expected, "{settings}");
        }
        let none = r#"{"type":"object","additionalProperties":false}"#;
        assert_eq!(
            check(none, r#"{"a": 1}"#),
            Err("settings: unknown field `a`, there are none".to_owned())
        );
    }

    #[test]
    fn w12_a_schema_that_cannot_be_read_or_is_endless_says_nothing() {
        for schema in [
            "",
            "{",
            "[]",
            "true",
            r##"{"$ref": "#"}"##,
            r#"{"pattern": "(a+)+$"}"#,
            r#"{"type": 5, "enum": 5}"#,
        ] {
            assert_eq!(check(schema, r#"{"a": 1}"#), Ok(()), "{schema}");
        }
        let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(100), close.repeat(100));
        let schema = deep(r#"{"items": "#, "}");
        assert_eq!(check(&schema, &deep("[", "]")), Ok(()));
    }
}
