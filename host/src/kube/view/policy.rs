//! DaemonSets, PodDisruptionBudgets, namespaces and VolumeAttachments: what weighs on Nodes and what keeps pods where they are.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;

use super::pod::{PodSpecView, RequirementView};
use super::{narrow_meta, or_default, view_of};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct DaemonSetView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: DaemonSetSpecView,
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
pub(in crate::kube) struct DaemonSetSpecView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) template: PodTemplateView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct PodTemplateView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) metadata: TemplateMetaView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: PodSpecView,
}

/// The rest of it anybody may write as they like, the times too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct TemplateMetaView {
    pub(in crate::kube) labels: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct DisruptionBudgetView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: DisruptionBudgetSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) status: DisruptionBudgetStatusView,
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
pub(in crate::kube) struct DisruptionBudgetSpecView {
    pub(in crate::kube) selector: Option<SelectorView>,
    pub(in crate::kube) unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct SelectorView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) match_expressions: Vec<RequirementView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct DisruptionBudgetStatusView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) disruptions_allowed: i32,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) current_healthy: i32,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) desired_healthy: i32,
}

/// Its labels are all that matters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct NamespaceView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
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
pub(in crate::kube) struct VolumeAttachmentView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: VolumeAttachmentSpecView,
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
pub(in crate::kube) struct VolumeAttachmentSpecView {
    pub(in crate::kube) node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) source: VolumeSourceView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct VolumeSourceView {
    pub(in crate::kube) persistent_volume_name: Option<String>,
}
