//! The chart's README: its table of values is made from the comments of `values.yaml`.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::render::repository;

const MARK: &str =
    "values.yaml: KPROXIDE_UPDATE=1 cargo test -p kproxide-testkit --test chart readme -->\n";

/// A value: its path, its default as it stands in the file, and the comment before it.
struct Row {
    path: Vec<String>,
    default: Value,
    comment: String,
}

/// The values whose parts the schema names are shown part by part, others as a whole.
fn rows(text: &str, defaults: &Value, schema: &Value) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut stack: Vec<(usize, String)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if let Some(words) = content.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let before = std::mem::take(&mut comment);
        let Some((key, _)) = content.split_once(':') else {
            continue;
        };
        stack.retain(|(other, _)| *other < indent);
        stack.push((indent, key.to_owned()));
        let path: Vec<String> = stack.iter().map(|(_, key)| key.clone()).collect();
        let shown = |path: &[String]| {
            let mut part = schema;
            path.iter().all(|key| {
                part = &part["properties"][key];
                !part.is_null()
            })
        };
        if !shown(&path) {
            continue;
        }
        let default = path.iter().fold(defaults, |value, key| &value[key]).clone();
        rows.push(Row {
            path,
            default,
            comment: described(&before),
        });
    }
    rows
}

/// A comment as one paragraph; an example of several lines is left to the file itself.
fn described(lines: &[&str]) -> String {
    let long = lines.iter().position(|line| line.ends_with("Example:"));
    let text = lines[..long.unwrap_or(lines.len())].join(" ");
    let mut text = match lines.get(long.unwrap_or(lines.len())) {
        Some(line) => format!("{text} {}", line.trim_end_matches("Example:")),
        None => text,
    };
    if let Some((words, example)) = text.clone().split_once("Example: ") {
        // The example ends with the bracket that it began with.
        let mut open = 0;
        let closes = example.char_indices().find(|(_, letter)| {
            open += i32::from(matches!(letter, '[' | '{')) - i32::from(matches!(letter, ']' | '}'));
            open == 0
        });
        let end = closes.map_or(example.len(), |(at, _)| at + 1);
        text = format!("{words}Example: `{}`{}", &example[..end], &example[end..]);
    }
    text.trim().replace('|', "\\|")
}

/// The table: the default of a value that has parts is said by its parts.
fn table(rows: &[Row]) -> String {
    let mut table = String::from("\n| value | default | what it is |\n|---|---|---|\n");
    for Row {
        path,
        default,
        comment,
    } in rows
    {
        let has_parts = rows
            .iter()
            .any(|other| other.path.len() > path.len() && other.path.starts_with(path));
        let default = match has_parts {
            true => String::new(),
            false => format!("`{default}`"),
        };
        let path = path.join(".");
        let cells = [format!("`{path}`"), default, comment.clone()];
        for cell in cells {
            let blank = if cell.is_empty() { "" } else { " " };
            write!(table, "| {cell}{blank}").unwrap();
        }
        table += "|\n";
    }
    table
}

#[test]
fn the_readme_has_each_value_with_its_default_and_its_comment() {
    let read = |file: &str| fs::read_to_string(repository(&format!("charts/kproxide/{file}")));
    let text = read("values.yaml").unwrap();
    let defaults: Value = serde_saphyr::from_str(&text).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json").unwrap()).unwrap();
    let rows = rows(&text, &defaults, &schema);
    let readme = read("README.md").unwrap();
    let (head, _) = readme.split_once(MARK).unwrap();
    let made = format!("{head}{MARK}{}", table(&rows));
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        fs::write(repository("charts/kproxide/README.md"), &made).unwrap();
    }
    assert_eq!(read("README.md").unwrap(), made);
    // Each key of the file is in it.
    for key in defaults.as_object().unwrap().keys() {
        assert!(rows.iter().any(|row| row.path == [key.clone()]), "{key}");
    }
}

/// The keys of the schema and those of the file are the same, so that no value is without a default and a comment.
#[test]
fn each_value_that_the_schema_knows_stands_in_the_readme() {
    let read = |file: &str| fs::read_to_string(repository(&format!("charts/kproxide/{file}")));
    let text = read("values.yaml").unwrap();
    let defaults: Value = serde_saphyr::from_str(&text).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json").unwrap()).unwrap();
    let mut parts = vec![(String::new(), &schema, &defaults)];
    // Helm's own, and those of earlier charts.
    let without = ["global", "proxmox", "nodeClass", "nodePool"];
    while let Some((path, schema, value)) = parts.pop() {
        for (key, part) in schema["properties"].as_object().into_iter().flatten() {
            if path.is_empty() && without.contains(&key.as_str()) {
                continue;
            }
            assert!(!value[key].is_null(), "{path}{key} has no default");
            parts.push((format!("{path}{key}."), part, &value[key]));
        }
    }
}
