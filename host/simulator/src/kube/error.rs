//! The API server's refusals, with the texts, reasons and codes of the real one.

use serde_json::{Value, json};

use super::resource::ResourceId;

/// A refusal, answered as a `Status` object of `apimachinery/pkg/apis/meta/v1`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason, e.g. `AlreadyExists`.
    pub reason: &'static str,
    /// The text for people.
    pub message: String,
    /// `details` of the Status; null when it has none.
    pub details: Value,
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
        }
    }

    fn about(mut self, resource: &ResourceId, name: &str) -> Self {
        let mut details = json!({"name": name, "kind": &*resource.plural});
        if !resource.group.is_empty() {
            details["group"] = json!(&*resource.group);
        }
        self.details = details;
        self
    }

    pub(crate) fn not_found(resource: &ResourceId, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// The path is served by nothing; the real server sends plain text, clients only look at the code.
    pub(crate) fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    pub(crate) fn already_exists(resource: &ResourceId, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{resource} \"{name}\" already exists"),
        )
        .about(resource, name)
    }

    pub(crate) fn conflict(resource: &ResourceId, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"),
        )
        .about(resource, name)
    }

    /// A write based on an older resourceVersion.
    pub(crate) fn stale(resource: &ResourceId, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Server-side apply met fields of other managers; `conflicts` are (manager, field path).
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(manager, field)| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with \"{manager}\""), "field": field})
            })
            .collect();
        let fields: Vec<String> = conflicts
            .iter()
            .map(|(manager, field)| format!("conflict with \"{manager}\": {field}"))
            .collect();
        let plural = if conflicts.len() == 1 { "" } else { "s" };
        let count = conflicts.len();
        let mut error = Self::new(
            409,
            "Conflict",
            format!(
                "Apply failed with {count} conflict{plural}: {}",
                fields.join(", ")
            ),
        );
        error.details = json!({"causes": causes});
        error
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// One or more invalid fields of an object of kind `kind` (`NodePool.kproxide.dev` for a group's kinds).
    pub(crate) fn invalid(resource: &ResourceId, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let qualified = match &*resource.group {
            "" => kind.to_owned(),
            group => format!("{kind}.{group}"),
        };
        let texts: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(
            422,
            "Invalid",
            format!("{qualified} \"{name}\" is invalid: {list}"),
        );
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        error.details = json!({"name": name, "kind": kind, "causes": causes});
        if !resource.group.is_empty() {
            error.details["group"] = json!(&*resource.group);
        }
        error
    }

    /// A patch that is well-formed but cannot be applied.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// The version asked for is compacted away; a client lists anew.
    pub(crate) fn gone(asked: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {asked} ({oldest})"),
        )
    }

    /// A continue token outlived the history that it points into.
    pub(crate) fn continue_expired() -> Self {
        Self::new(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You must start a new list \
             without the continue parameter.",
        )
    }

    /// The client knows a version that this server has not reached.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(504, "Timeout", format!("Timeout: {message}"));
        error.details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        error
    }

    /// An eviction that the budget `budget` does not allow now.
    pub(crate) fn disruption_budget(cause: String) -> Self {
        let mut error = Self::new(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        );
        error.details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
        error
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let mut error = Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        error.details = json!({"causes": [{"message": message}]});
        error
    }

    /// The Status object of this refusal.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

/// One invalid field of an object, in the words of `field.Error`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.to_owned(),
            message: format!("Invalid value: {value}: {why}"),
        }
    }

    /// The schema validator prints the type's name where the value would be.
    pub(crate) fn wrong_type(field: &str, found: &str, expected: &str) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            field: field.to_owned(),
            message: format!(
                "Invalid value: \"{found}\": {field} in body must be of type {expected}: \"{found}\""
            ),
        }
    }

    pub(crate) fn required(field: String) -> Self {
        Self {
            reason: "FieldValueRequired",
            field,
            message: "Required value".to_owned(),
        }
    }

    pub(crate) fn unsupported(field: &str, value: &Value, supported: &[Value]) -> Self {
        let supported: Vec<String> = supported.iter().map(Value::to_string).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.to_owned(),
            message: format!(
                "Unsupported value: {value}: supported values: {}",
                supported.join(", ")
            ),
        }
    }

    pub(crate) fn duplicate(field: String, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            field,
            message: format!("Duplicate value: {value}"),
        }
    }

    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.to_owned(),
            message: format!("Forbidden: {why}"),
        }
    }
}
