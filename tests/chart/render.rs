//! Rendering the chart and finding things in what comes out.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use kproxide_testkit::Programs;
use kproxide_testkit::controlplane::CommandError;
use serde_json::{Value, json};

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
            "endpoints": ["https://pve1.example:8006"],
            "credentials": { "existingSecret": "proxmox" },
        },
        "nodeClass": { "template": { "name": "k8s-node" } },
    })
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
