//! Namespaces of pods that the input does not have, for selectors that ask about Namespaces.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Object;

/// A cluster has the Namespace of each pod, and each has its name as a label. Empty if no pod asks about Namespaces.
pub fn unknown_namespaces(objects: &[Object]) -> BTreeSet<String> {
    let specs = objects.iter().filter_map(|object| match object.kind() {
        "Pod" => object.value.get("spec"),
        "DaemonSet" => object.value.pointer("/spec/template/spec"),
        _ => None,
    });
    let mut affinities = specs.filter_map(|spec| spec.get("affinity"));
    if !affinities.any(has_namespace_selector) {
        return BTreeSet::new();
    }
    let names = |kind: &'static str, name: fn(&Object) -> &str| {
        let of_kind = objects.iter().filter(move |object| object.kind() == kind);
        of_kind.map(move |object| name(object).to_owned())
    };
    let known: BTreeSet<String> = names("Namespace", Object::name).collect();
    names("Pod", Object::namespace)
        .filter(|name| !known.contains(name))
        .collect()
}

/// The Namespace of which nothing but its name is known. Admission labels it.
pub fn plain_namespace(name: &str) -> Object {
    let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    Object::from_elsewhere(value, "the Namespaces of pods")
}

fn has_namespace_selector(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            (name == "namespaceSelector" && !value.is_null()) || has_namespace_selector(value)
        }),
        Value::Array(list) => list.iter().any(has_namespace_selector),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
