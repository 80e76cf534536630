//! `kproxide policy show settings`: the settings of a policy, from the schema that it brings.

use std::error::Error;
use std::fmt;
use std::io::Write;

use serde::Serialize;
use serde_json::Value;

use super::given::{Given, Tools};
use crate::args::Format;
use crate::args::policy::Settings;
use crate::commands::Exit;
use crate::commands::plan::print;
use crate::whatif::table;
use kproxide_common::foreign;
use kproxide_policy::Module;

/// A schema is foreign: deeper than this nobody reads, and more rows neither.
const DEPTH_MAX: usize = 8;
const ROWS_MAX: usize = 500;
const TEXT_BYTES_MAX: usize = 1000;

#[derive(Debug, Serialize)]
struct Documented {
    name: String,
    version: String,
    description: String,
    kinds: Vec<&'static str>,
    settings: Vec<Setting>,
    /// There is no schema, or one that says nothing about fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Setting {
    /// Such as `prices[].hour` or `racks.*`.
    path: String,
    #[serde(rename = "type")]
    of_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    required: bool,
    description: String,
}

/// # Errors
/// The policy cannot be used, or the output is closed.
pub(super) async fn table_of(
    args: &Settings,
    out: &mut impl Write,
) -> Result<Exit, Box<dyn Error>> {
    let given = Given::read(&args.policy)?;
    let tools = Tools::new()?;
    let documented = Documented::of(&given.loaded(&tools).await?);
    match args.output {
        Format::Text => write!(out, "{documented}")?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &documented)?,
    }
    Ok(Exit::Success)
}

impl Documented {
    fn of(module: &Module) -> Self {
        let info = module.info();
        let (settings, note) = match info.settings_schema.trim() {
            "" => (Vec::new(), Some("It brings no schema.".to_owned())),
            text => match serde_json::from_str::<Value>(text) {
                Err(error) => (Vec::new(), Some(format!("Its schema is no JSON: {error}"))),
                Ok(schema) => settings(&schema),
            },
        };
        Self {
            name: info.name.clone(),
            version: info.version.clone(),
            description: info.description.clone(),
            kinds: module.kinds().iter().map(|kind| kind.as_str()).collect(),
            settings,
            note,
        }
    }
}

fn settings(schema: &Value) -> (Vec<Setting>, Option<String>) {
    let mut rows = Vec::new();
    fields(schema, "", 0, &mut rows);
    let is_closed = schema["additionalProperties"] == false || schema["maxProperties"] == 0;
    let note = match (rows.is_empty(), is_closed) {
        (false, _) => None,
        (true, true) => Some("It has no settings.".to_owned()),
        (true, false) => Some("Its schema names no settings.".to_owned()),
    };
    (rows, note)
}

fn fields(schema: &Value, above: &str, depth: usize, rows: &mut Vec<Setting>) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (name, field) in properties {
        let required = schema["required"].as_array().into_iter().flatten();
        let is_required = required.into_iter().any(|it| it == name.as_str());
        let path = match above {
            "" => name.clone(),
            above => format!("{above}.{name}"),
        };
        row(field, path, is_required, depth, rows);
    }
    let others = &schema["additionalProperties"];
    if others.is_object() {
        let path = format!("{above}.*");
        row(
            others,
            path.trim_start_matches('.').to_owned(),
            false,
            depth,
            rows,
        );
    }
}

fn row(field: &Value, path: String, required: bool, depth: usize, rows: &mut Vec<Setting>) {
    if depth >= DEPTH_MAX || rows.len() >= ROWS_MAX {
        return;
    }
    let default = &field["default"];
    // JSON may escape what a terminal obeys.
    let shown = |text: &str| foreign::line(text, TEXT_BYTES_MAX);
    rows.push(Setting {
        of_type: shown(&of_type(field)),
        default: Some(default)
            .filter(|it| !it.is_null())
            .map(|it| shown(&it.to_string())),
        required,
        description: shown(&description(field)),
        path: shown(&path),
    });
    fields(field, &path, depth + 1, rows);
    if field["items"].is_object() {
        fields(&field["items"], &format!("{path}[]"), depth + 1, rows);
    }
}

fn of_type(field: &Value) -> String {
    if let Some(values) = field["enum"].as_array() {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        return values.join(" or ");
    }
    let named = match &field["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            names.join(" or ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "anything".to_owned(),
    };
    match named.as_str() {
        "array" if field["items"].is_object() => format!("list of {}", of_type(&field["items"])),
        "array" => "list".to_owned(),
        "object" => "fields".to_owned(),
        _ => named,
    }
}

/// What it says of itself, and its limits.
fn description(field: &Value) -> String {
    let limits = [
        ("minimum", "at least"),
        ("exclusiveMinimum", "more than"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "less than"),
        ("minLength", "characters at least"),
        ("maxLength", "characters at most"),
        ("minItems", "items at least"),
        ("maxItems", "items at most"),
        ("pattern", "matches"),
    ]
    .into_iter()
    .filter(|(key, _)| !field[*key].is_null())
    .map(|(key, words)| format!("{words} {}", field[key]));
    let said = field["description"].as_str().unwrap_or_default().trim();
    let all: Vec<String> = Some(said.to_owned())
        .filter(|said| !said.is_empty())
        .into_iter()
        .chain(limits)
        .collect();
    all.join("; ")
}

impl fmt::Display for Documented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            version,
            description,
            kinds,
            settings,
            note,
        } = self;
        writeln!(f, "{name} {version} ({}): {description}", kinds.join(", "))?;
        let rows = settings.iter().map(|setting| {
            let default = match (&setting.default, setting.required) {
                (Some(default), _) => default.clone(),
                (None, true) => "required".to_owned(),
                (None, false) => "-".to_owned(),
            };
            vec![
                setting.path.clone(),
                setting.of_type.clone(),
                default,
                setting.description.clone(),
            ]
        });
        let mut text = String::new();
        let heads = ["SETTING", "TYPE", "DEFAULT", "MEANS"];
        table(
            &mut text,
            "Settings",
            &heads,
            rows.collect(),
            usize::MAX,
            120,
        )?;
        write!(f, "{text}")?;
        match note {
            Some(note) => writeln!(f, "{note}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &str, of_type: &str, required: bool, description: &str) -> Setting {
        Setting {
            path: path.to_owned(),
            of_type: of_type.to_owned(),
            default: None,
            required,
            description: description.to_owned(),
        }
    }

    #[test]
    fn fields_in_fields_and_in_lists_have_paths() {
        let schema = serde_json::json!({
            "required": ["zone"],
            "properties": {
                "zone": {"type": "string", "description": "of the clock"},
                "hours": {"type": "array", "items": {"type": "object", "properties": {
                    "price": {"type": "number", "minimum": 0},
                }}},
                "racks": {"type": "object", "additionalProperties": {"enum": ["a", "b"]}},
            },
        });
        let (rows, note) = settings(&schema);
        let expected = [
            row("hours", "list of fields", false, ""),
            row("hours[].price", "number", false, "at least 0"),
            row("racks", "fields", false, ""),
            row("racks.*", "\"a\" or \"b\"", false, ""),
            row("zone", "string", true, "of the clock"),
        ];
        assert_eq!((&rows[..], note), (&expected[..], None));
    }

    #[test]
    fn texts_of_a_schema_do_not_move_the_cursor() {
        let (bad, good) = ("a\u{1b}[2Jb", "a\u{fffd}[2Jb");
        let schema = serde_json::json!({"properties": {
            bad: {"type": bad, "description": bad},
            "b": {"enum": ["x\u{202e}y"], "default": "x\u{202e}y"},
        }});
        let (rows, _) = settings(&schema);
        let hidden = Setting {
            default: Some("\"x\u{fffd}y\"".to_owned()),
            ..row("b", "\"x\u{fffd}y\"", false, "")
        };
        assert_eq!(rows, [row(good, good, false, good), hidden]);
    }

    #[test]
    fn a_schema_that_goes_round_or_on_and_on_ends() {
        let mut deep = serde_json::json!({"type": "string"});
        for _ in 0..100 {
            deep = serde_json::json!({"properties": {"a": deep}});
        }
        assert_eq!(settings(&deep).0.len(), DEPTH_MAX);
        let none = serde_json::json!({"additionalProperties": false});
        assert_eq!(settings(&none).1.unwrap(), "It has no settings.");
        let any = settings(&serde_json::json!({}));
        assert_eq!(any.1.unwrap(), "Its schema names no settings.");
    }
}
