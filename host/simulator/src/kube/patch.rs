//! The three classic patch formats. Server-side apply is in [`super::apply`].

use serde_json::{Map, Value};

use super::{
    error::ApiError,
    object::{field_mut, items, map_mut},
};

/// RFC 7386: objects merge, null removes, everything else replaces.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let target = map_mut(target);
    for (field, value) in patch {
        if value.is_null() {
            target.remove(field);
        } else {
            merge(target.entry(field).or_insert(Value::Null), value);
        }
    }
}

/// RFC 6902. All operations apply, or the first that cannot is the error.
pub(crate) fn json_patch(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let refused = || {
        ApiError::unprocessable("the server rejected our request due to an error in our request")
    };
    let operations = patch.as_array().ok_or_else(|| {
        ApiError::bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    })?;
    for operation in operations {
        let path = operation["path"].as_str().ok_or_else(refused)?;
        let value = || operation.get("value").cloned();
        let from = || target.pointer(operation["from"].as_str()?).cloned();
        match operation["op"].as_str().unwrap_or_default() {
            "add" => {
                let value = value().ok_or_else(refused)?;
                insert(target, path, value).ok_or_else(refused)?;
            }
            "remove" => {
                remove(target, path).ok_or_else(refused)?;
            }
            "replace" => {
                let value = value().ok_or_else(refused)?;
                *target.pointer_mut(path).ok_or_else(refused)? = value;
            }
            "copy" => {
                let value = from().ok_or_else(refused)?;
                insert(target, path, value).ok_or_else(refused)?;
            }
            "move" => {
                let value = from().ok_or_else(refused)?;
                remove(target, operation["from"].as_str().unwrap_or_default())
                    .ok_or_else(refused)?;
                insert(target, path, value).ok_or_else(refused)?;
            }
            "test" => {
                let expected = operation.get("value").unwrap_or(&Value::Null);
                if target.pointer(path).unwrap_or(&Value::Null) != expected {
                    return Err(refused());
                }
            }
            other => {
                return Err(ApiError::bad_request(format!("Unexpected kind: {other}")));
            }
        }
    }
    Ok(())
}

fn split(pointer: &str) -> Option<(&str, String)> {
    let (parent, last) = pointer.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn insert(target: &mut Value, pointer: &str, value: Value) -> Option<()> {
    let Some((parent, last)) = split(pointer) else {
        *target = value;
        return Some(());
    };
    match target.pointer_mut(parent)? {
        Value::Object(map) => {
            map.insert(last, value);
        }
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let index: usize = last.parse().ok().filter(|index| *index <= list.len())?;
            list.insert(index, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(())
}

fn remove(target: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, last) = split(pointer)?;
    match target.pointer_mut(parent)? {
        Value::Object(map) => map.remove(&last),
        Value::Array(list) => {
            let index: usize = last.parse().ok().filter(|index| *index < list.len())?;
            Some(list.remove(index))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The key by which strategic merge patch and server-side apply match the items of a built-in list; None when the list is
/// replaced as a whole. `taints` and `tolerations` are such lists: they carry no patch strategy in `core/v1`.
pub(crate) fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "conditions" | "addresses" => Some("type"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets" => Some("name"),
        "containerStatuses" | "initContainerStatuses" => Some("name"),
        "ownerReferences" => Some("uid"),
        "volumeMounts" => Some("mountPath"),
        "hostAliases" | "podIPs" => Some("ip"),
        _ => None,
    }
}

/// Strategic merge patch, with the list keys of [`merge_key`], sets for finalizers, and the `$patch` directives.
pub(crate) fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if patch
        .get("$patch")
        .is_some_and(|directive| directive == "replace")
    {
        let rest: Map<String, Value> = patch
            .iter()
            .filter(|(field, _)| *field != "$patch")
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect();
        *target = Value::Object(rest);
        return;
    }
    map_mut(target);
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
            if let Some(present) = target[list].as_array_mut() {
                present.retain(|item| !value.as_array().is_some_and(|gone| gone.contains(item)));
            }
            continue;
        }
        if field.starts_with('$') {
            continue;
        }
        match (value, merge_key(field)) {
            (Value::Null, _) => {
                map_mut(target).remove(field);
            }
            (Value::Array(patches), Some(key)) => {
                merge_list(field_mut(target, field), patches, key)
            }
            (Value::Array(added), None) if field == "finalizers" => {
                let mut list = items(target, field).to_vec();
                list.extend(
                    added
                        .iter()
                        .filter(|item| !items(target, field).contains(item))
                        .cloned(),
                );
                map_mut(target).insert(field.clone(), Value::Array(list));
            }
            (value, _) => strategic(field_mut(target, field), value),
        }
    }
}

fn merge_list(target: &mut Value, patches: &[Value], key: &str) {
    let mut list = match target.take() {
        Value::Array(list) => list,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Vec::new()
        }
    };
    for patch in patches {
        let place = list.iter().position(|item| item[key] == patch[key]);
        match (patch["$patch"].as_str(), place) {
            (Some("delete"), Some(index)) => {
                list.remove(index);
            }
            (Some("delete"), None) => {}
            (Some(_) | None, Some(index)) => strategic(&mut list[index], patch),
            (Some(_) | None, None) => {
                let mut item = Value::Null;
                strategic(&mut item, patch);
                list.push(item);
            }
        }
    }
    *target = Value::Array(list);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patch_removes_with_null() {
        let mut target = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(
            &mut target,
            &json!({"a": {"b": null, "e": {"f": null}}, "d": [2]}),
        );
        assert_eq!(target, json!({"a": {"c": 2, "e": {}}, "d": [2]}));
    }

    #[test]
    fn json_patch_operations() {
        let mut target = json!({"a": [1, 3], "b/c": "x"});
        let patch = json!([
            {"op": "test", "path": "/b~1c", "value": "x"},
            {"op": "add", "path": "/a/1", "value": 2},
            {"op": "add", "path": "/a/-", "value": 4},
            {"op": "move", "from": "/b~1c", "path": "/d"},
            {"op": "remove", "path": "/a/0"},
        ]);
        json_patch(&mut target, &patch).unwrap();
        assert_eq!(target, json!({"a": [2, 3, 4], "d": "x"}));
        let failing = json!([{"op": "test", "path": "/d", "value": "y"}]);
        assert_eq!(json_patch(&mut target, &failing).unwrap_err().code, 422);
    }

    #[test]
    fn strategic_merges_conditions_by_type_and_replaces_taints() {
        let mut target = json!({
            "spec": {"taints": [{"key": "a"}]},
            "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "r"}, {"type": "Other"}]},
        });
        strategic(
            &mut target,
            &json!({
                "spec": {"taints": [{"key": "b"}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "$patch": "delete"}]},
            }),
        );
        assert_eq!(
            target,
            json!({
                "spec": {"taints": [{"key": "b"}]},
                "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r"}]},
            })
        );
    }
}
