//! Nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ClusterResourceScope;
use serde::{Deserialize, Serialize};

use super::pod::ConditionView;
use super::{node_meta, or_default, view_of};
use crate::kube::crd::Amount;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct NodeView {
    #[serde(deserialize_with = "node_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: NodeSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) status: NodeStatusView,
}

view_of!(NodeView, ClusterResourceScope, "", "v1", "Node", "nodes");

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct NodeSpecView {
    pub(in crate::kube) unschedulable: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) taints: Vec<TaintView>,
    #[serde(rename = "providerID")]
    pub(in crate::kube) provider_id: Option<String>,
}

/// Whole, because lists of taints are written back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct TaintView {
    pub(in crate::kube) key: String,
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "or_default"
    )]
    pub(in crate::kube) value: String,
    pub(in crate::kube) effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kube) time_added: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kube) struct NodeStatusView {
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) capacity: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) allocatable: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) conditions: Vec<ConditionView>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) node_info: NodeInfoView,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) addresses: Vec<AddressView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct AddressView {
    #[serde(rename = "type")]
    pub(in crate::kube) kind: String,
    pub(in crate::kube) address: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct NodeInfoView {
    #[serde(rename = "systemUUID")]
    pub(in crate::kube) system_uuid: Option<String>,
}
