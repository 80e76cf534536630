//! `examples/objects/`: each field of what people write, with its default and its limits, as the API server takes it.

use std::collections::BTreeMap;

use kproxide_testkit::ControlPlane;
use serde_json::Value;

use crate::{read, root};

/// The file in `examples/objects`, and that of the definition.
const KINDS: [(&str, &str); 3] = [
    ("proxmoxcluster", "proxmoxclusters"),
    ("nodeclass", "nodeclasses"),
    ("nodepool", "nodepools"),
];

/// The schema of a definition's `spec`.
fn schema(plural: &str) -> Value {
    let text = read(&format!("charts/kproxide/crds/{plural}.yaml"));
    let mut definition: Value = serde_saphyr::from_str(&text).unwrap();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"].take()
}

/// A field of the API: its schema, and the value that it has if nobody gives one.
#[derive(Debug)]
struct Field<'a> {
    schema: &'a Value,
    default: Option<&'a Value>,
}

/// Each field below a schema by its path. Elements of a list have the path of the list.
fn fields<'a>(
    schema: &'a Value,
    default: Option<&'a Value>,
    path: &str,
    into: &mut BTreeMap<String, Field<'a>>,
) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{key}");
        // That of the whole object counts before that of one field.
        let default = default.and_then(|object| object.get(key));
        let default = default.or(schema.get("default"));
        fields(schema, default, &format!("{path}."), into);
        fields(&schema["items"], None, &format!("{path}."), into);
        into.insert(path, Field { schema, default });
    }
}

/// What an example says beside its fields: above them, and behind them on their lines. By the path below `spec`.
fn remarks(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut remarks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut above = String::new();
    let mut keys: Vec<(usize, String)> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(remark) = content.strip_prefix('#') {
            above += remark;
            continue;
        }
        let (content, behind) = content.split_once(" #").unwrap_or((content, ""));
        let field = content.strip_prefix("- ").unwrap_or(content);
        if let Some((key, _)) = field.split_once(':') {
            let indent = line.len() - line.trim_start().len() + content.len() - field.len();
            keys.retain(|(outer, _)| *outer < indent);
            keys.push((indent, key.to_owned()));
            let names: Vec<&str> = keys.iter().map(|(_, key)| key.as_str()).collect();
            if let ["spec", path @ ..] = names.as_slice() {
                let remark = format!("{above} {behind}");
                remarks.entry(path.join(".")).or_default().push(remark);
            }
        }
        above.clear();
    }
    remarks
}

/// What must stand beside a field: its default and its limits.
fn owed(field: &Field<'_>) -> Vec<String> {
    let number = |value: &Value| value.as_f64().map(|number| number.to_string());
    let mut owed = Vec::new();
    match field.default {
        Some(Value::String(text)) => owed.push(format!("Default: {text}")),
        Some(Value::Bool(flag)) => owed.push(format!("Default: {flag}")),
        Some(value) => owed.extend(number(value).map(|number| format!("Default: {number}"))),
        None => {}
    }
    let limits = ["minimum", "maximum", "maxItems", "maxProperties"];
    let limits = limits.iter().filter_map(|key| number(&field.schema[key]));
    // That there is nothing below 0 goes without saying.
    owed.extend(limits.filter(|limit| limit != "0"));
    owed
}

/// Whether a remark has these words, and no longer number in their place.
fn says(remark: &str, words: &str) -> bool {
    let goes_on = |letter: char| letter.is_ascii_alphanumeric();
    remark.match_indices(words).any(|(at, _)| {
        let behind = &remark[at + words.len()..];
        let fraction = behind.strip_prefix('.').unwrap_or_default();
        let is_longer = remark[..at].ends_with(goes_on)
            || behind.starts_with(goes_on)
            || fraction.starts_with(|letter: char| letter.is_ascii_digit());
        !is_longer
    })
}

/// What an example lacks of a schema.
fn lacking(schema: &Value, text: &str) -> Vec<String> {
    let mut known = BTreeMap::new();
    fields(schema, None, "", &mut known);
    let remarks = remarks(text);
    let mut lacking = Vec::new();
    for (path, field) in &known {
        let Some(beside) = remarks.get(path) else {
            lacking.push(format!("{path} is not there"));
            continue;
        };
        for owed in owed(field) {
            if !beside.iter().any(|remark| says(remark, &owed)) {
                lacking.push(format!("{path}: no remark has `{owed}`"));
            }
        }
    }
    lacking
}

#[test]
fn each_field_stands_in_the_examples_with_its_default_and_its_limits() {
    for (file, plural) in KINDS {
        let file = format!("examples/objects/{file}.yaml");
        let lacking = lacking(&schema(plural), &read(&file));
        assert!(lacking.is_empty(), "{file}:\n{}", lacking.join("\n"));
    }
}

#[test]
fn a_field_a_default_and_a_limit_that_lack_are_found() {
    let schema = serde_json::json!({ "properties": {
        "alpha": { "properties": { "one": { "default": "10m" }, "two": { "minimum": 0.1, "maximum": 10.0 } } },
        "beta": { "default": { "one": 4 }, "properties": { "one": { "default": 3 }, "two": { "default": true } } },
        "gamma": { "maxItems": 16, "items": { "properties": { "one": {}, "two": { "maximum": 7 } } } },
    }});
    let whole = "\
spec:
  alpha:
    # Long enough. Default: 10m
    one: 20m
    two: 1 # 0.1 to 10
  beta:
    one: 4 # Default: 4
    two: true # Default: true
  # At most 16.
  gamma:
    - one: a
      # at most 7
      two: 7
";
    assert_eq!(lacking(&schema, whole), Vec::<String>::new());
    for (from, to, expected) in [
        ("    one: 20m\n", "", "alpha.one is not there"),
        ("0.1 to 10", "0.1 to 100", "alpha.two: no remark has `10`"),
        (
            "    one: 4 # Default: 4",
            "    one: 4 # Default: 3",
            "beta.one: no remark has `Default: 4`",
        ),
        (
            "# Default: true",
            "",
            "beta.two: no remark has `Default: true`",
        ),
        ("At most 16.", "At most 16.5", "gamma: no remark has `16`"),
        (
            "    - one: a\n      # at",
            "    - # at",
            "gamma.one is not there",
        ),
    ] {
        let without = whole.replace(from, to);
        assert_ne!(without, whole);
        assert!(
            lacking(&schema, &without).contains(&expected.to_owned()),
            "{without}"
        );
    }
}

/// `host/planner/src/keys.rs` has all keys of ours.
#[test]
fn each_key_of_labels_taints_and_annotations_is_explained() {
    let keys = read("host/planner/src/keys.rs");
    let keys = keys.split('"').skip(1).step_by(2);
    let keys: Vec<&str> = keys.filter(|it| it.starts_with("kproxide.dev/")).collect();
    assert!(keys.len() >= 20, "{keys:?}");
    let pages = read("examples/objects/README.md") + &read("examples/manual/day-to-day.md");
    let missing: Vec<&&str> = keys.iter().filter(|key| !says(&pages, key)).collect();
    assert!(
        missing.is_empty(),
        "examples/objects/README.md and examples/manual/day-to-day.md lack {missing:?}"
    );
}

#[tokio::test]
async fn the_api_server_takes_the_examples() {
    let Some(cluster) = ControlPlane::without_kwok().await else {
        return;
    };
    let definitions = root().join("charts/kproxide/crds").display().to_string();
    let apply = async |file: &str| {
        let flags = ["apply", "--server-side", "--validate=strict", "-f", file];
        cluster.kubectl(&flags).await.unwrap()
    };
    apply(&definitions).await;
    let established = ["wait", "crd", "--all", "--for=condition=Established"];
    cluster.kubectl(&established).await.unwrap();
    for (file, plural) in KINDS {
        let path = root().join(format!("examples/objects/{file}.yaml"));
        apply(&path.display().to_string()).await;
        let text = std::fs::read_to_string(path).unwrap();
        let written: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for object in &written {
            let name = object["metadata"]["name"].as_str().unwrap();
            let path = format!("/apis/kproxide.dev/v1alpha1/{plural}/{name}");
            let stored = cluster.api().get(&path).await.unwrap();
            assert_kept(&object["spec"], &stored["spec"], &format!("{file} {name}"));
        }
    }
}

/// What was written is what is stored, beside what the API server has filled in.
fn assert_kept(written: &Value, stored: &Value, at: &str) {
    match written {
        Value::Object(fields) => {
            for (key, value) in fields {
                assert_kept(value, &stored[key], &format!("{at} {key}"));
            }
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                assert_kept(value, &stored[index], &format!("{at} {index}"));
            }
        }
        Value::Number(number) => assert_eq!(number.as_f64(), stored.as_f64(), "{at}"),
        Value::Null | Value::Bool(_) | Value::String(_) => assert_eq!(written, stored, "{at}"),
    }
}
