//! Volumes: PersistentVolumeClaims, PersistentVolumes, StorageClasses, and what CSI drivers say.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::pod::TermsView;
use super::policy::SelectorView;
use super::{narrow_meta, or_default, view_of};
use crate::kube::crd::Amount;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct VolumeClaimView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: VolumeClaimSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) status: PhaseView,
}

view_of!(
    VolumeClaimView,
    NamespaceResourceScope,
    "",
    "v1",
    "PersistentVolumeClaim",
    "persistentvolumeclaims"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct VolumeClaimSpecView {
    pub(in crate::kube) volume_name: Option<String>,
    pub(in crate::kube) storage_class_name: Option<String>,
    pub(in crate::kube) volume_mode: Option<String>,
    pub(in crate::kube) volume_attributes_class_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) access_modes: Vec<String>,
    pub(in crate::kube) selector: Option<SelectorView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) resources: RequestsView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct RequestsView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) requests: BTreeMap<String, Amount>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct PhaseView {
    pub(in crate::kube) phase: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct VolumeView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: VolumeSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) status: PhaseView,
}

view_of!(
    VolumeView,
    ClusterResourceScope,
    "",
    "v1",
    "PersistentVolume",
    "persistentvolumes"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct VolumeSpecView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) capacity: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) access_modes: Vec<String>,
    pub(in crate::kube) claim_ref: Option<ClaimRefView>,
    pub(in crate::kube) storage_class_name: Option<String>,
    pub(in crate::kube) volume_mode: Option<String>,
    pub(in crate::kube) volume_attributes_class_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) node_affinity: VolumeNodeAffinityView,
    pub(in crate::kube) csi: Option<CsiSourceView>,
    /// The source, if it is none of CSI, and settings that do not matter.
    #[serde(flatten)]
    pub(in crate::kube) others: BTreeMap<String, IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct ClaimRefView {
    pub(in crate::kube) namespace: Option<String>,
    pub(in crate::kube) name: Option<String>,
    pub(in crate::kube) uid: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct VolumeNodeAffinityView {
    pub(in crate::kube) required: Option<TermsView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct CsiSourceView {
    pub(in crate::kube) driver: Option<String>,
    pub(in crate::kube) volume_handle: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct StorageClassView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    pub(in crate::kube) provisioner: String,
    pub(in crate::kube) volume_binding_mode: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) allowed_topologies: Vec<TopologyTermView>,
}

view_of!(
    StorageClassView,
    ClusterResourceScope,
    "storage.k8s.io",
    "v1",
    "StorageClass",
    "storageclasses"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct TopologyTermView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) match_label_expressions: Vec<LabelValuesView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct LabelValuesView {
    pub(in crate::kube) key: String,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct CsiNodeView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: CsiNodeSpecView,
}

view_of!(
    CsiNodeView,
    ClusterResourceScope,
    "storage.k8s.io",
    "v1",
    "CSINode",
    "csinodes"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct CsiNodeSpecView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) drivers: Vec<CsiNodeDriverView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct CsiNodeDriverView {
    pub(in crate::kube) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) topology_keys: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) allocatable: CountView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct CountView {
    pub(in crate::kube) count: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct CsiDriverView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: CsiDriverSpecView,
}

view_of!(
    CsiDriverView,
    ClusterResourceScope,
    "storage.k8s.io",
    "v1",
    "CSIDriver",
    "csidrivers"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct CsiDriverSpecView {
    pub(in crate::kube) storage_capacity: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct StorageCapacityView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    pub(in crate::kube) storage_class_name: String,
    pub(in crate::kube) node_topology: Option<SelectorView>,
    pub(in crate::kube) capacity: Option<Amount>,
    pub(in crate::kube) maximum_volume_size: Option<Amount>,
}

view_of!(
    StorageCapacityView,
    NamespaceResourceScope,
    "storage.k8s.io",
    "v1",
    "CSIStorageCapacity",
    "csistoragecapacities"
);
