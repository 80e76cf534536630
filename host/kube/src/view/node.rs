//! Nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ClusterResourceScope;
use serde::{Deserialize, Serialize};

use super::pod::ConditionView;
use super::{node_meta, or_default, view_of};
use crate::crd::Amount;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeView {
    #[serde(deserialize_with = "node_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: NodeSpecView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) status: NodeStatusView,
}

view_of!(NodeView, ClusterResourceScope, "", "v1", "Node", "nodes");

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSpecView {
    pub(crate) unschedulable: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) taints: Vec<TaintView>,
    #[serde(rename = "providerID")]
    pub(crate) provider_id: Option<String>,
}

/// Whole, because lists of taints are written back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TaintView {
    pub(crate) key: String,
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "or_default"
    )]
    pub(crate) value: String,
    pub(crate) effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_added: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeStatusView {
    #[serde(deserialize_with = "or_default")]
    pub(crate) capacity: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) allocatable: BTreeMap<String, Amount>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) conditions: Vec<ConditionView>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) node_info: NodeInfoView,
    #[serde(deserialize_with = "or_default")]
    pub(crate) addresses: Vec<AddressView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AddressView {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) address: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeInfoView {
    #[serde(rename = "systemUUID")]
    pub(crate) system_uuid: Option<String>,
}
