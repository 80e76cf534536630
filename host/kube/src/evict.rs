//! The Eviction API: pods leave under their PodDisruptionBudgets.

use kproxide_planner::ids::{PodKey, Uid};
use kube::api::PostParams;
use kube::core::Status;
use serde_json::json;

use super::client::Client;
use super::error::{Error, Request};
use super::view::PodView;
use kproxide_common::foreign;

/// Budgets that are named: a pod with more is none that the API server evicts.
const CAUSES_MAX: usize = 4;

/// What became of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a blocked pod is still there"]
pub enum Eviction {
    /// Accepted: the pod terminates, within its grace period.
    Evicted,
    /// A budget does not allow it now: try again later. The API server's text names the budget.
    Blocked(String),
    /// It is gone, or another pod has its name: there is nothing to evict.
    Gone,
}

/// Evicts the pod of this UID.
///
/// The request is written here because kube 5's own `Api::evict` sends its options as `delete_options`, which the API server ignores: the
/// UID would not be checked, and a successor of the same name (a StatefulSet's, say) evicted.
///
/// # Errors
/// Anything but the outcomes above; [`Error::TooManyRequests`] is the API server's own load, not a budget.
pub async fn evict(client: &Client, pod: &PodKey, uid: &Uid) -> Result<Eviction, Error> {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": { "preconditions": { "uid": uid } },
    });
    let sent = client
        .namespaced::<PodView>(&pod.namespace)
        .create_subresource::<serde_json::Value, Status>(
            "eviction",
            &pod.name,
            &PostParams::default(),
            &body,
        )
        .await;
    let status = match sent {
        Ok(_) => return Ok(Eviction::Evicted),
        Err(kube::Error::Api(status)) => status,
        Err(other) => {
            return Err(Error::of("create", "pods/eviction", &pod.to_string())(
                other,
            ));
        }
    };
    match outcome(&status) {
        Some(outcome) => Ok(outcome),
        None => Err(Error::from_status(
            Request {
                verb: "create",
                resource: "pods/eviction",
                name: pod.to_string(),
            },
            *status,
        )),
    }
}

/// `None`: an error.
fn outcome(status: &Status) -> Option<Eviction> {
    match status.code {
        404 => Some(Eviction::Gone),
        // The precondition names the UID that was found instead.
        409 if status.message.contains("UID in precondition")
            || status.message.contains("UID in the precondition") =>
        {
            Some(Eviction::Gone)
        }
        429 if by_budget(status) => Some(Eviction::Blocked(blocked_text(status))),
        // The pod has two budgets. The API server never evicts such a pod.
        500 if status.message.contains("PodDisruptionBudget") => {
            Some(Eviction::Blocked(foreign::said(&status.message)))
        }
        _ => None,
    }
}

/// The API server also answers 429 when it has too much to do.
fn by_budget(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == "DisruptionBudget")
        || status.message.contains("disruption budget")
}

fn blocked_text(status: &Status) -> String {
    let causes = status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .map(|cause| cause.message.as_str());
    std::iter::once(status.message.as_str())
        .chain(causes.take(CAUSES_MAX))
        .filter(|text| !text.is_empty())
        .map(foreign::said)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(answer: serde_json::Value) -> Status {
        serde_json::from_value(answer).unwrap()
    }

    /// As kube-apiserver 1.33 words it.
    #[test]
    fn f69_a_budget_blocks_and_is_named() {
        let answer = status(json!({
            "status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "details": {"causes": [{"reason": "DisruptionBudget",
                "message": "The disruption budget web needs 2 healthy pods and has 2 currently"}]},
        }));
        let Some(Eviction::Blocked(text)) = outcome(&answer) else {
            panic!("{answer:?}")
        };
        assert!(
            text.ends_with("The disruption budget web needs 2 healthy pods and has 2 currently"),
            "{text}"
        );
    }

    #[test]
    fn a_busy_server_is_no_budget() {
        assert_eq!(
            outcome(&status(
                json!({"code": 429, "message": "the server is busy"})
            )),
            None
        );
    }

    #[test]
    fn f57_another_pod_of_that_name_is_left_alone() {
        let answer = status(json!({"code": 409, "reason": "Conflict",
            "message": "Precondition failed: UID in precondition: u1, UID in object meta: u2"}));
        assert_eq!(outcome(&answer), Some(Eviction::Gone));
        assert_eq!(outcome(&status(json!({"code": 404}))), Some(Eviction::Gone));
    }
}
