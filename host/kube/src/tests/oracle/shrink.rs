//! Makes a world that shows a difference as small as it can be, for people to read.

use std::fmt::Write as _;

use serde_json::Value;

/// What an object cannot be without.
const KEPT: [&str; 16] = [
    "/apiVersion",
    "/kind",
    "/metadata",
    "/metadata/name",
    "/metadata/namespace",
    "/provisioner",
    "/spec/accessModes",
    "/spec/attacher",
    "/spec/capacity",
    "/spec/csi",
    "/spec/csi/driver",
    "/spec/csi/volumeHandle",
    "/spec/local",
    "/spec/nfs",
    "/spec/resources",
    "/spec/storageClassName",
];

/// Drops objects and parts of them for as long as `differs` finds something. Says what is left and what it finds there.
pub(super) fn shrunk(
    mut objects: Vec<Value>,
    mut differs: impl FnMut(&[Value]) -> Option<Vec<String>>,
) -> String {
    let mut found = differs(&objects).unwrap_or_default();
    let mut is_smaller = true;
    while is_smaller {
        is_smaller = false;
        for index in (0..objects.len()).rev() {
            let mut fewer = objects.clone();
            fewer.remove(index);
            if let Some(still) = differs(&fewer) {
                (objects, found, is_smaller) = (fewer, still, true);
                continue;
            }
            for part in parts(&objects[index]).into_iter().rev() {
                let mut less = objects.clone();
                if remove(&mut less[index], &part)
                    && let Some(still) = differs(&less)
                {
                    (objects, found, is_smaller) = (less, still, true);
                }
            }
        }
    }
    let mut text = String::new();
    for line in &found {
        writeln!(text, "{line}").expect("a String takes text");
    }
    let objects = serde_json::to_string_pretty(&objects).expect("JSON is text");
    text + &objects
}

/// The JSON pointers of everything in an object, the outermost first.
fn parts(object: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let mut inside = vec![(String::new(), object)];
    while let Some((path, value)) = inside.pop() {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (format!("{path}/{}", key.replace('/', "~1")), value))
                .collect(),
            Value::Array(list) => (list.iter().enumerate())
                .map(|(index, value)| (format!("{path}/{index}"), value))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
        };
        let paths = children.iter().map(|(path, _)| path);
        all.extend(paths.filter(|path| !KEPT.contains(&path.as_str())).cloned());
        inside.extend(children);
    }
    all
}

fn remove(object: &mut Value, path: &str) -> bool {
    let Some((parent, last)) = path.rsplit_once('/') else {
        return false;
    };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => fields.remove(&last.replace("~1", "/")).is_some(),
        Some(Value::Array(list)) => last.parse().is_ok_and(|index: usize| {
            let is_there = index < list.len();
            if is_there {
                list.remove(index);
            }
            is_there
        }),
        Some(_) | None => false,
    }
}
