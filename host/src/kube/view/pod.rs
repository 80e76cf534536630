//! Pods, and the part of their specification that decides where they can run.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::policy::SelectorView;
use super::{moment, narrow_meta, or_default, view_of};
use crate::kube::crd::Amount;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct PodView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: PodSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) status: PodStatusView,
}

view_of!(PodView, NamespaceResourceScope, "", "v1", "Pod", "pods");

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct PodStatusView {
    pub(in crate::kube) phase: Option<String>,
    #[serde(deserialize_with = "moment")]
    pub(in crate::kube) start_time: Option<Timestamp>,
    pub(in crate::kube) nominated_node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) conditions: Vec<ConditionView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) container_statuses: Vec<ContainerStatusView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) init_container_statuses: Vec<ContainerStatusView>,
    /// Of the pod as a whole: what is in force, and what its kubelet has granted.
    pub(in crate::kube) resources: Option<ResourcesView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) allocated_resources: BTreeMap<String, Amount>,
}

impl PodStatusView {
    /// A container has run. A kubelet that refuses a pod fails it without that.
    pub(in crate::kube) fn has_started(&self) -> bool {
        let of_start = self.init_container_statuses.iter();
        let mut containers = of_start.chain(&self.container_statuses);
        containers.any(|it| it.restart_count > 0 || it.state.has_started())
    }
}

/// At most one of them is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct ContainerStateView {
    running: Option<IgnoredAny>,
    terminated: Option<TerminatedView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TerminatedView {
    started_at: Option<IgnoredAny>,
}

impl ContainerStateView {
    fn has_started(&self) -> bool {
        let ended = self.terminated.as_ref();
        self.running.is_some() || ended.is_some_and(|ended| ended.started_at.is_some())
    }
}

/// What is in force, and what its kubelet has granted. They differ while it is resized in place.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct ContainerStatusView {
    pub(in crate::kube) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) state: ContainerStateView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) restart_count: i32,
    pub(in crate::kube) resources: Option<ResourcesView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) allocated_resources: BTreeMap<String, Amount>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct ConditionView {
    #[serde(rename = "type")]
    pub(in crate::kube) kind: String,
    pub(in crate::kube) status: String,
    pub(in crate::kube) reason: Option<String>,
    #[serde(deserialize_with = "moment")]
    pub(in crate::kube) last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct PodSpecView {
    pub(in crate::kube) node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) node_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) affinity: AffinityView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) tolerations: Vec<TolerationView>,
    pub(in crate::kube) priority: Option<i32>,
    pub(in crate::kube) scheduler_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) scheduling_gates: Vec<IgnoredAny>,
    pub(in crate::kube) restart_policy: Option<String>,
    pub(in crate::kube) host_network: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) containers: Vec<ContainerView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) init_containers: Vec<ContainerView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) overhead: BTreeMap<String, Amount>,
    pub(in crate::kube) resources: Option<ResourcesView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) volumes: Vec<PodVolumeView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) topology_spread_constraints: Vec<SpreadView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) resource_claims: Vec<IgnoredAny>,
}

/// A volume is of one kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct PodVolumeView {
    pub(in crate::kube) name: String,
    pub(in crate::kube) persistent_volume_claim: Option<ClaimNameView>,
    pub(in crate::kube) ephemeral: Option<IgnoredAny>,
    pub(in crate::kube) host_path: Option<HostPathView>,
    #[serde(flatten)]
    pub(in crate::kube) others: BTreeMap<String, IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct HostPathView {
    pub(in crate::kube) path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct ClaimNameView {
    pub(in crate::kube) claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct ContainerView {
    pub(in crate::kube) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) resources: ResourcesView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) ports: Vec<PortView>,
    pub(in crate::kube) restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct ResourcesView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) requests: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) limits: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) claims: Vec<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct PortView {
    pub(in crate::kube) container_port: Option<i64>,
    pub(in crate::kube) host_port: Option<i64>,
    #[serde(rename = "hostIP")]
    pub(in crate::kube) host_ip: Option<String>,
    pub(in crate::kube) protocol: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct SpreadView {
    pub(in crate::kube) topology_key: String,
    pub(in crate::kube) when_unsatisfiable: Option<String>,
    pub(in crate::kube) label_selector: Option<SelectorView>,
    pub(in crate::kube) max_skew: Option<i64>,
    pub(in crate::kube) min_domains: Option<i64>,
    pub(in crate::kube) node_affinity_policy: Option<String>,
    pub(in crate::kube) node_taints_policy: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) match_label_keys: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct PodTermView {
    pub(in crate::kube) topology_key: String,
    pub(in crate::kube) label_selector: Option<SelectorView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) namespaces: Vec<String>,
    pub(in crate::kube) namespace_selector: Option<SelectorView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) match_label_keys: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) mismatch_label_keys: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct TolerationView {
    pub(in crate::kube) key: Option<String>,
    pub(in crate::kube) operator: Option<String>,
    pub(in crate::kube) value: Option<String>,
    pub(in crate::kube) effect: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct AffinityView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) node_affinity: NodeAffinityView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) pod_affinity: PodAffinityView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) pod_anti_affinity: PodAffinityView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct NodeAffinityView {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(in crate::kube) required: Option<TermsView>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "or_default"
    )]
    pub(in crate::kube) preferred: Vec<PreferredView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct PreferredView {
    pub(in crate::kube) weight: i32,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) preference: TermView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct PodAffinityView {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "or_default"
    )]
    pub(in crate::kube) required: Vec<PodTermView>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "or_default"
    )]
    pub(in crate::kube) preferred: Vec<PreferredPodTermView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct PreferredPodTermView {
    pub(in crate::kube) weight: i32,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) pod_affinity_term: PodTermView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct TermsView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) node_selector_terms: Vec<TermView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct TermView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) match_expressions: Vec<RequirementView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) match_fields: Vec<RequirementView>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct RequirementView {
    pub(in crate::kube) key: String,
    pub(in crate::kube) operator: String,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) values: Vec<String>,
}
