//! Facts that are no fields of `wit/policy.wit`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// With this begins the key of each attribute that Proxmox gives; an operator's never does.
pub const PROXMOX_SAYS: &str = "pve.";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attribute {
    /// A key stands once in a list.
    pub key: Arc<str>,
    pub value: AttributeValue,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttributeValue {
    Text(Arc<str>),
    Integer(i64),
    Number(f64),
    Boolean(bool),
}
