//! Reading and writing the parts that every Kubernetes object has, on plain JSON.
//!
//! The simulator keeps no typed objects: an object is a [`Value`] at the edge and serialized bytes in the store.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The string at `metadata.<field>`, empty when absent.
pub(crate) fn meta_str<'v>(object: &'v Value, field: &str) -> &'v str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// `metadata` as a map; made when the object has none.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(field_mut(object, "metadata"))
}

/// The field as a mutable value, inserted as null when absent; `parent` becomes an object when it is none.
pub(crate) fn field_mut<'v>(parent: &'v mut Value, field: &str) -> &'v mut Value {
    map_mut(parent).entry(field).or_insert(Value::Null)
}

/// The value as a map, made an empty one when it is something else.
pub(crate) fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("the value was made an object above")
        }
    }
}

/// Makes a field of `to` what it is in `from`: the same value, or absent.
pub(crate) fn copy_field(from: &Value, to: &mut Value, field: &str) {
    let map = map_mut(to);
    match from.get(field).filter(|value| !value.is_null()) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// The items of an array field; none when it is absent.
pub(crate) fn items<'v>(parent: &'v Value, field: &str) -> &'v [Value] {
    parent[field].as_array().map_or(&[], Vec::as_slice)
}

/// The entries of an object field; none when it is absent.
pub(crate) fn entries<'v>(
    parent: &'v Value,
    field: &str,
) -> impl Iterator<Item = (&'v str, &'v Value)> {
    parent[field]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value))
}

/// The finalizers that hold the object: `metadata.finalizers`, and `spec.finalizers` of a Namespace.
pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let of_namespace: &[Value] = match object["kind"].as_str() {
        Some("Namespace") => items(&object["spec"], "finalizers"),
        Some(_) | None => &[],
    };
    items(&object["metadata"], "finalizers")
        .iter()
        .chain(of_namespace)
        .filter_map(Value::as_str)
}

/// Whether somebody asked for the object's deletion.
pub(crate) fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The owner reference with `controller: true`.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    items(&object["metadata"], "ownerReferences")
        .iter()
        .find(|owner| owner["controller"] == true)
}

/// The condition of that type in `status.conditions`.
pub(crate) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    items(&object["status"], "conditions")
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Whether the condition of that type is `True`.
pub(crate) fn condition_is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// An instant as `metav1.Time` writes it: whole seconds, UTC.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An instant as `metav1.MicroTime` writes it.
pub(crate) fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
