//! Nodes, disruption budgets and volume attachments.

use std::collections::BTreeMap;

use kproxide_planner::facts::{
    DisruptionBudgetFacts, LabelSelector, MOST_REQUIREMENTS, NodeFacts, Requirement, Taint,
    TaintEffect, VolumeAttachmentFacts,
};
use kproxide_planner::ids::Uid;
use kproxide_planner::kubernetes::resources::Resources;

use super::created;
use super::pod::requirement_facts;
use super::{filled, since};
use crate::crd::Amount;
use crate::view::{DisruptionBudgetView, NodeView, SelectorView, TaintView, VolumeAttachmentView};

/// What planning reads of a Node.
pub fn node_facts(node: &NodeView) -> NodeFacts {
    let (metadata, spec, status) = (&node.metadata, &node.spec, &node.status);
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.kind == "Ready");
    NodeFacts {
        uid: Uid::from(metadata.uid.as_deref().unwrap_or_default()),
        created: created(metadata),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        taints: spec.taints.iter().map(node_taint_facts).collect(),
        unschedulable: spec.unschedulable == Some(true),
        ready: ready.is_some_and(|condition| condition.status == "True"),
        ready_since: ready.map_or_else(
            || created(metadata),
            |condition| since(&condition.last_transition_time, metadata),
        ),
        allocatable: offered(&status.allocatable),
        capacity: offered(&status.capacity),
        provider_id: filled(&spec.provider_id).map(Into::into),
        system_uuid: filled(&status.node_info.system_uuid).map(|id| id.to_lowercase().into()),
        address: (status.addresses.iter())
            .filter(|it| it.kind == "InternalIP")
            .find_map(|it| it.address.parse().ok()),
        deleting: metadata.deletion_timestamp.is_some(),
    }
}

/// An effect of a later Kubernetes counts as the gentlest that keeps pods away.
fn node_taint_facts(taint: &TaintView) -> Taint {
    Taint {
        key: taint.key.as_str().into(),
        value: taint.value.as_str().into(),
        effect: TaintEffect::from_word(&taint.effect).unwrap_or(TaintEffect::NoSchedule),
    }
}

/// An amount that cannot be read is not offered.
fn offered(amounts: &BTreeMap<String, Amount>) -> Resources {
    let one = |(name, Amount(text)): (&String, &Amount)| {
        Resources::offered([(name.as_str(), text.as_str())]).unwrap_or_default()
    };
    amounts
        .iter()
        .map(one)
        .fold(Resources::default(), |sum, amount| sum.plus(&amount))
}

/// Which pods a PodDisruptionBudget speaks of, and how many of them may be evicted now.
pub fn disruption_budget_facts(budget: &DisruptionBudgetView) -> DisruptionBudgetFacts {
    let status = &budget.status;
    DisruptionBudgetFacts {
        selector: budget.spec.selector.as_ref().map(selector_facts),
        disruptions_allowed: status.disruptions_allowed,
        is_healthy: status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy,
        frees_unhealthy: budget.spec.unhealthy_pod_eviction_policy.as_deref()
            == Some("AlwaysAllow"),
    }
}

/// A requirement of a later Kubernetes is left out, and what is more than kproxide looks at: the budget then covers more pods, which keeps Nodes rather
/// than loses pods.
fn selector_facts(selector: &SelectorView) -> LabelSelector {
    let labels = selector.match_labels.iter().take(MOST_REQUIREMENTS);
    let mut left = MOST_REQUIREMENTS;
    let mut has_room = |requirement: &Requirement| {
        let rest = left.checked_sub(1 + requirement.values.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let expressions = selector.match_expressions.iter();
    let expressions = expressions.filter_map(requirement_facts);
    LabelSelector {
        match_labels: labels
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        match_expressions: expressions.filter(|it| has_room(it)).collect(),
    }
}

/// `None`: it is attached to no Node.
pub fn volume_attachment_facts(attachment: &VolumeAttachmentView) -> Option<VolumeAttachmentFacts> {
    let volume = attachment.spec.source.persistent_volume_name.as_deref();
    Some(VolumeAttachmentFacts {
        node: filled(&attachment.spec.node_name)?.into(),
        volume: volume.map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node() {
        let node = serde_json::from_value(json!({
            "metadata": {"name": "n1", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z",
                         "labels": {"a": "b"}, "annotations": {"kproxide.dev/do-not-disrupt": "true", "flannel": "x"}},
            "spec": {"providerID": "k3s://n1", "unschedulable": true,
                     "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]},
            "status": {
                "allocatable": {"cpu": "3900m", "memory": "8000000Ki", "pods": "110", "nvidia.com/gpu": "1", "odd": "?"},
                "capacity": {"cpu": "4"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}],
                "nodeInfo": {"systemUUID": "F0E1-AB"},
                "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.7"},
                              {"type": "InternalIP", "address": "fd00::7"}],
                "images": [{"names": ["a"], "sizeBytes": 1}],
            },
        }))
        .unwrap();
        let facts = node_facts(&node);
        assert_eq!(
            (facts.allocatable.milli_cores, facts.allocatable.pods),
            (3900, 110)
        );
        assert_eq!(facts.allocatable.extended("nvidia.com/gpu"), 1);
        assert_eq!(facts.system_uuid.unwrap().as_str(), "f0e1-ab");
        assert_eq!(facts.ready_since.to_string(), "2026-01-01T00:01:00Z");
        assert_eq!(facts.address, Some("10.0.0.7".parse().unwrap()));
        assert!(facts.ready && facts.unschedulable);
        assert_eq!(facts.taints[0].effect, TaintEffect::NoExecute);
        // Whatever a label policy gave it must be seen to be there.
        assert_eq!(facts.annotations.len(), 2);
    }

    #[test]
    fn no_selector_and_an_empty_one_are_different() {
        let read = |budget| disruption_budget_facts(&serde_json::from_value(budget).unwrap());
        assert_eq!(read(json!({"metadata": {}, "spec": {}})).selector, None);
        let facts = read(
            json!({"metadata": {}, "spec": {"selector": {}}, "status": {"disruptionsAllowed": 1}}),
        );
        assert_eq!(facts.selector, Some(LabelSelector::default()));
        assert_eq!(facts.disruptions_allowed, 1);
    }
}
