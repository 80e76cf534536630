//! Rendering the chart and finding things in what comes out.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use kproxide_testkit::Programs;
use kproxide_testkit::controlplane::CommandError;
use serde_json::{Map, Value, json};

/// A file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The chart, as an argument for Helm.
pub(crate) fn chart() -> String {
    repository("charts/kproxide").display().to_string()
}

/// The least that must be given.
pub(crate) fn required_values() -> Value {
    json!({
        "proxmox": {
            "credentials": { "existingSecret": "proxmox" },
            "spec": { "endpoints": ["https://pve1.example:8006"] },
        },
        "nodeClass": { "spec": { "template": { "name": "k8s-node" } } },
    })
}

/// The three objects in the values, with their kind and the file of its definition.
pub(crate) const OBJECTS: [(&str, &str, &str); 3] = [
    ("proxmox", "ProxmoxCluster", "proxmoxclusters"),
    ("nodeClass", "NodeClass", "nodeclasses"),
    ("nodePool", "NodePool", "nodepools"),
];

/// What the comments of `values.yaml` show as examples of the three specs.
pub(crate) fn commented_examples() -> Value {
    let text = fs::read_to_string(repository("charts/kproxide/values.yaml")).unwrap();
    let mut examples = Map::new();
    for (object, _, _) in OBJECTS {
        let (_, after) = text.split_once(&format!("\n{object}:\n")).unwrap();
        let (_, after) = after.split_once("  # Example:\n").unwrap();
        let lines = after.lines().map_while(|line| line.strip_prefix("  #   "));
        let spec: Value = serde_saphyr::from_str(&lines.collect::<Vec<_>>().join("\n")).unwrap();
        examples.insert(object.to_owned(), json!({ "spec": spec }));
    }
    Value::Object(examples)
}

/// The required values with `more` merged into them.
pub(crate) fn values(more: Value) -> Value {
    let mut values = required_values();
    merge(&mut values, more);
    values
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// What Helm renders for a release `kproxide` in namespace `autoscaling`.
pub(crate) async fn render(
    programs: &Programs,
    values: &Value,
) -> Result<Vec<Value>, CommandError> {
    let file = values_file(values);
    let path = file.path().display().to_string();
    let rendered = programs
        .helm(&[
            "template",
            "kproxide",
            &chart(),
            "--namespace",
            "autoscaling",
            "--values",
            &path,
        ])
        .await?;
    Ok(serde_saphyr::from_multiple(&rendered).expect("Helm renders YAML"))
}

/// The sentence with which Helm refuses these values.
pub(crate) async fn refusal(programs: &Programs, values: &Value) -> String {
    render(programs, values)
        .await
        .expect_err("these values must be refused")
        .reason
}

pub(crate) fn values_file(values: &Value) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(values.to_string().as_bytes()).unwrap();
    file
}

/// The only object of a kind.
pub(crate) fn the<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .collect();
    match found[..] {
        [object] => object,
        _ => panic!("{} objects of kind {kind}", found.len()),
    }
}
