//! Pods, and the part of their specification that decides where they can run.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::policy::SelectorView;
use super::{moment, narrow_meta, or_default, view_of};
use crate::crd::Amount;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodView {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: PodSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) status: PodStatusView,
}

view_of!(PodView, NamespaceResourceScope, "", "v1", "Pod", "pods");

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatusView {
    pub(crate) phase: Option<String>,
    #[serde(deserialize_with = "moment")]
    pub(crate) start_time: Option<Timestamp>,
    pub(crate) nominated_node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) conditions: Vec<ConditionView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) container_statuses: Vec<ContainerStatusView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) init_container_statuses: Vec<ContainerStatusView>,
    /// Of the pod as a whole: what is in force, and what its kubelet has granted.
    pub(crate) resources: Option<ResourcesView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) allocated_resources: BTreeMap<String, Amount>,
}

impl PodStatusView {
    /// A container has run. A kubelet that refuses a pod fails it without that.
    pub(crate) fn has_started(&self) -> bool {
        let of_start = self.init_container_statuses.iter();
        let mut containers = of_start.chain(&self.container_statuses);
        containers.any(|it| it.restart_count > 0 || it.state.has_started())
    }
}

/// At most one of them is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerStateView {
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
pub(crate) struct ContainerStatusView {
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) state: ContainerStateView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) restart_count: i32,
    pub(crate) resources: Option<ResourcesView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) allocated_resources: BTreeMap<String, Amount>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConditionView {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
    #[serde(deserialize_with = "moment")]
    pub(crate) last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecView {
    pub(crate) node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) node_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) affinity: AffinityView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) tolerations: Vec<TolerationView>,
    pub(crate) priority: Option<i32>,
    pub(crate) scheduler_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) scheduling_gates: Vec<IgnoredAny>,
    pub(crate) restart_policy: Option<String>,
    pub(crate) host_network: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) containers: Vec<ContainerView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) init_containers: Vec<ContainerView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) overhead: BTreeMap<String, Amount>,
    pub(crate) resources: Option<ResourcesView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) volumes: Vec<PodVolumeView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) topology_spread_constraints: Vec<SpreadView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) resource_claims: Vec<IgnoredAny>,
}

/// A volume is of one kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolumeView {
    pub(crate) name: String,
    pub(crate) persistent_volume_claim: Option<ClaimNameView>,
    pub(crate) ephemeral: Option<IgnoredAny>,
    pub(crate) host_path: Option<HostPathView>,
    #[serde(flatten)]
    pub(crate) others: BTreeMap<String, IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HostPathView {
    pub(crate) path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimNameView {
    pub(crate) claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerView {
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) resources: ResourcesView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) ports: Vec<PortView>,
    pub(crate) restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourcesView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) requests: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) limits: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) claims: Vec<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PortView {
    pub(crate) container_port: Option<i64>,
    pub(crate) host_port: Option<i64>,
    #[serde(rename = "hostIP")]
    pub(crate) host_ip: Option<String>,
    pub(crate) protocol: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadView {
    pub(crate) topology_key: String,
    pub(crate) when_unsatisfiable: Option<String>,
    pub(crate) label_selector: Option<SelectorView>,
    pub(crate) max_skew: Option<i64>,
    pub(crate) min_domains: Option<i64>,
    pub(crate) node_affinity_policy: Option<String>,
    pub(crate) node_taints_policy: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) match_label_keys: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTermView {
    pub(crate) topology_key: String,
    pub(crate) label_selector: Option<SelectorView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) namespaces: Vec<String>,
    pub(crate) namespace_selector: Option<SelectorView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) match_label_keys: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) mismatch_label_keys: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TolerationView {
    pub(crate) key: Option<String>,
    pub(crate) operator: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) effect: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AffinityView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) node_affinity: NodeAffinityView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) pod_affinity: PodAffinityView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) pod_anti_affinity: PodAffinityView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeAffinityView {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) required: Option<TermsView>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "or_default"
    )]
    pub(crate) preferred: Vec<PreferredView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PreferredView {
    pub(crate) weight: i32,
    #[serde(deserialize_with = "or_default")]
    pub(crate) preference: TermView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodAffinityView {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "or_default"
    )]
    pub(crate) required: Vec<PodTermView>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "or_default"
    )]
    pub(crate) preferred: Vec<PreferredPodTermView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PreferredPodTermView {
    pub(crate) weight: i32,
    #[serde(deserialize_with = "or_default")]
    pub(crate) pod_affinity_term: PodTermView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TermsView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) node_selector_terms: Vec<TermView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TermView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) match_expressions: Vec<RequirementView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) match_fields: Vec<RequirementView>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RequirementView {
    pub(crate) key: String,
    pub(crate) operator: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) values: Vec<String>,
}
