//! Claims, volumes, classes and what CSI drivers say.

use std::sync::Arc;

use kproxide_planner::facts::{
    CsiDriverFacts, CsiNodeDriver, CsiNodeFacts, LabelSelector, NodeSelectorTerm, Operator,
    PodClaim, Requirement, StorageCapacityFacts, StorageClassFacts, VolumeClaimFacts, VolumeFacts,
    VolumeTraits,
};
use kproxide_planner::ids::{ObjectKey, Uid};
use kproxide_planner::keys;
use kproxide_planner::kubernetes::quantity::Quantity;
use kube::api::ObjectMeta;

use super::filled;
use super::pod::{annotation, requirement_facts};
use super::unsigned;
use crate::crd::Amount;
use crate::view::{
    CsiDriverView, CsiNodeView, LabelValuesView, PodVolumeView, RequirementView, SelectorView,
    StorageCapacityView, StorageClassView, TermView, VolumeClaimView, VolumeView,
};

/// Keys of a PersistentVolume's specification that are no source.
const NO_SOURCES: [&str; 2] = ["persistentVolumeReclaimPolicy", "mountOptions"];

/// The claims of a pod of this name. Kubernetes makes one for each ephemeral volume, named after pod and volume.
pub(super) fn pod_claims(pod: &str, volumes: &[PodVolumeView]) -> Vec<PodClaim> {
    let claims = volumes.iter().filter_map(|volume| {
        let of_claim = volume.persistent_volume_claim.as_ref();
        let (name, is_ephemeral) = match (of_claim, &volume.ephemeral) {
            (Some(claim), _) => (claim.claim_name.clone(), false),
            (None, Some(_)) => (format!("{pod}-{}", volume.name), true),
            (None, None) => return None,
        };
        Some(PodClaim {
            name: name.into(),
            is_ephemeral,
        })
    });
    claims.collect()
}

/// What planning reads of a PersistentVolumeClaim.
pub fn volume_claim_facts(claim: &VolumeClaimView) -> VolumeClaimFacts {
    let VolumeClaimView {
        metadata,
        spec,
        status,
    } = claim;
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true));
    let selected_node = annotation(metadata, keys::SELECTED_NODE).filter(|name| !name.is_empty());
    let is_bound = annotation(metadata, keys::BIND_COMPLETED).is_some();
    // Thousands of claims that are bound are alike without it.
    let uid = filled(&metadata.uid).filter(|_| !is_bound);
    VolumeClaimFacts {
        is_lost: status.phase.as_deref() == Some("Lost"),
        deleting: metadata.deletion_timestamp.is_some(),
        uid: uid.map(Uid::from),
        volume: filled(&spec.volume_name).map(Into::into),
        is_bound,
        class: class_of(metadata, &spec.storage_class_name),
        selected_node: selected_node.map(Into::into),
        wants: VolumeTraits {
            bytes: bytes(spec.resources.requests.get("storage")),
            access_modes: texts(&spec.access_modes),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            attributes: filled(&spec.volume_attributes_class_name).map(Into::into),
        },
        selector: spec.selector.as_ref().and_then(selector_facts),
        owner: owner.map(|owner| Uid::from(owner.uid.as_str())),
    }
}

/// What planning reads of a PersistentVolume: where it can be reached, and by which driver.
pub fn volume_facts(volume: &VolumeView) -> VolumeFacts {
    let VolumeView {
        metadata,
        spec,
        status,
    } = volume;
    let driver = spec.csi.as_ref().and_then(|csi| filled(&csi.driver));
    // A provisioner gives each volume a handle of its own.
    let is_made = annotation(metadata, keys::PROVISIONED_BY).is_some();
    let handle = spec.csi.as_ref().filter(|_| !is_made);
    let handle = handle.and_then(|csi| filled(&csi.volume_handle));
    let handle = driver
        .zip(handle)
        .map(|(driver, handle)| format!("{driver}^{handle}"));
    let mut others = spec
        .others
        .keys()
        .filter(|key| !NO_SOURCES.contains(&key.as_str()));
    let source = match spec.csi {
        Some(_) => "csi",
        None => others.next().map_or("", String::as_str),
    };
    let required = spec.node_affinity.required.as_ref();
    // The scheduler holds a volume's affinity against labels alone. A term of fields alone is one of every Node.
    let is_of_fields =
        |term: &TermView| term.match_expressions.is_empty() && !term.match_fields.is_empty();
    let required = required.filter(|it| !it.node_selector_terms.iter().any(is_of_fields));
    // An alternative that cannot be read is none.
    let nodes = required.map(|required| {
        let terms = required.node_selector_terms.iter();
        let terms = terms.filter_map(|term| {
            Some(NodeSelectorTerm {
                match_expressions: requirements(&term.match_expressions)?,
                match_fields: Vec::new(),
            })
        });
        terms.collect()
    });
    let claim = spec.claim_ref.as_ref().and_then(|claim| {
        Some(ObjectKey::new(
            filled(&claim.namespace)?,
            filled(&claim.name)?,
        ))
    });
    let claim_uid = spec.claim_ref.as_ref();
    let claim_uid = claim_uid.and_then(|claim| filled(&claim.uid));
    let claim_uid = claim_uid.filter(|_| status.phase.as_deref() != Some("Bound"));
    VolumeFacts {
        source: source.into(),
        driver: driver.map(Into::into),
        handle: handle.map(Into::into),
        class: class_of(metadata, &spec.storage_class_name).unwrap_or_else(|| "".into()),
        offers: VolumeTraits {
            bytes: bytes(spec.capacity.get("storage")),
            access_modes: texts(&spec.access_modes),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            attributes: filled(&spec.volume_attributes_class_name).map(Into::into),
        },
        labels: metadata.labels.clone().unwrap_or_default(),
        nodes,
        claim,
        claim_uid: claim_uid.map(Uid::from),
        is_available: status.phase.as_deref() == Some("Available"),
        deleting: metadata.deletion_timestamp.is_some(),
    }
}

/// What planning reads of a StorageClass.
pub fn storage_class_facts(class: &StorageClassView) -> StorageClassFacts {
    let terms = class.allowed_topologies.iter();
    let terms = terms.map(|term| NodeSelectorTerm {
        match_expressions: term.match_label_expressions.iter().map(one_of).collect(),
        match_fields: Vec::new(),
    });
    let terms: Arc<[_]> = terms.collect();
    StorageClassFacts {
        provisioner: class.provisioner.as_str().into(),
        waits_for_pod: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        topologies: (!terms.is_empty()).then_some(terms),
    }
}

/// Which drivers run on a Node, and how many volumes each can attach there.
pub fn csi_node_facts(node: &CsiNodeView) -> CsiNodeFacts {
    let drivers = node.spec.drivers.iter();
    let drivers = drivers.map(|driver| {
        let facts = CsiNodeDriver {
            limit: driver
                .allocatable
                .count
                .and_then(|count| u32::try_from(count).ok()),
            topology_keys: driver
                .topology_keys
                .iter()
                .map(|key| key.as_str().into())
                .collect(),
        };
        (driver.name.as_str().into(), facts)
    });
    CsiNodeFacts {
        drivers: drivers.collect(),
    }
}

/// Whether kube-scheduler asks this driver for room before it places a pod.
pub fn csi_driver_facts(driver: &CsiDriverView) -> CsiDriverFacts {
    CsiDriverFacts {
        storage_capacity: driver.spec.storage_capacity == Some(true),
    }
}

/// How much room a driver says that a class has, and where.
pub fn storage_capacity_facts(capacity: &StorageCapacityView) -> StorageCapacityFacts {
    let largest = capacity
        .maximum_volume_size
        .as_ref()
        .or(capacity.capacity.as_ref());
    StorageCapacityFacts {
        class: capacity.storage_class_name.as_str().into(),
        nodes: capacity.node_topology.as_ref().and_then(selector_facts),
        largest_bytes: bytes(largest),
    }
}

fn class_of(meta: &ObjectMeta, class: &Option<String>) -> Option<Arc<str>> {
    let of_old = annotation(meta, keys::BETA_STORAGE_CLASS);
    of_old.or(class.as_deref()).map(Into::into)
}

/// Rounded up; 0 if it is missing or no amount, which the API server does not take.
fn bytes(amount: Option<&Amount>) -> u64 {
    let parsed = amount.and_then(|amount| amount.0.parse::<Quantity>().ok());
    parsed.map_or(0, |quantity| unsigned(quantity.units_up().max(0)))
}

fn texts<T: FromIterator<Arc<str>>>(texts: &[String]) -> T {
    texts.iter().map(|text| text.as_str().into()).collect()
}

fn one_of(label: &LabelValuesView) -> Requirement {
    Requirement {
        key: label.key.as_str().into(),
        operator: Operator::In,
        values: texts(&label.values),
    }
}

/// `None`: one of them cannot be read.
fn requirements(views: &[RequirementView]) -> Option<Vec<Requirement>> {
    views.iter().map(requirement_facts).collect()
}

fn selector_facts(selector: &SelectorView) -> Option<LabelSelector> {
    Some(LabelSelector {
        match_labels: selector.match_labels.clone(),
        match_expressions: requirements(&selector.match_expressions)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value, annotations: Value) -> VolumeClaimFacts {
        let claim = json!({
            "metadata": {"name": "data-db-0", "annotations": annotations},
            "spec": spec, "status": {"phase": "Pending"},
        });
        volume_claim_facts(&serde_json::from_value(claim).unwrap())
    }

    #[test]
    fn a_claim_that_waits_and_one_that_is_bound() {
        let wants = json!({
            "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}},
        });
        let waits = claim(wants, json!({"volume.kubernetes.io/selected-node": "n1"}));
        assert_eq!(
            (waits.class.as_deref(), waits.is_bound),
            (Some("fast"), false)
        );
        assert_eq!(waits.selected_node, Some("n1".into()));
        assert_eq!((waits.wants.bytes, waits.wants.is_block), (1 << 30, true));
        let bound = json!({"volumeName": "pv", "resources": {"requests": {"storage": "1500m"}}});
        let bound = claim(
            bound,
            json!({"pv.kubernetes.io/bind-completed": "yes", "x": "y"}),
        );
        assert_eq!(
            (bound.volume.as_deref(), bound.is_bound),
            (Some("pv"), true)
        );
        assert_eq!((bound.wants.bytes, bound.wants.is_block), (2, false));
        let old = claim(
            json!({}),
            json!({"volume.beta.kubernetes.io/storage-class": "old"}),
        );
        assert_eq!(old.class.as_deref(), Some("old"));
    }

    #[test]
    fn a_volume_names_its_source_and_its_nodes() {
        let volume = |spec: Value| {
            let volume = json!({"metadata": {"name": "pv", "labels": {"a": "b"}}, "spec": spec,
                "status": {"phase": "Available"}});
            volume_facts(&serde_json::from_value(volume).unwrap())
        };
        let term = |operator: &str| {
            json!({"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": operator, "values": ["n1"]},
            ]})
        };
        let local = volume(json!({
            "capacity": {"storage": "5Gi"}, "local": {"path": "/x"}, "mountOptions": ["a"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "by-hand",
            "claimRef": {"namespace": "default", "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term("In"), term("Resembles")]}},
        }));
        assert_eq!((&*local.source, local.driver.as_deref()), ("local", None));
        assert_eq!(local.claim, Some(ObjectKey::new("default", "data")));
        let nodes = local.nodes.unwrap();
        assert_eq!(
            nodes.len(),
            1,
            "an operator of a later Kubernetes is no alternative"
        );
        let csi = volume(json!({"csi": {"driver": "d", "volumeHandle": "h"}}));
        assert_eq!((&*csi.source, csi.driver.as_deref()), ("csi", Some("d")));
        assert_eq!((csi.nodes, &*csi.class), (None, ""));
    }

    #[test]
    fn what_drivers_and_classes_say() {
        let class = json!({"metadata": {"name": "c"}, "provisioner": "d",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]});
        let class = storage_class_facts(&serde_json::from_value(class).unwrap());
        assert!(class.waits_for_pod);
        let terms = class.topologies.unwrap();
        assert_eq!(terms[0].match_expressions[0].values.len(), 2);
        let node = json!({"metadata": {"name": "n"}, "spec": {"drivers": [
            {"name": "d", "nodeID": "x", "topologyKeys": ["zone"], "allocatable": {"count": 24}},
            {"name": "e", "nodeID": "x", "topologyKeys": null},
        ]}});
        let node = csi_node_facts(&serde_json::from_value(node).unwrap());
        let limits = ["d", "e"].map(|name| node.drivers[name].limit);
        assert_eq!(limits, [Some(24), None]);
        let capacity = |more: Value| {
            let mut capacity = json!({"metadata": {"name": "s"}, "storageClassName": "c",
                "nodeTopology": {"matchLabels": {"zone": "a"}}, "capacity": "10Gi"});
            capacity
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            storage_capacity_facts(&serde_json::from_value(capacity).unwrap())
        };
        assert_eq!(capacity(json!({})).largest_bytes, 10 << 30);
        assert_eq!(
            capacity(json!({"maximumVolumeSize": "1Gi"})).largest_bytes,
            1 << 30
        );
        assert_eq!(capacity(json!({"nodeTopology": null})).nodes, None);
    }

    #[test]
    fn the_claims_of_a_pod() {
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
            {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "config", "configMap": {"name": "c"}},
        ]);
        let volumes: Vec<PodVolumeView> = serde_json::from_value(volumes).unwrap();
        let claims = pod_claims("db-0", &volumes);
        let claims: Vec<_> = claims
            .iter()
            .map(|it| (&*it.name, it.is_ephemeral))
            .collect();
        assert_eq!(claims, [("data-db-0", false), ("db-0-tmp", true)]);
    }
}
