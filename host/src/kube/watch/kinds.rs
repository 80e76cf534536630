//! What each watched kind becomes.

use kproxide_planner::facts::Delta;
use kproxide_planner::ids::{ClaimName, ClassName, ClusterName, NodeName, ObjectKey, PoolName};
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Change, Kind};
use crate::kube::convert::{
    claim_facts, class_facts, cluster_facts, daemon_set_facts, defaults, disruption_budget_facts,
    ledger_facts, node_facts, object_key, pod_facts, pool_facts, volume_attachment_facts,
};
use crate::kube::crd::{
    LEDGER_NAME, Ledger, NodeClaim, NodeClass, NodeClassSpec, NodePool, NodePoolSpec,
    ProxmoxCluster, ProxmoxClusterSpec,
};
use crate::kube::view::{
    CustomView, DaemonSetView, DisruptionBudgetView, NodeView, PodView, VolumeAttachmentView,
};

/// An object as a watch delivers it.
pub(super) trait Watched:
    kube::Resource<DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    const KIND: Kind;

    /// Which objects are watched; all, as a rule.
    fn selection(config: watcher::Config) -> watcher::Config {
        config
    }

    /// What follows from the object as it is now.
    fn changes(&self, changes: &mut Vec<Change>);

    /// What follows from its absence; its name is `name` or `namespace/name`.
    fn gone(name: &str, changes: &mut Vec<Change>);
}

fn key(name: &str) -> ObjectKey {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectKey::new(namespace, name)
}

impl Watched for PodView {
    const KIND: Kind = Kind::Pods;

    /// Finished pods weigh nothing, and thousands of them may lie about.
    fn selection(config: watcher::Config) -> watcher::Config {
        config.fields("status.phase!=Succeeded,status.phase!=Failed")
    }

    fn changes(&self, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::Pod(
            object_key(&self.metadata),
            Some(Box::new(pod_facts(self))),
        )));
    }

    fn gone(name: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::Pod(key(name), None)));
    }
}

impl Watched for NodeView {
    const KIND: Kind = Kind::Nodes;

    fn changes(&self, changes: &mut Vec<Change>) {
        let name = NodeName::from(self.metadata.name.as_deref().unwrap_or_default());
        changes.push(Change::Delta(Delta::Node(
            name,
            Some(Box::new(node_facts(self))),
        )));
    }

    fn gone(name: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::Node(name.into(), None)));
    }
}

impl Watched for DaemonSetView {
    const KIND: Kind = Kind::DaemonSets;

    fn changes(&self, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::DaemonSet(
            object_key(&self.metadata),
            Some(Box::new(daemon_set_facts(self))),
        )));
    }

    fn gone(name: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::DaemonSet(key(name), None)));
    }
}

impl Watched for DisruptionBudgetView {
    const KIND: Kind = Kind::DisruptionBudgets;

    fn changes(&self, changes: &mut Vec<Change>) {
        let facts = Box::new(disruption_budget_facts(self));
        changes.push(Change::Delta(Delta::DisruptionBudget(
            object_key(&self.metadata),
            Some(facts),
        )));
    }

    fn gone(name: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::DisruptionBudget(key(name), None)));
    }
}

impl Watched for VolumeAttachmentView {
    const KIND: Kind = Kind::VolumeAttachments;

    fn changes(&self, changes: &mut Vec<Change>) {
        let name = self.metadata.name.clone().unwrap_or_default();
        changes.push(Change::Delta(Delta::VolumeAttachment(
            name,
            volume_attachment_facts(self),
        )));
    }

    fn gone(name: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::VolumeAttachment(
            name.to_owned(),
            None,
        )));
    }
}

impl Watched for CustomView<ProxmoxCluster> {
    const KIND: Kind = Kind::Clusters;

    fn changes(&self, changes: &mut Vec<Change>) {
        let name = ClusterName::from(self.metadata.name.as_deref().unwrap_or_default());
        let (spec, problem) =
            read_spec::<ProxmoxClusterSpec>(&self.spec, defaults::least_cluster());
        let (mut facts, connection) = cluster_facts(&spec);
        let unreadable = problem.is_some();
        facts.problem = problem.or(facts.problem);
        changes.push(Change::Connection(
            name.clone(),
            connection.filter(|_| !unreadable),
        ));
        changes.push(Change::Delta(Delta::Cluster(name, Some(Box::new(facts)))));
    }

    fn gone(name: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Connection(name.into(), None));
        changes.push(Change::Delta(Delta::Cluster(name.into(), None)));
    }
}

impl Watched for CustomView<NodeClass> {
    const KIND: Kind = Kind::Classes;

    fn changes(&self, changes: &mut Vec<Change>) {
        let name = ClassName::from(self.metadata.name.as_deref().unwrap_or_default());
        let (spec, problem) = read_spec::<NodeClassSpec>(&self.spec, defaults::least_class());
        let mut facts = class_facts(&spec);
        facts.problem = problem.or(facts.problem);
        changes.push(Change::Delta(Delta::Class(name, Some(Box::new(facts)))));
    }

    fn gone(name: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::Class(name.into(), None)));
    }
}

impl Watched for CustomView<NodePool> {
    const KIND: Kind = Kind::Pools;

    fn changes(&self, changes: &mut Vec<Change>) {
        let name = PoolName::from(self.metadata.name.as_deref().unwrap_or_default());
        let (spec, problem) = read_spec::<NodePoolSpec>(&self.spec, defaults::least_pool());
        let mut facts = pool_facts(&self.metadata, &spec);
        facts.problem = problem.or(facts.problem);
        changes.push(Change::Delta(Delta::Pool(name, Some(Box::new(facts)))));
    }

    fn gone(name: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::Pool(name.into(), None)));
    }
}

impl Watched for CustomView<NodeClaim> {
    const KIND: Kind = Kind::Claims;

    fn changes(&self, changes: &mut Vec<Change>) {
        let name = ClaimName::from(self.metadata.name.as_deref().unwrap_or_default());
        changes.push(match claim_facts(self) {
            Ok(facts) => Change::Delta(Delta::Claim(name, Some(Box::new(facts)))),
            Err(unreadable) => Change::Unreadable(unreadable),
        });
    }

    fn gone(name: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::Claim(name.into(), None)));
    }
}

impl Watched for CustomView<Ledger> {
    const KIND: Kind = Kind::Ledger;

    fn selection(config: watcher::Config) -> watcher::Config {
        config.fields(&format!("metadata.name={LEDGER_NAME}"))
    }

    fn changes(&self, changes: &mut Vec<Change>) {
        changes.push(match ledger_facts(self) {
            Ok(facts) => Change::Delta(Delta::Ledger(Some(Box::new(facts)))),
            Err(unreadable) => Change::Unreadable(unreadable),
        });
    }

    fn gone(_: &str, changes: &mut Vec<Change>) {
        changes.push(Change::Delta(Delta::Ledger(None)));
    }
}

/// The specification as far as it can be read, and what is wrong with it. `least` is the smallest one that can be read at all.
fn read_spec<S: DeserializeOwned>(spec: &Map<String, Value>, least: Value) -> (S, Option<String>) {
    let whole = match serde_json::from_value::<S>(Value::Object(spec.clone())) {
        Ok(read) => return (read, None),
        Err(whole) => whole.to_string(),
    };
    // One field at a time onto what can be read: the one that cannot be is named.
    let mut readable = least;
    let mut problems = Vec::new();
    for (field, value) in spec {
        let mut with = readable.clone();
        with[field] = value.clone();
        match serde_json::from_value::<S>(with.clone()) {
            Ok(_) => readable = with,
            Err(problem) => problems.push(format!("spec.{field}: {problem}")),
        }
    }
    if problems.is_empty() {
        // Nothing that is there is wrong: something is missing.
        problems.push(format!("spec: {whole}"));
    }
    let read = serde_json::from_value(readable).expect("only what can be read was taken over");
    (read, Some(problems.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: Value) -> Map<String, Value> {
        spec.as_object().unwrap().clone()
    }

    #[test]
    fn f97_a_field_that_cannot_be_read_is_named_and_the_others_are_kept() {
        let (spec, problem) = read_spec::<NodePoolSpec>(
            &object(json!({"nodeClass": "c", "weight": 7, "limits": {"maxNodes": "many"}})),
            json!({"nodeClass": ""}),
        );
        assert_eq!((spec.node_class.as_str(), spec.weight), ("c", 7));
        let problem = problem.unwrap();
        assert!(
            problem.starts_with("spec.limits: invalid type: string \"many\""),
            "{problem}"
        );
    }

    #[test]
    fn a_field_that_is_missing_is_named() {
        let (_, problem) = read_spec::<NodePoolSpec>(&object(json!({})), json!({"nodeClass": ""}));
        assert_eq!(problem.unwrap(), "spec: missing field `nodeClass`");
    }

    #[test]
    fn f66_an_unreadable_claim_is_not_a_claim_that_is_gone() {
        let claim: CustomView<NodeClaim> =
            serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"pool": 7}}))
                .unwrap();
        let mut changes = Vec::new();
        claim.changes(&mut changes);
        assert!(
            matches!(&changes[..], [Change::Unreadable(of)] if of.object == "NodeClaim/c"),
            "{changes:?}"
        );
    }
}
