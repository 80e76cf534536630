//! Structural schemas of custom resources: pruning, defaults and validation, in the order of the real server.
//!
//! CEL rules (`x-kubernetes-validations`) are not evaluated; tests that need them run against a real API server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use regex::Regex;
use serde_json::{Map, Value, json};

use super::{
    error::Cause,
    object::{entries, field_mut, items, map_mut},
};

/// Removes fields that the schema does not know and returns their paths, e.g. `spec.limits.maxNode`.
pub(crate) fn prune(schema: &Value, object: &mut Value) -> Vec<String> {
    // The schema of these three is fixed, whatever the definition says.
    const FIXED: [&str; 3] = ["apiVersion", "kind", "metadata"];
    let mut unknown = Vec::new();
    prune_object(schema, map_mut(object), "", &FIXED, &mut unknown);
    unknown
}

fn prune_object(
    schema: &Value,
    map: &mut Map<String, Value>,
    path: &str,
    fixed: &[&str],
    unknown: &mut Vec<String>,
) {
    let keeps_unknown = schema["x-kubernetes-preserve-unknown-fields"] == true;
    map.retain(|field, child| {
        if fixed.contains(&field.as_str()) {
            return true;
        }
        let path = join(path, field);
        match (
            &schema["properties"][field],
            &schema["additionalProperties"],
        ) {
            (Value::Null, Value::Null | Value::Bool(false)) if !keeps_unknown => {
                unknown.push(path);
                return false;
            }
            (Value::Null, additional) => prune_at(additional, child, &path, unknown),
            (known, _) => prune_at(known, child, &path, unknown),
        }
        true
    });
}

fn prune_at(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    // What a field of unknown shape holds is unknown as a whole and stays.
    let shapeless = schema.is_null() || schema.is_boolean();
    match value {
        Value::Object(map) if !shapeless => prune_object(schema, map, path, &[], unknown),
        Value::Array(list) => {
            for (index, item) in list.iter_mut().enumerate() {
                prune_at(&schema["items"], item, &format!("{path}[{index}]"), unknown);
            }
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn join(path: &str, field: &str) -> String {
    match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    }
}

/// Fills absent fields that have a default; null in a field that is not nullable counts as absent.
pub(crate) fn default(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (field, field_schema) in entries(schema, "properties") {
                let default = &field_schema["default"];
                let present = map.get(field);
                let nullable = field_schema["nullable"] == true;
                if !default.is_null()
                    && (present.is_none() || present.is_some_and(|v| v.is_null() && !nullable))
                {
                    map.insert(field.to_owned(), default.clone());
                }
                if let Some(child) = map.get_mut(field) {
                    self::default(field_schema, child);
                }
            }
            let additional = &schema["additionalProperties"];
            if additional.is_object() {
                for child in map.values_mut() {
                    default(additional, child);
                }
            }
        }
        Value::Array(list) => {
            for item in list {
                default(&schema["items"], item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The violations of a whole object, in the words of the real server.
pub(crate) fn validate(schema: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(schema, object, "", &mut causes);
    causes
}

fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    if !check_type(schema, value, path, causes) {
        return;
    }
    let allowed = items(schema, "enum");
    if !allowed.is_empty() && !allowed.contains(value) {
        causes.push(Cause::unsupported(path, value, allowed));
    }
    match value {
        Value::String(text) => check_text(schema, text, path, causes),
        Value::Number(number) => check_number(
            schema,
            number.as_f64().unwrap_or_default(),
            value,
            path,
            causes,
        ),
        Value::Array(list) => check_list(schema, list, path, causes),
        Value::Object(_) => check_object(schema, value, path, causes),
        Value::Null | Value::Bool(_) => {}
    }
    let passes = |schema: &&Value| {
        let mut inner = Vec::new();
        check(schema, value, path, &mut inner);
        inner.is_empty()
    };
    let any_of = items(schema, "anyOf");
    if !any_of.is_empty() && !any_of.iter().any(|schema| passes(&schema)) {
        causes.push(body_error(
            path,
            value,
            "must validate at least one schema (anyOf)",
        ));
    }
    let one_of = items(schema, "oneOf");
    if !one_of.is_empty() && one_of.iter().filter(passes).count() != 1 {
        causes.push(body_error(
            path,
            value,
            "must validate one and only one schema (oneOf)",
        ));
    }
    for schema in items(schema, "allOf") {
        check(schema, value, path, causes);
    }
    if schema["not"].is_object() && passes(&&schema["not"]) {
        causes.push(body_error(
            path,
            value,
            "must not validate the schema (not)",
        ));
    }
}

fn check_type(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_i64()
            || value.is_u64()
            || value.is_string()
            || wrong(path, value, "integer,string", causes);
    }
    let Some(expected) = schema["type"].as_str() else {
        return true;
    };
    let fits = match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    };
    fits || wrong(path, value, expected, causes)
}

fn wrong(path: &str, value: &Value, expected: &str, causes: &mut Vec<Cause>) -> bool {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    causes.push(Cause::wrong_type(path, found, expected));
    false
}

fn check_text(schema: &Value, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let value = json!(text);
    let length = text.chars().count() as u64;
    if let Some(max) = schema["maxLength"].as_u64().filter(|max| length > *max) {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: path.to_owned(),
            message: format!("Too long: may not be more than {max} bytes"),
        });
    }
    if let Some(min) = schema["minLength"].as_u64().filter(|min| length < *min) {
        causes.push(body_error(
            path,
            &value,
            &format!("should be at least {min} chars long"),
        ));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && !matches_pattern(pattern, text)
    {
        causes.push(body_error(
            path,
            &value,
            &format!("should match '{pattern}'"),
        ));
    }
}

/// Unanchored, as in JSON Schema. A pattern that does not compile matches nothing; definitions with one are refused before.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    compiled(pattern).is_some_and(|regex| regex.is_match(text))
}

/// The expression of a pattern, unless it is invalid. Every world of a process has the same few, and compiling them takes longer than all their matches.
fn compiled(pattern: &str) -> Option<Arc<Regex>> {
    static COMPILED: Mutex<BTreeMap<String, Option<Arc<Regex>>>> = Mutex::new(BTreeMap::new());
    let mut all = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(pattern) {
        return known.clone();
    }
    let regex = Regex::new(pattern).ok().map(Arc::new);
    all.insert(pattern.to_owned(), regex.clone());
    regex
}

fn check_number(schema: &Value, number: f64, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let bound = |name: &str| schema[name].as_f64();
    if let Some(minimum) = bound("minimum") {
        let exclusive = schema["exclusiveMinimum"] == true;
        if number < minimum || exclusive && number == minimum {
            let or_equal = if exclusive { "" } else { " or equal to" };
            let why = format!("should be greater than{or_equal} {}", schema["minimum"]);
            causes.push(body_error(path, value, &why));
        }
    }
    if let Some(maximum) = bound("maximum") {
        let exclusive = schema["exclusiveMaximum"] == true;
        if number > maximum || exclusive && number == maximum {
            let or_equal = if exclusive { "" } else { " or equal to" };
            causes.push(body_error(
                path,
                value,
                &format!("should be less than{or_equal} {}", schema["maximum"]),
            ));
        }
    }
    if let Some(step) = bound("multipleOf").filter(|step| number % step != 0.0) {
        causes.push(body_error(
            path,
            value,
            &format!("should be a multiple of {step}"),
        ));
    }
}

fn check_list(schema: &Value, list: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let length = list.len() as u64;
    if let Some(max) = schema["maxItems"].as_u64().filter(|max| length > *max) {
        causes.push(Cause {
            reason: "FieldValueTooMany",
            field: path.to_owned(),
            message: format!("Too many: {length}: must have at most {max} items"),
        });
    }
    if let Some(min) = schema["minItems"].as_u64().filter(|min| length < *min) {
        let why = format!("should have at least {min} items");
        causes.push(body_error(path, &json!(length), &why));
    }
    let keys: Vec<&str> = items(schema, "x-kubernetes-list-map-keys")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let identity = |item: &Value| -> Value {
        match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => keys
                .iter()
                .map(|&key| (key.to_owned(), item[key].clone()))
                .collect::<Map<_, _>>()
                .into(),
            Some(_) | None => item.clone(),
        }
    };
    let unique = ["map", "set"].map(|kind| schema["x-kubernetes-list-type"] == kind);
    for (index, item) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if unique.contains(&true)
            && list[..index]
                .iter()
                .any(|other| identity(other) == identity(item))
        {
            causes.push(Cause::duplicate(path.clone(), &identity(item)));
        }
        check(&schema["items"], item, &path, causes);
    }
}

fn check_object(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    for field in items(schema, "required").iter().filter_map(Value::as_str) {
        if value.get(field).is_none() {
            causes.push(Cause::required(join(path, field)));
        }
    }
    let count = value.as_object().map_or(0, Map::len) as u64;
    if let Some(max) = schema["maxProperties"].as_u64().filter(|max| count > *max) {
        causes.push(Cause {
            reason: "FieldValueTooMany",
            field: path.to_owned(),
            message: format!("Too many: {count}: must have at most {max} items"),
        });
    }
    if let Some(min) = schema["minProperties"].as_u64().filter(|min| count < *min) {
        causes.push(body_error(
            path,
            value,
            &format!("should have at least {min} properties"),
        ));
    }
    for (field, child) in value.as_object().into_iter().flatten() {
        check(
            field_schema(schema, field),
            child,
            &join(path, field),
            causes,
        );
    }
}

/// The schema of a field: its own, or that of all others. Null, which allows everything, when there is neither.
pub(crate) fn field_schema<'s>(schema: &'s Value, field: &str) -> &'s Value {
    let own = &schema["properties"][field];
    if own.is_null() {
        &schema["additionalProperties"]
    } else {
        own
    }
}

fn body_error(path: &str, value: &Value, why: &str) -> Cause {
    Cause::invalid(path, value, &format!("{path} in body {why}"))
}

/// Why a CustomResourceDefinition's schema is not structural enough to be served.
pub(crate) fn check_definition(definition: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &definition["spec"];
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let (plural, group) = (&spec["names"]["plural"], &spec["group"]);
    let expected = format!(
        "{}.{}",
        plural.as_str().unwrap_or_default(),
        group.as_str().unwrap_or_default()
    );
    if name != expected {
        causes.push(Cause::invalid(
            "metadata.name",
            &json!(name),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if !["Cluster", "Namespaced"]
        .iter()
        .any(|scope| spec["scope"] == *scope)
    {
        causes.push(Cause::unsupported(
            "spec.scope",
            &spec["scope"],
            &[json!("Cluster"), json!("Namespaced")],
        ));
    }
    let versions = items(spec, "versions");
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        causes.push(Cause::invalid(
            "spec.versions",
            &json!(versions.len()),
            "must have exactly one version marked as storage version",
        ));
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.is_null() {
            causes.push(Cause {
                message: "Required value: schemas are required".to_owned(),
                ..Cause::required(path)
            });
        } else {
            check_structural(schema, &path, &mut causes);
        }
    }
    causes
}

fn check_structural(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let typeless = schema["x-kubernetes-int-or-string"] == true
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    if !schema["type"].is_string() && !typeless {
        causes.push(Cause {
            message: "Required value: must not be empty for specified object fields".to_owned(),
            ..Cause::required(format!("{path}.type"))
        });
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && compiled(pattern).is_none()
    {
        causes.push(Cause::invalid(
            &format!("{path}.pattern"),
            &json!(pattern),
            "must be a valid regular expression",
        ));
    }
    for (field, child) in entries(schema, "properties") {
        check_structural(child, &format!("{path}.properties[{field}]"), causes);
    }
    for field in ["items", "additionalProperties"] {
        if schema[field].is_object() {
            check_structural(&schema[field], &format!("{path}.{field}"), causes);
        }
    }
}

/// The conditions that the API server sets on a definition that it serves.
pub(crate) fn establish(definition: &mut Value, now: &str) {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    let names = definition["spec"]["names"].clone();
    let stored: Vec<Value> = items(&definition["spec"], "versions")
        .iter()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    *field_mut(definition, "status") = json!({
        "acceptedNames": names,
        "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 0, "maximum": 9},
                "mode": {"type": "string", "enum": ["auto", "full"], "default": "auto"},
                "name": {"type": "string", "pattern": "^[a-z]+$"},
                "window": {"type": "object", "default": {}, "properties": {"seconds": {"type": "integer", "default": 60}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "port": {"x-kubernetes-int-or-string": true},
            },
        }}})
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        let causes = validate(&schema(), &json!({"spec": spec}));
        let texts: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn violations_in_the_servers_words() {
        check(json!({"size": 1, "port": "80"}), &[]);
        check(json!({}), &["spec.size: Required value"]);
        check(
            json!({"size": -1}),
            &[
                "spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0",
            ],
        );
        check(
            json!({"size": "1"}),
            &[
                "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
            ],
        );
        check(
            json!({"size": 1, "mode": "x"}),
            &["spec.mode: Unsupported value: \"x\": supported values: \"auto\", \"full\""],
        );
        check(
            json!({"size": 1, "name": "A"}),
            &["spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'"],
        );
    }

    #[test]
    fn nested_defaults() {
        let mut object = json!({"spec": {"size": 1, "mode": null}});
        default(&schema(), &mut object);
        assert_eq!(
            object,
            json!({"spec": {"size": 1, "mode": "auto", "window": {"seconds": 60}}})
        );
    }

    #[test]
    fn unknown_fields_are_pruned_and_named() {
        let mut object = json!({"kind": "X", "metadata": {"name": "x"}, "extra": 1, "spec": {
            "size": 1, "seize": 1, "labels": {"a": "b"}, "any": {"thing": {"goes": 1}}, "window": {"minutes": 1},
        }});
        assert_eq!(
            prune(&schema(), &mut object),
            ["extra", "spec.seize", "spec.window.minutes"]
        );
        assert_eq!(
            object["spec"],
            json!({"size": 1, "labels": {"a": "b"}, "any": {"thing": {"goes": 1}}, "window": {}})
        );
    }
}
