//! Volumes: PersistentVolumeClaims, PersistentVolumes, StorageClasses, and what CSI drivers say.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::pod::TermsView;
use super::policy::SelectorView;
use super::{narrow_meta, or_default, view_of};
use crate::crd::Amount;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeClaimView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: VolumeClaimSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) status: PhaseView,
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
pub(crate) struct VolumeClaimSpecView {
    pub(crate) volume_name: Option<String>,
    pub(crate) storage_class_name: Option<String>,
    pub(crate) volume_mode: Option<String>,
    pub(crate) volume_attributes_class_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) access_modes: Vec<String>,
    pub(crate) selector: Option<SelectorView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) resources: RequestsView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RequestsView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) requests: BTreeMap<String, Amount>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PhaseView {
    pub(crate) phase: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: VolumeSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) status: PhaseView,
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
pub(crate) struct VolumeSpecView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) capacity: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) access_modes: Vec<String>,
    pub(crate) claim_ref: Option<ClaimRefView>,
    pub(crate) storage_class_name: Option<String>,
    pub(crate) volume_mode: Option<String>,
    pub(crate) volume_attributes_class_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) node_affinity: VolumeNodeAffinityView,
    pub(crate) csi: Option<CsiSourceView>,
    /// The source, if it is none of CSI, and settings that do not matter.
    #[serde(flatten)]
    pub(crate) others: BTreeMap<String, IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimRefView {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) uid: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VolumeNodeAffinityView {
    pub(crate) required: Option<TermsView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CsiSourceView {
    pub(crate) driver: Option<String>,
    pub(crate) volume_handle: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClassView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    pub(crate) provisioner: String,
    pub(crate) volume_binding_mode: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) allowed_topologies: Vec<TopologyTermView>,
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
pub(crate) struct TopologyTermView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) match_label_expressions: Vec<LabelValuesView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LabelValuesView {
    pub(crate) key: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: CsiNodeSpecView,
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
pub(crate) struct CsiNodeSpecView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) drivers: Vec<CsiNodeDriverView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CsiNodeDriverView {
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) topology_keys: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) allocatable: CountView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CountView {
    pub(crate) count: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiDriverView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: CsiDriverSpecView,
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
pub(crate) struct CsiDriverSpecView {
    pub(crate) storage_capacity: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageCapacityView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    pub(crate) storage_class_name: String,
    pub(crate) node_topology: Option<SelectorView>,
    pub(crate) capacity: Option<Amount>,
    pub(crate) maximum_volume_size: Option<Amount>,
}

view_of!(
    StorageCapacityView,
    NamespaceResourceScope,
    "storage.k8s.io",
    "v1",
    "CSIStorageCapacity",
    "csistoragecapacities"
);
