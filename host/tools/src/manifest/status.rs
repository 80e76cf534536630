//! What the scheduler, the kubelets and the disruption controller would write about objects that no cluster has run yet.

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::facts::LabelSelector;
use kproxide_planner::kubernetes::selector::selects;
use serde_json::{Value, json};

use super::{Object, Objects};
use kproxide_kube::convert::{decoded, disruption_budget_facts};
use kproxide_kube::view::DisruptionBudgetView;

/// Pods of files count as unschedulable since then: longer than any pool waits before it scales up.
const WAITED: SignedDuration = SignedDuration::from_hours(24);

/// Completes pods, Nodes and PersistentVolumes. A pod without a Node counts as unschedulable, unless a scheduling gate holds it. A pod with
/// a Node runs and is Ready, a Node is Ready, and a PersistentVolume is available, if nothing says otherwise.
pub fn settle(object: &mut Object, now: Timestamp) {
    let before = (now - WAITED).to_string();
    match object.kind() {
        "Pod" => settle_pod(&mut object.value, &before),
        "Node" => {
            let conditions = &object.value["status"]["conditions"];
            if conditions.is_null() {
                let ready =
                    json!([{"type": "Ready", "status": "True", "lastTransitionTime": before}]);
                merge(&mut object.value, json!({"conditions": ready}));
            }
            // What is not reserved is all of it.
            if object.value["status"]["allocatable"].is_null() {
                let capacity = object.value["status"]["capacity"].clone();
                merge(&mut object.value, json!({"allocatable": capacity}));
            }
        }
        "PersistentVolume" if object.value["status"]["phase"].is_null() => {
            merge(&mut object.value, json!({"phase": "Available"}));
        }
        _ => {}
    }
}

fn settle_pod(pod: &mut Value, before: &str) {
    let status = &pod["status"];
    let is_bound = pod["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| !node.is_empty());
    let is_gated = pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    let phase = status["phase"].as_str().unwrap_or_default();
    let has = |kind: &str| {
        let conditions = status["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == kind)
    };
    if is_bound && phase.is_empty() {
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": before}]);
        merge(pod, json!({"phase": "Running", "conditions": ready}));
    } else if !is_bound && !is_gated && matches!(phase, "" | "Pending") && !has("PodScheduled") {
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.push(json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": before,
        }));
        merge(pod, json!({"phase": "Pending", "conditions": conditions}));
    }
}

/// How many pods a PodDisruptionBudget lets go, if its status does not say.
pub fn settle_budget(budget: &mut Object, objects: &Objects) {
    if budget.kind() != "PodDisruptionBudget"
        || !budget.value["status"]["disruptionsAllowed"].is_null()
    {
        return;
    }
    let Ok(view) = decoded::<DisruptionBudgetView>("PodDisruptionBudget", &budget.value) else {
        return;
    };
    let selector = disruption_budget_facts(&view).selector;
    let namespace = budget.namespace().to_owned();
    let (all, healthy) = counted(objects, &namespace, selector.as_ref());
    let part = |value: &Value| match (value.as_u64(), value.as_str()) {
        (Some(count), _) => Some(count),
        // Kubernetes rounds shares up.
        (None, Some(text)) => {
            let percent: u64 = text.strip_suffix('%')?.parse().ok()?;
            Some((all * percent).div_ceil(100))
        }
        (None, None) => None,
    };
    let spec = &budget.value["spec"];
    let least = match (part(&spec["minAvailable"]), part(&spec["maxUnavailable"])) {
        (Some(least), _) => least,
        (None, Some(most)) => all.saturating_sub(most),
        (None, None) => all,
    };
    let allowed = healthy.saturating_sub(least);
    merge(&mut budget.value, json!({"disruptionsAllowed": allowed}));
}

/// The pods that are selected, and those of them that are Ready.
fn counted(objects: &Objects, namespace: &str, selector: Option<&LabelSelector>) -> (u64, u64) {
    let (mut all, mut healthy) = (0, 0);
    let Some(selector) = selector else {
        return (0, 0);
    };
    for (_, pod) in objects
        .of("", "Pod")
        .filter(|(identity, _)| identity.namespace == namespace)
    {
        let labels = pod.value["metadata"]["labels"].clone();
        let labels = serde_json::from_value(labels).unwrap_or_default();
        let phase = pod.value["status"]["phase"].as_str();
        if !selects(selector, &labels) || matches!(phase, Some("Succeeded" | "Failed")) {
            continue;
        }
        all += 1;
        let conditions = pod.value["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        healthy +=
            u64::from(conditions.any(|one| one["type"] == "Ready" && one["status"] == "True"));
    }
    (all, healthy)
}

fn merge(object: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else {
        return;
    };
    if let Some(object) = object.as_object_mut() {
        let status = object.entry("status").or_insert_with(|| json!({}));
        if status.is_null() {
            *status = json!({});
        }
        if let Some(status) = status.as_object_mut() {
            status.extend(fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::documents;

    fn settled(text: &str) -> Objects {
        let now = "2026-01-05T08:00:00Z".parse().unwrap();
        let mut read = documents("f.yaml", text, "default").unwrap();
        for object in &mut read {
            settle(object, now);
        }
        let mut objects = Objects::default();
        objects.add(read);
        objects
    }

    #[test]
    fn pods_without_a_node_wait_and_gated_ones_do_not() {
        let objects = settled(
            "
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {schedulingGates: [{name: g}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: c}, spec: {nodeName: node}}
---
{apiVersion: v1, kind: Pod, metadata: {name: d}, spec: {}, status: {phase: Succeeded}}
",
        );
        let statuses: Vec<_> = objects
            .of("", "Pod")
            .map(|(_, pod)| {
                let status = &pod.value["status"];
                (
                    status["phase"].clone(),
                    status["conditions"][0]["reason"].clone(),
                )
            })
            .collect();
        let null = Value::Null;
        let expected = [
            (json!("Pending"), json!("Unschedulable")),
            (null.clone(), null.clone()),
            (json!("Running"), null.clone()),
            (json!("Succeeded"), null),
        ];
        assert_eq!(statuses, expected);
    }

    #[test]
    fn a_budget_without_a_status_counts_its_pods() {
        let pod = |name: &str, app: &str| {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {app}}}}}, spec: {{nodeName: node}}}}\n---\n"
            )
        };
        let pods = ["a", "b", "c"].map(|name| pod(name, "x")).concat() + &pod("d", "y");
        let objects = settled(&pods);
        let allowed = |rule: &str| {
            let text = format!(
                "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: p}}, spec: {{{rule}, selector: {{matchLabels: {{app: x}}}}}}}}"
            );
            let mut budget = documents("f.yaml", &text, "default").unwrap().remove(0);
            settle_budget(&mut budget, &objects);
            budget.value["status"]["disruptionsAllowed"].as_i64()
        };
        assert_eq!(allowed("minAvailable: 1"), Some(2));
        assert_eq!(allowed("minAvailable: 50%"), Some(1));
        assert_eq!(allowed("maxUnavailable: 1"), Some(1));
        assert_eq!(allowed("maxUnavailable: 0"), Some(0));
    }
}
