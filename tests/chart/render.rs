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

/// For an installation in a cluster where nobody runs the hook's Job.
pub(crate) const NO_HOOK: &str = "--set=crds.hook=false";

/// The least that must be given.
pub(crate) fn required_values() -> Value {
    json!({
        "clusters": { "proxmox": {
            "credentials": { "existingSecret": "proxmox" },
            "spec": { "endpoints": ["https://pve1.example:8006"] },
        } },
        "nodeClasses": { "default": { "spec": { "template": { "name": "k8s-node" } } } },
        "nodePools": { "default": {} },
    })
}

/// The maps of objects in the values, with the objects' kind.
pub(crate) const OBJECTS: [(&str, &str); 3] = [
    ("clusters", "ProxmoxCluster"),
    ("nodeClasses", "NodeClass"),
    ("nodePools", "NodePool"),
];

/// What the comments of `values.yaml` show as examples of the three maps, each with one entry.
pub(crate) fn commented_examples() -> Value {
    let text = fs::read_to_string(repository("charts/kproxide/values.yaml")).unwrap();
    let mut examples = Map::new();
    for (map, _) in OBJECTS {
        let (before, _) = text.split_once(&format!("\n{map}: {{}}\n")).unwrap();
        let (_, example) = before.rsplit_once("\n# Example:\n").unwrap();
        let lines = example
            .lines()
            .map(|line| line.strip_prefix("#   ").unwrap());
        let entries = serde_saphyr::from_str(&lines.collect::<Vec<_>>().join("\n")).unwrap();
        examples.insert(map.to_owned(), entries);
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
            "--no-hooks",
            "--values",
            &path,
        ])
        .await?;
    Ok(serde_saphyr::from_multiple(&rendered).expect("Helm renders YAML"))
}

/// What Helm makes before it installs anything else.
pub(crate) async fn hooks(programs: &Programs, values: &Value) -> Vec<Value> {
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
        .await
        .unwrap();
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    objects.retain(|object| {
        let hook = object["metadata"]["annotations"]["helm.sh/hook"].as_str();
        hook.is_some_and(|hook| hook.starts_with("pre-"))
    });
    objects
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

/// The names of all objects of a kind.
pub(crate) fn names<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a str> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind);
    of_kind
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect()
}

/// The object of a kind and name.
pub(crate) fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found
        .next()
        .unwrap_or_else(|| panic!("no {kind} {name} but {:?}", names(objects, kind)))
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
