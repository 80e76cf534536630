//! DaemonSets, PodDisruptionBudgets, namespaces and VolumeAttachments: what weighs on Nodes and what keeps pods where they are.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;

use super::pod::{PodSpecView, RequirementView};
use super::{narrow_meta, or_default, view_of};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DaemonSetView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: DaemonSetSpecView,
}

view_of!(
    DaemonSetView,
    NamespaceResourceScope,
    "apps",
    "v1",
    "DaemonSet",
    "daemonsets"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonSetSpecView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) template: PodTemplateView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodTemplateView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) metadata: TemplateMetaView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: PodSpecView,
}

/// The rest of it anybody may write as they like, the times too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TemplateMetaView {
    pub(crate) labels: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DisruptionBudgetView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: DisruptionBudgetSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) status: DisruptionBudgetStatusView,
}

view_of!(
    DisruptionBudgetView,
    NamespaceResourceScope,
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DisruptionBudgetSpecView {
    pub(crate) selector: Option<SelectorView>,
    pub(crate) unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectorView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) match_expressions: Vec<RequirementView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DisruptionBudgetStatusView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) disruptions_allowed: i32,
    #[serde(deserialize_with = "or_default")]
    pub(crate) current_healthy: i32,
    #[serde(deserialize_with = "or_default")]
    pub(crate) desired_healthy: i32,
}

/// Its labels are all that matters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
}

view_of!(
    NamespaceView,
    ClusterResourceScope,
    "",
    "v1",
    "Namespace",
    "namespaces"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeAttachmentView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: VolumeAttachmentSpecView,
}

view_of!(
    VolumeAttachmentView,
    ClusterResourceScope,
    "storage.k8s.io",
    "v1",
    "VolumeAttachment",
    "volumeattachments"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeAttachmentSpecView {
    pub(crate) node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) source: VolumeSourceView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeSourceView {
    pub(crate) persistent_volume_name: Option<String>,
}
