//! A World as data: the facts alone, each spec once, everything in the order of its name. Reading one back rebuilds the indexes.
//!
//! The format is for replays by the same version; nothing promises that another one reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::World;
use crate::facts::{
    ClaimFacts, ClassFacts, ClusterFacts, CsiDriverFacts, CsiNodeFacts, DaemonSetFacts, Delta,
    DisruptionBudgetFacts, HostFacts, InventoryFacts, Labels, LedgerFacts, NodeFacts, OrphanLook,
    PodFacts, PodSpec, PolicyFacts, PolicyRef, PoolFacts, StorageCapacityFacts, StorageClassFacts,
    VolumeAttachmentFacts, VolumeClaimFacts, VolumeFacts,
};
use crate::ids::{ClaimName, ClassName, ClusterName, NodeName, ObjectKey, PodKey, PoolName, Vmid};
use crate::plan::{Awaited, DecorationMemo};

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
    #[serde(default)]
    awaited: Awaited,
    daemon_sets: BTreeMap<ObjectKey, DaemonSetFacts>,
    disruption_budgets: BTreeMap<ObjectKey, DisruptionBudgetFacts>,
    #[serde(default)]
    namespaces: BTreeMap<Arc<str>, Labels>,
    volume_attachments: BTreeMap<String, VolumeAttachmentFacts>,
    #[serde(default)]
    volume_claims: BTreeMap<ObjectKey, VolumeClaimFacts>,
    #[serde(default)]
    volumes: BTreeMap<Arc<str>, VolumeFacts>,
    #[serde(default)]
    storage_classes: BTreeMap<Arc<str>, StorageClassFacts>,
    #[serde(default)]
    csi_drivers: BTreeMap<Arc<str>, CsiDriverFacts>,
    #[serde(default)]
    csi_nodes: BTreeMap<NodeName, CsiNodeFacts>,
    #[serde(default)]
    storage_capacities: BTreeMap<ObjectKey, StorageCapacityFacts>,
    nodes: BTreeMap<NodeName, NodeFacts>,
    specs: Vec<Arc<PodSpec>>,
    pods: BTreeMap<PodKey, SnapshotPod>,
}

/// [`PodFacts`] with the spec by its place in `specs`.
#[derive(Serialize, Deserialize)]
struct SnapshotPod {
    #[serde(flatten)]
    facts: PodFacts,
    spec: usize,
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
            let spec = places.get(pod.shared_spec()).copied().unwrap_or_default();
            let claims = self.storage.claims_of(&pod.key()).to_vec();
            let facts = PodFacts {
                claims,
                ..pod.to_facts()
            };
            (pod.key(), SnapshotPod { facts, spec })
        });
        let nodes = self.pods.nodes();
        let csi_nodes = self.pods.csi_nodes();
        let csi_nodes = csi_nodes.map(|(name, facts)| (name.clone(), facts.clone()));
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
            awaited: self.awaited.clone(),
            daemon_sets: self.daemon_sets.clone(),
            disruption_budgets: self.budgets.clone(),
            namespaces: self.namespaces.clone(),
            volume_attachments: self.attachments.clone(),
            volume_claims: self.storage.claims().collect(),
            volumes: self.storage.volumes().collect(),
            storage_classes: self.storage.classes.clone(),
            csi_drivers: self.storage.drivers.clone(),
            csi_nodes: csi_nodes.collect(),
            storage_capacities: self.storage.capacities.clone(),
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
        let read = Snapshot::deserialize(deserializer)?;
        let decorations = read.decorations.into_iter();
        let mut world = World {
            daemon_sets: read.daemon_sets,
            namespaces: read.namespaces,
            attachments: read.volume_attachments,
            clusters: read.clusters,
            classes: read.classes,
            pools: read.pools,
            claims: read.claims,
            ledger: read.ledger,
            inventories: read.inventories,
            orphans: read.orphans,
            policies: read.policies,
            awaited: read.awaited,
            decorations: decorations.map(|memo| (memo.key(), memo)).collect(),
            ..World::default()
        };
        world.receive(Delta::Host(read.host));
        for (key, budget) in read.disruption_budgets {
            world.receive(Delta::DisruptionBudget(key, Some(Box::new(budget))));
        }
        for (key, facts) in read.volume_claims {
            world.receive(Delta::VolumeClaim(key, Some(Box::new(facts))));
        }
        for (name, facts) in read.volumes {
            world.receive(Delta::Volume(name.to_string(), Some(Box::new(facts))));
        }
        for (name, facts) in read.storage_classes {
            world.receive(Delta::StorageClass(name.to_string(), Some(Box::new(facts))));
        }
        for (name, facts) in read.csi_drivers {
            world.receive(Delta::CsiDriver(name.to_string(), Some(Box::new(facts))));
        }
        for (name, facts) in read.csi_nodes {
            world.receive(Delta::CsiNode(name, Some(Box::new(facts))));
        }
        for (key, facts) in read.storage_capacities {
            world.receive(Delta::StorageCapacity(key, Some(Box::new(facts))));
        }
        for (name, node) in read.nodes {
            world.receive(Delta::Node(name, Some(Box::new(node))));
        }
        for (key, pod) in read.pods {
            let spec = read.specs.get(pod.spec).ok_or_else(|| {
                serde::de::Error::custom(format!(
                    "pod {key} has spec {}, which is not there",
                    pod.spec
                ))
            })?;
            let spec = PodSpec::clone(spec);
            let facts = PodFacts { spec, ..pod.facts };
            world.receive(Delta::Pod(key, Some(Box::new(facts))));
        }
        world.regroup();
        Ok(world)
    }
}
