//! The scale subresource: one view for everything that has replicas.

use serde_json::{Value, json};

use super::{
    error::ApiError,
    object::{entries, field_mut, meta_str},
    request::Target,
    resource::Scale,
};

fn paths(target: &Target) -> Option<&Scale> {
    target.resource.version(&target.version)?.scale.as_ref()
}

/// The `autoscaling/v1` Scale of an object.
pub(crate) fn get(target: &Target, object: &Value) -> Value {
    let at = |path: &str| {
        path.split('.')
            .fold(object, |value, field| &value[field])
            .clone()
    };
    let number = |path: &str| at(path).as_i64().unwrap_or(0);
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {},
        "status": {"replicas": 0},
    });
    if target.resource.namespaced {
        scale["metadata"]["namespace"] = metadata["namespace"].clone();
    }
    if let Some(paths) = paths(target) {
        scale["spec"]["replicas"] = json!(number(&paths.spec_replicas));
        scale["status"]["replicas"] = json!(number(&paths.status_replicas));
        let selector = match &paths.selector {
            Some(path) => at(path),
            None => json!(match_labels(&object["spec"]["selector"])),
        };
        if selector
            .as_str()
            .is_some_and(|selector| !selector.is_empty())
        {
            scale["status"]["selector"] = selector;
        }
    }
    scale
}

fn match_labels(selector: &Value) -> String {
    let pairs: Vec<String> = entries(selector, "matchLabels")
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.join(",")
}

/// The object with the replicas that the Scale asks for.
pub(crate) fn set(target: &Target, live: &Value, scale: &Value) -> Result<Value, ApiError> {
    let paths = paths(target).ok_or_else(ApiError::no_such_path)?;
    let version = meta_str(scale, "resourceVersion");
    if !version.is_empty() && version != meta_str(live, "resourceVersion") {
        return Err(ApiError::stale(target.id(), target.name()));
    }
    let mut object = live.clone();
    let slot = paths
        .spec_replicas
        .split('.')
        .fold(&mut object, |value, field| field_mut(value, field));
    *slot = json!(scale["spec"]["replicas"].as_i64().unwrap_or(0));
    Ok(object)
}
