//! What each watched kind becomes.

use kproxide_planner::facts::Delta;
use kproxide_planner::ids::ObjectKey;
use kproxide_planner::keys::FORGET_LEARNED;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;

use super::{Change, Kind};
use crate::convert::{
    Unreadable, claim_facts, class_facts, cluster_facts, csi_driver_facts, csi_node_facts,
    daemon_set_facts, disruption_budget_facts, existence, hypervisors_off, ledger_facts,
    node_facts, pod_facts, pool_facts, storage_capacity_facts, storage_class_facts,
    volume_attachment_facts, volume_claim_facts, volume_facts,
};
use crate::crd::{LEDGER_NAME, Ledger, NodeClaim, NodeClass, NodePool, ProxmoxCluster};
use crate::view::{
    CsiDriverView, CsiNodeView, CustomView, DaemonSetView, DisruptionBudgetView, NamespaceView,
    NodeView, PodView, StorageCapacityView, StorageClassView, VolumeAttachmentView,
    VolumeClaimView, VolumeView,
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

    /// What follows from the object as it is now, or from its absence; its name is `name` or `namespace/name`.
    fn changes(name: &str, object: Option<&Self>) -> Result<Vec<Change>, Unreadable>;
}

fn one(delta: Delta) -> Result<Vec<Change>, Unreadable> {
    Ok(vec![Change::Delta(delta)])
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

    fn changes(name: &str, pod: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = pod.map(|pod| Box::new(pod_facts(pod)));
        one(Delta::Pod(key(name), facts))
    }
}

impl Watched for NodeView {
    const KIND: Kind = Kind::Nodes;

    fn changes(name: &str, node: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = node.map(|node| Box::new(node_facts(node)));
        one(Delta::Node(name.into(), facts))
    }
}

impl Watched for DaemonSetView {
    const KIND: Kind = Kind::DaemonSets;

    fn changes(name: &str, set: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = set.map(|set| Box::new(daemon_set_facts(set)));
        one(Delta::DaemonSet(key(name), facts))
    }
}

impl Watched for DisruptionBudgetView {
    const KIND: Kind = Kind::DisruptionBudgets;

    fn changes(name: &str, budget: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = budget.map(|budget| Box::new(disruption_budget_facts(budget)));
        one(Delta::DisruptionBudget(key(name), facts))
    }
}

impl Watched for NamespaceView {
    const KIND: Kind = Kind::Namespaces;

    fn changes(name: &str, namespace: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let labels = namespace.map(|it| it.metadata.labels.clone().unwrap_or_default());
        one(Delta::Namespace(name.into(), labels.map(Box::new)))
    }
}

impl Watched for VolumeAttachmentView {
    const KIND: Kind = Kind::VolumeAttachments;

    fn changes(name: &str, attachment: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = attachment.and_then(volume_attachment_facts);
        one(Delta::VolumeAttachment(name.to_owned(), facts))
    }
}

impl Watched for VolumeClaimView {
    const KIND: Kind = Kind::VolumeClaims;

    fn changes(name: &str, claim: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = claim.map(|claim| Box::new(volume_claim_facts(claim)));
        one(Delta::VolumeClaim(key(name), facts))
    }
}

impl Watched for VolumeView {
    const KIND: Kind = Kind::Volumes;

    fn changes(name: &str, volume: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = volume.map(|volume| Box::new(volume_facts(volume)));
        one(Delta::Volume(name.to_owned(), facts))
    }
}

impl Watched for StorageClassView {
    const KIND: Kind = Kind::StorageClasses;

    fn changes(name: &str, class: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = class.map(|class| Box::new(storage_class_facts(class)));
        one(Delta::StorageClass(name.to_owned(), facts))
    }
}

impl Watched for CsiNodeView {
    const KIND: Kind = Kind::CsiNodes;

    fn changes(name: &str, node: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = node.map(|node| Box::new(csi_node_facts(node)));
        one(Delta::CsiNode(name.into(), facts))
    }
}

impl Watched for CsiDriverView {
    const KIND: Kind = Kind::CsiDrivers;

    fn changes(name: &str, driver: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = driver.map(|driver| Box::new(csi_driver_facts(driver)));
        one(Delta::CsiDriver(name.to_owned(), facts))
    }
}

impl Watched for StorageCapacityView {
    const KIND: Kind = Kind::StorageCapacities;

    fn changes(name: &str, capacity: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = capacity.map(|capacity| Box::new(storage_capacity_facts(capacity)));
        one(Delta::StorageCapacity(key(name), facts))
    }
}

impl Watched for CustomView<ProxmoxCluster> {
    const KIND: Kind = Kind::Clusters;

    fn changes(name: &str, cluster: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let (facts, connection) = cluster
            .map(|cluster| {
                let (mut facts, connection) = cluster_facts(&cluster.spec);
                facts.existence = existence(&cluster.metadata);
                facts.off = hypervisors_off(&cluster.metadata);
                (Box::new(facts), connection)
            })
            .unzip();
        Ok(vec![
            Change::Connection(name.into(), connection.flatten()),
            Change::Delta(Delta::Cluster(name.into(), facts)),
        ])
    }
}

impl Watched for CustomView<NodeClass> {
    const KIND: Kind = Kind::Classes;

    fn changes(name: &str, class: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = class.map(|class| {
            let mut facts = class_facts(&class.spec);
            facts.existence = existence(&class.metadata);
            let annotations = class.metadata.annotations.as_ref();
            if let Some(word) = annotations.and_then(|all| all.get(FORGET_LEARNED)) {
                facts.digest = format!("{} {word}", facts.digest).into();
            }
            let learned = class.status.get("learned").cloned();
            // Rows of another version of kproxide are learned anew.
            facts.learned = learned
                .and_then(|rows| serde_json::from_value(rows).ok())
                .unwrap_or_default();
            Box::new(facts)
        });
        one(Delta::Class(name.into(), facts))
    }
}

impl Watched for CustomView<NodePool> {
    const KIND: Kind = Kind::Pools;

    fn changes(name: &str, pool: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = pool.map(|pool| Box::new(pool_facts(&pool.metadata, &pool.spec)));
        one(Delta::Pool(name.into(), facts))
    }
}

impl Watched for CustomView<NodeClaim> {
    const KIND: Kind = Kind::Claims;

    fn changes(name: &str, claim: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = claim.map(claim_facts).transpose()?;
        one(Delta::Claim(name.into(), facts.map(Box::new)))
    }
}

impl Watched for CustomView<Ledger> {
    const KIND: Kind = Kind::Ledger;

    fn selection(config: watcher::Config) -> watcher::Config {
        config.fields(&format!("metadata.name={LEDGER_NAME}"))
    }

    fn changes(_: &str, ledger: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
        let facts = ledger.map(ledger_facts).transpose()?;
        one(Delta::Ledger(facts.map(Box::new)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn s12_settings_that_are_nested_too_deep_are_a_problem_of_their_pool_alone() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(140), "}".repeat(140));
        let policies = format!(r#"{{"hostSelection":{{"settings":{deep}}}}}"#);
        let list = format!(
            r#"{{"kind":"NodePoolList","apiVersion":"kproxide.dev/v1","metadata":{{}},"items":[
                {{"metadata":{{"name":"a"}},"spec":{{"nodeClass":"c","weight":7,"policies":{policies}}}}},
                {{"metadata":{{"name":"b"}},"spec":{{"nodeClass":"c","weight":7}}}}]}}"#
        );
        let list: kube::core::ObjectList<CustomView<NodePool>> =
            serde_json::from_str(&list).unwrap();
        let [a, b] = [0, 1].map(|index| {
            let changes = Watched::changes("p", list.items.get(index)).unwrap();
            match &changes[..] {
                [Change::Delta(Delta::Pool(_, Some(facts)))] => {
                    (facts.weight, facts.problem.clone())
                }
                other => panic!("{other:?}"),
            }
        });
        let problem = "spec.policies: it is nested too deep";
        assert_eq!(a, (7, Some(problem.to_owned())));
        assert!(b.0 == 7 && b.1.as_deref() != Some(problem), "{b:?}");
    }

    #[test]
    fn f66_an_unreadable_claim_is_not_a_claim_that_is_gone() {
        let claim: CustomView<NodeClaim> =
            serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"pool": 7}}))
                .unwrap();
        let changes = Watched::changes("c", Some(&claim));
        assert!(
            matches!(&changes, Err(of) if of.object == "NodeClaim/c"),
            "{changes:?}"
        );
    }
}
