//! What a write cannot change: the server's own fields, and the part of the object that another subresource writes.

use serde_json::Value;

use super::{
    error::{ApiError, Cause},
    object::{copy_field, field_mut, finalizers, is_terminating},
    request::Target,
};

/// The fields of `metadata` that are the server's alone.
const FIXED: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "generateName",
];

/// Restores in `object` what a write to this target cannot change, or refuses what it must not try.
pub(crate) fn untouchable(
    target: &Target,
    live: &Value,
    object: &mut Value,
) -> Result<(), ApiError> {
    if target.subresource == "status" {
        *object = with_status_of(target, live, object);
        return Ok(());
    }
    check_finalizers(target, live, object)?;
    let metadata = field_mut(object, "metadata");
    for field in FIXED {
        copy_field(&live["metadata"], metadata, field);
    }
    if metadata["managedFields"].is_null() {
        copy_field(&live["metadata"], metadata, "managedFields");
    }
    let version = target.resource.version(&target.version);
    if version.is_some_and(|version| version.status) {
        copy_field(live, object, "status");
    }
    if target.id().is("pods") && live["spec"]["nodeName"] != object["spec"]["nodeName"] {
        let cause = Cause::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, \
             `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations), \
             `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        );
        return Err(invalid(target, cause));
    }
    Ok(())
}

/// The live object with nothing but the status of the new one, which is moved out of it.
fn with_status_of(target: &Target, live: &Value, object: &mut Value) -> Value {
    let others = live.as_object().into_iter().flatten();
    let others = others.filter(|(field, _)| *field != "status");
    let mut whole: Value = others
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    let status = object.get_mut("status").map(Value::take);
    if let Some(status) = status.filter(|status| !status.is_null()) {
        whole["status"] = status;
    }
    let metadata = field_mut(&mut whole, "metadata");
    // Kubelets may set labels and annotations with the status.
    let allowed: &[&str] = match target.resource.custom {
        true => &["managedFields"],
        false => &["managedFields", "labels", "annotations"],
    };
    for field in allowed {
        if !object["metadata"][field].is_null() {
            copy_field(&object["metadata"], metadata, field);
        }
    }
    whole
}

fn check_finalizers(target: &Target, live: &Value, object: &Value) -> Result<(), ApiError> {
    let is_new = |finalizer: &&str| !finalizers(live).any(|present| present == *finalizer);
    let added: Vec<&str> = finalizers(object).filter(is_new).collect();
    if !is_terminating(live) || added.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
    );
    Err(invalid(
        target,
        Cause::forbidden("metadata.finalizers", &why),
    ))
}

fn invalid(target: &Target, cause: Cause) -> ApiError {
    ApiError::invalid(target.id(), &target.resource.kind, target.name(), &[cause])
}
