//! Writes to Nodes: labels and taints after the join, cordon and taint for a drain, deletion at the end.
//!
//! Every write names the UID and the resource version that it was computed from. Lists of taints are replaced as a whole, so a write whose
//! Node has changed in between is computed again, a few times.
//!
//! Before its first write a Node is given its claim's label, by a request of its own: the chart's admission policy lets kproxide do nothing else to a Node
//! without it. A machine may join after its launch was given up, so that the first write may be the cordon and not the marks.

use std::collections::BTreeMap;

use kproxide_planner::claim::{NodePatch, NodeRef};
use kproxide_planner::facts::{NodeFacts, Taint, TaintEffect};
use kproxide_planner::ids::{ClaimName, NodeName};
use kproxide_planner::keys::{
    self, CORDONED_BY_US, DRAINING_TAINT, EXCLUDE_FROM_LOAD_BALANCERS, EXCLUDED_BY_US,
    OUT_OF_SERVICE_TAINT, UNINITIALIZED_TAINT, UNNEEDED_TAINT, UNREGISTERED_TAINT,
};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::claims::{deletion, only_uid};
use super::client::Client;
use super::convert::node_facts;
use super::error::{Deletion, Error};
use super::pods::pages;
use super::view::{NodeView, TaintView};

const RESOURCE: &str = "nodes";
/// A Node changes a few times a minute; more conflicts in a row than this are not chance.
const TRIES: u32 = 5;

/// What became of a write to a Node.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a Node that is gone or replaced was not written"]
pub enum NodeWrite {
    Written,
    /// It was so already; nothing was sent.
    Unchanged,
    /// It is gone, or another Node has its name.
    Gone,
}

/// The present Node, by a quorum read. `None` if it is gone.
pub async fn get(client: &Client, node: &NodeName) -> Result<Option<NodeFacts>, Error> {
    let found = client
        .all::<NodeView>()
        .get_opt(node.as_str())
        .await
        .map_err(Error::of("get", RESOURCE, node.as_str()))?;
    Ok(found.as_ref().map(node_facts))
}

/// Every Node as it stands, by a quorum read.
pub async fn list(client: &Client) -> Result<Vec<(NodeName, NodeFacts)>, Error> {
    let found = pages::<NodeView>(client, ListParams::default(), RESOURCE).await?;
    let named = |node: &NodeView| {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        (name.into(), node_facts(node))
    };
    Ok(found.iter().map(named).collect())
}

/// Sets the marks; repeatable.
pub async fn mark(
    client: &Client,
    node: &NodeRef,
    claim: &ClaimName,
    marks: &NodePatch,
) -> Result<NodeWrite, Error> {
    change(client, node, claim, |view| marks_patch(view, marks)).await
}

/// Marks the Node unschedulable, taints it [`DRAINING_TAINT`], and takes it out of external load balancers; repeatable.
pub async fn cordon(
    client: &Client,
    node: &NodeRef,
    claim: &ClaimName,
) -> Result<NodeWrite, Error> {
    change(client, node, claim, cordon_patch).await
}

/// Undoes [`cordon`] and [`out_of_service`]. Can be repeated. What a user had done to the Node before stays: it is
/// unschedulable, or out of load balancers, as it was.
pub async fn uncordon(
    client: &Client,
    node: &NodeRef,
    claim: &ClaimName,
) -> Result<NodeWrite, Error> {
    change(client, node, claim, uncordon_patch).await
}

/// Sets or takes off the taint by which schedulers rather use other Nodes. Can be repeated.
pub async fn prefer_others(
    client: &Client,
    node: &NodeRef,
    claim: &ClaimName,
    is_unneeded: bool,
) -> Result<NodeWrite, Error> {
    change(client, node, claim, |view| {
        unneeded_patch(view, is_unneeded)
    })
    .await
}

/// Tells Kubernetes that nothing runs on the Node any more. Can be repeated.
pub async fn out_of_service(
    client: &Client,
    node: &NodeRef,
    claim: &ClaimName,
) -> Result<NodeWrite, Error> {
    let marks = NodePatch {
        add_taints: vec![Taint {
            key: OUT_OF_SERVICE_TAINT.into(),
            value: "nodeshutdown".into(),
            effect: TaintEffect::NoExecute,
        }],
        ..NodePatch::default()
    };
    mark(client, node, claim, &marks).await
}

/// Deletes the Node of this UID. Only after the absence of its machine is proven: a kubelet would register it again.
pub async fn delete(client: &Client, node: &NodeRef, claim: &ClaimName) -> Result<Deletion, Error> {
    match change(client, node, claim, |_| None).await? {
        // Which of the two it is that keeps a Node from being written, the deletion says.
        NodeWrite::Written | NodeWrite::Unchanged | NodeWrite::Gone => {}
    }
    let name = node.name.as_str();
    let nodes = client.all::<NodeView>();
    let deleted = nodes.delete(name, &only_uid(&node.uid)).await;
    let deleted = deleted.map_err(Error::of("delete", RESOURCE, name));
    deletion(deleted.map(|_| ()))
}

/// Reads, computes, and writes if nothing has changed in between.
///
/// A Node that is not called ours yet is called so first, by a request that does nothing else: no other is the admission policy's to let through. If the label
/// does not stay, the rest is written all the same, and the API server says whether it may be.
async fn change(
    client: &Client,
    node: &NodeRef,
    claim: &ClaimName,
    patch: impl Fn(&NodeView) -> Option<Value>,
) -> Result<NodeWrite, Error> {
    let api = client.all::<NodeView>();
    let name = node.name.as_str();
    let mut conflict = None;
    let mut was_named = false;
    for _ in 0..TRIES {
        let found = api.get_opt(name).await;
        let found = found.map_err(Error::of("get", RESOURCE, name))?;
        let is_it = |view: &NodeView| view.metadata.uid.as_deref() == Some(node.uid.as_str());
        let Some(view) = found.filter(is_it) else {
            return Ok(NodeWrite::Gone);
        };
        let naming = naming_patch(&view, claim).filter(|_| !was_named);
        let names = naming.is_some();
        let Some(mut patch) = naming.or_else(|| patch(&view)) else {
            return Ok(match was_named {
                true => NodeWrite::Written,
                false => NodeWrite::Unchanged,
            });
        };
        patch["metadata"]["uid"] = json!(view.metadata.uid);
        patch["metadata"]["resourceVersion"] = json!(view.metadata.resource_version);
        let patch = Patch::Merge(&patch);
        let written = api.patch(name, &PatchParams::default(), &patch).await;
        match written.map_err(Error::of("patch", RESOURCE, name)) {
            Ok(_) if names => was_named = true,
            Ok(_) => return Ok(NodeWrite::Written),
            Err(Error::NotFound { .. }) => return Ok(NodeWrite::Gone),
            Err(error @ Error::Conflict { .. }) => conflict = Some(error),
            Err(other) => return Err(other),
        }
    }
    Err(conflict
        .expect("of so many tries one at most has named it, and every other ended in a conflict"))
}

/// Calls the Node the claim's, if it has no such label.
fn naming_patch(node: &NodeView, claim: &ClaimName) -> Option<Value> {
    let labels = node.metadata.labels.as_ref();
    let is_named = labels.is_some_and(|labels| labels.contains_key(keys::CLAIM));
    (!is_named).then(|| json!({ "metadata": { "labels": { keys::CLAIM: claim.as_str() } } }))
}

fn marks_patch(node: &NodeView, marks: &NodePatch) -> Option<Value> {
    let mut patch = json!({});
    for (field, wanted, present) in [
        ("labels", &marks.labels, &node.metadata.labels),
        (
            "annotations",
            &marks.annotations,
            &node.metadata.annotations,
        ),
    ] {
        let present = |key| present.as_ref().and_then(|present| present.get(key));
        let missing = wanted
            .iter()
            .filter(|(key, value)| present(*key) != Some(*value));
        let missing: BTreeMap<_, _> = missing.collect();
        if !missing.is_empty() {
            patch["metadata"][field] = json!(missing);
        }
    }

    let goes = |taint: &&TaintView| marks.remove_unregistered && taint.key == UNREGISTERED_TAINT;
    let staying = node.spec.taints.iter().filter(|taint| !goes(taint));
    let mut after: Vec<TaintView> = staying.cloned().collect();
    for taint in &marks.add_taints {
        let wanted = taint_view(taint);
        let is_it = |there: &TaintView| there.key == wanted.key && there.effect == wanted.effect;
        if !after.iter().any(is_it) {
            after.push(wanted);
        }
    }
    if after != node.spec.taints {
        patch["spec"]["taints"] = json!(after);
    }
    // It can be written only once, and where a cloud controller manager is at work, it is the one that writes it.
    let found = node.spec.provider_id.as_deref().unwrap_or_default();
    if let Some(id) = &marks.provider_id
        && found.is_empty()
        && !is_tainted(node, UNINITIALIZED_TAINT)
    {
        patch["spec"]["providerID"] = json!(id);
    }
    (patch != json!({})).then_some(patch)
}

fn is_tainted(node: &NodeView, key: &str) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == key)
}

fn cordon_patch(node: &NodeView) -> Option<Value> {
    let cordoned = node.spec.unschedulable == Some(true);
    let tainted = is_tainted(node, DRAINING_TAINT);
    let excluded = excluded_by(node).is_some();
    if cordoned && tainted && excluded {
        return None;
    }
    let mut patch = json!({ "spec": { "unschedulable": true } });
    if !cordoned {
        patch["metadata"]["annotations"][CORDONED_BY_US] = json!("true");
    }
    if !excluded {
        patch["metadata"]["labels"][EXCLUDE_FROM_LOAD_BALANCERS] = json!(EXCLUDED_BY_US);
    }
    if !tainted {
        let mut taints = node.spec.taints.clone();
        taints.push(taint_view(&Taint {
            key: DRAINING_TAINT.into(),
            value: "".into(),
            effect: TaintEffect::NoSchedule,
        }));
        patch["spec"]["taints"] = json!(taints);
    }
    Some(patch)
}

/// The value of the label that keeps the Node out of load balancers.
fn excluded_by(node: &NodeView) -> Option<&str> {
    let labels = node.metadata.labels.as_ref()?;
    Some(labels.get(EXCLUDE_FROM_LOAD_BALANCERS)?)
}

fn unneeded_patch(node: &NodeView, is_unneeded: bool) -> Option<Value> {
    if is_tainted(node, UNNEEDED_TAINT) == is_unneeded {
        return None;
    }
    let mut taints = node.spec.taints.clone();
    taints.retain(|taint| taint.key != UNNEEDED_TAINT);
    let unneeded = is_unneeded.then(|| Taint {
        key: UNNEEDED_TAINT.into(),
        value: "".into(),
        effect: TaintEffect::PreferNoSchedule,
    });
    taints.extend(unneeded.as_ref().map(taint_view));
    Some(json!({ "spec": { "taints": taints } }))
}

fn uncordon_patch(node: &NodeView) -> Option<Value> {
    let annotations = node.metadata.annotations.as_ref();
    let by_us = annotations.is_some_and(|all| all.contains_key(CORDONED_BY_US));
    let tainted = is_tainted(node, DRAINING_TAINT) || is_tainted(node, OUT_OF_SERVICE_TAINT);
    let excluded = excluded_by(node) == Some(EXCLUDED_BY_US);
    if !by_us && !tainted && !excluded {
        return None;
    }
    let mut patch = json!({});
    if excluded {
        patch["metadata"]["labels"][EXCLUDE_FROM_LOAD_BALANCERS] = Value::Null;
    }
    if by_us {
        patch["metadata"]["annotations"][CORDONED_BY_US] = Value::Null;
        patch["spec"]["unschedulable"] = Value::Null;
    }
    if tainted {
        let mut others = node.spec.taints.clone();
        others.retain(|taint| ![DRAINING_TAINT, OUT_OF_SERVICE_TAINT].contains(&&*taint.key));
        patch["spec"]["taints"] = json!(others);
    }
    Some(patch)
}

fn taint_view(taint: &Taint) -> TaintView {
    TaintView {
        key: taint.key.to_string(),
        value: taint.value.to_string(),
        effect: taint.effect.to_string(),
        time_added: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(spec: Value, annotations: Value) -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u", "annotations": annotations}, "spec": spec})).unwrap()
    }

    fn marks() -> NodePatch {
        NodePatch {
            labels: [("a".to_owned(), "b".to_owned())].into(),
            add_taints: vec![Taint {
                key: "k".into(),
                value: "v".into(),
                effect: TaintEffect::NoExecute,
            }],
            remove_unregistered: true,
            provider_id: Some("proxmox://lab/600".to_owned()),
            ..NodePatch::default()
        }
    }

    #[test]
    fn marks_are_added_and_the_unregistered_taint_goes() {
        let fresh = node(
            json!({"taints": [{"key": UNREGISTERED_TAINT, "effect": "NoExecute"}, {"key": "other", "effect": "NoSchedule"}]}),
            json!({}),
        );
        assert_eq!(
            marks_patch(&fresh, &marks()).unwrap(),
            json!({
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "providerID": "proxmox://lab/600",
                    "taints": [{"key": "other", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoExecute"}],
                },
            })
        );
    }

    #[test]
    fn marks_that_are_there_are_not_written_again() {
        let mut marked = node(
            json!({"providerID": "proxmox://lab/600", "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}),
            json!({}),
        );
        marked.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        assert_eq!(marks_patch(&marked, &marks()), None);
    }

    #[test]
    fn a_provider_id_is_written_only_where_nobody_else_does() {
        let writes_id = |node: &NodeView| {
            marks_patch(node, &marks())
                .is_some_and(|patch| patch.pointer("/spec/providerID").is_some())
        };
        assert!(writes_id(&node(json!({}), json!({}))));
        assert!(!writes_id(&node(
            json!({"providerID": "k3s://n"}),
            json!({})
        )));
        let cloud = json!({"taints": [{"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}]});
        assert!(!writes_id(&node(cloud, json!({}))));
    }

    #[test]
    fn a_drain_that_is_given_up_leaves_the_node_as_it_was() {
        let patch = cordon_patch(&node(json!({}), json!({}))).unwrap();
        assert_eq!(patch["spec"]["unschedulable"], json!(true));
        assert_eq!(
            patch["metadata"]["annotations"][CORDONED_BY_US],
            json!("true")
        );

        assert_eq!(
            patch["metadata"]["labels"],
            json!({EXCLUDE_FROM_LOAD_BALANCERS: EXCLUDED_BY_US})
        );

        let mut drained = node(patch["spec"].clone(), json!({CORDONED_BY_US: "true"}));
        drained.metadata.labels = Some(excluded(EXCLUDED_BY_US));
        assert_eq!(cordon_patch(&drained), None);
        assert_eq!(
            uncordon_patch(&drained).unwrap(),
            json!({
                "metadata": {"annotations": {CORDONED_BY_US: null}, "labels": {EXCLUDE_FROM_LOAD_BALANCERS: null}},
                "spec": {"unschedulable": null, "taints": []},
            })
        );
        assert_eq!(uncordon_patch(&node(json!({}), json!({}))), None);
    }

    fn excluded(value: &str) -> BTreeMap<String, String> {
        [(EXCLUDE_FROM_LOAD_BALANCERS.to_owned(), value.to_owned())].into()
    }

    #[test]
    fn a_node_that_somebody_else_took_out_of_load_balancers_stays_out_of_them() {
        for theirs in ["", "true"] {
            let mut node = node(json!({}), json!({}));
            node.metadata.labels = Some(excluded(theirs));
            let patch = cordon_patch(&node).unwrap();
            assert_eq!(patch.pointer("/metadata/labels"), None);
            node.spec = serde_json::from_value(patch["spec"].clone()).unwrap();
            let back = uncordon_patch(&node).unwrap();
            assert_eq!(back.pointer("/metadata/labels"), None);
        }
    }

    #[test]
    fn a_node_is_called_the_claims_once() {
        let claim = ClaimName::from("workers-a");
        let mut node = node(json!({}), json!({}));
        assert_eq!(
            naming_patch(&node, &claim).unwrap(),
            json!({"metadata": {"labels": {keys::CLAIM: "workers-a"}}})
        );
        node.metadata.labels = Some([(keys::CLAIM.to_owned(), "workers-a".to_owned())].into());
        assert_eq!(naming_patch(&node, &claim), None);
    }

    #[test]
    fn a_node_that_somebody_else_cordoned_stays_cordoned() {
        let patch = cordon_patch(&node(json!({"unschedulable": true}), json!({}))).unwrap();
        assert_eq!(patch.pointer("/metadata/annotations"), None);
        let drained = node(patch["spec"].clone(), json!({}));
        assert_eq!(
            uncordon_patch(&drained).unwrap(),
            json!({"spec": {"taints": []}})
        );
    }

    #[test]
    fn the_taint_of_a_node_that_could_go_comes_and_goes_beside_the_others() {
        let keys = |patch: &Value| -> Vec<String> {
            let taints = patch["spec"]["taints"].as_array().unwrap();
            let keys = taints.iter().map(|taint| taint["key"].as_str().unwrap());
            keys.map(str::to_owned).collect()
        };
        let theirs = json!({"taints": [{"key": "theirs", "effect": "NoSchedule"}]});
        let before = node(theirs, json!({}));
        assert_eq!(unneeded_patch(&before, false), None);
        let patch = unneeded_patch(&before, true).unwrap();
        assert_eq!(keys(&patch), ["theirs", UNNEEDED_TAINT]);
        let marked = node(patch["spec"].clone(), json!({}));
        assert_eq!(unneeded_patch(&marked, true), None);
        let patch = unneeded_patch(&marked, false).unwrap();
        assert_eq!(keys(&patch), ["theirs"]);
    }
}
