//! A World as data: the facts alone, each spec once, everything in the order of its name. Reading one back rebuilds the indexes.
//!
//! The format is for replays by the same version; nothing promises that another one reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::World;
use crate::facts::{
    ClaimFacts, ClassFacts, ClusterFacts, DaemonSetFacts, Delta, DisruptionBudgetFacts, HostFacts,
    InventoryFacts, Labels, LedgerFacts, NodeFacts, OrphanLook, Owner, PodFacts, PodPhase, PodSpec,
    PolicyFacts, PolicyRef, PoolFacts, VolumeAttachmentFacts,
};
use crate::ids::{
    ClaimName, ClassName, ClusterName, NodeName, ObjectKey, PodKey, PoolName, Uid, Vmid,
};
use crate::plan::DecorationMemo;

#[derive(Serialize, Deserialize)]
struct Snapshot {
    host: HostFacts,
    clusters: BTreeMap<ClusterName, ClusterFacts>,
    classes: BTreeMap<ClassName, Arc<ClassFacts>>,
    pools: BTreeMap<PoolName, PoolFacts>,
    policies: BTreeMap<PolicyRef, PolicyFacts>,
    claims: BTreeMap<ClaimName, ClaimFacts>,
    ledger: Option<LedgerFacts>,
    inventories: BTreeMap<ClusterName, InventoryFacts>,
    #[serde(default)]
    orphans: BTreeMap<ClusterName, BTreeMap<Vmid, OrphanLook>>,
    decorations: Vec<DecorationMemo>,
    daemon_sets: BTreeMap<ObjectKey, DaemonSetFacts>,
    disruption_budgets: BTreeMap<ObjectKey, DisruptionBudgetFacts>,
    volume_attachments: BTreeMap<String, VolumeAttachmentFacts>,
    nodes: BTreeMap<NodeName, NodeFacts>,
    specs: Vec<Arc<PodSpec>>,
    pods: BTreeMap<PodKey, SnapshotPod>,
}

/// [`PodFacts`] with the spec by its place in `specs`.
#[derive(Serialize, Deserialize)]
struct SnapshotPod {
    uid: Uid,
    created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<NodeName>,
    phase: PodPhase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unschedulable_since: Option<Timestamp>,
    ready: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    deleting: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
    #[serde(default, skip_serializing_if = "is_false")]
    mirror: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    do_not_disrupt: bool,
    labels: Labels,
    spec: usize,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Serialize for World {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut places: BTreeMap<Arc<PodSpec>, usize> = self
            .pods
            .iter()
            .map(|pod| (pod.shared_spec().clone(), 0))
            .collect();
        for (place, (_, number)) in places.iter_mut().enumerate() {
            *number = place;
        }
        let pods = self.pods.iter().map(|pod| {
            let place = places.get(pod.shared_spec()).copied();
            (
                pod.key(),
                SnapshotPod::from_facts(pod.to_facts(), place.unwrap_or_default()),
            )
        });
        let nodes = self.pods.nodes();
        Snapshot {
            host: self.host.clone(),
            clusters: self.clusters.clone(),
            classes: self.classes.clone(),
            pools: self.pools.clone(),
            policies: self.policies.clone(),
            claims: self.claims.clone(),
            ledger: self.ledger.clone(),
            inventories: self.inventories.clone(),
            orphans: self.orphans.clone(),
            decorations: self.decorations.values().cloned().collect(),
            daemon_sets: self.daemon_sets.clone(),
            disruption_budgets: self.budgets.clone(),
            volume_attachments: self.attachments.clone(),
            nodes: nodes
                .map(|node| (node.name().clone(), node.facts.clone()))
                .collect(),
            pods: pods.collect(),
            specs: places.into_keys().collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for World {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Snapshot {
            host,
            clusters,
            classes,
            pools,
            policies,
            claims,
            ledger,
            inventories,
            orphans,
            decorations,
            daemon_sets,
            disruption_budgets,
            volume_attachments,
            nodes,
            specs,
            pods,
        } = Snapshot::deserialize(deserializer)?;
        let mut world = World {
            daemon_sets,
            attachments: volume_attachments,
            clusters,
            classes,
            pools,
            claims,
            ledger,
            inventories,
            orphans,
            policies,
            host,
            decorations: decorations
                .into_iter()
                .map(|memo| {
                    (
                        (
                            memo.machine.pool.clone(),
                            memo.machine.instance_type.clone(),
                        ),
                        memo,
                    )
                })
                .collect(),
            ..World::default()
        };
        for (key, budget) in disruption_budgets {
            world.apply(Delta::DisruptionBudget(key, Some(Box::new(budget))));
        }
        for (name, node) in nodes {
            world.apply(Delta::Node(name, Some(Box::new(node))));
        }
        for (key, pod) in pods {
            let spec = specs.get(pod.spec).ok_or_else(|| {
                serde::de::Error::custom(format!(
                    "pod {key} has spec {}, which is not there",
                    pod.spec
                ))
            })?;
            let facts = pod.into_facts(PodSpec::clone(spec));
            world.apply(Delta::Pod(key, Some(Box::new(facts))));
        }
        Ok(world)
    }
}

impl SnapshotPod {
    fn from_facts(facts: PodFacts, spec: usize) -> Self {
        let PodFacts {
            uid,
            created,
            node,
            phase,
            unschedulable_since,
            ready,
            deleting,
            owner,
            mirror,
            do_not_disrupt,
            labels,
            spec: _,
        } = facts;
        Self {
            uid,
            created,
            node,
            phase,
            unschedulable_since,
            ready,
            deleting,
            owner,
            mirror,
            do_not_disrupt,
            labels,
            spec,
        }
    }

    fn into_facts(self, spec: PodSpec) -> PodFacts {
        let Self {
            uid,
            created,
            node,
            phase,
            unschedulable_since,
            ready,
            deleting,
            owner,
            mirror,
            do_not_disrupt,
            labels,
            spec: _,
        } = self;
        PodFacts {
            uid,
            created,
            node,
            phase,
            unschedulable_since,
            ready,
            deleting,
            owner,
            mirror,
            do_not_disrupt,
            labels,
            spec,
        }
    }
}
