//! What the checkers and the people of the simulation read in an object of Kubernetes.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub(crate) const CLAIMS: &str = "nodeclaims.kproxide.dev";
pub(crate) const LEDGERS: &str = "ledgers.kproxide.dev";
const TAINT: &str = "kproxide.dev/draining";
/// Kubernetes' own: nothing runs on this Node any more.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

pub(crate) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// A field that is text; empty where there is none.
pub(crate) fn text(field: &Value) -> &str {
    field.as_str().unwrap_or_default()
}

/// The condition of that type in `status.conditions`.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Why the claim's Node is drained, as the claim says.
pub(crate) fn drain_reason(claim: &Value) -> &str {
    condition(claim, "Drained").map_or("", |drained| text(&drained["reason"]))
}

/// The claim's Node goes because we would rather be without it.
pub(crate) fn is_voluntary(claim: &Value) -> bool {
    ["Empty", "Underutilized", "Replace"].contains(&drain_reason(claim))
}

/// Whether the condition of that type is `True`.
pub(crate) fn condition_is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// The Node has not been Ready for a minute.
pub(crate) fn is_bad(node: &Value, now: Timestamp) -> bool {
    condition(node, "Ready").is_some_and(|ready| {
        let since: Option<Timestamp> = text(&ready["lastTransitionTime"]).parse().ok();
        ready["status"] != "True"
            && since.is_some_and(|since| now.duration_since(since) > SignedDuration::from_secs(60))
    })
}

/// The Node carries our taint.
pub(crate) fn is_tainted(node: &Value) -> bool {
    has_taint(node, TAINT)
}

/// Kubernetes was told that nothing runs on this Node any more.
pub(crate) fn is_out_of_service(node: &Value) -> bool {
    has_taint(node, OUT_OF_SERVICE)
}

fn has_taint(node: &Value, key: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints
        .into_iter()
        .flatten()
        .any(|taint| taint["key"] == key)
}
